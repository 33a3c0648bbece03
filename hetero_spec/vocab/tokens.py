# SPDX-License-Identifier: Apache-2.0
"""Reads the vocabulary of any tokenizer, object or file, as raw bytes.

What counts is what an id adds to the text: GPT-2's byte alphabet is decoded, SentencePiece's U+2581 is a space wherever
it stands, ``<0xNN>`` is a byte where the tokenizer has byte fallback, tiktoken's ranks are bytes already. The style
comes from the tokenizer's decoder or the pieces' types, never from the look of a token.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hetero_spec.vocab.byte_alphabet import decode_byte_level, literal_bytes
from hetero_spec.vocab.byte_ranks import (
    vocabulary_from_encoding,
    vocabulary_from_ranks,
    vocabulary_from_tekken,
    vocabulary_from_tiktoken_data,
)
from hetero_spec.vocab.sentencepiece_model import (
    BYTE,
    NORMAL,
    USER_DEFINED,
    parse_model,
    piece_bytes,
    vocabulary_from_pieces,
)
from hetero_spec.vocab.tokenizer_json import vocabulary_from_definition
from hetero_spec.vocab.vocabulary import ROLES, Vocabulary, make_vocabulary

__all__ = ["VOCABULARY_FILES", "Vocabulary", "make_vocabulary", "read_vocabulary"]

VOCABULARY_FILES = ("tokenizer.json", "tokenizer.model", "tekken.json")
"""File names looked for in a folder, in this order."""

_TIKTOKEN_LINE = re.compile(rb"[A-Za-z0-9+/]+={0,2} +\d+\r?$")


def read_vocabulary(tokenizer_or_path: Any, *, roles: Mapping[str, int | None] | None = None) -> Vocabulary:
    """Read a vocabulary as raw bytes.

    Parameters
    ----------
    tokenizer_or_path : Vocabulary, tokenizer or path
        A transformers tokenizer (fast; slow ones of SentencePiece, byte-level or tiktoken kind), a
        `tokenizers.Tokenizer`, an object whose `backend` is one, a `sentencepiece.SentencePieceProcessor`, a
        `tiktoken.Encoding`; or the path of a tokenizer.json, SentencePiece .model, .tiktoken, tekken json or GGUF file,
        or of a folder with one of `VOCABULARY_FILES`. Files are told apart by content.
    roles : mapping of str to int or None, optional
        "eos", "bos", "pad", "unk" to id, in place of what the source says.

    Returns
    -------
    Vocabulary
        Everything special, control, unused or made up to fill the model's head is without bytes.

    Raises
    ------
    FileNotFoundError   no such path
    TypeError           an object of unknown kind
    ValueError          a file of unknown kind, damaged, or with tokens that have no bytes (WordPiece)
    """
    source = tokenizer_or_path
    if isinstance(source, Vocabulary):
        vocabulary = source
    elif isinstance(source, (str, os.PathLike)):
        vocabulary = _read_path(Path(source))
    else:
        vocabulary = _read_object(source)
    if not roles:
        return vocabulary
    return make_vocabulary(
        vocabulary.tokens,
        kind=vocabulary.kind,
        specials=vocabulary.specials,
        roles={**vocabulary.roles, **roles},
        byte_fallback_ids=vocabulary.byte_fallback_ids,
        encoder=vocabulary.encoder,
        encoder_note=vocabulary.encoder_note,
    )


# -- objects -----------------------------------------------------------------------------------------------------------


def _read_object(tokenizer: Any) -> Vocabulary:
    backend = getattr(tokenizer, "backend_tokenizer", None) or getattr(tokenizer, "backend", None)
    if hasattr(backend, "to_str"):
        return _read_fast(backend, tokenizer)
    if hasattr(tokenizer, "to_str") and hasattr(tokenizer, "get_vocab_size"):
        return _read_fast(tokenizer, None)
    if hasattr(tokenizer, "serialized_model_proto"):
        table = parse_model(tokenizer.serialized_model_proto())
        return vocabulary_from_pieces(table, encoder=lambda text: list(tokenizer.encode(text)))
    if hasattr(tokenizer, "_mergeable_ranks"):
        return vocabulary_from_encoding(tokenizer)
    if hasattr(tokenizer, "convert_ids_to_tokens"):
        return _read_slow(tokenizer)
    raise TypeError(
        "read_vocabulary: tokenizer must be of transformers, tokenizers, sentencepiece or tiktoken, or a path, "
        f"got {type(tokenizer).__name__}"
    )


def _roles_of(tokenizer: Any) -> dict[str, int | str | None]:
    """Roles from the attributes `eos_token_id` ... that transformers' tokenizers have, as far as they are there."""
    roles: dict[str, int | str | None] = {}
    for role in ROLES:
        token_id = getattr(tokenizer, f"{role}_token_id", None)
        if isinstance(token_id, int):
            roles[role] = token_id
    if "eos" not in roles:
        for token_id in getattr(tokenizer, "eos_token_ids", None) or ():
            roles.setdefault("eos", int(token_id))
    return roles


def _read_fast(backend: Any, owner: Any) -> Vocabulary:
    return vocabulary_from_definition(
        json.loads(backend.to_str()),
        roles=_roles_of(owner) if owner is not None else None,
        encoder=lambda text: list(backend.encode(text, add_special_tokens=False).ids),
    )


