# SPDX-License-Identifier: Apache-2.0
"""Spelling a byte string with the fewest tokens of another vocabulary."""

from __future__ import annotations

from collections.abc import Mapping


class Speller:
    """Writes byte strings as sequences of the tokens of one vocabulary.

    Parameters
    ----------
    id_of_bytes : mapping of bytes to int
        The tokens that may be used, none of them empty.
    """

    def __init__(self, id_of_bytes: Mapping[bytes, int]) -> None:
        self._id_of_bytes = id_of_bytes
        self._lengths = sorted({len(token) for token in id_of_bytes}, reverse=True)
        self._single_bytes = frozenset(token[0] for token in id_of_bytes if len(token) == 1)

    @property
    def missing_bytes(self) -> list[int]:
        """The bytes that have no token of their own; text that holds one may be impossible to write."""
        return [byte for byte in range(256) if byte not in self._single_bytes]

    def can_spell(self, data: bytes) -> bool:
        """Whether `data` can be written at all."""
        # Single bytes spell anything made of them; the search is only for data that holds a missing byte.
        return self._single_bytes.issuperset(data) or self.spell(data) is not None

    def spell(self, data: bytes) -> tuple[int, ...] | None:
        """Fewest tokens whose bytes join to `data`; None when there is no way. Of several ways, longest token first.

        Dynamic programming from the end of `data`: `cost[start]` is the least number of tokens for `data[start:]`.
        Greedy longest match would be shorter code, but it misses spellings when a byte has no token, and it isn't
        the fewest: with tokens ab, a, bcd, c, d it writes abcd in three instead of two.
        """
        size = len(data)
        unreachable = size + 1
        cost = [unreachable] * size + [0]
        first_length = [0] * size
        find = self._id_of_bytes.get
        lengths = [length for length in self._lengths if length <= size]
        for start in range(size - 1, -1, -1):
            best = unreachable
            for length in lengths:
                stop = start + length
                # Strictly better only: lengths fall, so the longest of equally good first tokens stays.
                if stop <= size and cost[stop] + 1 < best and find(data[start:stop]) is not None:
                    best = cost[stop] + 1
                    first_length[start] = length
            cost[start] = best
        if cost[0] >= unreachable:
            return None
        spelling: list[int] = []
        start = 0
        while start < size:
            stop = start + first_length[start]
            spelling.append(self._id_of_bytes[data[start:stop]])
            start = stop
        return tuple(spelling)
