# SPDX-License-Identifier: Apache-2.0
"""Training of DISCO's classifier: recorded drafts, a fit, and a threshold swept by replay on drafts held out.

Replay. Drafts are recorded with one long lookahead. Where a token was accepted, drafting from it would have given the
very tokens that the long draft went on with (the drafter's draw depends on the context and the position only), so the
recorded drafts tell what every shorter lookahead would have drafted, accepted and paid, without decoding again. This is
exact where the emitted text does not depend on the drafts (temperature 0, verification by exact match); under rejection
sampling the token after a shorter draft may be another one, and it is a close estimate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from hetero_spec import ops
from hetero_spec.decoding.disco import NUM_FEATURES, Array, DiscoClassifier, features_of
from hetero_spec.decoding.lookahead import NUM_TOP_PROBS, DraftedToken, FixedLookahead
from hetero_spec.decoding.protocols import Drafter, Target

# With 0 only the length ends a draft.
THRESHOLDS = tuple(round(0.02 * step, 2) for step in range(50))
_DEPTH = NUM_FEATURES - 1  # the last feature


@dataclass(frozen=True)
class RecordedDraft:
    """One draft of a long lookahead.

    Attributes
    ----------
    features : float64 [M, NUM_FEATURES]
        Of its first M tokens: all but the last, after which no decision is made.
    num_draft_tokens : int
        Its length, more than M.
    num_accepted_tokens : int
    """

    features: Array
    num_draft_tokens: int
    num_accepted_tokens: int

    def as_dict(self) -> dict[str, Any]:
        """Return it ready for JSON, in five digits."""
        rows = [[float(f"{value:.5g}") for value in row] for row in self.features]
        return {"features": rows, "drafted": self.num_draft_tokens, "accepted": self.num_accepted_tokens}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> RecordedDraft:
        """Read what `as_dict` gave."""
        features = np.asarray(content["features"], dtype=np.float64).reshape(-1, NUM_FEATURES)
        return cls(features, int(content["drafted"]), int(content["accepted"]))


class RecordingLookahead(FixedLookahead):
    """A fixed lookahead that keeps what DISCO would have seen, and what became of it.

    Attributes
    ----------
    drafts : list of RecordedDraft
        Since `begin`.
    """

    needs_prob = True
    needs_top_probs = True

    def __init__(self, num_tokens: int) -> None:
        super().__init__(num_tokens)
        self.drafts: list[RecordedDraft] = []
        self._features: dict[int, list[Array]] = {}

    def begin(self, num_requests: int) -> None:
        """Begin a new record."""
        self.drafts, self._features = [], {}

    def wants_more(self, drafted: DraftedToken) -> bool:
        """Note the token and draft on."""
        self._features.setdefault(drafted.request, []).append(features_of(drafted))
        return True

    def observe(self, request: int, num_draft_tokens: int, num_accepted_tokens: int) -> None:
        """Note what the target said."""
        rows = self._features.pop(request, [])
        if num_draft_tokens:
            # A draft that ended for want of a next token has been asked about its last one too.
            rows = rows[: num_draft_tokens - 1]
            features = np.array(rows).reshape(-1, NUM_FEATURES)
            self.drafts.append(RecordedDraft(features, num_draft_tokens, num_accepted_tokens))


def examples_of(drafts: Sequence[RecordedDraft]) -> tuple[Array, Array]:
    """Return features [N, NUM_FEATURES] and labels [N] of the tokens whose predecessors were all accepted."""
    features = [draft.features[: draft.num_accepted_tokens + 1] for draft in drafts]
    labels = [np.arange(len(rows)) < draft.num_accepted_tokens for rows, draft in zip(features, drafts, strict=True)]
    if not features:
        return np.empty((0, NUM_FEATURES)), np.empty(0)
    return np.concatenate(features), np.concatenate(labels).astype(np.float64)


def train(
    features: Array, labels: Array, *, num_hidden: int = 16, num_steps: int = 400, seed: int = 0
) -> DiscoClassifier:
    """Fit the classifier by cross-entropy; the same inputs give the same classifier.

    Parameters
    ----------
    features : float64 [N, NUM_FEATURES]
    labels : float64 [N]
        1 accepted, 0 not.
    num_hidden, seed : int
    num_steps : int
        Descent steps over all examples; the weights are kept that did best on the last fifth of the examples, which
        the descent does not see (a few thousand tokens are soon learnt by heart).

    Raises
    ------
    ValueError   there are no examples
    """
    if len(labels) == 0:
        raise ValueError("train: labels must hold at least one drafted token, got none")
    mean, scale = features.mean(0), features.std(0)
    scale = np.where(scale > 1e-6, scale, 1.0)
    inputs = torch.from_numpy((features - mean) / scale).float()
    wanted = torch.from_numpy(labels).float()
    num_seen = max(1, len(labels) * 4 // 5)
    generator = torch.Generator().manual_seed(seed)
    hidden_weights = torch.randn(num_hidden, NUM_FEATURES, generator=generator) / NUM_FEATURES**0.5
    output_weights = torch.randn(num_hidden, generator=generator) / num_hidden**0.5
    weights = [hidden_weights, torch.zeros(num_hidden), output_weights, torch.zeros(())]
    for weight in weights:
        weight.requires_grad_(True)
    optimizer = torch.optim.AdamW(weights, lr=0.005, weight_decay=0.1)
    least, kept = float("inf"), weights
    for _ in range(num_steps):
        logits = torch.tanh(inputs @ weights[0].T + weights[1]) @ weights[2] + weights[3]
        losses = torch.nn.functional.binary_cross_entropy_with_logits(logits, wanted, reduction="none")
        unseen = float(losses.detach()[num_seen:].mean()) if num_seen < len(labels) else 0.0
        if unseen <= least:
            least, kept = unseen, [weight.detach().clone() for weight in weights]
        optimizer.zero_grad()
        losses[:num_seen].mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    first, first_bias, second, second_bias = (weight.detach().numpy().astype(np.float64) for weight in kept)
    first = first / scale  # the scaling becomes a part of the first layer
    return DiscoClassifier(first, first_bias - first @ mean, second, float(second_bias))


@dataclass(frozen=True)
class Costs:
    """Seconds of one step on each side.

    Attributes
    ----------
    draft : float
        Of one drafted token, its sampling and the look at its ten likeliest included.
    verify : tuple of float
        verify[k] is one target pass over k + 1 tokens: k drafted ones and the one before.
    """

    draft: float
    verify: tuple[float, ...]

    def of(self, num_draft_tokens: int) -> float:
        """Seconds of a round."""
        return self.draft * num_draft_tokens + self.verify[min(num_draft_tokens, len(self.verify) - 1)]


@dataclass(frozen=True)
class Replay:
    """What a lookahead would have reached on recorded drafts."""

    tokens: int
    rounds: int
    drafted: int
    accepted: int
    seconds: float

    @property
    def block_efficiency(self) -> float:
        """Tokens per target pass."""
        return self.tokens / self.rounds if self.rounds else 0.0

    @property
    def tokens_per_second(self) -> float:
        """By the costs it was replayed with."""
        return self.tokens / self.seconds if self.seconds else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return counts and rates, ready for JSON."""
        return {
            "tokens": self.tokens,
            "rounds": self.rounds,
            "drafted": self.drafted,
            "accepted": self.accepted,
            "block_efficiency": self.block_efficiency,
            "tokens_per_second": self.tokens_per_second,
        }


