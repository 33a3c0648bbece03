# SPDX-License-Identifier: Apache-2.0
"""Sampling parameters of a request, in the form the ops take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

import torch
from torch import Tensor

# The ops compute in these.
_FLOAT32 = torch.finfo(torch.float32)
_INT32_MAX = torch.iinfo(torch.int32).max


@dataclass(frozen=True)
class Sampling:
    """Temperature and truncation; order: temperature, top-k, top-p on what it left, min-p relative to the largest.

    Attributes
    ----------
    temperature : float
        At least 0, within float32; 0 is greedy.
    top_k : int
        Keep the k likeliest tokens; 0 is off.
    top_p : float
        In (0, 1], not 0 in float32 either; 1 is off.
    min_p : float
        In [0, 1]; 0 is off.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    def __post_init__(self) -> None:
        """Check every range."""
        # Written so that a NaN fails each test.
        if not 0.0 <= self.temperature < float("inf"):
            raise ValueError(f"sampling: temperature must be a finite number of at least 0, got {self.temperature}")
        if self.temperature > _FLOAT32.max:
            raise ValueError(f"sampling: temperature must be at most {_FLOAT32.max:.6g}, got {self.temperature}")
        if self.top_k < 0:
            raise ValueError(f"sampling: top_k must be at least 0 (0 is off), got {self.top_k}")
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"sampling: top_p must be in (0, 1], got {self.top_p}")
        if self.top_p < _FLOAT32.tiny:
            raise ValueError(f"sampling: top_p must be at least {_FLOAT32.tiny:.6g}, got {self.top_p}")
        if not 0.0 <= self.min_p <= 1.0:
            raise ValueError(f"sampling: min_p must be in [0, 1], got {self.min_p}")


class SamplingArguments(TypedDict):
    """Keyword arguments of the ops."""

    temperature: float | Tensor | None
    top_k: int | Tensor | None
    top_p: float | Tensor | None
    min_p: float | Tensor | None


def sampling_arguments(samplings: Sequence[Sampling], device: torch.device | None = None) -> SamplingArguments:
    """Return the ops' arguments for a batch: scalars where all requests agree, else tensors (of one device)."""
    first = samplings[0]
    if all(sampling == first for sampling in samplings):
        return {
            "temperature": first.temperature,
            "top_k": min(first.top_k, _INT32_MAX) or None,
            "top_p": None if first.top_p == 1.0 else first.top_p,
            "min_p": first.min_p or None,
        }

    def of(values: Sequence[float], dtype: torch.dtype) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=device)

    return {
        "temperature": of([sampling.temperature for sampling in samplings], torch.float32),
        "top_k": of([min(sampling.top_k, _INT32_MAX) for sampling in samplings], torch.int32),
        "top_p": of([sampling.top_p for sampling in samplings], torch.float32),
        "min_p": of([sampling.min_p for sampling in samplings], torch.float32),
    }
