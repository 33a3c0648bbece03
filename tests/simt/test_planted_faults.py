# SPDX-License-Identifier: Apache-2.0
"""Tests of the test bench: every fault planted in programs/planted.cu is caught, at the right line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from .conftest import SANITIZER_EXIT, RunCase

SOURCE = Path(__file__).parent / "programs" / "planted.cu"
WRONG, ENGINE, SANITIZER = 1, 2, SANITIZER_EXIT


class Fault(NamedTuple):
    """Who catches a fault, what it says, and the mark of the line that it must name."""

    case: str
    flavour: str
    status: int
    says: str
    mark: str | None = None
    options: dict[str, object] = {}


RACE = "data race"
FAULTS = [
    # memory
    Fault("pack_too_far", "asan", SANITIZER, "heap-buffer-overflow", "pack_too_far"),
    Fault("pack_too_far", "plain", WRONG, "wrong: "),
    Fault("store_past_end", "asan", SANITIZER, "heap-buffer-overflow", "out_of_bounds"),
    Fault("store_before_begin", "asan", SANITIZER, "heap-buffer-overflow", "out_of_bounds"),
    Fault("use_after_free", "asan", SANITIZER, "heap-use-after-free", "out_of_bounds"),
    Fault("host_reads_device", "asan", SANITIZER, "use-after-poison", "host_reads_device"),
    Fault("host_pointer_in_kernel", "asan", SANITIZER, "stack-use-after", None),
    Fault("unwritten_global", "plain", WRONG, "wrong: "),
    Fault("misaligned_load", "plain", ENGINE, "misaligned vector access", "misaligned_load"),
    Fault("misaligned_atomic", "plain", ENGINE, "misaligned atomic", "misaligned_atomic"),
    Fault("integer_overflow", "asan", SANITIZER, "signed integer overflow", "integer_overflow"),
    # shared memory
    Fault("shared_overflow", "asan", SANITIZER, "use-after-poison", "shared_overflow"),
    Fault("dynamic_overflow", "asan", SANITIZER, "use-after-poison", "dynamic_overflow"),
    Fault("unwritten_shared", "plain", WRONG, "wrong: "),
    Fault("shared_too_large", "plain", ENGINE, "shared memory is used up", None),
    Fault("no_dynamic_shared", "plain", ENGINE, "no dynamic shared memory", None),
    # meeting points
    Fault("different_barriers", "plain", ENGINE, "different __syncthreads", "different_barriers"),
    Fault("barrier_against_warp", "plain", ENGINE, "deadlock", "barrier_against_warp"),
    Fault("missing_lanes", "plain", ENGINE, "deadlock", "missing_lanes"),
    Fault("mask_without_caller", "plain", ENGINE, "leaves out the calling lane", "mask_without_caller"),
    Fault("returned_lane", "plain", ENGINE, "lane that has returned", "returned_lane", {"order": "reverse"}),
    Fault("returned_lane", "plain", ENGINE, "deadlock", "returned_lane", {"order": "forward"}),
    Fault("overlapping_masks", "plain", ENGINE, "deadlock", "overlapping_masks", {"order": "forward"}),
    Fault("lane_outside_mask", "plain", WRONG, "wrong: "),
    Fault("bad_width", "plain", ENGINE, "power of two", "bad_width"),
    Fault("grid_barrier_not_resident", "plain", ENGINE, "threads spin", None),
    # order: what the schedule shows, and what only the race detector can
    Fault("no_barrier", "plain", WRONG, "wrong: ", None, {"order": "random"}),
    Fault("no_barrier", "tsan", SANITIZER, RACE, "no_barrier"),
    Fault("no_syncwarp", "plain", WRONG, "wrong: ", None, {"order": "random"}),
    Fault("no_syncwarp", "tsan", SANITIZER, RACE, "warp_write"),
    Fault("no_syncwarp_after_read", "tsan", SANITIZER, RACE, "no_syncwarp_after_read"),
    Fault("shuffle_as_fence", "tsan", SANITIZER, RACE, "warp_write"),
    Fault("half_warp_barrier", "tsan", SANITIZER, RACE, "half_warp_barrier"),
    Fault("no_fence_before_ticket", "tsan", SANITIZER, RACE, "unpublished"),
    Fault("no_fence_after_ticket", "tsan", SANITIZER, RACE, "unpublished"),
    Fault("fence_before_write", "tsan", SANITIZER, RACE, "unpublished"),
    Fault("fence_of_block_only", "tsan", SANITIZER, RACE, "unpublished"),
    Fault("blocks_race", "tsan", SANITIZER, RACE, "blocks_race"),
    Fault("atomic_as_fence", "tsan", SANITIZER, RACE, "atomic_as_fence"),
    Fault("write_after_fence", "tsan", SANITIZER, RACE, "write_after_fence"),
    # launches
    Fault("too_many_threads", "plain", ENGINE, "invalid launch configuration"),
    Fault("grid_too_tall", "plain", ENGINE, "invalid launch configuration"),
]


def _line_of(mark: str) -> int:
    lines = SOURCE.read_text().splitlines()
    found = [number for number, line in enumerate(lines, 1) if re.search(rf"// here: {mark}$", line)]
    assert len(found) == 1, f"{mark}: {found}"
    return found[0]


@pytest.mark.parametrize("fault", FAULTS, ids=[f"{fault.case}-{fault.flavour}-{fault.status}" for fault in FAULTS])
def test_planted_fault_is_caught(run_case: RunCase, fault: Fault) -> None:
    outcome = run_case(fault.flavour, fault.case, **fault.options)
    assert outcome.status == fault.status, outcome.text
    assert fault.says in outcome.text
    if fault.mark is not None:
        assert f"planted.cu:{_line_of(fault.mark)}" in outcome.text, outcome.text


RACES = sorted({fault.case for fault in FAULTS if fault.flavour == "tsan"})


@pytest.mark.parametrize("case", RACES)
def test_race_is_found_whatever_the_schedule(run_case: RunCase, case: str) -> None:
    assert run_case("tsan", case, order="reverse").status == SANITIZER
    assert run_case("tsan", case, order="random", seed=5, resident=2).status == SANITIZER


def test_failed_launch_leaves_no_false_race(run_case: RunCase) -> None:
    for case in ("bad_width", "returned_lane", "missing_lanes"):
        outcome = run_case("tsan", case, order="random")
        assert outcome.status == ENGINE, outcome.text


def test_every_planted_case_is_in_the_table() -> None:
    planted = set(re.findall(r"^CASE\((\w+)\)", SOURCE.read_text(), flags=re.MULTILINE))
    assert planted - {fault.case for fault in FAULTS} == {"row_sum_correct", "warp_exchange_correct"}
