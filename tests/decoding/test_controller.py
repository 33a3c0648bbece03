# SPDX-License-Identifier: Apache-2.0
"""Decisions of "auto" under a simulated clock: their price against plain decoding and the best fixed choice."""

from collections.abc import Callable

import numpy as np
import pytest

from hetero_spec.decoding import controller as controller_module
from hetero_spec.decoding.controller import PLAIN, Choice, Controller, Round, Situation
from tests.decoding.worlds import Look, Run, Share, World, best_fixed_seconds, run_controlled, run_plain

NUM_TOKENS = 3000
CHANGE = NUM_TOKENS // 2


def rising(slope: float) -> Look:
    return lambda now, width: 1.0 + slope * (width - 1)


def constant(*shares: float) -> Share:
    return lambda now, depth: shares[min(depth, len(shares) - 1)]


def changing(before: float, after: float) -> Share:
    return lambda now, depth: before if now < CHANGE else after


STEADY = {
    "useless": World({"tli": constant(0.02)}, rising(0.05), {"tli": 0.1}),
    "useless and dear": World({"tli": constant(0.1)}, rising(0.3), {"tli": 0.6}, catching_up=0.03),
    "longer looks are dear": World({"tli": constant(0.5)}, rising(0.9), {"tli": 0.1}),
    "neither here nor there": World({"tli": constant(0.3)}, rising(0.1), {"tli": 0.2}),
    "good": World({"tli": constant(0.8)}, rising(0.05), {"tli": 0.1}),
    "good, noisy": World({"tli": constant(0.8)}, rising(0.05), {"tli": 0.1}, noise=0.1),
    "middling": World({"tli": constant(0.4)}, rising(0.1), {"tli": 0.05}),
    "middling, noisy": World({"tli": constant(0.4)}, rising(0.1), {"tli": 0.05}, noise=0.1),
    "first token only": World({"tli": constant(0.7, 0.1)}, rising(0.1), {"tli": 0.1}),
    "three methods": World(
        {"tli": constant(0.5), "slem": constant(0.65), "ngram": constant(0.3)},
        rising(0.05),
        {"tli": 0.1, "slem": 0.12, "ngram": 0.002},
        available={"ngram": 0.3},
    ),
    "n-grams first": World(
        {"tli": constant(0.4), "ngram": constant(0.8, 0.9)},
        rising(0.05),
        {"tli": 0.1, "ngram": 0.002},
        available={"ngram": 0.4},
    ),
}
MOVING = {
    "good, then useless": World({"tli": changing(0.8, 0.02)}, rising(0.05), {"tli": 0.1}),
    "useless, then good": World({"tli": changing(0.02, 0.8)}, rising(0.05), {"tli": 0.1}),
    "to and fro": World({"tli": lambda now, depth: 0.8 if now // 400 % 2 else 0.05}, rising(0.05), {"tli": 0.1}),
    "everything slower": World(
        {"tli": constant(0.6)}, lambda now, width: (0.95 + 0.05 * width) * (1 + (now >= CHANGE)), {"tli": 0.1}
    ),
    "everything quicker": World(
        {"tli": constant(0.6)}, lambda now, width: (0.95 + 0.05 * width) * (2 - (now >= CHANGE)), {"tli": 0.1}
    ),
    "longer looks become dear": World(
        {"tli": constant(0.6)}, lambda now, width: 1 + (0.05 if now < CHANGE else 1.0) * (width - 1), {"tli": 0.1}
    ),
    "longer looks become cheap": World(
        {"tli": constant(0.6)}, lambda now, width: 1 + (1.0 if now < CHANGE else 0.05) * (width - 1), {"tli": 0.1}
    ),
    "slower with every token": World(
        {"tli": constant(0.5)}, lambda now, width: (0.95 + 0.05 * width) * (1 + now / CHANGE), {"tli": 0.1}
    ),
}


def per_token(run: Run) -> float:
    return run.seconds / run.tokens


@pytest.mark.parametrize("name", [*STEADY, *MOVING])
def test_no_world_makes_it_slower_than_plain_decoding_by_two_percent(name: str) -> None:
    world = {**STEADY, **MOVING}[name]
    run, plain = run_controlled(world, NUM_TOKENS), run_plain(world, NUM_TOKENS)
    assert per_token(plain) / per_token(run) >= 0.98


def test_it_comes_within_three_percent_of_the_best_fixed_choice_on_average() -> None:
    shares = {
        name: np.mean(
            [
                best_fixed_seconds(world, NUM_TOKENS)
                / NUM_TOKENS
                / per_token(run_controlled(world, NUM_TOKENS, seed=s))
                for s in (1, 2)
            ]
        )
        for name, world in STEADY.items()
    }
    assert np.mean(list(shares.values())) >= 0.97, shares
    assert min(shares.values()) >= 0.93, shares


@pytest.mark.parametrize("name", list(MOVING))
def test_a_moving_world_is_followed(name: str) -> None:
    world = MOVING[name]
    best = best_fixed_seconds(world, NUM_TOKENS) / NUM_TOKENS
    assert best / per_token(run_controlled(world, NUM_TOKENS, seed=1)) >= 0.97


def share_of(run: Run, method: str, start: int, end: int) -> float:
    """Share of the rounds between two numbers of emitted tokens that used a method."""
    methods = [used for tokens, _, used in run.trace if start <= tokens < end]
    return methods.count(method) / len(methods)


def test_it_switches_off_and_comes_back() -> None:
    off = run_controlled(MOVING["good, then useless"], NUM_TOKENS)
    assert share_of(off, "tli", 200, CHANGE) > 0.95
    assert share_of(off, "tli", CHANGE + 100, NUM_TOKENS) < 0.1
    back = run_controlled(MOVING["useless, then good"], NUM_TOKENS)
    assert share_of(back, "tli", 100, CHANGE) < 0.1
    assert share_of(back, "tli", CHANGE + 300, NUM_TOKENS) > 0.9


@pytest.mark.parametrize("name", ["useless", "useless and dear", "longer looks are dear"])
def test_a_text_of_ordinary_length_costs_little_more_than_plain(name: str) -> None:
    world = STEADY[name]
    arguments = {"text_length": 128, "prompt_length": 60}
    first, plain = (run(world, 128, **arguments) for run in (run_controlled, run_plain))
    assert per_token(plain) / per_token(first) >= 0.975
    many, plain = (run(world, 10 * 128, **arguments) for run in (run_controlled, run_plain))
    assert per_token(plain) / per_token(many) >= 0.98


def test_what_is_learnt_serves_the_next_text() -> None:
    world = STEADY["good"]
    controller = Controller(tuple(world.shares))
    run_controlled(world, 500, controller=controller)
    again = run_controlled(world, 128, controller=controller, text_length=128)
    assert again.rounds_by_method.get(PLAIN, 0) <= 2


def test_trials_are_paid_from_one_percent_of_the_time() -> None:
    """Where the drafter is useless every draft is a trial: what they cost beyond plain is bounded throughout."""
    world = STEADY["useless"]
    run = run_controlled(world, NUM_TOKENS)
    for tokens, seconds, _ in run.trace:
        assert seconds - tokens * 1.0 <= 2.0 + 0.011 * tokens + 50 * world.reading


def test_the_bounds_are_what_the_rules_give(monkeypatch: pytest.MonkeyPatch) -> None:
    # Negative control: with a purse ten times as large the useless drafter costs more than two percent.
    monkeypatch.setattr(controller_module, "_PURSE_SHARE", 0.1)
    monkeypatch.setattr(controller_module, "_LEDGER_SHARE", 0.1)
    world = STEADY["useless"]
    run, plain = run_controlled(world, NUM_TOKENS), run_plain(world, NUM_TOKENS)
    assert per_token(plain) / per_token(run) < 0.98


def test_the_ledger_stops_a_drafter_whose_promise_is_never_kept() -> None:
    """Even if acceptance were believed to be perfect, what is lost in fact is booked and drafting ends."""
    world = World({"tli": constant(0.0)}, rising(0.05), {"tli": 0.3})
    controller = Controller(("tli",))

    def credulous(outcome: Round) -> None:
        depths = controller._shares.setdefault(("tli", None), controller_module._Depths())
        controller.observe(outcome)
        for average in (share._slow for share in depths.kept):
            average.kept, average.total = 100.0, 100.0

    from tests.decoding.worlds import simulate

    run = simulate(world, controller.plan, credulous, 1000)
    plain = run_plain(world, 1000)
    assert 1 <= run.rounds_by_method["tli"] < 60
    assert per_token(plain) / per_token(run) >= 0.975


def test_a_share_that_has_changed_is_noticed_within_a_score_of_drafts() -> None:
    share = controller_module._Share(0)
    for now in range(300):
        share.add(now % 10 != 0, now)
    assert 0.85 < share.mean(0.5) < 0.95
    for now in range(300, 320):
        share.add(False, now)
    assert share.mean(0.5) < 0.45
    # What was seen long ago weighs little.
    share.add(True, 5000)
    share.add(True, 5001)
    assert share.mean(0.5) > 0.4


def situation(**changes: object) -> Situation:
    facts = {"num_requests": 1, "max_length": 8, "remaining": 100, "key": None, "pending": {"tli": 1, "ngram": 1}}
    return Situation(**{**facts, **changes})  # type: ignore[arg-type]


def outcome(method: str, length: int, accepted: int, seconds: float, **changes: object) -> Round:
    facts: dict[str, object] = {
        "choice": Choice(method, length),
        "num_requests": 1,
        "key": None,
        "limits": [length],
        "counts": [length],
        "accepted": [accepted],
        "pending": 1,
        "prompt_tokens": 0,
        "seconds_draft": 0.1 * length,
        "seconds_rest": seconds,
    }
    return Round(**{**facts, **changes})  # type: ignore[arg-type]


def taught(methods: tuple[str, ...] = ("tli", "ngram"), num_rounds: int = 30) -> Controller:
    controller = Controller(methods)
    for _ in range(4):
        controller.plan(situation())
        controller.observe(outcome(PLAIN, 0, 0, 1.0))
    for _ in range(num_rounds):
        controller.plan(situation())
        controller.observe(outcome("tli", 4, 3, 1.2))
    return controller


def test_nothing_is_drafted_before_plain_looks_have_been_timed() -> None:
    controller = Controller(("tli",))
    assert controller.plan(situation()) == []
    controller.observe(outcome(PLAIN, 0, 0, 1.0, prompt_tokens=50))
    assert controller.plan(situation()) == []
    controller.observe(outcome(PLAIN, 0, 0, 1.0))
    assert controller.plan(situation()) == []
    controller.observe(outcome(PLAIN, 0, 0, 1.0))
    assert [choice.method for choice in controller.plan(situation())] == ["tli"]


def test_only_deterministic_methods_have_another_behind_them() -> None:
    """That a sampled draft came out empty depends on random numbers that the next method would draw with again."""
    controller = taught()
    for _ in range(30):
        controller.plan(situation())
        controller.observe(outcome("ngram", 4, 4, 1.2, seconds_draft=0.001))
    seen = set()
    for _ in range(40):
        plan = controller.plan(situation())
        seen.add(tuple(choice.method for choice in plan))
        assert all(choice.method in ("ngram",) for choice in plan[:-1])
        controller.observe(outcome("tli", 4, 3, 1.2))
    assert ("ngram", "tli") in seen


def test_no_draft_is_longer_than_the_situation_allows() -> None:
    controller = taught()
    for length in (0, 1, 3):
        assert all(choice.length <= length for choice in controller.plan(situation(max_length=length)))


def test_a_drafter_that_is_far_behind_has_to_pay_for_catching_up() -> None:
    controller = taught(("tli",))
    controller.observe(outcome(PLAIN, 0, 0, 100.0, prompt_tokens=1000))
    near, far = {"tli": 1}, {"tli": 3000}
    assert controller.plan(situation(pending=near, remaining=20))
    assert controller.plan(situation(pending=far, remaining=20)) == []


def test_another_temperature_has_an_acceptance_of_its_own() -> None:
    controller = taught(("tli",))
    for _ in range(40):
        controller.plan(situation(key="hot"))
        controller.observe(outcome("tli", 2, 0, 1.1, key="hot"))
    (choice,) = controller.plan(situation())
    assert choice.length >= 3
    assert all(choice.trial_cost for choice in controller.plan(situation(key="hot")))


def test_another_number_of_requests_is_guessed_from_the_nearest() -> None:
    controller = taught(("tli",))
    assert controller.plan(situation(num_requests=3, pending={"tli": 1}))


@pytest.mark.parametrize("clock", [lambda: 5.0, lambda: 0.0])
def test_a_clock_that_stands_still_breaks_nothing(clock: Callable[[], float]) -> None:
    controller = Controller(("tli", "ngram"), clock=clock)
    for _ in range(20):
        plan = controller.plan(situation())
        choice = plan[0] if plan else Choice(PLAIN, 0)
        controller.observe(outcome(choice.method, choice.length, 0, 0.0, seconds_draft=0.0))
