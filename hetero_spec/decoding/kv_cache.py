# SPDX-License-Identifier: Apache-2.0
"""A key/value cache for requests of different lengths, with roll-back in constant time.

One rule makes everything exact: the slot of a token is its position. Keys and values of layer l live in
[rows, kv_heads, capacity, head_dim]; the token of row b at position t is written to slot t, whatever the other rows
do, and attention masks are built from positions alone (a query at position t sees slots 0..t, or the last `window`
of them). So

* rolling a request back only lowers its length: stale slots lie above every later query until they are written
  again, and a token is always written before a query can see its slot;
* sliding-window layers need no ring buffer and lose nothing on a roll-back (transformers' own sliding layers drop
  what left the window); the price is memory for the whole sequence;
* a batch with ragged numbers of new tokens is padded on the right: padding writes finite values to slots above the
  row's length, where the same argument makes them harmless.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

# Growth in steps of this many slots, so that short generations allocate once.
_SLOT_STEP = 64


def visible_slots(positions: Tensor, num_slots: int, *, window: int | None = None, chunk: int | None = None) -> Tensor:
    """Build the attention mask of queries at given positions over slots that are positions.

    Parameters
    ----------
    positions : int64 [B, T]
        Position of each query.
    num_slots : int
        Number S of key slots; every position must be below it, so that each query sees at least itself.
    window : int, optional
        Sliding window: only the last `window` positions, the query's own included.
    chunk : int, optional
        Chunked attention: only positions of the query's own chunk.

    Returns
    -------
    mask : bool [B, 1, T, S]
        True where the query attends.
    """
    slots = torch.arange(num_slots, device=positions.device)
    queries = positions[:, None, :, None]
    mask = slots <= queries
    if window is not None:
        mask = mask & (slots > queries - window)
    if chunk is not None:
        mask = mask & (slots // chunk == queries // chunk)
    return mask


class RaggedCache(Cache):  # type: ignore[misc, unused-ignore]
    """Key/value cache whose rows have lengths of their own.

    A step is `begin` (which rows get how many tokens), the model's forward (which calls `update` once per layer), then
    `commit`. Between steps `truncate` rolls a row back and `remove` takes a finished row out of the batch.

    Parameters
    ----------
    num_rows : int
        Rows at the start; `remove` lowers it.
    capacity : int
        Slots allocated at the first step; more are allocated as sequences grow.
    """

    def __init__(self, num_rows: int, capacity: int = 0) -> None:
        super().__init__(layers=[])
        self.lengths: list[int] = [0] * num_rows
        self.capacity = capacity
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []
        self._rows: list[int] = []
        self._num_tokens: list[int] = []
        self._starts: list[int] = []
        self._width = 0
        self._row_index = torch.zeros(0, 1, dtype=torch.int64)
        self._slot_index = torch.zeros(0, 0, dtype=torch.int64)

    @property
    def num_slots(self) -> int:
        """Slots that the step in progress attends over: the longest row with its padded new tokens."""
        return max(self._starts, default=0) + self._width

    def begin(self, rows: Sequence[int], num_tokens: Sequence[int]) -> Tensor:
        """Announce a step and return the positions of its tokens, int64 [len(rows), max(num_tokens)] on the CPU."""
        self._rows = list(rows)
        self._num_tokens = list(num_tokens)
        self._starts = [self.lengths[row] for row in rows]
        self._width = max(num_tokens)
        if self.num_slots > self.capacity:
            self.capacity = -(-max(self.num_slots, 2 * self.capacity) // _SLOT_STEP) * _SLOT_STEP
        self._row_index = torch.tensor(self._rows)[:, None]
        self._slot_index = torch.tensor(self._starts)[:, None] + torch.arange(self._width)
        return self._slot_index

    @torch.inference_mode()
    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write one layer's new keys and values [len(rows), kv_heads, T, head_dim]; return slots 0..num_slots - 1."""
        while len(self._keys) <= layer_idx:
            self._keys.append(key_states.new_zeros(0))
            self._values.append(value_states.new_zeros(0))
        return (
            self._write(self._keys, layer_idx, key_states),
            self._write(self._values, layer_idx, value_states),
        )

    def commit(self) -> None:
        """Count the step's tokens (not its padding) as part of their rows."""
        for row, start, count in zip(self._rows, self._starts, self._num_tokens, strict=True):
            self.lengths[row] = start + count
        self._rows, self._num_tokens, self._starts, self._width = [], [], [], 0

    def truncate(self, row: int, length: int) -> None:
        """Roll a row back to its first `length` tokens."""
        if not 0 <= length <= self.lengths[row]:
            raise ValueError(f"truncate: length must be in [0, {self.lengths[row]}], got {length}")
        self.lengths[row] = length

    @torch.inference_mode()
    def remove(self, row: int) -> None:
        """Take a row out; the rows after it move down by one, so that the batch stays a prefix of the buffers."""
        for later in range(row + 1, len(self.lengths)):
            used = self.lengths[later]
            for buffer in (*self._keys, *self._values):
                buffer[later - 1, :, :used] = buffer[later, :, :used]
        del self.lengths[row]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Length of the longest row."""
        return max(self.lengths, default=0)

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """Key length and offset of the step in progress; masks are given to the model ready-made."""
        return self.num_slots, 0

    def _write(self, buffers: list[Tensor], layer_idx: int, states: Tensor) -> Tensor:
        """Put new states into a layer's buffer at their positions and return the buffer's part in use."""
        buffer = self._grown(buffers[layer_idx], states)
        buffers[layer_idx] = buffer
        first, count = self._rows[0], len(self._rows)
        contiguous = self._rows == list(range(first, first + count))
        if count == 1:
            buffer[first, :, self._starts[0] : self.num_slots] = states[0]
        else:
            # [rows, T] indices around a slice put the indexed axes first: [rows, T, kv_heads, head_dim].
            buffer[self._row_index, :, self._slot_index] = states.transpose(1, 2)
        # Every request of the batch, or a run of them, is a view. A scattered choice (some requests stopped drafting
        # before others) has to be gathered.
        if contiguous:
            return buffer[first : first + count, :, : self.num_slots]
        return buffer[self._rows, :, : self.num_slots]

    def _grown(self, buffer: Tensor, states: Tensor) -> Tensor:
        """Return a buffer with room for `capacity` slots, holding what the old one held."""
        if buffer.numel() and buffer.shape[2] >= self.capacity:
            return buffer
        # Zeros, not garbage: a masked slot still enters attention as 0 * value, which must not be NaN.
        larger = states.new_zeros(len(self.lengths), states.shape[1], self.capacity, states.shape[3])
        if buffer.numel():
            larger[:, :, : buffer.shape[2]] = buffer[: len(self.lengths)]
        return larger