# Length of the draft that starts at a token of a recorded draft: (draft's number, token's number) -> at least 1.
Length = Callable[[int, int], int]


def replay(drafts: Sequence[RecordedDraft], length: Length, costs: Costs) -> Replay:
    """Walk through recorded drafts with another, shorter lookahead."""
    tokens = rounds = num_drafted = num_accepted = 0
    seconds = 0.0
    for number, draft in enumerate(drafts):
        start = 0
        # A start beyond the last drafted token would need a draft that was not recorded: the next record goes on there.
        while start < draft.num_draft_tokens:
            drafted = max(1, min(length(number, start), draft.num_draft_tokens - start))
            accepted = min(drafted, draft.num_accepted_tokens - start)
            tokens += accepted + 1
            rounds += 1
            num_drafted += drafted
            num_accepted += accepted
            seconds += costs.of(drafted)
            if start + accepted == draft.num_accepted_tokens:
                break  # the target's own token differs from the draft, as it did in the record
            start += accepted + 1
    return Replay(tokens, rounds, num_drafted, num_accepted, seconds)


def fixed_length(num_tokens: int) -> Length:
    """Always the same length."""
    return lambda number, start: num_tokens


def oracle_length(drafts: Sequence[RecordedDraft], max_draft_tokens: int) -> Length:
    """Up to and including the first token that is not accepted."""
    return lambda number, start: min(drafts[number].num_accepted_tokens - start + 1, max_draft_tokens)


