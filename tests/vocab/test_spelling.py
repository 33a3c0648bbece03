# SPDX-License-Identifier: Apache-2.0
import random
from itertools import product

import pytest

from hetero_spec.vocab.spelling import Speller


def _speller(*tokens: bytes) -> Speller:
    return Speller({token: token_id for token_id, token in enumerate(tokens)})


def test_fewest_tokens_beat_the_longest_first_match():
    assert _speller(b"ab", b"a", b"bcd", b"c", b"d").spell(b"abcd") == (1, 2)


def test_longest_first_token_wins_among_equally_short_spellings():
    assert _speller(b"a", b"ab", b"bcd", b"cd").spell(b"abcd") == (1, 3)


def test_spelling_is_found_where_longest_match_gets_stuck():
    # "ab" leaves "c", which has no token.
    assert _speller(b"ab", b"a", b"bc").spell(b"abc") == (1, 2)


@pytest.mark.parametrize("data", [b"b", b"ab", b"ba", b"aba"])
def test_data_with_a_missing_byte_cannot_be_spelt(data):
    speller = _speller(b"a", b"aa")
    assert speller.spell(data) is None
    assert not speller.can_spell(data)


def test_missing_byte_inside_a_longer_token_can_be_spelt():
    speller = _speller(b"a", b"xb")
    assert speller.missing_bytes == [byte for byte in range(256) if byte != ord("a")]
    assert speller.can_spell(b"axba")
    assert speller.spell(b"axba") == (0, 1, 0)


@pytest.mark.parametrize("seed", range(20))
def test_spelling_joins_to_the_same_bytes_in_the_fewest_tokens(seed):
    rng = random.Random(seed)
    tokens = sorted({bytes(rng.choices(b"abc", k=rng.randint(1, 4))) for _ in range(rng.randint(1, 8))})
    speller = _speller(*tokens)
    for data in map(bytes, product(b"abc", repeat=6)):
        spelling = speller.spell(data)
        fewest = _fewest(data, tokens)
        assert (spelling is None) == (fewest is None)
        assert speller.can_spell(data) == (fewest is not None)
        if spelling is not None:
            assert b"".join(tokens[token_id] for token_id in spelling) == data
            assert len(spelling) == fewest


def _fewest(data: bytes, tokens: list[bytes]) -> int | None:
    """The same by breadth: which positions can be reached with one token more."""
    reached, count = {0}, 0
    while len(data) not in reached:
        following = {start + len(token) for start in reached for token in tokens if data.startswith(token, start)}
        if following <= reached or count > len(data):
            return None
        reached, count = reached | following, count + 1
    return count
