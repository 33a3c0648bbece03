# SPDX-License-Identifier: Apache-2.0
"""Priors: what one pass over a text says of a target's next-token laws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hetero_spec.rdk.records import RecordsError
from hetero_spec.rdk.views import ROWS_AT_ONCE, Setting, product


@dataclass
class Priors:
    """What one pass over a text says of the target's next-token laws.

    Attributes
    ----------
    mean : float32 [V]
        Mean law.
    root_mean : float32 [V]
        Square of the mean square root, normalised: a prior that many positions share rather than one that a few sure
        ones dominate. It accepts more when it is mixed in, see docs/rdk.md.
    variance : float32 [V]
        Per-token variance of the law's entries.
    num_positions : int
    """

    mean: Tensor
    root_mean: Tensor
    variance: Tensor
    num_positions: int

    def save(self, path: Any, *, tokenizer_sha256: str) -> None:
        """Write a safetensors file, whole or not at all, with the hash of the tokenizer whose ids these are."""
        from safetensors.torch import save

        from hetero_spec.files import write_whole

        notes = {"tokenizer_sha256": tokenizer_sha256, "num_positions": str(self.num_positions)}
        tensors = {"mean": self.mean, "root_mean": self.root_mean, "variance": self.variance}
        write_whole(path, save(tensors, metadata=notes))

    @classmethod
    def load(cls, path: Any, *, tokenizer_sha256: str | None = None) -> Priors:
        """Read what `save` wrote.

        Raises
        ------
        RecordsError   another tokenizer's priors, NaN in them, or no such file's content
        """
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, "pt") as file:
                notes = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in ("mean", "root_mean", "variance")}
        except SafetensorError as error:
            raise RecordsError(f"priors: {path} must be a file of priors ({error})") from None
        found = notes.get("tokenizer_sha256")
        if tokenizer_sha256 is not None and found != tokenizer_sha256:
            raise RecordsError(
                f"priors: {path} must be of the tokenizer {tokenizer_sha256[:12]}, got {str(found)[:12]}"
            )
        for name, tensor in tensors.items():
            if not bool(tensor.isfinite().all()) or bool((tensor < 0).any()):
                raise RecordsError(f"priors: {name} in {path} must be finite and not negative")
        return cls(**tensors, num_positions=int(notes.get("num_positions", 0)))


def gather_priors(
    target_weight: Tensor,
    states: Tensor,
    setting: Setting = Setting(),  # noqa: B008 - immutable
    on_positions: Callable[[int], None] | None = None,
) -> Priors:
    """Mean, root mean and variance of the target's laws in one pass over its hidden states [N, hidden]."""
    if len(states) == 0:
        raise RecordsError("gather_priors: states must hold a position, got none")
    size = len(target_weight)
    total, roots, squares = (torch.zeros(size, dtype=torch.float64) for _ in range(3))
    for some in torch.split(states, ROWS_AT_ONCE):
        laws = setting.laws(product(some, target_weight))
        total += laws.sum(0)
        roots += laws.sqrt().sum(0)
        squares += laws.square_().sum(0)
        if on_positions is not None:
            on_positions(len(some))
    count = len(states)
    mean = total / count
    root_mean = (roots / count).square()
    variance = (squares / count - mean.square()).clamp_min(0.0)
    if not bool(mean.isfinite().all()):
        raise RecordsError("gather_priors: states must give finite laws, got NaN")
    return Priors(mean.float(), (root_mean / root_mean.sum()).float(), variance.float(), count)
