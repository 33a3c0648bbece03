# SPDX-License-Identifier: Apache-2.0
"""Small target and draft laws for exact enumeration, and comparisons of output laws."""

from typing import NamedTuple

import numpy as np

from hetero_spec.reference.output_law import Law, Prefix, complete


class Case(NamedTuple):
    name: str
    target: Law
    draft: Law
    num_draft_tokens: int


def constant(law: list[float]) -> Law:
    """The same law at every position."""
    return lambda prefix: np.array(law, dtype=np.float64)


def of_prefix(vocab_size: int, seed: int, zeros: float = 0.0) -> Law:
    """Another law after every prefix; each probability is 0 with the given chance."""

    def law(prefix: Prefix) -> np.ndarray:
        gen = np.random.default_rng([seed, *(1 + token_id for token_id in prefix)])
        weights = gen.gamma(0.7, size=vocab_size)
        weights[gen.random(vocab_size) < zeros] = 0.0
        weights[gen.integers(vocab_size)] += 0.1
        # Multiples of 2**-12 are exact in float32, so that op and enumeration see the same numbers.
        weights = np.round(weights / weights.sum() * 4096)
        weights[np.argmax(weights)] += 4096 - weights.sum()
        return weights / 4096

    return law


SMALL_CASES = [
    Case("one_draft", constant([0.125, 0.5, 0.375]), constant([0.625, 0.25, 0.125]), 1),
    Case("two_drafts", of_prefix(3, 1), of_prefix(3, 2), 2),
    Case("two_drafts_with_zeros", of_prefix(3, 3, 0.4), of_prefix(3, 4, 0.4), 2),
    Case("equal_laws", of_prefix(2, 5), of_prefix(2, 5), 2),
    Case("disjoint", constant([0.0, 0.0, 0.5, 0.5]), constant([0.5, 0.5, 0.0, 0.0]), 1),
    Case("no_draft", constant([0.25, 0.75]), constant([0.5, 0.5]), 0),
    Case("one_hot_draft", constant([0.25, 0.5, 0.25]), constant([1.0, 0.0, 0.0]), 2),
]
CASES = [
    *SMALL_CASES,
    Case("three_drafts", of_prefix(4, 6), of_prefix(4, 7), 3),
    Case("three_drafts_with_zeros", of_prefix(5, 8, 0.3), of_prefix(5, 9, 0.3), 3),
    Case("eight_tokens", of_prefix(8, 10, 0.2), of_prefix(8, 11), 2),
]


def assert_same_law(actual: dict[Prefix, float], expected: dict[Prefix, float], tolerance: float) -> None:
    for ids in actual.keys() | expected.keys():
        found, wanted = actual.get(ids, 0.0), expected.get(ids, 0.0)
        assert abs(found - wanted) <= tolerance, f"{ids}: probability {found}, expected {wanted}"


def assert_target_law(law: dict[Prefix, float], target: Law, length: int, tolerance: float) -> None:
    """Completed with draws from the target, the output must be `length` draws from the target."""
    assert_same_law(complete(law, target, length), complete({(): 1.0}, target, length), tolerance)
