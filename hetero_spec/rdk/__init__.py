# SPDX-License-Identifier: Apache-2.0
"""Redistributing drafter kernels: mass of a drafter's law moved to target tokens that the drafter does not have.

    from hetero_spec import ops, rdk

    kernel = rdk.MixKernel(0.1, prior)                       # prior: float [V], a law over the target's ids
    probs = ops.rdk_redistribute(draft_probs, kernel)        # [rows, V]
    draft = ops.draft_sample(draft_logits, ids, kernel=kernel, ...)

A kernel is a row-stochastic matrix over the target's vocabulary that is never written out; see `kernels`. Names are
resolved on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hetero_spec.rdk.eagle import from_eagle_d2t, from_eagle_t2d, to_eagle_d2t, to_eagle_t2d
    from hetero_spec.rdk.kernel_file import load_kernel, save_kernel
    from hetero_spec.rdk.kernels import (
        DenseSoftmaxKernel,
        DiagonalKernel,
        Kernel,
        LowRankKernel,
        MixKernel,
        MixtureKernel,
    )
    from hetero_spec.rdk.prune import (
        PrunedModel,
        frequent_tokens,
        load_pruned,
        prune_vocabulary,
        token_counts,
        variant_tokens,
    )
    from hetero_spec.rdk.sparse import SparseKernel

_MODULES = {
    "DenseSoftmaxKernel": "kernels",
    "DiagonalKernel": "kernels",
    "Kernel": "kernels",
    "LowRankKernel": "kernels",
    "MixKernel": "kernels",
    "MixtureKernel": "kernels",
    "PrunedModel": "prune",
    "SparseKernel": "sparse",
    "frequent_tokens": "prune",
    "from_eagle_d2t": "eagle",
    "from_eagle_t2d": "eagle",
    "load_kernel": "kernel_file",
    "load_pruned": "prune",
    "prune_vocabulary": "prune",
    "save_kernel": "kernel_file",
    "to_eagle_d2t": "eagle",
    "to_eagle_t2d": "eagle",
    "token_counts": "prune",
    "variant_tokens": "prune",
}

__all__ = [
    "DenseSoftmaxKernel",
    "DiagonalKernel",
    "Kernel",
    "LowRankKernel",
    "MixKernel",
    "MixtureKernel",
    "PrunedModel",
    "SparseKernel",
    "frequent_tokens",
    "from_eagle_d2t",
    "from_eagle_t2d",
    "load_kernel",
    "load_pruned",
    "prune_vocabulary",
    "save_kernel",
    "to_eagle_d2t",
    "to_eagle_t2d",
    "token_counts",
    "variant_tokens",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"hetero_spec.rdk.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
