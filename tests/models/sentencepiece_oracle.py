# SPDX-License-Identifier: Apache-2.0
"""The `sentencepiece` library itself, run on the vocabulary of a GGUF file: what our tokenizers must agree with."""

import struct

import sentencepiece

from hetero_spec.models.gguf_reader import GGUFFile

UNKNOWN, USER_DEFINED = 2, 4


def _field(number: int, value: int | float | bytes) -> bytes:
    """One field of a protobuf message: an integer, a float32 or bytes."""
    if isinstance(value, bytes):
        return _varint(number << 3 | 2) + _varint(len(value)) + value
    if isinstance(value, float):
        return _varint(number << 3 | 5) + struct.pack("<f", value)
    return _varint(number << 3) + _varint(value)


def _varint(value: int) -> bytes:
    result = bytearray()
    while value >= 128:
        result.append(value & 127 | 128)
        value >>= 7
    return bytes([*result, value])


def sentencepiece_from_gguf(file: GGUFFile) -> sentencepiece.SentencePieceProcessor:
    """Return a BPE model with byte fallback, without dummy prefix or normalisation."""
    tokens = file.strings("tokenizer.ggml.tokens")
    kinds, scores = file.metadata["tokenizer.ggml.token_type"], file.metadata["tokenizer.ggml.scores"]
    roles = {role: int(file.metadata[f"tokenizer.ggml.{role}_token_id"]) for role in ("unknown", "bos", "eos")}
    model = bytearray()
    for token_id, (token, kind, score) in enumerate(zip(tokens, kinds.tolist(), scores.tolist(), strict=True)):
        if token_id == roles["unknown"]:
            kind = UNKNOWN
        if kind == USER_DEFINED:  # written with plain spaces in GGUF, with marks in SentencePiece
            token = token.replace(b" ", "\u2581".encode())
        model += _field(1, _field(1, token) + _field(2, float(score)) + _field(3, kind))
    trainer = _field(3, 2) + _field(4, len(tokens)) + _field(35, 1)
    trainer += _field(40, roles["unknown"]) + _field(41, roles["bos"]) + _field(42, roles["eos"])
    model += _field(2, trainer)
    model += _field(3, _field(1, b"identity") + _field(3, 0) + _field(4, 0) + _field(5, 1))
    return sentencepiece.SentencePieceProcessor(model_proto=bytes(model))
