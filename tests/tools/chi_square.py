# SPDX-License-Identifier: Apache-2.0
"""Law tests whose limits a correct sampler passes for all but one seed in 10**9, and a wrong one must fail."""

import numpy as np
import numpy.typing as npt
from scipy import stats

FAILURE_PROBABILITY = 1e-9
# Below five expected draws the chi-square limit is not that of the exact law (Cochran 1954); such outcomes are counted
# together.
_LEAST_EXPECTED = 5.0


def _pooled(counts: npt.ArrayLike, law: npt.ArrayLike) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    observed, expected = np.asarray(counts, dtype=np.float64), np.asarray(law, dtype=np.float64)
    assert np.isclose(expected.sum(), 1.0, atol=1e-6), "the law must have total 1"
    expected = expected / expected.sum() * observed.sum()
    small = expected < _LEAST_EXPECTED
    if small.any():
        observed = np.append(observed[~small], observed[small].sum())
        expected = np.append(expected[~small], expected[small].sum())
    return observed, expected


def departs(counts: npt.ArrayLike, law: npt.ArrayLike) -> bool:
    """Whether counts of outcomes cannot have come from the law (outcomes in the same order)."""
    observed, expected = _pooled(counts, law)
    if (observed[expected == 0.0] > 0).any():
        return True
    observed, expected = observed[expected > 0.0], expected[expected > 0.0]
    if len(observed) < 2:
        return False
    statistic = float(((observed - expected) ** 2 / expected).sum())
    return statistic > float(stats.chi2.isf(FAILURE_PROBABILITY, len(observed) - 1))


def hits_limits(trials: int, probability: float) -> tuple[int, int]:
    """Fewest and most hits that `trials` draws of an event may give: exact binomial tails, half the failure in each."""
    low, high = stats.binom.ppf([FAILURE_PROBABILITY / 2, 1.0 - FAILURE_PROBABILITY / 2], trials, probability)
    return int(low), int(high)
