# SPDX-License-Identifier: Apache-2.0
"""How often a draft would be accepted."""

from __future__ import annotations

import torch
from torch import Tensor

from ._arguments import FloatParameter, IntParameter, check_dense, check_rows, check_width, fail, sampling_arguments
from ._rdk import NO_KERNEL, RdkKernel, kernel_arguments


def acceptance_overlap(
    target_logits: Tensor,
    draft_logits: Tensor,
    *,
    target_to_draft_ids: Tensor | None = None,
    draft_stats: Tensor | None = None,
    kernel: RdkKernel | None = None,
    temperature: FloatParameter = None,
    top_k: IntParameter = None,
    top_p: FloatParameter = None,
    min_p: FloatParameter = None,
) -> Tensor:
    """Probability that a token drawn from the draft law is accepted: the sum over t of min(target(t), draft(t)).

    Parameters
    ----------
    target_logits : float32 | float16 | bfloat16 [rows, V]
        Before temperature. Last stride 1, any row stride.
    draft_logits : float32 | float16 | bfloat16 [rows, Vd]
        The drafter's logits at the same positions.
    target_to_draft_ids : int32 [V] or None
        -1 = not shared. None: the drafter has the target's ids (Vd = V).
    draft_stats : float32 [rows, 4] or None
        The draft laws, if they were made with other parameters than the target's.
    kernel : RDK kernel or None
        Of `hetero_spec.rdk`: the draft laws are redistributed by it.
    temperature, top_p, min_p : float, float32 [rows] or None
        As in `row_stats`.
    top_k : int, int32 [rows] or None
        As in `row_stats`.

    Returns
    -------
    float32 [rows]
        In [0, 1]; NaN where either row is no law.

    Raises
    ------
    ValueError, TypeError
        As in `row_stats`.

    Notes
    -----
    Deterministic. Cost: two reads of the target row and two of the draft row; a low-rank kernel of n factors adds 3 V n
    operations a row. Absolute error about 1e-6.

    Source
    ------
    Leviathan et al. 2023, arXiv 2211.17192, Theorem 3.5.

    Examples
    --------
    >>> import torch
    >>> from hetero_spec import ops
    >>> target = torch.tensor([[0.6, 0.2, 0.1, 0.1]]).log()
    >>> drafter = torch.tensor([[0.7, 0.2, 0.05, 0.05]]).log()
    >>> round(float(ops.acceptance_overlap(target, drafter)), 4)
    0.9
    """
    op = "acceptance_overlap"
    target_logits = check_rows(op, "target_logits", target_logits)
    draft_logits = check_rows(op, "draft_logits", draft_logits)
    rows, device = target_logits.shape[0], target_logits.device
    if draft_logits.shape[0] != rows:
        fail(ValueError, op, "draft_logits", f"of shape [{rows}, Vd]", f"shape {list(draft_logits.shape)}")
    if draft_logits.device != device:
        fail(ValueError, op, "draft_logits", f"on {device}", draft_logits.device)
    check_width(op, draft_logits, target_logits, target_to_draft_ids is not None)
    if target_to_draft_ids is not None:
        check_dense(op, "target_to_draft_ids", target_to_draft_ids, torch.int32, (target_logits.shape[1],), device)
    if draft_stats is not None:
        check_dense(op, "draft_stats", draft_stats, torch.float32, (rows, 4), device)
    params = sampling_arguments(op, rows, device, temperature, top_k, top_p, min_p)
    arguments = NO_KERNEL
    if kernel is not None:
        arguments = kernel_arguments(op, kernel, target_logits.shape[1], device)
    overlap: Tensor = torch.ops.hetero_spec.acceptance_overlap(
        target_logits, draft_logits, draft_stats, target_to_draft_ids, *params, *arguments
    )
    return overlap


@torch.library.register_fake("hetero_spec::acceptance_overlap")
def _fake(target_logits: Tensor, *_: object) -> Tensor:
    return target_logits.new_empty((target_logits.shape[0],), dtype=torch.float32)
