# SPDX-License-Identifier: Apache-2.0
"""A distribution over a vocabulary as a row of logits and four numbers.

``prob(t) = 0 if logit(t) < cutoff else exp((logit(t) - max_logit) * inv_temperature - log_normalizer)``

Three kinds of row are special, and are told apart by their numbers: a greedy row (inv_temperature +inf; log_normalizer
holds the id of the largest logit), an invalid row (all NaN) and an empty row (max_logit -inf, cutoff +inf).

Source
------
Softmax with temperature; top-k (Fan et al. 2018, 1805.04833), top-p (Holtzman et al. 2019, 1904.09751), min-p (Nguyen
et al. 2024, 2407.01082): the row's cutoff is the strictest of the three and ties with it are kept.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from torch import Tensor

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


class RowStats(NamedTuple):
    """The four numbers of a row law."""

    max_logit: float
    inv_temperature: float
    log_normalizer: float
    cutoff: float

    @property
    def is_invalid(self) -> bool:
        """NaN or +inf was among the logits, or a parameter was out of range."""
        return math.isnan(self.max_logit)

    @property
    def is_empty(self) -> bool:
        """No id has a probability above 0."""
        return self.max_logit == -math.inf

    @property
    def is_greedy(self) -> bool:
        """All of the mass is on one id."""
        return self.inv_temperature == math.inf and not self.is_empty


INVALID = RowStats(math.nan, math.nan, math.nan, math.nan)


class Parameters(NamedTuple):
    """Sampling parameters of one row."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float

    @property
    def are_valid(self) -> bool:
        """Whether every number is in its range; NaN is in none."""
        return 0.0 <= self.temperature < math.inf and self.top_p > 0.0 and 0.0 <= self.min_p <= 1.0


def parameters_of(
    index: int,
    temperature: float | Tensor | None,
    top_k: int | Tensor | None,
    top_p: float | Tensor | None,
    min_p: float | Tensor | None,
) -> Parameters:
    """Parameters of one request (or row): a tensor holds one value per request, a scalar is for all, None is off."""

    def value(parameter: float | Tensor | None, off: float) -> float:
        if parameter is None:
            return off
        return float(parameter[index]) if isinstance(parameter, Tensor) else float(parameter)

    return Parameters(value(temperature, 1.0), int(value(top_k, 0)), value(top_p, 1.0), value(min_p, 0.0))


def logits_of(logits: Tensor, row: int) -> Floats:
    """One row in float64 (exact for every dtype that the ops take)."""
    values: Floats = logits[row].double().numpy()
    return values


def inverse_temperature(temperature: float) -> float:
    """1 / temperature as a float32; +inf when that overflows."""
    if temperature == 0.0:
        return math.inf
    with np.errstate(over="ignore"):
        return float(np.float32(1.0 / temperature))


def unnormalized(logits: Floats, max_logit: float, inv_temperature: float) -> Floats:
    """exp((logit - max_logit) * inv_temperature), 0 for a logit of -inf whatever the temperature."""
    weights: Floats = np.zeros_like(logits)
    finite = logits > -np.inf
    weights[finite] = np.exp((logits[finite] - max_logit) * inv_temperature)
    return weights


def top_k_cutoff(logits: Floats, top_k: int, row_width: int) -> float:
    """Return the k-th largest of the unmasked logits, -inf when off."""
    if top_k <= 0 or top_k >= row_width or top_k >= len(logits):
        return -math.inf
    return float(np.sort(logits)[-top_k])


def top_p_cutoff(logits: Floats, max_logit: float, inv_temperature: float, top_p: float) -> float:
    """Return the largest value c such that the logits >= c hold at least top_p of the mass; -inf when off."""
    if top_p >= 1.0:
        return -math.inf
    values = np.sort(logits)[::-1]
    mass = np.cumsum(unnormalized(values, max_logit, inv_temperature))
    reached = int(np.argmax(mass >= top_p * mass[-1]))
    return float(values[reached])  # its ties are kept because they are not below it


def min_p_cutoff(max_logit: float, inv_temperature: float, min_p: float) -> float:
    """Return the logit whose probability is min_p times the largest, as a float32; -inf when off."""
    if min_p <= 0.0:
        return -math.inf
    if inv_temperature == 0.0:
        return max_logit if min_p >= 1.0 else -math.inf
    with np.errstate(over="ignore"):
        return float(np.float32(max_logit + math.log(min_p) / inv_temperature))


def stats_of_row(logits: Floats, parameters: Parameters, allowed: Mask | None = None) -> RowStats:
    """Reduce one row to its four numbers; ids that are not allowed do not exist for it, whatever their logits hold."""
    if not parameters.are_valid:
        return INVALID
    ids = np.arange(len(logits)) if allowed is None else np.flatnonzero(allowed)
    present = logits[ids]
    if np.isnan(present).any() or (present == np.inf).any():
        return INVALID
    inv_temperature = inverse_temperature(parameters.temperature)
    if not (present > -np.inf).any():
        return RowStats(-math.inf, inv_temperature, -math.inf, math.inf)
    max_logit = float(present.max())
    if inv_temperature == math.inf:
        return RowStats(max_logit, math.inf, float(ids[int(np.argmax(present))]), max_logit)
    cutoff_k = top_k_cutoff(present, parameters.top_k, len(logits))
    cutoff = max(
        cutoff_k,
        top_p_cutoff(present[present >= cutoff_k], max_logit, inv_temperature, parameters.top_p),
        min_p_cutoff(max_logit, inv_temperature, parameters.min_p),
    )
    kept = present[present >= cutoff]
    log_normalizer = math.log(float(unnormalized(kept, max_logit, inv_temperature).sum()))
    return RowStats(max_logit, inv_temperature, log_normalizer, cutoff)


def probs_of_row(logits: Floats, stats: RowStats, allowed: Mask | None = None) -> Floats:
    """Every probability of a row law: NaN throughout for an invalid row, 0 throughout for an empty one."""
    probs: Floats = np.zeros_like(logits)
    if stats.is_invalid:
        probs[:] = np.nan
        return probs
    if stats.is_empty:
        return probs
    if stats.is_greedy:
        probs[int(stats.log_normalizer)] = 1.0
        return probs
    kept = (logits >= stats.cutoff) & (logits > -np.inf)
    if allowed is not None:
        kept &= allowed
    probs[kept] = np.exp((logits[kept] - stats.max_logit) * stats.inv_temperature - stats.log_normalizer)
    return probs