def disco_lengths(drafts: Sequence[RecordedDraft], classifier: DiscoClassifier) -> Callable[[float, int], Length]:
    """Return DISCO's lengths as a function of threshold and longest draft; the classifier runs here, once for all."""
    chances = [
        [_chances(draft.features[start:], classifier) for start in range(len(draft.features))] for draft in drafts
    ]

    def lengths_of(threshold: float, max_draft_tokens: int) -> Length:
        def length(number: int, start: int) -> int:
            if start >= len(chances[number]):
                return 1
            below = np.flatnonzero(chances[number][start] < threshold)
            # With no stop in sight the draft goes one token beyond the last decision.
            stop = int(below[0]) + 1 if len(below) else len(chances[number][start]) + 1
            return min(stop, max_draft_tokens)

        return length

    return lengths_of


def _chances(features: Array, classifier: DiscoClassifier) -> Array:
    """How likely a draft that begins at the first row is accepted up to each row."""
    moved = features.copy()
    moved[:, _DEPTH] = np.arange(len(features))
    return np.asarray(np.cumprod(classifier(moved)))


def sweep(
    drafts: Sequence[RecordedDraft],
    classifier: DiscoClassifier,
    costs: Costs,
    max_draft_tokens: int,
    thresholds: Sequence[float] = THRESHOLDS,
) -> tuple[tuple[float, int], dict[tuple[float, int], Replay]]:
    """Replay every threshold with every longest draft up to max_draft_tokens.

    Returns
    -------
    best : (threshold, longest draft)
        With most tokens per second; among equals the lowest threshold and the shortest draft.
    replays : dict
        By threshold and longest draft.
    """
    lengths_of = disco_lengths(drafts, classifier)
    choices = [(threshold, longest) for threshold in thresholds for longest in range(1, max_draft_tokens + 1)]
    replays = {choice: replay(drafts, lengths_of(*choice), costs) for choice in choices}
    return max(choices, key=lambda choice: replays[choice].tokens_per_second), replays


def measure_costs(
    target: Target,
    drafter: Drafter,
    context: Sequence[int],
    max_draft_tokens: int,
    *,
    num_repeats: int = 5,
    clock: Callable[[], float] | None = None,
    on_step: Callable[[], None] = lambda: None,
) -> Costs:
    """Time each side's step behind a context: the least of repeats in which all lengths take turns.

    The least and not the median, because other work on the machine falls on long steps far more often than on short
    ones, and the ratio of the two is what decides.

    Parameters
    ----------
    target, drafter : Target, Drafter
    context : sequence of int
        Target ids, more than one.
    max_draft_tokens : int
    num_repeats : int
    clock : callable, optional
        Seconds. Default: time.perf_counter.
    on_step : callable
        Called after each repeat, for a progress display.
    """
    now = clock or time.perf_counter
    fed = list(context)
    target_sequences = target.open(1, len(fed) + max_draft_tokens + 1)
    draft_context = drafter.encode_context(fed)
    draft_sequences = drafter.open(1, len(draft_context) + 1)
    target_sequences.feed([0], [fed], [1])
    draft_sequences.feed([0], [draft_context], [1])
    verify: list[list[float]] = [[] for _ in range(max_draft_tokens + 1)]
    draft: list[float] = []

    def timed(work: Callable[[], object]) -> float:
        start = now()
        work()
        return now() - start

    def step() -> None:
        logits = draft_sequences.feed([0], [draft_context[-1:]], [1])
        place = torch.zeros(1, dtype=torch.int64, device=logits.device)
        ops.draft_sample(logits, drafter.draft_to_target_ids, seeds=place, positions=place)
        logits.topk(min(NUM_TOP_PROBS, logits.shape[1]))

    # One round more than asked for: the first pays for memory that the others find ready, and is thrown away.
    for repeat in range(num_repeats + 1):
        for num_tokens in range(max_draft_tokens + 1):
            ids = (fed * (num_tokens + 1))[: num_tokens + 1]
            seconds = timed(partial(target_sequences.feed, [0], [ids], [len(ids)]))
            target_sequences.truncate(0, len(fed))
            draft_seconds = timed(step)
            draft_sequences.truncate(0, len(draft_context))
            if repeat:
                verify[num_tokens].append(seconds)
                draft.append(draft_seconds)
        on_step()
    least = list(map(min, verify))
    # A pass over more tokens is never the quicker one: what says so was disturbed less.
    return Costs(min(draft), tuple(min(least[num_tokens:]) for num_tokens in range(len(least))))


