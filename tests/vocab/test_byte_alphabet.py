# SPDX-License-Identifier: Apache-2.0
import pytest
from tokenizers import pre_tokenizers

from hetero_spec.vocab.byte_alphabet import (
    BYTE_OF_CHARACTER,
    CHARACTER_OF_BYTE,
    byte_of_fallback_piece,
    decode_byte_level,
    encode_byte_level,
)


def test_alphabet_is_the_one_of_the_tokenizers_library():
    assert set(BYTE_OF_CHARACTER) == set(pre_tokenizers.ByteLevel.alphabet())
    # The library shows its order only through encoding, so compare on text that holds every byte that UTF-8 can hold.
    text = "".join(map(chr, [*range(0x250), 0x4E00, 0xFFFD, 0x1F600, 0x10FFFF]))
    shown = "".join(piece for piece, _ in pre_tokenizers.ByteLevel(False, use_regex=False).pre_tokenize_str(text))
    assert encode_byte_level(text.encode()) == shown
    assert decode_byte_level(shown) == text.encode()


def test_every_byte_round_trips():
    assert len(CHARACTER_OF_BYTE) == len(BYTE_OF_CHARACTER) == 256
    assert decode_byte_level(encode_byte_level(bytes(range(256)))) == bytes(range(256))


def test_space_and_newline_have_their_published_characters():
    assert (CHARACTER_OF_BYTE[0x20], CHARACTER_OF_BYTE[0x0A], CHARACTER_OF_BYTE[0xC3]) == ("Ġ", "Ċ", "Ã")


def test_token_outside_the_alphabet_is_literal():
    assert decode_byte_level("<｜x▁y｜>") == "<｜x▁y｜>".encode()


@pytest.mark.parametrize(
    ("piece", "byte"),
    [("<0x00>", 0), ("<0x0A>", 10), ("<0xff>", 255), ("<0x0>", None), ("<0x100>", None), ("x<0x0A>", None), ("", None)],
)
def test_fallback_piece_names_its_byte(piece, byte):
    assert byte_of_fallback_piece(piece) == byte
