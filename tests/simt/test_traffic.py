# SPDX-License-Identifier: Apache-2.0
"""The traffic flavour counts known kernels exactly."""

from __future__ import annotations

from .conftest import RunCase


def _counts(run_case: RunCase, case: str, **options: object) -> dict[str, int]:
    outcome = run_case("traffic", case, **options)
    assert outcome.status == 0, outcome.text
    return outcome.counts


def test_wide_copy_moves_each_byte_once_in_full_sectors(run_case: RunCase) -> None:
    for order in ("forward", "random"):
        counts = _counts(run_case, "traffic_wide", order=order)
        assert counts["load_bytes"] == counts["store_bytes"] == counts["wide_load_bytes"] == 4096
        assert counts["load_requests"] == counts["store_requests"] == 8
        assert counts["load_sectors"] == counts["store_sectors"] == counts["unique_load_sectors"] == 128


def test_strided_copy_touches_a_sector_for_every_element(run_case: RunCase) -> None:
    counts = _counts(run_case, "traffic_strided")
    assert counts["load_bytes"] == 128 and counts["wide_load_bytes"] == 0
    assert counts["load_requests"] == 1 and counts["load_sectors"] == 32
    assert counts["store_requests"] == 1 and counts["store_sectors"] == 4


def test_reading_twice_counts_twice_but_not_as_unique(run_case: RunCase) -> None:
    counts = _counts(run_case, "traffic_twice")
    assert counts["load_bytes"] == 3 * 128 and counts["load_requests"] == 3
    assert counts["load_sectors"] == 12 and counts["unique_load_sectors"] == 4


def test_bank_conflicts_show_as_wavefronts(run_case: RunCase) -> None:
    free = _counts(run_case, "traffic_no_bank_conflicts")
    assert free["shared_requests"] == free["shared_wavefronts"] == 2
    full = _counts(run_case, "traffic_bank_conflicts")
    assert full["shared_requests"] == 2 and full["shared_wavefronts"] == 64


def test_atomics_are_counted_apart_from_loads_and_stores(run_case: RunCase) -> None:
    counts = _counts(run_case, "traffic_atomics")
    assert counts["atomics"] == 64 and counts["load_bytes"] == 0 and counts["store_bytes"] == 256


def test_reading_unwritten_shared_memory_is_counted(run_case: RunCase) -> None:
    outcome = run_case("traffic", "unwritten_shared")
    assert outcome.counts["uninitialised_shared_loads"] == 32
    assert _counts(run_case, "shared")["uninitialised_shared_loads"] == 0
