# SPDX-License-Identifier: Apache-2.0
"""Small helpers on ragged rows: offsets, the row of each entry, the entries of some rows."""

from __future__ import annotations

import torch
from torch import Tensor


def offsets_of(counts: Tensor) -> Tensor:
    """int32 [len + 1]: where each row's entries begin."""
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)]).to(torch.int32)


def row_ids(offsets: Tensor) -> Tensor:
    """int64 [nnz]: the row of each entry."""
    return torch.repeat_interleave(torch.arange(len(offsets) - 1, device=offsets.device), offsets.diff().long())


def entries_of(offsets: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Entries of some rows, back to back, and for each the place in `rows` that it belongs to."""
    counts = offsets[rows + 1] - offsets[rows]
    places = torch.repeat_interleave(torch.arange(len(rows), device=rows.device), counts)
    first = counts.cumsum(0) - counts
    return offsets[rows][places] + torch.arange(len(places), device=rows.device) - first[places], places
