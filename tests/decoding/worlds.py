# SPDX-License-Identifier: Apache-2.0
"""Worlds with a simulated clock, in which a controller's decisions have a price that is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from hetero_spec.decoding.controller import PLAIN, Choice, Controller, Round, Situation

# Share of draft tokens kept, if the one before was: of the time (in emitted tokens) and the depth.
Share = Callable[[int, int], float]
# Seconds of a look of the target: of the time and the number of tokens it is shown.
Look = Callable[[int, int], float]

# One time in fifty is three times as long.
_HICCUP_SHARE, _HICCUP = 0.02, 3.0


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
    available : mapping
        How often a method has anything to propose; 1 unless named.
    reading, catching_up : float
        Seconds per token of prompt, of the target and of a drafter.
    noise : float
        Standard deviation of the logarithm of every time; there are hiccups besides. 0: neither.
    """

    shares: Mapping[str, Share]
    look: Look
    steps: Mapping[str, float]
    available: Mapping[str, float] = field(default_factory=dict)
    reading: float = 0.05
    catching_up: float = 0.005
    noise: float = 0.0
    max_length: int = 8


@dataclass
class Run:
    """What a run of single-request rounds came to."""

    seconds: float = 0.0
    tokens: int = 0
    rounds: int = 0
    rounds_by_method: dict[str, int] = field(default_factory=dict)
    trace: list[tuple[int, float, str]] = field(default_factory=list)


def simulate(
    world: World,
    plan: Callable[[Situation], list[Choice]],
    learn: Callable[[Round], None],
    num_tokens: int,
    *,
    seed: int = 0,
    text_length: int = 10**9,
    prompt_length: int = 50,
    refund: Callable[[Choice], None] | None = None,
) -> Run:
    """Decode texts of `text_length` tokens one after the other, `num_tokens` in all."""
    gen = np.random.default_rng(seed)
    run = Run()
    pending: dict[str, int] = {}
    text_left = 0

    def took(seconds: float) -> float:
        if not world.noise:
            return seconds
        return (
            seconds
            * float(np.exp(world.noise * gen.standard_normal()))
            * (_HICCUP if gen.random() < _HICCUP_SHARE else 1.0)
        )

    while run.tokens < num_tokens:
        now = run.tokens
        prompt = 0
        if text_left <= 0:
            text_left, prompt = text_length, prompt_length
            pending = dict.fromkeys(world.shares, prompt_length)
        situation = Situation(1, min(world.max_length, text_left - 1), text_left, None, pending)
        choice, count, seconds_draft = Choice(PLAIN, 0), 0, 0.0
        behind = 0
        for planned in plan(situation):
            if planned.method == PLAIN:
                choice = planned
                break
            if gen.random() < world.available.get(planned.method, 1.0):
                choice, count = planned, min(planned.length, situation.max_length)
                behind = pending[planned.method]
                seconds_draft = took(world.steps[planned.method] * count + max(0, behind - 1) * world.catching_up)
                pending[planned.method] = 0
                break
            if refund is not None:
                refund(planned)
        accepted = 0
        while accepted < count and gen.random() < world.shares[choice.method](now, accepted):
            accepted += 1
        seconds_rest = took(world.look(now, count + 1)) + prompt * world.reading
        learn(Round(choice, 1, None, [count], [count], [accepted], behind, prompt, seconds_draft, seconds_rest))
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
    return run


def run_controlled(world: World, num_tokens: int, *, controller: Controller | None = None, **arguments: int) -> Run:
    """Let a controller decide."""
    controller = Controller(tuple(world.shares)) if controller is None else controller
    return simulate(world, controller.plan, controller.observe, num_tokens, refund=controller.refund, **arguments)


def run_plain(world: World, num_tokens: int, **arguments: int) -> Run:
    """Never draft."""
    return simulate(world, lambda situation: [], lambda outcome: None, num_tokens, **arguments)


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
            share = world.available.get(method, 1.0)
            per_token = (share * drafted + (1.0 - share) * plain) / (share * tokens + 1.0 - share)
        seconds += per_token * min(stretch, num_tokens - now)
    hiccups = 1.0 + _HICCUP_SHARE * (_HICCUP - 1.0) if world.noise else 1.0
    return seconds * hiccups * float(np.exp(world.noise**2 / 2.0))


def best_fixed_seconds(world: World, num_tokens: int) -> float:
    """Seconds of the choice that is best throughout, known only in hindsight."""
    lengths = range(1, world.max_length + 1)
    choices = [(PLAIN, 0), *((method, length) for method in world.shares for length in lengths)]
    return min(expected_seconds(world, *choice, num_tokens) for choice in choices)
