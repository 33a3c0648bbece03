# SPDX-License-Identifier: Apache-2.0
"""A drafter's law over the target's vocabulary, written out."""

from __future__ import annotations

import torch
from torch import Tensor

from ._arguments import (
    MAX_VOCAB_SIZE,
    FloatParameter,
    IntParameter,
    check_dense,
    check_int,
    check_rows,
    sampling_arguments,
)


def remap_probs(
    draft_logits: Tensor,
    draft_to_target_ids: Tensor,
    target_vocab_size: int,
    *,
    temperature: FloatParameter = None,
    top_k: IntParameter = None,
    top_p: FloatParameter = None,
    min_p: FloatParameter = None,
) -> Tensor:
    """Token-level intersection (TLI) as a tensor, for those who want one.

    The drafter's law is restricted to the shared ids, renormalised and moved to the target's ids. The other ops never
    need this tensor: they read the drafter's logits through the map.

    Parameters
    ----------
    draft_logits : float32 | float16 | bfloat16 [rows, Vd]
        Before temperature. Last stride 1, any row stride.
    draft_to_target_ids : int32 [Vd]
        -1 = not shared; injective where >= 0. Entries at or beyond target_vocab_size are treated as -1 in the output.
    target_vocab_size : int
        V, at least 1.
    temperature, top_p, min_p : float, float32 [rows] or None
        As in `row_stats`; they act on what the map leaves.
    top_k : int, int32 [rows] or None
        As in `row_stats`.

    Returns
    -------
    float32 [rows, V]
        Rows sum to 1; all 0 where nothing is shared or no shared logit is finite; all NaN where a shared logit is NaN
        or +inf.

    Raises
    ------
    ValueError, TypeError
        As in `row_stats`.

    Notes
    -----
    Deterministic. Cost: two reads of the row and one write of V floats.

    Source
    ------
    Timor et al. 2025, arXiv 2502.05202, token-level intersection.

    Examples
    --------
    >>> import torch
    >>> from hetero_spec import ops
    >>> drafter = torch.tensor([[0.5, 0.2, 0.3]]).log()  # a, b, x
    >>> ops.remap_probs(drafter, torch.tensor([0, 1, -1], dtype=torch.int32), 4)
    tensor([[0.7143, 0.2857, 0.0000, 0.0000]])
    """
    op = "remap_probs"
    draft_logits = check_rows(op, "draft_logits", draft_logits)
    rows, draft_vocab_size = draft_logits.shape
    check_dense(op, "draft_to_target_ids", draft_to_target_ids, torch.int32, (draft_vocab_size,), draft_logits.device)
    check_int(op, "target_vocab_size", target_vocab_size, 1, MAX_VOCAB_SIZE)
    params = sampling_arguments(op, rows, draft_logits.device, temperature, top_k, top_p, min_p)
    probs: Tensor = torch.ops.hetero_spec.remap_probs(draft_logits, draft_to_target_ids, target_vocab_size, *params)
    return probs


@torch.library.register_fake("hetero_spec::remap_probs")
def _fake(draft_logits: Tensor, draft_to_target_ids: Tensor, target_vocab_size: int, *_: object) -> Tensor:
    return draft_logits.new_empty((draft_logits.shape[0], target_vocab_size), dtype=torch.float32)
