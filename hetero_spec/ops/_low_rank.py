# SPDX-License-Identifier: Apache-2.0
"""Low-rank RDK kernels inside the ops: their laws are made whole, and handed on as logits over the target's ids.

A low-rank law has a part of every factor at every id, so that neither a draw nor a test is cheaper than a whole row.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ._rdk import RdkFactors, factor_arguments


def inverse_map(ids: Tensor, width: int) -> Tensor:
    """int32 [width]: where in `ids` each value stands, -1 where it does not. Values outside [0, width) are ignored."""
    inside = (ids >= 0) & (ids < width)
    places = torch.where(inside, ids, width).long()
    numbers = torch.arange(ids.shape[0], dtype=torch.int32, device=ids.device)
    inverse = torch.full((width + 1,), -1, dtype=torch.int32, device=ids.device)
    return inverse.scatter_(0, places, numbers)[:width].contiguous()


def law_over_target_ids(draft_logits: Tensor, stats: Tensor, target_to_draft_ids: Tensor | None) -> Tensor:
    """float32 [rows, V]: row laws read through the inverse map. An invalid row is NaN, an empty one 0."""
    logits = draft_logits.float()
    max_logit, inv_temperature, log_normalizer, cutoff = (column.unsqueeze(1) for column in stats.unbind(1))
    probs = torch.exp((logits - max_logit) * inv_temperature - log_normalizer)
    ids = torch.arange(logits.shape[1], device=logits.device)
    is_greedy = torch.isinf(inv_temperature) & (max_logit > -math.inf)
    probs = torch.where(is_greedy, (ids == log_normalizer).float(), torch.where(logits < cutoff, 0.0, probs))
    probs = torch.where(max_logit == -math.inf, 0.0, probs)
    if target_to_draft_ids is not None:
        inside = (target_to_draft_ids >= 0) & (target_to_draft_ids < logits.shape[1])
        probs = torch.where(inside, probs[:, torch.where(inside, target_to_draft_ids, 0).long()], 0.0)
    return torch.where(max_logit.isnan(), math.nan, probs)


def low_rank_logits(
    op: str, draft_logits: Tensor, stats: Tensor, target_to_draft_ids: Tensor | None, parts: RdkFactors
) -> tuple[Tensor, Tensor]:
    """Logits [rows, V] of the redistributed laws, and the stats [rows, 4] with which they give those laws back."""
    law = law_over_target_ids(draft_logits, stats, target_to_draft_ids)
    arguments = factor_arguments(op, parts, law.shape[1], law.device)
    logits: Tensor = torch.ops.hetero_spec.rdk_redistribute(law, [], -1, 0.0, *arguments).log()
    # Maximum 0, scale 1, normaliser 0, no cutoff: the probability is the exponential of the logit.
    plain = torch.tensor([0.0, 1.0, 0.0, -math.inf], device=law.device).repeat(law.shape[0], 1)
    return logits, torch.where(stats[:, :1] > -math.inf, plain, stats)  # rows without a law keep theirs
