# SPDX-License-Identifier: Apache-2.0
"""Four numbers per row that turn logits into a law (see row_law.py for the formulas and their sources)."""

import torch
from torch import Tensor

from hetero_spec.reference.row_law import logits_of, parameters_of, stats_of_row


def row_stats(
    logits: Tensor,
    *,
    temperature: float | Tensor | None = None,
    top_k: int | Tensor | None = None,
    top_p: float | Tensor | None = None,
    min_p: float | Tensor | None = None,
    draft_to_target_ids: Tensor | None = None,
) -> Tensor:
    """Float64 [rows, 4]: max_logit, inv_temperature, log_normalizer, cutoff of each row of logits [rows, V]."""
    allowed = None if draft_to_target_ids is None else (draft_to_target_ids >= 0).numpy()
    stats = torch.empty(len(logits), 4, dtype=torch.float64)
    for row in range(len(logits)):
        parameters = parameters_of(row, temperature, top_k, top_p, min_p)
        stats[row] = torch.tensor(stats_of_row(logits_of(logits, row), parameters, allowed), dtype=torch.float64)
    return stats
