# SPDX-License-Identifier: Apache-2.0
"""Worlds with a simulated clock, in which a controller's decisions have a price that is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from hetero_spec.decoding.controller import NGRAM, NO_DRAFT, PLAIN, Choice, Controller, Round, Situation, Text

# Share of draft tokens kept, if the one before was: of the time (in emitted tokens) and the depth.
Share = Callable[[int, int], float]
# Seconds of a look of the target: of the time and the number of tokens it is shown.
Look = Callable[[int, int], float]
Confidence = Callable[[int, float], float]

# One time in fifty is three times as long.
_HICCUP_SHARE, _HICCUP = 0.02, 3.0
# Tokens of a draft that can be right.
_MOST_WATCHED = 16


@dataclass
class World:
    """What methods and looks cost, and how often drafts are kept.

    Attributes
    ----------
    shares : mapping
        Of each method.
    look : Look
    steps : mapping
        Seconds of each method's draft token.
    confidence : callable
        Of the time and a number in [0, 1): how sure n-grams are; 0: they propose nothing.
    reading, catching_up : float
        Seconds per token of prompt, of the target and of a drafter.
    noise : float
        Standard deviation of the logarithm of every time that is measured; there are hiccups besides. 0: neither.
    """

    shares: Mapping[str, Share]
    look: Look
    steps: Mapping[str, float]
    confidence: Confidence = field(default=lambda now, uniform: 0.0)
    reading: float = 0.05
    catching_up: float = 0.005
    noise: float = 0.0
    max_length: int = 8


@dataclass
class Run:
    """What a run of single-request rounds came to, in seconds without any noise."""

    seconds: float = 0.0
    tokens: int = 0
    rounds: int = 0
    rounds_by_method: dict[str, int] = field(default_factory=dict)
    trace: list[tuple[int, float, str]] = field(default_factory=list)
    texts: list[tuple[int, float]] = field(default_factory=list)


def simulate(
    world: World,
    plan: Callable[[Situation], Choice],
    learn: Callable[[Round], None],
    num_tokens: int,
    *,
    seed: int = 0,
    text_length: int = 10**9,
    prompt_length: int = 50,
    listener: Controller | None = None,
) -> Run:
    """Decode texts of `text_length` tokens one after the other, `num_tokens` in all.

    Whoever listens is told of the rest: n-grams that are watched, rounds of rest, texts that end.
    """
    listener = Controller(()) if listener is None else listener
    gen = np.random.default_rng(seed)
    run = Run()
    pending: dict[str, int] = {}
    text_left = num_rested = rest = 0
    choice = NO_DRAFT

    def took(seconds: float) -> float:
        if not world.noise:
            return seconds
        return (
            seconds
            * float(np.exp(world.noise * gen.standard_normal()))
            * (_HICCUP if gen.random() < _HICCUP_SHARE else 1.0)
        )

    def num_right(method: str, now: int) -> int:
        """Draw how many of a draft's tokens are right."""
        right = 0
        while right < _MOST_WATCHED and gen.random() < world.shares[method](now, right):
            right += 1
        return right

    text = Text()
    watched: list[list[float]] = []  # proposals of n-grams: place, confidence, how many are right, how many have come
    while run.tokens < num_tokens:
        now = run.tokens
        prompt = 0
        if text_left <= 0:
            text, text_left, prompt = Text(), text_length, prompt_length
            pending, watched = dict.fromkeys(world.shares, prompt_length), []
        for proposal in watched:
            start, confidence, right, come = proposal
            while come <= right and come < _MOST_WATCHED and start + come < now:
                listener.watch(text, "", confidence, int(come), come < right)
                come += 1
            proposal[3] = come
        confidence = world.confidence(now, float(gen.random()))
        if confidence:
            watched = [*watched[-_MOST_WATCHED:], [now, confidence, num_right(NGRAM, now), 0]]
        if num_rested < rest and not confidence and not prompt:
            num_rested += 1
        else:
            listener.rested(text, num_rested)
            choice = plan(
                Situation(1, min(world.max_length, text_left - 1), text_left, "", pending, [confidence], text)
            )
            num_rested, rest = 0, choice.rest
        count, seconds_draft, behind = 0, 0.0, 0
        if choice.method != PLAIN:
            count, behind = min(choice.length, world.max_length, text_left - 1), pending[choice.method]
            assert choice.method != NGRAM or confidence
            late = 0 if choice.method == NGRAM else max(0, behind - 1)
            seconds_draft = world.steps[choice.method] * count + late * world.catching_up
            pending[choice.method] = 0
        accepted = 0
        if count:
            right = int(watched[-1][2]) if choice.method == NGRAM else num_right(choice.method, now)
            accepted = min(count, right)
        seconds_rest = world.look(now, count + 1) + prompt * world.reading
        measured = took(seconds_draft), took(seconds_rest)
        if not num_rested:
            learn(Round(choice, 1, "", text, [count], [count], [accepted], behind, prompt, *measured))
        for method in pending:
            pending[method] += accepted + 1
        if choice.method != PLAIN:
            pending[choice.method] = 1
        run.seconds += seconds_draft + seconds_rest
        run.tokens += accepted + 1
        text_left -= accepted + 1
        run.rounds += 1
        run.rounds_by_method[choice.method] = run.rounds_by_method.get(choice.method, 0) + 1
        run.trace.append((run.tokens, run.seconds, choice.method))
        if text_left <= 0:
            run.texts.append((run.tokens, run.seconds))
            listener.rested(text, num_rested)
            listener.end(text_length)
            num_rested = rest = 0
    return run


