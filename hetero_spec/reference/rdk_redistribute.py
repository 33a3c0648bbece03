# SPDX-License-Identifier: Apache-2.0
"""A draft law redistributed over the target's vocabulary by an RDK kernel.

Source
------
Timor et al. 2025, 2506.03206: draft = M^T law for a row-stochastic M. Mixtures: row i of M is
(1 - a_i - b_i) delta_i + a_i r + b_i S_i. Low rank: the first-order form (1 1^T + U U^T / (n tau)) / V of a covariance
kernel, negative mass clamped and the rest normalised, mixed with the law itself.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hetero_spec.reference.row_law import Floats


def leaks(parts: Any, vocab_size: int) -> Floats:
    """Share of every token that goes to the prior, float64 [V]."""
    if not math.isnan(parts.constant_leak):
        return np.full(vocab_size, float(np.float32(parts.constant_leak)))
    return np.zeros(vocab_size) if parts.leak is None else np.asarray(parts.leak, dtype=np.float64)


def sparse_entries(parts: Any) -> list[tuple[int, int, float]]:
    """(source, target, share of the source's mass) of every entry of the sparse rows."""
    if parts.spread is None:
        return []
    offsets, columns, weights = parts.row_offsets.tolist(), parts.column_ids.tolist(), parts.weights.tolist()
    return [
        (source, columns[entry], spread * weights[entry])
        for source, spread in enumerate(parts.spread.tolist())
        for entry in range(offsets[source], offsets[source + 1])
    ]


def redistribute(law: Floats, kernel: Any) -> Floats:
    """One law over the target's ids, float64 [V]."""
    parts = kernel.tensors(torch.device("cpu"))
    if hasattr(parts, "factors"):
        return redistribute_low_rank(law, parts)
    leak = leaks(parts, len(law))
    spread = np.zeros(len(law)) if parts.spread is None else np.asarray(parts.spread, dtype=np.float64)
    moved: Floats = (1.0 - leak - spread) * law
    if parts.prior is not None:
        moved += (leak * law).sum() * np.asarray(parts.prior, dtype=np.float64)
    for source, target, share in sparse_entries(parts):
        moved[target] += share * law[source]
    return moved


def redistribute_low_rank(law: Floats, parts: Any) -> Floats:
    """The same for factors; what is no law has nothing to redistribute."""
    if not law.any():
        return law
    weights = low_rank_weights(low_rank_coefficients(law, parts), parts)
    mixed: Floats = (1.0 - parts.lam) * law + parts.lam * weights / weights.sum()
    return mixed


def low_rank_coefficients(law: Floats, parts: Any) -> Floats:
    """U^T law, float64 [n]."""
    coefficients: Floats = np.asarray(parts.factors, dtype=np.float64).T @ law
    return coefficients


def low_rank_weights(coefficients: Floats, parts: Any) -> Floats:
    """What the redistributed share is in proportion to, float64 [V]: negative weights are clamped."""
    weights: Floats = np.maximum(0.0, 1.0 + parts.scale * (np.asarray(parts.factors, dtype=np.float64) @ coefficients))
    return weights


def rdk_redistribute(draft_probs: Tensor, kernel: Any) -> Tensor:
    """Float64 [rows, V] from laws [rows, V]."""
    rows = [redistribute(row, kernel) for row in draft_probs.double().numpy()]
    return torch.from_numpy(np.array(rows).reshape(draft_probs.shape))
