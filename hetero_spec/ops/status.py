# SPDX-License-Identifier: Apache-2.0
"""Per-request status bits: what only the device can see go wrong."""

from __future__ import annotations

import enum

import torch


class Status(enum.IntFlag):
    """Bits of `RejectionSample.status`, as in csrc/common/status.h."""

    OK = 0
    TARGET_NAN = 1
    """A target row that was read holds NaN or +inf. The request ends there with the lowest id of the largest logit."""
    TARGET_EMPTY = 2
    """A target row without a finite logit. The request ends there with id 0."""
    DRAFT_OUT_OF_RANGE = 4
    """A draft id outside [0, V). It was rejected, and the token drawn from the target's law."""
    DRAFT_ZERO = 8
    """The declared draft law is 0 or NaN at the drafted token. It was rejected."""
    RESIDUAL_EMPTY = 16
    """A residual without mass (target and draft agree but for rounding). The target's law was drawn from: harmless."""
    INVALID_PARAMETER = 32
    """A temperature, top_p or min_p that makes no sense. Treated as a target row with NaN."""


def raise_for_status(status: torch.Tensor, *, ignore: Status = Status.RESIDUAL_EMPTY) -> None:
    """Raise an error if any request is flagged. Waits for the device.

    Parameters
    ----------
    status : int32 [B]
        Bits of `Status`, one entry per request.
    ignore : Status
        Bits that are no error; by default the harmless one.

    Raises
    ------
    RuntimeError
        Names the first flagged requests and their bits.
    """
    flagged = [(request, Status(bits & ~int(ignore))) for request, bits in enumerate(status.tolist())]
    flagged = [(request, bits) for request, bits in flagged if bits]
    if not flagged:
        return
    listed = "; ".join(
        f"request {request}: {' | '.join(bit.name or '' for bit in Status if bit and bit in bits) or int(bits)}"
        for request, bits in flagged[:8]
    )
    more = f"; and {len(flagged) - 8} more" if len(flagged) > 8 else ""
    raise RuntimeError(f"verification flagged {len(flagged)} of {status.numel()} requests: {listed}{more}")