def run_controlled(world: World, num_tokens: int, *, controller: Controller | None = None, **arguments: int) -> Run:
    """Let a controller decide."""
    controller = Controller(tuple(world.shares)) if controller is None else controller
    return simulate(world, controller.plan, controller.observe, num_tokens, listener=controller, **arguments)


def run_fixed(world: World, choice: Choice, num_tokens: int, **arguments: int) -> Run:
    """Always do the same, where there is anything to propose."""

    def plan(situation: Situation) -> Choice:
        is_possible = situation.max_length > 0 and (choice.method != NGRAM or any(situation.confidences))
        return choice if is_possible else NO_DRAFT

    return simulate(world, plan, lambda outcome: None, num_tokens, **arguments)


def run_plain(world: World, num_tokens: int, **arguments: int) -> Run:
    """Never draft."""
    return run_fixed(world, NO_DRAFT, num_tokens, **arguments)


def expected_seconds(world: World, method: str, length: int, num_tokens: int) -> float:
    """Seconds that a fixed choice takes on average, without prompts."""
    seconds, stretch = 0.0, 50
    for now in range(0, num_tokens, stretch):
        plain = world.look(now, 1)
        per_token = plain
        if method != PLAIN:
            tokens = kept = 1.0
            for depth in range(length):
                kept *= world.shares[method](now, depth)
                tokens += kept
            drafted = world.look(now, 1 + length) + length * world.steps[method]
            share = _share_matched(world, now) if method == NGRAM else 1.0
            per_token = (share * drafted + (1.0 - share) * plain) / (share * tokens + 1.0 - share)
        seconds += per_token * min(stretch, num_tokens - now)
    return seconds


def _share_matched(world: World, now: int) -> float:
    """Return how often the n-grams have something to propose."""
    return sum(world.confidence(now, (step + 0.5) / 200) > 0 for step in range(200)) / 200


def best_fixed_seconds(world: World, num_tokens: int) -> float:
    """Seconds of the choice that is best throughout, known only in hindsight."""
    lengths = range(1, world.max_length + 1)
    choices = [(PLAIN, 0), *((method, length) for method in world.shares for length in lengths)]
    return min(expected_seconds(world, *choice, num_tokens) for choice in choices)
