# SPDX-License-Identifier: Apache-2.0
"""The algorithms in float64, row by row, with no regard for speed.

Every function has the name and the arguments of the op in ``hetero_spec.ops`` and returns a tuple with the same
fields, so that a test calls both with the same arguments. Nothing here imports the compiled module. Arguments are not
checked: that is the op's business. Logits of any float dtype are read exactly; probabilities and statistics come back
as float64.
"""

from hetero_spec.reference.acceptance_overlap import acceptance_overlap
from hetero_spec.reference.draft_sample import DraftSample, draft_sample
from hetero_spec.reference.rdk_redistribute import rdk_redistribute
from hetero_spec.reference.rejection_sample import RejectionSample, rejection_sample
from hetero_spec.reference.rejection_sample_probs import rejection_sample_probs
from hetero_spec.reference.remap_probs import remap_probs
from hetero_spec.reference.row_stats import row_stats

__all__ = [
    "DraftSample",
    "RejectionSample",
    "acceptance_overlap",
    "draft_sample",
    "rdk_redistribute",
    "rejection_sample",
    "rejection_sample_probs",
    "remap_probs",
    "row_stats",
]
