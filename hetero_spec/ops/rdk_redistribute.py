# SPDX-License-Identifier: Apache-2.0
"""An RDK kernel applied to laws over the target's ids."""

from __future__ import annotations

import torch
from torch import Tensor

from ._arguments import check_rows
from ._rdk import RdkKernel, kernel_arguments


def rdk_redistribute(draft_probs: Tensor, kernel: RdkKernel) -> Tensor:
    """Redistribute draft laws over the target's vocabulary, as tensors.

    A mixture kernel (mix, diagonal, sparse) with leak a, prior r, spread b and sparse rows S gives
    draft(t) = (1 - a_t - b_t) law(t) + r(t) sum_i a_i law(i) + sum_i b_i law(i) S_it. A low-rank kernel with factors U
    gives (1 - lam) law(t) + lam w(t) / sum(w), w = max(0, 1 + scale (U U^T law)(t)).

    `draft_sample` and `rejection_sample` take a kernel themselves and make no such tensor.

    Parameters
    ----------
    draft_probs : float32 [rows, V]
        Laws over the target's ids, as `remap_probs` returns them. Last stride 1, any row stride.
    kernel : RDK kernel
        Of `hetero_spec.rdk`, over the same V ids.

    Returns
    -------
    float32 [rows, V]
        A row of zeros (no law) stays one, a row with NaN is NaN where it reaches.

    Raises
    ------
    ValueError
        The kernel has another width, or tensors of other shapes or on another device.
    TypeError
        A dtype is not listed, or kernel is none.

    Notes
    -----
    Deterministic; a row does not depend on the others. Cost of a row: V, the entries of S and, with n factors, 2 V n.

    Source
    ------
    Timor et al. 2025, arXiv 2506.03206.

    Examples
    --------
    >>> import torch
    >>> from hetero_spec import ops
    >>> from hetero_spec.ops import RdkTensors
    >>> class Mix:  # 0.2 of the mass goes to a prior on the third id
    ...     vocab_size = 3
    ...     def tensors(self, device):
    ...         prior = torch.tensor([0.0, 0.0, 1.0])
    ...         return RdkTensors(prior=prior, prior_cumulative=prior.double().cumsum(0), constant_leak=0.2)
    >>> ops.rdk_redistribute(torch.tensor([[0.5, 0.5, 0.0]]), Mix())
    tensor([[0.4000, 0.4000, 0.2000]])
    """
    op = "rdk_redistribute"
    draft_probs = check_rows(op, "draft_probs", draft_probs, (torch.float32,))
    arguments = kernel_arguments(op, kernel, draft_probs.shape[1], draft_probs.device)
    probs: Tensor = torch.ops.hetero_spec.rdk_redistribute(draft_probs, *arguments)
    return probs


@torch.library.register_fake("hetero_spec::rdk_redistribute")
def _fake(draft_probs: Tensor, *_: object) -> Tensor:
    return torch.empty(draft_probs.shape, dtype=torch.float32, device=draft_probs.device)
