# SPDX-License-Identifier: Apache-2.0
"""Drawing a draft token from the drafter's law on the shared tokens.

Source
------
Timor et al. 2025, 2502.05202 (token-level intersection); inverse CDF in the drafter's vocabulary order.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hetero_spec.reference import inverse_cdf
from hetero_spec.reference.philox import Stream, uniform
from hetero_spec.reference.row_law import logits_of, parameters_of, probs_of_row, stats_of_row


class DraftSample(NamedTuple):
    """One proposed token per request; see ``draft_sample``."""

    target_token_ids: Tensor
    draft_token_ids: Tensor
    probs: Tensor
    stats: Tensor
    entropy: Tensor
    max_prob: Tensor


def draft_sample(
    draft_logits: Tensor,
    draft_to_target_ids: Tensor | None = None,
    *,
    temperature: float | Tensor | None = None,
    top_k: int | Tensor | None = None,
    top_p: float | Tensor | None = None,
    min_p: float | Tensor | None = None,
    seeds: Tensor | None = None,
    positions: Tensor | None = None,
    uniform_samples: Tensor | None = None,
) -> DraftSample:
    """Draw one token per row of draft_logits [B, Vd]; a row without a law gives ids -1 and zeros.

    uniform_samples is float64 [B]; without it, the number of (seed, position, PROPOSE) is used.
    """
    if draft_to_target_ids is None:  # the same ids on both sides
        draft_to_target_ids = torch.arange(draft_logits.shape[1], dtype=torch.int32)
    allowed = (draft_to_target_ids >= 0).numpy()
    batch_size = len(draft_logits)
    target_token_ids = torch.full((batch_size,), -1, dtype=torch.int32)
    draft_token_ids = torch.full((batch_size,), -1, dtype=torch.int32)
    probs = torch.zeros(batch_size, dtype=torch.float64)
    all_stats = torch.zeros(batch_size, 4, dtype=torch.float64)
    entropy = torch.zeros(batch_size, dtype=torch.float64)
    max_prob = torch.zeros(batch_size, dtype=torch.float64)
    for request in range(batch_size):
        logits = logits_of(draft_logits, request)
        stats = stats_of_row(logits, parameters_of(request, temperature, top_k, top_p, min_p), allowed)
        all_stats[request] = torch.tensor(stats, dtype=torch.float64)
        if stats.is_invalid or stats.is_empty:
            continue
        if uniform_samples is not None:
            chosen = float(uniform_samples[request])
        else:
            assert seeds is not None and positions is not None
            chosen = uniform(int(seeds[request]), int(positions[request]), Stream.PROPOSE)
        law = probs_of_row(logits, stats, allowed)
        draft_id = inverse_cdf.sample(law, chosen)
        positive = law[law > 0.0]
        draft_token_ids[request] = draft_id
        target_token_ids[request] = draft_to_target_ids[draft_id]
        probs[request] = float(law[draft_id])
        entropy[request] = max(0.0, -float((positive * np.log(positive)).sum()))
        max_prob[request] = float(law.max())
    return DraftSample(target_token_ids, draft_token_ids, probs, all_stats, entropy, max_prob)
