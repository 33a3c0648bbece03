# SPDX-License-Identifier: Apache-2.0
"""Vocabularies in SentencePiece's `.model` form, a protocol buffer, read without the sentencepiece package.

Only four things are wanted of the message: the pieces with their types, the ids of the special pieces, and whether
spaces are written as U+2581. Field numbers are those of sentencepiece_model.proto.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from hetero_spec.vocab.byte_alphabet import SPACE_MARKER, byte_of_fallback_piece, literal_bytes
from hetero_spec.vocab.vocabulary import Vocabulary, make_vocabulary

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""Types of pieces; GGUF files use the same numbers."""

# Fields of ModelProto, TrainerSpec and NormalizerSpec.
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_MODEL_TYPE, _ROLE_FIELDS = 3, {40: "unk", 41: "bos", 42: "eos", 43: "pad"}
_ESCAPE_WHITESPACES = 5
_MODEL_NAMES = {1: "Unigram", 2: "BPE", 3: "word", 4: "char"}


@dataclass(frozen=True)
class PieceTable:
    """Pieces of a SentencePiece model in id order.

    Attributes
    ----------
    pieces, types : list
        Text and type of each id.
    roles : dict of str to int
        The special pieces that the model has.
    model_name : str
        "Unigram", "BPE", "word" or "char".
    escapes_spaces : bool
        Whether U+2581 stands for a space.
    """

    pieces: list[str]
    types: list[int]
    roles: dict[str, int]
    model_name: str
    escapes_spaces: bool


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (field number, value) of a message: ints for varints, bytes for all else."""
    position, size = 0, len(data)
    while position < size:
        key, position = _varint(data, position)
        wire = key & 7
        if wire == 0:
            number, position = _varint(data, position)
            yield key >> 3, number
            continue
        if wire == 2:
            length, position = _varint(data, position)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if position + length > size:
            raise IndexError("a field runs past the end")
        yield key >> 3, data[position : position + length]
        position += length


def parse_model(data: bytes, what: str = "SentencePiece model") -> PieceTable:
    """Parse a serialised ModelProto.

    Raises
    ------
    ValueError   the data are not a complete SentencePiece model
    """
    pieces: list[str] = []
    types: list[int] = []
    # Defaults of the message: <unk> 0, <s> 1, </s> 2, no padding.
    roles = {"unk": 0, "bos": 1, "eos": 2, "pad": -1}
    model_type, escapes_spaces = 1, True
    try:
        for field_number, value in _fields(data):
            if not isinstance(value, bytes):
                continue
            if field_number == _PIECES:
                text, piece_type = "", NORMAL
                for inner, inner_value in _fields(value):
                    if inner == 1 and isinstance(inner_value, bytes):
                        text = inner_value.decode("utf-8")
                    elif inner == 3 and isinstance(inner_value, int):
                        piece_type = inner_value
                pieces.append(text)
                types.append(piece_type)
            elif field_number == _TRAINER:
                for inner, inner_value in _fields(value):
                    if isinstance(inner_value, int):
                        if inner in _ROLE_FIELDS:
                            # -1 means "no such piece"; it comes as 2**64 - 1 and fails the range check below.
                            roles[_ROLE_FIELDS[inner]] = inner_value
                        elif inner == _MODEL_TYPE:
                            model_type = inner_value
            elif field_number == _NORMALIZER:
                for inner, inner_value in _fields(value):
                    if inner == _ESCAPE_WHITESPACES:
                        escapes_spaces = bool(inner_value)
    except (IndexError, ValueError) as error:
        raise ValueError(f"{what}: must be a complete SentencePiece model ({error})") from None
    if not pieces:
        raise ValueError(f"{what}: must be a SentencePiece model, got no pieces")
    return PieceTable(
        pieces=pieces,
        types=types,
        roles={
            role: token_id
            for role, token_id in roles.items()
            if 0 <= token_id < len(pieces) and types[token_id] in (UNKNOWN, CONTROL, USER_DEFINED)
        },
        model_name=_MODEL_NAMES.get(model_type, "unknown"),
        escapes_spaces=escapes_spaces,
    )


def piece_bytes(piece: str, piece_type: int, escapes_spaces: bool = True) -> bytes | None:
    """Bytes that a piece adds to the text, None for pieces that add none."""
    if piece_type == BYTE:
        byte = byte_of_fallback_piece(piece)
        return None if byte is None else bytes([byte])
    if piece_type in (NORMAL, USER_DEFINED):
        return literal_bytes(piece.replace(SPACE_MARKER, " ") if escapes_spaces else piece)
    return None


def vocabulary_from_pieces(table: PieceTable, *, encoder: Callable[[str], Sequence[int]] | None = None) -> Vocabulary:
    """Reduce a piece table to bytes."""
    specials: dict[str, int] = {}
    for token_id, (piece, piece_type) in enumerate(zip(table.pieces, table.types, strict=True)):
        if piece_type in (UNKNOWN, CONTROL):
            specials.setdefault(piece, token_id)
    has_bytes = BYTE in table.types
    return make_vocabulary(
        (
            piece_bytes(piece, piece_type, table.escapes_spaces)
            for piece, piece_type in zip(table.pieces, table.types, strict=True)
        ),
        kind=f"SentencePiece {table.model_name}" + (" with byte fallback" if has_bytes else ""),
        specials=specials,
        roles=table.roles,
        byte_fallback_ids=[token_id for token_id, piece_type in enumerate(table.types) if piece_type == BYTE],
        encoder=encoder,
    )
