# SPDX-License-Identifier: Apache-2.0
"""Agreement of an alternative with ours, asked before either is timed."""

from __future__ import annotations

import torch
from torch import Tensor

TOLERANCE = 1e-5  # of ours against the alternative in float64: probabilities, overlaps, normalizers
BOUNDARY = 2e-5  # float32 sums over a vocabulary: how near a boundary a uniform may lie when two ids differ


class Disagreement(AssertionError):
    """An alternative computes something else than ours: timing it would say nothing."""


def same_numbers(what: str, ours: Tensor, theirs: Tensor, tolerance: float) -> None:
    """Refuse numbers that are further apart than the tolerance."""
    worst = float((ours.double() - theirs.double()).abs().max())
    if not worst <= tolerance:
        raise Disagreement(f"{what}: differs from ours by {worst:.3g}, more than {tolerance:.3g}")


def same_ids(what: str, ours: Tensor, theirs: Tensor) -> None:
    """Refuse any difference."""
    if not torch.equal(ours.long(), theirs.long()):
        raise Disagreement(f"{what}: {theirs.tolist()}, ours {ours.tolist()}")


def same_draws(what: str, ours: Tensor, theirs: Tensor, weights: Tensor, uniforms: Tensor) -> None:
    """Refuse ids that differ where the uniform is not at a boundary between the two."""
    cumulative = weights.double().cumsum(-1)
    cumulative = cumulative / cumulative[:, -1:]
    for row in torch.nonzero(ours.long() != theirs.long()).flatten().tolist():
        for token in (int(ours[row]), int(theirs[row])):
            low = float(cumulative[row, token - 1]) if token > 0 else 0.0
            uniform = float(uniforms[row])
            if not low - BOUNDARY <= uniform <= float(cumulative[row, token]) + BOUNDARY:
                raise Disagreement(f"{what}: row {row} draws {int(theirs[row])}, ours {int(ours[row])}")
