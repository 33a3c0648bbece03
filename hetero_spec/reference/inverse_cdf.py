# SPDX-License-Identifier: Apache-2.0
"""Drawing an id by inverse CDF in vocabulary order.

Source
------
Inversion method (Devroye 1986, chapter III.2): the first id whose cumulative weight exceeds uniform times the total.
"""

import numpy as np

from hetero_spec.reference.row_law import Floats


def sample(weights: Floats, uniform: float) -> int:
    """Return the first id whose cumulative weight exceeds uniform * total; never an id of weight 0."""
    cumulative = np.cumsum(weights)
    above = cumulative > uniform * cumulative[-1]
    # uniform * total can round up to the total; then the last id that has any weight is meant.
    return int(np.argmax(above)) if above.any() else int(np.flatnonzero(weights > 0.0)[-1])


def ids_near(weights: Floats, uniform: float, epsilon: float) -> set[int]:
    """Return every id of positive weight whose interval of the CDF comes within epsilon of the uniform.

    The answer of any sampler whose cumulative sums are off by at most epsilon (as a share of the total) is in this set.
    """
    cumulative = np.cumsum(weights)
    upper = cumulative / cumulative[-1]
    lower = np.concatenate(([0.0], upper[:-1]))
    near = (weights > 0.0) & (lower <= uniform + epsilon) & (upper >= uniform - epsilon)
    return {int(token_id) for token_id in np.flatnonzero(near)}
