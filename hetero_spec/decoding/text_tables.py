# SPDX-License-Identifier: Apache-2.0
"""How a drafter's tokens are read as target tokens, one after another: what SLRS needs to know of two vocabularies."""

from __future__ import annotations

from functools import lru_cache

import torch

from hetero_spec.decoding.byte_trie import ByteTrie
from hetero_spec.decoding.text_bridge import TextBridge, utf8_split


class TextTables:
    """What the two vocabularies say about drafts by text, whatever the models.

    Parameters
    ----------
    bridge : TextBridge
    max_token_bytes : int
        Longest text that draws are joined to.

    Attributes
    ----------
    allowed : int32 [Vd]
        Each drafter id that may be drawn maps to itself, the others to -1: tokens without text and without counterpart,
        and those whose text the target cannot write.
    """

    def __init__(self, bridge: TextBridge, max_token_bytes: int) -> None:
        self._bridge = bridge
        self._max_token_bytes = max_token_bytes
        self.drafter = ByteTrie(bridge.drafter.token_bytes)
        self.target = ByteTrie(bridge.target.token_bytes)
        self._fallback = bridge.vocab_map.target.byte_fallback_ids
        self._single: dict[bytes, int | None] = {}
        self._joining: dict[bytes, list[int]] = {}
        # Drafter ids whose text is several target tokens, and per target id those that it comes first in.
        self._several: dict[int, list[int]] = {}
        self.first_in: dict[int, list[int]] = {}
        self.special_ids: dict[int, list[int]] = {}
        allowed = []
        to_target = bridge.vocab_map.draft_to_target_ids.tolist()
        for draft_id, token in enumerate(bridge.drafter.token_bytes):
            is_allowed = True
            if token is None:
                is_allowed = to_target[draft_id] >= 0
                if is_allowed:
                    self.special_ids.setdefault(to_target[draft_id], []).append(draft_id)
            elif self.single(token) is None:
                several = self._encode(token)
                is_allowed = bool(several)
                if several:
                    self._several[draft_id] = several
                    self.first_in.setdefault(several[0], []).append(draft_id)
            allowed.append(draft_id if is_allowed else -1)
        self.allowed = torch.tensor(allowed, dtype=torch.int32)

    def single(self, data: bytes) -> int | None:
        """Return the target token that a text is encoded as, None if it is several or none."""
        try:
            return self._single[data]
        except KeyError:
            pass
        # Of several ids with the same bytes a byte piece is never what a tokenizer emits.
        ids = sorted(self.target.ids(data), key=lambda token_id: (token_id in self._fallback, token_id))
        found = ids[0] if ids else None
        if found is not None and utf8_split(data)[0] == data:
            # Tokens that no text is encoded as (merges across what the tokenizer splits first) do not count. Parts of
            # characters cannot be encoded at all: for them the bytes decide.
            encoded, num_bytes = self._bridge.target.encode(data)
            found = encoded[0] if len(encoded) == 1 and num_bytes == len(data) else None
        self._single[data] = found
        return found

    def several(self, draft_id: int) -> list[int] | None:
        """Return the target tokens of a drafter token, None if it has the text of one."""
        return self._several.get(draft_id)

    def joining(self, data: bytes) -> list[int]:
        """Return E: the drafter ids that join to a candidate's text."""
        if data not in self._joining:
            self._joining[data] = [
                draft_id
                for longer in self.target.extensions(data, self._max_token_bytes)
                for draft_id in self.drafter.ids(longer[len(data) :])
                if self.single(longer) is not None
            ]
        return self._joining[data]

    def joins(self, data: bytes, draft_id: int) -> bool:
        """Whether a drafter id is in E."""
        token = self._bridge.drafter.token_bytes[draft_id]
        if token is None or len(data) + len(token) > self._max_token_bytes:
            return False
        return self.single(data + token) is not None

    def ways(self, data: bytes, max_pieces: int) -> list[tuple[int, ...]]:
        """Return the ways in drafter ids to write a text with joins, every beginning one target token."""
        num_pieces = max_pieces if len(data) <= self._max_token_bytes else 1
        found: list[tuple[int, ...]] = []
        for pieces in self.drafter.segmentations(data, num_pieces, lambda start: self.single(start) is not None):
            ways: list[tuple[int, ...]] = [()]
            for piece in pieces:
                ways = [(*way, draft_id) for way in ways for draft_id in self.drafter.ids(piece)]
            found += ways
        return found

    def _encode(self, token: bytes) -> list[int]:
        if utf8_split(token)[0] != token:
            return []
        encoded, num_bytes = self._bridge.target.encode(token)
        return encoded if num_bytes == len(token) else []


@lru_cache(maxsize=4)
def tables_of(bridge: TextBridge, max_token_bytes: int) -> TextTables:
    """Return the tables of a bridge, made once: they take a second for the largest vocabularies."""
    return TextTables(bridge, max_token_bytes)
