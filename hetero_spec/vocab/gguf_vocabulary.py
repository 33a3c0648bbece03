# SPDX-License-Identifier: Apache-2.0
"""Vocabularies inside GGUF files: only the header is read, so the first part of a file in parts is enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hetero_spec.models.gguf_reader import GGUFFile
from hetero_spec.vocab.byte_alphabet import decode_byte_level, literal_bytes
from hetero_spec.vocab.sentencepiece_model import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED, piece_bytes
from hetero_spec.vocab.vocabulary import Vocabulary, make_vocabulary

_ROLE_KEYS = {
    "eos": "tokenizer.ggml.eos_token_id",
    "bos": "tokenizer.ggml.bos_token_id",
    "pad": "tokenizer.ggml.padding_token_id",
    "unk": "tokenizer.ggml.unknown_token_id",
}
# tokenizer.ggml.model: what llama.cpp calls the style.
_BYTE_LEVEL = {"gpt2": "byte-level BPE"}
_SENTENCEPIECE = {"llama": "SentencePiece-style BPE", "gemma4": "SentencePiece-style BPE", "t5": "Unigram"}


def read_gguf_vocabulary(path: Path) -> Vocabulary:
    """Read the vocabulary of a GGUF file.

    Raises
    ------
    ValueError   not a GGUF file, cut short, or a style whose tokens have no bytes (WordPiece) or isn't known
    """
    with GGUFFile(path, header_only=True) as file:
        metadata = file.metadata
        style = metadata.get("tokenizer.ggml.model")
        if style not in _BYTE_LEVEL and style not in _SENTENCEPIECE:
            known = ", ".join([*_BYTE_LEVEL, *_SENTENCEPIECE])
            raise ValueError(f"{path}: tokenizer.ggml.model must be one of {known}, got {style!r}")
        raw = file.strings("tokenizer.ggml.tokens")
        types = metadata.get("tokenizer.ggml.token_type")
        kinds = [NORMAL] * len(raw) if types is None else [int(kind) for kind in types]
        if len(kinds) != len(raw):
            raise ValueError(f"{path}: token_type must have {len(raw)} entries, got {len(kinds)}")
        byte_level = style in _BYTE_LEVEL
        tokens: list[bytes | None] = []
        specials: dict[str, int] = {}
        for token_id, (data, kind) in enumerate(zip(raw, kinds, strict=True)):
            text = data.decode("utf-8", "surrogateescape")
            tokens.append(None if _is_padding(text, token_id) else _token_bytes(text, kind, byte_level))
            if kind in (UNKNOWN, CONTROL):
                specials.setdefault(text, token_id)
        fallback = [] if byte_level else [token_id for token_id, kind in enumerate(kinds) if kind == BYTE]
        name = _BYTE_LEVEL.get(style) or _SENTENCEPIECE[style]
        return make_vocabulary(
            tokens,
            kind=name + (" with byte fallback" if fallback else "") + " (GGUF)",
            specials=specials,
            roles={role: _role_id(metadata.get(key), len(raw)) for role, key in _ROLE_KEYS.items()},
            byte_fallback_ids=fallback,
            encoder=_lazy_encoder(path),
        )


def _is_padding(text: str, token_id: int) -> bool:
    """Whether a converter made the token up to fill the model's head: it is then called [PADi], i its own id.

    Older converters type such tokens as user-defined, which is ordinary text, so the type doesn't tell.
    """
    return text == f"[PAD{token_id}]"


def _token_bytes(text: str, kind: int, byte_level: bool) -> bytes | None:
    if not byte_level:
        return piece_bytes(text, kind)
    if kind == NORMAL:
        return decode_byte_level(text)
    # A user-defined token is found in the text as it stands.
    return literal_bytes(text) if kind == USER_DEFINED else None


def _role_id(value: Any, size: int) -> int | None:
    # Converters write 2**32 - 1 for "none".
    return int(value) if value is not None and 0 <= int(value) < size else None


def _lazy_encoder(path: Path) -> Callable[[str], Sequence[int]]:
    """Encode with the tokenizer that the file describes, built (seconds) at the first call."""
    built: list[Any] = []

    def encode(text: str) -> Sequence[int]:
        if not built:
            from hetero_spec.models.gguf_tokenizer import build_tokenizer

            with GGUFFile(path, header_only=True) as file:
                built.append(build_tokenizer(file))
        return list(built[0].encode(text, add_special_tokens=False).ids)

    return encode