def _read_slow(tokenizer: Any) -> Vocabulary:
    """Read a transformers tokenizer written in Python; its ids may be shifted against those of its files."""
    ranks = getattr(tokenizer, "mergeable_ranks", None)
    roles = {role: value for role, value in _roles_of(tokenizer).items() if isinstance(value, int)}

    def encode(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False))

    if isinstance(ranks, dict) and ranks and all(isinstance(key, bytes) for key in ranks):
        return vocabulary_from_ranks(ranks, getattr(tokenizer, "special_tokens", None), roles=roles, encoder=encode)

    added = {int(token_id): token for token_id, token in getattr(tokenizer, "added_tokens_decoder", {}).items()}
    piece_types: dict[str, int] = {}
    escapes_spaces = byte_level = False
    if hasattr(tokenizer, "sp_model"):
        table = parse_model(tokenizer.sp_model.serialized_model_proto())
        piece_types = dict(zip(table.pieces, table.types, strict=True))
        escapes_spaces, kind = table.escapes_spaces, f"SentencePiece {table.model_name}"
    elif hasattr(tokenizer, "byte_decoder"):
        byte_level, kind = True, "byte-level BPE"
    else:
        raise TypeError(
            "read_vocabulary: a tokenizer without a fast backend must be SentencePiece, byte-level or tiktoken, "
            f"got {type(tokenizer).__name__}"
        )

    tokens: list[bytes | None] = []
    specials: dict[str, int] = {}
    fallback: list[int] = []
    for token_id in range(len(tokenizer)):
        text = tokenizer.convert_ids_to_tokens(token_id)
        if token_id in added:
            is_special = bool(added[token_id].special)
            piece_type = USER_DEFINED
        else:
            piece_type = NORMAL if byte_level else piece_types.get(text, 0)
            is_special = piece_type not in (NORMAL, USER_DEFINED, BYTE)
        if text is None or is_special:
            tokens.append(None)
            if text is not None:
                specials.setdefault(text, token_id)
        elif byte_level:
            tokens.append(decode_byte_level(text) if piece_type == NORMAL else literal_bytes(text))
        else:
            tokens.append(piece_bytes(text, piece_type, escapes_spaces))
            if piece_type == BYTE:
                fallback.append(token_id)
    return make_vocabulary(
        tokens, kind=kind, specials=specials, roles=roles, byte_fallback_ids=fallback, encoder=encode
    )


# -- files -------------------------------------------------------------------------------------------------------------


def _read_path(path: Path) -> Vocabulary:
    if path.is_dir():
        for name in VOCABULARY_FILES:
            if (path / name).is_file():
                return _read_path(path / name)
        raise FileNotFoundError(f"{path}: must hold one of {', '.join(VOCABULARY_FILES)}, got none of them")
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such vocabulary file")
    with path.open("rb") as file:
        head = file.read(4096)
    if head.startswith(b"GGUF"):
        from hetero_spec.vocab.gguf_vocabulary import read_gguf_vocabulary

        return read_gguf_vocabulary(path)
    if head.lstrip().startswith(b"{"):
        return _read_json(path)
    if _TIKTOKEN_LINE.match(head.split(b"\n", 1)[0]):
        return vocabulary_from_tiktoken_data(path.read_bytes(), str(path))
    if head.startswith(b"\x0a"):  # field 1, a message: the first piece of a SentencePiece model
        return _read_sentencepiece(path)
    raise ValueError(
        f"{path}: must be a tokenizer.json, SentencePiece .model, .tiktoken, tekken json or GGUF file, got "
        f"{'an empty file' if not head else f'bytes {head[:8]!r}'}"
    )


def _read_json(path: Path) -> Vocabulary:
    data = path.read_bytes()
    try:
        definition = json.loads(data)
    except ValueError as error:
        raise ValueError(f"{path}: must be complete JSON ({error})") from None
    if isinstance(definition.get("model"), dict) and "vocab" in definition["model"]:
        return vocabulary_from_definition(
            definition, roles=_configured_roles(path.parent), encoder=_LazyTokenizer(data)
        )
    if isinstance(definition.get("vocab"), list) and "default_num_special_tokens" in definition.get("config", {}):
        return vocabulary_from_tekken(definition)
    raise ValueError(f"{path}: must be a tokenizer.json or a tekken json, got JSON with {sorted(definition)[:6]}")


def _configured_roles(folder: Path) -> dict[str, int | str | None]:
    """Roles from the configuration files that transformers keeps beside a tokenizer.json."""
    roles: dict[str, int | str | None] = {}
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        try:
            config = json.loads((folder / name).read_bytes())
        except (OSError, ValueError):
            continue
        for role in ROLES:
            token = config.get(f"{role}_token")
            text = token.get("content") if isinstance(token, dict) else token
            if isinstance(text, str):
                roles.setdefault(role, text)
    return roles


class _LazyTokenizer:
    """Encodes with the `tokenizers` library, which needs seconds to build: only when text is to be counted."""

    def __init__(self, definition: bytes) -> None:
        self._definition = definition
        self._tokenizer: Any = None

    def __call__(self, text: str) -> list[int]:
        if self._tokenizer is None:
            from tokenizers import Tokenizer

            self._tokenizer = Tokenizer.from_buffer(self._definition)
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)


def _read_sentencepiece(path: Path) -> Vocabulary:
    data = path.read_bytes()
    built: list[Any] = []

    def encode(text: str) -> list[int]:
        if not built:
            from sentencepiece import SentencePieceProcessor

            built.append(SentencePieceProcessor(model_proto=data))
        return list(built[0].encode(text))

    return vocabulary_from_pieces(parse_model(data, str(path)), encoder=encode)
