# SPDX-License-Identifier: Apache-2.0
"""Correct kernels give what CUDA defines, under every schedule, and no flavour accuses them."""

from __future__ import annotations

import pytest

from .conftest import RunCase

CASES = (
    "indices",
    "shuffles",
    "votes",
    "half_warps",
    "partial_warp",
    "barrier_votes",
    "early_return",
    "shared",
    "warp_shared",
    "atomics",
    "last_block",
    "grid_barrier",
    "look_back",
    "number_formats",
    "streams",
    "empty_grid",
    "deep_stack",
    "schedule",
    "row_sum_correct",
    "warp_exchange_correct",
)
ORDERS = ("forward", "reverse", "random")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("order", ORDERS)
def test_correct_kernel_is_right_in_every_order(run_case: RunCase, case: str, order: str) -> None:
    outcome = run_case("plain", case, order=order, seed=3)
    assert outcome.status == 0, outcome.text


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", [1, 2])
def test_correct_kernel_is_right_with_several_blocks_and_preemption(run_case: RunCase, case: str, seed: int) -> None:
    outcome = run_case("plain", case, order="random", seed=seed, resident=8, preempt=1)
    assert outcome.status == 0, outcome.text


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("flavour", ["asan", "tsan", "traffic"])
def test_correct_kernel_is_not_accused(run_case: RunCase, flavour: str, case: str) -> None:
    outcome = run_case(flavour, case, order="random", seed=4, resident=3)
    assert outcome.status == 0, outcome.text


def test_stream_work_waits_for_synchronisation_when_deferred(run_case: RunCase) -> None:
    outcome = run_case("plain", "streams", deferred=1)
    assert outcome.status == 0, outcome.text


def _schedule(run_case: RunCase, **options: object) -> list[int]:
    outcome = run_case("plain", "schedule", **options)
    line = next(line for line in outcome.text.splitlines() if line.startswith("schedule"))
    return [int(word) for word in line.split()[1:]]


def test_orders_are_what_their_names_say(run_case: RunCase) -> None:
    assert _schedule(run_case, order="forward") == list(range(120))
    assert _schedule(run_case, order="reverse") == list(range(119, -1, -1))
    assert _schedule(run_case, order="random", seed=1) not in (list(range(120)), list(range(119, -1, -1)))


def test_random_order_is_repeatable_and_depends_on_the_seed(run_case: RunCase) -> None:
    first = _schedule(run_case, order="random", seed=7)
    assert first == _schedule(run_case, order="random", seed=7)
    assert first != _schedule(run_case, order="random", seed=8)


def test_resident_blocks_run_interleaved(run_case: RunCase) -> None:
    blocks = [thread // 40 for thread in _schedule(run_case, order="random", seed=7, resident=3)]
    changes = sum(a != b for a, b in zip(blocks, blocks[1:], strict=False))
    assert changes > 20
    alone = [thread // 40 for thread in _schedule(run_case, order="random", seed=7)]
    assert sum(a != b for a, b in zip(alone, alone[1:], strict=False)) == 2
