# SPDX-License-Identifier: Apache-2.0
"""The ways in which tokenizers write raw bytes as printable text.

Byte-level BPE shows every byte as one printable character: the 188 bytes that are printable in Latin-1 stand for
themselves, the other 68 are numbered upwards from U+0100 in byte order. SentencePiece with byte fallback writes a
byte that no piece covers as ``<0xNN>``.

Source
------
GPT-2 (Radford et al. 2019), the table of its published encoder; SentencePiece, ``byte_fallback``.
"""

from __future__ import annotations

import re

SPACE_MARKER = "\u2581"
"""The character that SentencePiece writes for a space."""

_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _character_of_byte() -> dict[int, str]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {byte: chr(byte) for byte in printable}
    hidden = [byte for byte in range(256) if byte not in table]
    table.update({byte: chr(0x100 + number) for number, byte in enumerate(hidden)})
    return table


CHARACTER_OF_BYTE = _character_of_byte()
BYTE_OF_CHARACTER = {character: byte for byte, character in CHARACTER_OF_BYTE.items()}


def decode_byte_level(token: str) -> bytes:
    """Return the bytes of a byte-level token; a token with a character outside the alphabet is literal text."""
    try:
        return bytes([BYTE_OF_CHARACTER[character] for character in token])
    except KeyError:
        return literal_bytes(token)


def encode_byte_level(data: bytes) -> str:
    """Write bytes in the byte-level alphabet."""
    return "".join(CHARACTER_OF_BYTE[byte] for byte in data)


def byte_of_fallback_piece(token: str) -> int | None:
    """Return the byte that ``<0xNN>`` stands for, or None when `token` isn't of that form."""
    match = _BYTE_PIECE.fullmatch(token)
    return int(match.group(1), 16) if match else None


def literal_bytes(text: str) -> bytes:
    """Encode as UTF-8. Broken files hold lone surrogates; they get bytes that no real text has, instead of an error."""
    return text.encode("utf-8", "surrogatepass")
