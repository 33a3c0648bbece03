# SPDX-License-Identifier: Apache-2.0
from itertools import product

from hetero_spec.decoding.byte_trie import ByteTrie

TRIE = ByteTrie([b"a", None, b"ab", b"b", b"abc", b"b", b"", b"bc", b"c", b"b\xff"])


def test_ids_of_bytes_are_all_of_them_in_order() -> None:
    assert list(TRIE.ids(b"b")) == [3, 5]
    assert list(TRIE.ids(b"")) == [] and list(TRIE.ids(b"x")) == []
    assert b"ab" in TRIE and b"" not in TRIE


def test_extensions_are_the_longer_tokens_within_the_bound() -> None:
    assert list(TRIE.extensions(b"a", 9)) == [b"ab", b"abc"]
    assert list(TRIE.extensions(b"a", 2)) == [b"ab"]
    assert list(TRIE.extensions(b"b", 9)) == [b"bc", b"b\xff"]
    assert list(TRIE.extensions(b"x", 9)) == []
    assert list(TRIE.extensions(b"", 1)) == [b"a", b"b", b"c"]


def test_segmentations_are_all_ways_to_write_the_bytes() -> None:
    pieces = [b"a", b"ab", b"b", b"abc", b"bc", b"c"]
    for data in (b"abc", b"abcab", b"aabbc"):
        for most in (1, 2, 3, 5):
            expected = {
                way for count in range(1, most + 1) for way in product(pieces, repeat=count) if b"".join(way) == data
            }
            found = list(TRIE.segmentations(data, most))
            assert len(found) == len(set(found)) and set(found) == expected


def test_segmentations_end_pieces_only_where_they_may() -> None:
    assert set(TRIE.segmentations(b"abc", 3, lambda start: start != b"a")) == {(b"abc",), (b"ab", b"c")}
    assert list(TRIE.segmentations(b"", 3)) == [] and list(TRIE.segmentations(b"abc", 0)) == []
