# SPDX-License-Identifier: Apache-2.0
"""The ops. Each is also `torch.ops.hetero_spec.<op>`, with fake kernels for `torch.compile` and `torch.export`."""

from . import _module as _module  # loads the compiled module before any op is looked up
from ._rdk import RdkFactors, RdkKernel, RdkTensors
from .acceptance_overlap import acceptance_overlap
from .draft_sample import DraftSample, draft_sample
from .rdk_redistribute import rdk_redistribute
from .rejection_sample import RejectionSample, rejection_sample
from .rejection_sample_probs import rejection_sample_probs
from .remap_probs import remap_probs
from .row_stats import row_stats
from .status import Status, raise_for_status

PLACEHOLDER_TOKEN_ID = -1

__all__ = [
    "PLACEHOLDER_TOKEN_ID",
    "DraftSample",
    "RdkFactors",
    "RdkKernel",
    "RdkTensors",
    "RejectionSample",
    "Status",
    "acceptance_overlap",
    "draft_sample",
    "raise_for_status",
    "rdk_redistribute",
    "rejection_sample",
    "rejection_sample_probs",
    "remap_probs",
    "row_stats",
]
