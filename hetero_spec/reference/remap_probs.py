# SPDX-License-Identifier: Apache-2.0
"""The drafter's law on the shared tokens, renormalised, over the target's ids.

Source
------
Timor et al. 2025, 2502.05202: token-level intersection. draft'(t) = draft(d) / (sum of draft over shared tokens) for
t = draft_to_target_ids[d], 0 elsewhere; the mask comes before top-k and top-p.
"""

import torch
from torch import Tensor

from hetero_spec.reference.row_law import logits_of, parameters_of, probs_of_row, stats_of_row


def remap_probs(
    draft_logits: Tensor,
    draft_to_target_ids: Tensor,
    target_vocab_size: int,
    *,
    temperature: float | Tensor | None = None,
    top_k: int | Tensor | None = None,
    top_p: float | Tensor | None = None,
    min_p: float | Tensor | None = None,
) -> Tensor:
    """Float64 [rows, target_vocab_size] from draft_logits [rows, Vd]; an invalid row is NaN, an empty row 0.

    Map entries outside [0, target_vocab_size) are not shared.
    """
    allowed = ((draft_to_target_ids >= 0) & (draft_to_target_ids < target_vocab_size)).numpy()
    probs = torch.zeros(len(draft_logits), target_vocab_size, dtype=torch.float64)
    for row in range(len(draft_logits)):
        logits = logits_of(draft_logits, row)
        stats = stats_of_row(logits, parameters_of(row, temperature, top_k, top_p, min_p), allowed)
        if stats.is_invalid:
            probs[row] = torch.nan
            continue
        for draft_id, prob in enumerate(probs_of_row(logits, stats, allowed).tolist()):
            if allowed[draft_id]:
                probs[row, int(draft_to_target_ids[draft_id])] = prob
    return probs
