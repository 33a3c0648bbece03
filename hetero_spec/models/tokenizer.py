# SPDX-License-Identifier: Apache-2.0
"""The one face that every tokenizer shows to the rest of the package."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetero_spec.models.registry import ModelError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Message = Mapping[str, str]


class TextTokenizer:
    """A `tokenizers.Tokenizer` and what a model's folder says about its special tokens.

    Attributes
    ----------
    backend : tokenizers.Tokenizer
    bos_token_id : int or None
    eos_token_ids : tuple of int
        All ids that end a text; may be empty.
    chat_template : str or None
        Jinja text, as in transformers.
    """

    def __init__(
        self,
        backend: Tokenizer,
        *,
        bos_token_id: int | None = None,
        eos_token_ids: Sequence[int] = (),
        chat_template: str | None = None,
        special_tokens: Mapping[str, str] | None = None,
    ) -> None:
        self.backend = backend
        self.bos_token_id = bos_token_id
        self.eos_token_ids = tuple(eos_token_ids)
        self.chat_template = chat_template
        self._special_tokens = dict(special_tokens or {})

    @classmethod
    def from_folder(cls, folder: Path) -> TextTokenizer:
        """Read tokenizer.json, and what config.json, generation_config.json and tokenizer_config.json say about it."""
        from tokenizers import Tokenizer

        path = folder / "tokenizer.json"
        try:
            backend = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises a bare Exception
            raise ModelError(f"{path}: cannot be read: {error}") from error
        backend.no_padding()
        backend.no_truncation()
        settings = read_json(folder / "tokenizer_config.json")
        config = read_json(folder / "config.json")
        # generation_config.json lists every token that ends an answer, where config.json may know but one.
        generation = read_json(folder / "generation_config.json")

        texts = {role: _token_text(settings.get(f"{role}_token")) for role in ("bos", "eos", "unk", "pad")}
        bos_token_id = _first_id(config.get("bos_token_id"))
        if bos_token_id is None and texts["bos"] is not None:
            bos_token_id = backend.token_to_id(texts["bos"])
        eos_token_ids = _all_ids(generation.get("eos_token_id")) or _all_ids(config.get("eos_token_id"))
        if not eos_token_ids and texts["eos"] is not None:
            eos_token_ids = _all_ids(backend.token_to_id(texts["eos"]))

        template = settings.get("chat_template")
        template_path = folder / "chat_template.jinja"
        if template_path.is_file():
            template = template_path.read_text(encoding="utf-8")
        return cls(
            backend,
            bos_token_id=bos_token_id,
            eos_token_ids=eos_token_ids,
            chat_template=template if isinstance(template, str) else None,
            special_tokens={f"{role}_token": text for role, text in texts.items() if text is not None},
        )

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Return the ids of `text`; with `add_special_tokens`, what the tokenizer puts around a text (often BOS) too.

        Special tokens that are spelt out in `text` become their ids in both cases.
        """
        ids: list[int] = self.backend.encode(text, add_special_tokens=add_special_tokens).ids
        return ids

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Return the text of `ids`; bytes that are not UTF-8 become U+FFFD."""
        text: str = self.backend.decode(list(ids), skip_special_tokens=skip_special_tokens)
        return text

    def apply_chat_template(self, messages: Sequence[Message]) -> str | None:
        """Return the text that asks for the assistant's next turn, None where the model has no chat template.

        Parameters
        ----------
        messages : sequence of {"role": ..., "content": ...}
            Roles "system", "user" and "assistant". The template adds its own system message where it has one.

        Notes
        -----
        The text may hold special tokens spelt out, BOS among them: encode it with `add_special_tokens=False`.
        """
        if self.chat_template is None:
            return None
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        def refuse(message: str) -> None:
            raise ModelError(f"chat template: {message}")

        # The settings of transformers, which templates are written for.
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = refuse
        environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
        try:
            return environment.from_string(self.chat_template).render(
                messages=[dict(message) for message in messages], add_generation_prompt=True, **self._special_tokens
            )
        except TemplateError as error:
            raise ModelError(f"chat template: cannot be rendered: {error}") from error


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file, empty where there is no such file."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path}: must hold an object, got {type(value).__name__}")
    return value


def _token_text(value: Any) -> str | None:
    """Return the text of a token that is written as a string or as an object with `content`."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _all_ids(value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    return tuple(int(token_id) for token_id in (value if isinstance(value, list) else [value]))


def _first_id(value: Any) -> int | None:
    ids = _all_ids(value)
    return ids[0] if ids else None
