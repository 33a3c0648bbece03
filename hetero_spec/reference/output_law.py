# SPDX-License-Identifier: Apache-2.0
"""The exact law of what verification emits, by enumeration of every draft; for small vocabularies.

Source
------
The rules of verification.py with the uniforms integrated out: an accept uniform is below its threshold with the
probability of that threshold, and the final draw follows its weights.
"""

from collections import defaultdict
from collections.abc import Callable
from itertools import product

import numpy as np

from hetero_spec.reference.row_law import Floats

Prefix = tuple[int, ...]
Law = Callable[[Prefix], Floats]


def residual_law(scale: float, target: Floats, draft: Floats) -> Floats:
    """Normalise max(0, scale * target - draft); the target's law when nothing is left."""
    weights: Floats = np.maximum(0.0, scale * target - draft)
    total = float(weights.sum())
    return weights / total if total > 0.0 else target


def _stop_probabilities(
    targets: list[Floats], drafts: list[Floats], token_ids: Prefix, rule: str
) -> tuple[list[float], list[float]]:
    """Probability of accepting exactly 0..n tokens, and the scale of the target's law in each residual."""
    length = len(token_ids)
    ratios = [targets[j][token_ids[j]] / drafts[j][token_ids[j]] for j in range(length)]
    stops = []
    if rule == "token":
        reached = 1.0
        for ratio in ratios:
            stops.append(reached * (1.0 - min(1.0, ratio)))
            reached *= min(1.0, ratio)
        return [*stops, reached], [1.0] * (length + 1)
    prefix = [1.0]
    for ratio in ratios:
        prefix.append(min(prefix[-1] * ratio, 1.0))
    keep = [1.0]  # keeping 0 tokens needs no test
    for i in range(1, length):
        mass = float(np.maximum(0.0, prefix[i] * targets[i] - drafts[i]).sum())
        denominator = mass + 1.0 - prefix[i]
        keep.append(mass / denominator if denominator > 0.0 else 1.0)
    if length:
        keep.append(prefix[length])
    for i in range(length + 1):
        stops.append(keep[i] * float(np.prod([1.0 - keep[k] for k in range(i + 1, length + 1)])))
    return stops, prefix


def output_law(target_law: Law, draft_law: Law, num_draft_tokens: int, rule: str) -> dict[Prefix, float]:
    """Probability of every output (accepted ids, then one more) when drafts are drawn from draft_law.

    Both laws are functions of the tokens before the position, so that they may depend on what was drafted.
    """
    law: dict[Prefix, float] = defaultdict(float)
    vocab_size = len(target_law(()))
    for token_ids in product(range(vocab_size), repeat=num_draft_tokens):
        drafts = [draft_law(token_ids[:j]) for j in range(num_draft_tokens)]
        weight = float(np.prod([drafts[j][token_ids[j]] for j in range(num_draft_tokens)]))
        if weight == 0.0:
            continue
        targets = [target_law(token_ids[:j]) for j in range(num_draft_tokens + 1)]
        stops, scales = _stop_probabilities(targets, drafts, token_ids, rule)
        for accepted, stop in enumerate(stops):
            if accepted < num_draft_tokens:
                last = residual_law(scales[accepted], targets[accepted], drafts[accepted])
            else:
                last = targets[accepted]
            for token_id in np.flatnonzero(last).tolist():
                law[(*token_ids[:accepted], token_id)] += weight * stop * float(last[token_id])
    return dict(law)


def complete(law: dict[Prefix, float], target_law: Law, length: int) -> dict[Prefix, float]:
    """Continue every output with draws from the target until it has `length` tokens."""
    while any(len(ids) < length for ids in law):
        longer: dict[Prefix, float] = defaultdict(float)
        for ids, weight in law.items():
            if len(ids) >= length:
                longer[ids] += weight
                continue
            for token_id, prob in enumerate(target_law(ids).tolist()):
                longer[(*ids, token_id)] += weight * prob
        law = dict(longer)
    return law


def expected_accepted(law: dict[Prefix, float]) -> float:
    """Return the mean number of accepted draft tokens: every output holds one id more."""
    return sum(weight * (len(ids) - 1) for ids, weight in law.items())