def fit(
    training: Sequence[RecordedDraft], held_out: Sequence[RecordedDraft], costs: Costs, max_draft_tokens: int
) -> tuple[DiscoClassifier, float, int, dict[str, Any]]:
    """Train on some drafts, choose threshold and longest draft on others, and compare with what else could be chosen.

    Returns
    -------
    classifier : DiscoClassifier
    threshold : float
    longest : int
        With the threshold, most tokens per second on the drafts held out; from 1 to max_draft_tokens.
    report : dict
        Ready for JSON. "replays": by name, on the drafts held out; "plain" is decoding without a drafter.

    Raises
    ------
    ValueError   one of the two has no draft of more than one token
    """
    for name, drafts in (("training", training), ("held_out", held_out)):
        if not len(examples_of(drafts)[1]):
            raise ValueError(f"fit: {name} must hold drafts of more than one token, got {len(drafts)} drafts")
    classifier = train(*examples_of(training))
    (threshold, longest), replays = sweep(held_out, classifier, costs, max_draft_tokens)
    fixed = {length: replay(held_out, fixed_length(length), costs) for length in range(1, max_draft_tokens + 1)}
    best = max(fixed, key=lambda length: fixed[length].tokens_per_second)
    oracle = replay(held_out, oracle_length(held_out, max_draft_tokens), costs)
    features, labels = examples_of(held_out)
    report = {
        "num_examples": len(examples_of(training)[1]),
        "num_examples_held_out": len(labels),
        "accepted_share_held_out": float(labels.mean()),
        "ranking_held_out": ranking(classifier(features), labels),
        "costs": {"draft": costs.draft, "verify": list(costs.verify)},
        "best_fixed_length": best,
        "replays": {
            "plain": {"block_efficiency": 1.0, "tokens_per_second": 1.0 / costs.of(0)},
            f"fixed {best}": fixed[best].as_dict(),
            "disco": replays[threshold, longest].as_dict(),
            "oracle": oracle.as_dict(),
        },
        "fixed": [{"length": length, **result.as_dict()} for length, result in fixed.items()],
        "thresholds": [
            {"threshold": choice[0], **result.as_dict()} for choice, result in replays.items() if choice[1] == longest
        ],
    }
    return classifier, threshold, longest, report


def ranking(scores: Array, labels: Array) -> float | None:
    """How often an accepted token scores above one that was not (area under the ROC curve; ties count half).

    None where all labels are the same; 0.5 is chance.
    """
    positive = labels > 0.5
    num_positive, num_negative = int(positive.sum()), int((~positive).sum())
    if not num_positive or not num_negative:
        return None
    _, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    middle_ranks = np.cumsum(counts) - (counts - 1) / 2.0
    rank_sum = float(middle_ranks[places][positive].sum())
    return (rank_sum - num_positive * (num_positive + 1) / 2.0) / (num_positive * num_negative)
