# SPDX-License-Identifier: Apache-2.0
"""Probability that a draft token is accepted, per row.

Source
------
Leviathan et al. 2023, 2211.17192, theorem 3.5: the sum over tokens of min(target, draft).
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from hetero_spec.reference.rejection_sample import draft_law_over_target_ids
from hetero_spec.reference.row_law import RowStats, logits_of, parameters_of, probs_of_row, stats_of_row


def acceptance_overlap(
    target_logits: Tensor,
    draft_logits: Tensor,
    *,
    draft_stats: Tensor | None = None,
    target_to_draft_ids: Tensor | None = None,
    kernel: Any = None,
    temperature: float | Tensor | None = None,
    top_k: int | Tensor | None = None,
    top_p: float | Tensor | None = None,
    min_p: float | Tensor | None = None,
) -> Tensor:
    """Float64 [rows]; NaN where either row is no law: invalid, or without any mass."""
    vocab_size = target_logits.shape[1]
    mapping = None if target_to_draft_ids is None else [int(draft_id) for draft_id in target_to_draft_ids]
    overlap = torch.zeros(len(target_logits), dtype=torch.float64)
    for row in range(len(target_logits)):
        parameters = parameters_of(row, temperature, top_k, top_p, min_p)
        logits = logits_of(target_logits, row)
        target = probs_of_row(logits, stats_of_row(logits, parameters))
        stats = None if draft_stats is None else RowStats(*draft_stats[row].double().tolist())
        draft = draft_law_over_target_ids(logits_of(draft_logits, row), stats, parameters, mapping, vocab_size, kernel)
        has_laws = target.sum() > 0.0 and draft.sum() > 0.0  # false for NaN as well
        overlap[row] = float(np.minimum(target, draft).sum()) if has_laws else torch.nan
    return overlap
