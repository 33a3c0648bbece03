# SPDX-License-Identifier: Apache-2.0
"""Vocabularies in the `tokenizer.json` form of the `tokenizers` library.

The style is read off the decoder, which is the tokenizer's own statement of how tokens become text; a file without a
decoder is judged by the steps that make the tokens (normalizer, pre-tokenizer). Single tokens are never looked at:
a token that happens to begin with the marker, or is spelt ``<0x20>``, proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hetero_spec.vocab.byte_alphabet import SPACE_MARKER, byte_of_fallback_piece, decode_byte_level, literal_bytes
from hetero_spec.vocab.vocabulary import Vocabulary, make_vocabulary

# Names that a special token must have, to the letter, to be given a role when no configuration gives it one.
_CONVENTIONAL_ROLES = {
    "eos": ("</s>", "<eos>", "<|endoftext|>", "<|end_of_text|>", "[EOS]"),
    "bos": ("<s>", "<bos>", "<|begin_of_text|>", "[BOS]"),
    "pad": ("<pad>", "[PAD]"),
    "unk": ("<unk>", "[UNK]"),
}


@dataclass(frozen=True)
class TokenStyle:
    """How the text of a token stands for bytes."""

    byte_level: bool = False
    space_marker: str | None = None
    byte_fallback: bool = False

    def read(self, token: str) -> tuple[bytes, bool]:
        """Return the bytes of a token, and whether it is a byte fallback piece."""
        if self.byte_level:
            return decode_byte_level(token), False
        if self.byte_fallback:
            byte = byte_of_fallback_piece(token)
            if byte is not None:
                return bytes([byte]), True
        return literal_bytes(self.with_spaces(token)), False

    def with_spaces(self, token: str) -> str:
        """Write spaces for every marker, wherever it stands."""
        return token.replace(self.space_marker, " ") if self.space_marker else token


def _steps(component: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    """Yield a component's steps, those of nested sequences too."""
    if component is None:
        return
    if component["type"] == "Sequence":
        for key in ("decoders", "normalizers", "pretokenizers"):
            for step in component.get(key, ()):
                yield from _steps(step)
    else:
        yield component


def _replaced(step: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return (what, by what) of a Replace step; (None, None) for any other, and for one by regular expression."""
    if step["type"] != "Replace":
        return None, None
    return step["pattern"].get("String"), step.get("content")


def find_style(definition: Mapping[str, Any]) -> TokenStyle:
    """Find out how the tokens of a tokenizer.json stand for bytes.

    Raises
    ------
    ValueError   WordPiece and other vocabularies whose tokens don't say where the spaces are
    """
    model = definition["model"]
    kind = model.get("type") or ("Unigram" if isinstance(model["vocab"], list) else "BPE")
    if kind == "WordPiece" or model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
        raise ValueError(
            "tokenizer.json: model must be BPE, Unigram or WordLevel without word prefixes and suffixes, "
            f"got {kind}: its tokens don't carry their spaces, so they have no bytes to compare"
        )
    decoder = list(_steps(definition.get("decoder")))
    makers = [*_steps(definition.get("normalizer")), *_steps(definition.get("pre_tokenizer"))]

    marker: str | None = None
    for step in decoder:
        what, by_what = _replaced(step)
        if step["type"] == "Metaspace":
            marker = step.get("replacement", SPACE_MARKER)
        elif by_what == " ":
            marker = what
    byte_level = any(step["type"] == "ByteLevel" for step in decoder)
    if marker is None and not byte_level:
        byte_level = any(step["type"] == "ByteLevel" for step in makers)
        for step in makers:
            what, by_what = _replaced(step)
            if step["type"] == "Metaspace":
                marker = step.get("replacement", SPACE_MARKER)
            elif what == " ":
                marker = by_what
    byte_fallback = bool(model.get("byte_fallback")) or any(step["type"] == "ByteFallback" for step in decoder)
    return TokenStyle(byte_level=byte_level, space_marker=marker, byte_fallback=byte_fallback)


def vocabulary_from_definition(
    definition: Mapping[str, Any],
    *,
    roles: Mapping[str, int | str | None] | None = None,
    encoder: Callable[[str], Sequence[int]] | None = None,
) -> Vocabulary:
    """Read the parsed content of a tokenizer.json.

    Parameters
    ----------
    definition : mapping
        The whole file.
    roles : mapping of str to int, str or None
        Ids or texts of "eos", "bos", "pad", "unk", from whoever knows them; the rest is taken from the file, or from a
        special token with one of the usual names.
    """
    style = find_style(definition)
    model = definition["model"]
    vocab = model["vocab"]
    pairs: Iterable[tuple[str, int]]
    pairs = vocab.items() if isinstance(vocab, dict) else ((item[0], index) for index, item in enumerate(vocab))
    texts: dict[int, str] = {}
    tokens: dict[int, bytes | None] = {}
    fallback: set[int] = set()
    for text, token_id in pairs:
        texts[token_id] = text
        tokens[token_id], is_fallback = style.read(text)
        if is_fallback:
            fallback.add(token_id)

    specials: dict[str, int] = {}
    for added in definition.get("added_tokens", ()):
        token_id, text = added["id"], added["content"]
        texts[token_id] = text
        fallback.discard(token_id)
        if added.get("special"):
            tokens[token_id] = None
            specials.setdefault(text, token_id)
        else:
            # Found in the text as it stands, before any byte is spelt: its bytes are those of its text.
            tokens[token_id] = literal_bytes(style.with_spaces(text))

    id_of_text = {text: token_id for token_id, text in texts.items()}
    own_roles: dict[str, int] = {}
    unknown = model.get("unk_token")
    unknown_id = model.get("unk_id")
    if unknown in id_of_text:
        own_roles["unk"] = id_of_text[unknown]
    elif isinstance(unknown_id, int):
        own_roles["unk"] = unknown_id
    for role, value in (roles or {}).items():
        token_id = id_of_text.get(value) if isinstance(value, str) else value
        if token_id is not None and token_id in texts:
            own_roles[role] = token_id
    for role, names in _CONVENTIONAL_ROLES.items():
        for name in names:
            if role not in own_roles and name in specials:
                own_roles[role] = specials[name]
    for role in ("eos", "bos", "unk"):
        if role in own_roles:
            specials.setdefault(texts[own_roles[role]], own_roles[role])

    size = max(texts, default=-1) + 1
    name = model.get("type") or ("Unigram" if isinstance(vocab, list) else "BPE")
    if style.byte_level:
        name = f"byte-level {name}"
    elif style.space_marker is not None:
        name = f"SentencePiece-style {name}" + (" with byte fallback" if fallback else "")
    return make_vocabulary(
        (tokens.get(token_id) for token_id in range(size)),
        kind=name,
        specials=specials,
        roles=own_roles,
        byte_fallback_ids=fallback,
        encoder=encoder,
    )
