# SPDX-License-Identifier: Apache-2.0
"""Testing one request's draft against the target's laws, by the token rule and by the block rule.

Both entry points (from logits, from probabilities) prepare the rows of a request and come here.

Source
------
Token rule: Leviathan et al. 2023, 2211.17192, algorithm 1; Chen et al. 2023, 2302.01318, algorithm 2.
Block rule: Sun et al. 2024, 2403.10444, algorithm 2, as a test of every prefix at once.
"""

import math
from collections.abc import Sequence
from enum import IntFlag
from typing import NamedTuple

import numpy as np

from hetero_spec.reference import inverse_cdf
from hetero_spec.reference.row_law import Floats


class Status(IntFlag):
    """What was wrong with a request; 0 when nothing was."""

    TARGET_NAN = 1
    TARGET_EMPTY = 2
    DRAFT_OUT_OF_RANGE = 4
    DRAFT_ZERO = 8
    RESIDUAL_EMPTY = 16
    INVALID_PARAMETER = 32


class TargetRow(NamedTuple):
    """The target's law at one position: probabilities [V], or why there are none and the id to emit instead."""

    probs: Floats
    problem: Status
    fallback_id: int


class Verdict(NamedTuple):
    """Result of one request, and what it hinged on (for comparisons that allow for rounding).

    thresholds[j] is the number that the accept uniform of row j had to stay below; weights are those of the final draw
    (None when no draw was made) and mass is their total.
    """

    token_ids: list[int]
    num_accepted: int
    status: Status
    thresholds: list[float]
    weights: Floats | None
    mass: float


def effective_length(draft_token_ids: Sequence[int], max_draft_tokens: int) -> int:
    """Return the number of draft tokens before the first -1, at most max_draft_tokens."""
    length = 0
    for token_id in draft_token_ids[:max_draft_tokens]:
        if token_id == -1:
            break
        length += 1
    return length


def residual_weights(scale: float, target: Floats, draft: Floats, status: Status) -> tuple[Floats, Status]:
    """max(0, scale * target - draft), or the target's law when that has no mass."""
    if np.isnan(draft).any():
        return target, status | Status.DRAFT_ZERO
    weights = np.maximum(0.0, scale * target - draft)
    if not (weights.sum() > 0.0 and math.isfinite(weights.sum())):
        return target, status | Status.RESIDUAL_EMPTY
    return weights, status


def verify_tokens(
    target_rows: Sequence[TargetRow],
    draft_laws: Sequence[Floats],
    draft_token_ids: Sequence[int],
    uniforms: Sequence[tuple[float, float]],
) -> Verdict:
    """Token rule. target_rows and uniforms have one entry more than the draft; draft_laws are over target ids."""
    accepted: list[int] = []
    thresholds: list[float] = []
    status = Status(0)
    for j, row in enumerate(target_rows):
        accept_uniform, resample_uniform = uniforms[j]
        if row.problem:
            return Verdict([*accepted, row.fallback_id], j, status | row.problem, thresholds, None, 0.0)
        weights = row.probs  # the bonus token's, unless the draft goes on
        if j < len(draft_token_ids):
            token_id = draft_token_ids[j]
            if not 0 <= token_id < len(row.probs):
                status |= Status.DRAFT_OUT_OF_RANGE
            else:
                target_prob, draft_prob = float(row.probs[token_id]), float(draft_laws[j][token_id])
                if not draft_prob > 0.0:
                    status |= Status.DRAFT_ZERO
                else:
                    thresholds.append(target_prob / draft_prob)
                    if accept_uniform * draft_prob < target_prob:
                        accepted.append(token_id)
                        continue
                weights, status = residual_weights(1.0, row.probs, draft_laws[j], status)
        recovered = inverse_cdf.sample(weights, resample_uniform)
        return Verdict([*accepted, recovered], j, status, thresholds, weights, float(weights.sum()))
    raise ValueError("target_rows must hold one row more than the draft")


def verify_block(
    target_rows: Sequence[TargetRow],
    draft_laws: Sequence[Floats],
    draft_token_ids: Sequence[int],
    uniforms: Sequence[tuple[float, float]],
) -> Verdict:
    """Block rule. Arguments as in ``verify_tokens``; a token that cannot be tested ends the draft before it.

    So does a target row that is no law: what was drafted before it is tested as ever, and only a draft that is kept up
    to there ends with that row's documented id.
    """
    status = Status(0)
    length = 0
    for j, token_id in enumerate(draft_token_ids):
        if target_rows[j].problem:
            break
        if not 0 <= token_id < len(target_rows[j].probs):
            status |= Status.DRAFT_OUT_OF_RANGE
            break
        if not draft_laws[j][token_id] > 0.0:
            status |= Status.DRAFT_ZERO
            break
        length += 1
    status |= target_rows[length].problem  # the block rule reads that row whatever it keeps

    # prefix[i]: probability, capped at 1, that the first i tokens are kept together.
    prefix = [1.0]
    for j in range(length):
        token_id = draft_token_ids[j]
        prefix.append(min(prefix[j] * float(target_rows[j].probs[token_id] / draft_laws[j][token_id]), 1.0))

    thresholds: list[float] = []
    num_accepted = 0
    for i in range(1, length + 1):
        threshold = prefix[length]
        if i < length:
            mass = float(np.maximum(0.0, prefix[i] * target_rows[i].probs - draft_laws[i]).sum())
            denominator = mass + 1.0 - prefix[i]
            threshold = mass / denominator if denominator > 0.0 else 1.0
        thresholds.append(threshold)
        if uniforms[i - 1][0] < threshold:
            num_accepted = i

    accepted = list(draft_token_ids[:num_accepted])
    row = target_rows[num_accepted]
    if row.problem:
        return Verdict([*accepted, row.fallback_id], num_accepted, status | row.problem, thresholds, None, 0.0)
    weights = row.probs
    if num_accepted < length:
        weights, status = residual_weights(prefix[num_accepted], row.probs, draft_laws[num_accepted], status)
    recovered = inverse_cdf.sample(weights, uniforms[num_accepted][1])
    return Verdict([*accepted, recovered], num_accepted, status, thresholds, weights, float(weights.sum()))


RULES = {"token": verify_tokens, "block": verify_block}
