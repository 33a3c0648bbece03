# SPDX-License-Identifier: Apache-2.0
"""Row laws: a distribution over a vocabulary as a row of logits plus four numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from ._arguments import FloatParameter, IntParameter, check_dense, check_rows, sampling_arguments


def row_stats(
    logits: Tensor,
    *,
    temperature: FloatParameter = None,
    top_k: IntParameter = None,
    top_p: FloatParameter = None,
    min_p: FloatParameter = None,
    draft_to_target_ids: Tensor | None = None,
) -> Tensor:
    """Four numbers per row that turn its logits into a distribution.

    `prob(t) = 0 if logit(t) < cutoff else exp((logit(t) - max_logit) * inv_temperature - log_normalizer)`. The cutoff
    is the strictest of top-k, top-p on what top-k left, and min-p relative to the largest probability; logits that tie
    with it are kept.

    Parameters
    ----------
    logits : float32 | float16 | bfloat16 [rows, V]
        Before temperature. Last stride 1, any row stride.
    temperature, top_p, min_p : float, float32 [rows] or None
        None = 1, off, off. Temperature 0 is greedy. top_p in (0, inf), off from 1 on; min_p in [0, 1].
    top_k : int, int32 [rows] or None
        Off where None, <= 0 or >= V.
    draft_to_target_ids : int32 [V] or None
        If given, only ids whose entry is >= 0 count (token-level intersection).

    Returns
    -------
    float32 [rows, 4]
        (max_logit, inv_temperature, log_normalizer, cutoff). A greedy row is (max, inf, lowest id of the largest logit,
        max): probability 1 at that id. A row without a finite logit is (-inf, inv_temperature, -inf, inf). A row with
        NaN or +inf, or with a parameter tensor's entry that makes no sense, is all NaN.

    Raises
    ------
    ValueError
        A shape, stride, device or scalar is out of range.
    TypeError
        A dtype is not listed.

    Notes
    -----
    Deterministic: the same row gives the same bits, whatever the batch or the number of threads; instruction sets and
    devices differ by float32 rounding. Inputs are never written.
    Cost: one read of the row; with top-p or min-p one more, with top-k two; three for a nucleus of most of a large
    vocabulary.

    Examples
    --------
    >>> import math, torch
    >>> from hetero_spec import ops
    >>> stats = ops.row_stats(torch.tensor([[0.0, math.log(3.0)]]))[0]
    >>> round(math.exp(-stats[2]), 6)  # the largest probability
    0.75
    """
    op = "row_stats"
    logits = check_rows(op, "logits", logits)
    params = sampling_arguments(op, logits.shape[0], logits.device, temperature, top_k, top_p, min_p)
    if draft_to_target_ids is not None:
        check_dense(op, "draft_to_target_ids", draft_to_target_ids, torch.int32, (logits.shape[1],), logits.device)
    stats: Tensor = torch.ops.hetero_spec.row_stats(logits, draft_to_target_ids, *params)
    return stats


@torch.library.register_fake("hetero_spec::row_stats")
def _fake(logits: Tensor, *_: object) -> Tensor:
    return logits.new_empty((logits.shape[0], 4), dtype=torch.float32)
