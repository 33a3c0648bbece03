# SPDX-License-Identifier: Apache-2.0
"""Interleaved timing: in every round each way of doing the job runs once, on caches in the same state.

The machine may be shared: what else runs slows all ways alike, so the ratios hold better than the times. Two ratios are
kept: of medians, and of minima (the least disturbed run of each). With one thread the processor time is kept as well,
which does not count the time that another process had the core.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from perf.cases import Case
from perf.limit import Limit

OURS = "ours"
_FLUSH_BYTES = 96 << 20  # more than the last-level cache of the machines this is run on
_SLOW = 12.0  # a way this many times slower than ours runs in every third round only
_LEAST_ROUNDS = 5


@dataclass
class Workload:
    """The ways of doing one job. `ways[OURS]` must be there; each is called with the number of the input set."""

    ways: dict[str, Callable[[int], object]]
    read: torch.Tensor  # the logits that a warm case finds in the cache
    num_sets: int = 1
    facts: dict[str, Any] = field(default_factory=dict)  # bytes, measured acceptance, what was checked


def summary(wall: list[float], cpu: list[float] | None = None) -> dict[str, float | int]:
    """Median, 20th and 80th percentile and minimum in microseconds."""
    us = np.asarray(wall) * 1e6
    low, median, high = np.percentile(us, [20, 50, 80])
    out: dict[str, float | int] = {
        "median_us": round(float(median), 2),
        "p20_us": round(float(low), 2),
        "p80_us": round(float(high), 2),
        "min_us": round(float(us.min()), 2),
        "rounds": len(wall),
    }
    if cpu is not None:
        out["cpu_median_us"] = round(float(np.median(cpu)) * 1e6, 2)
        out["cpu_min_us"] = round(min(cpu) * 1e6, 2)
    return out


class Interleaver:
    """Runs a workload round by round and keeps the times of every way."""

    def __init__(self, case: Case, workload: Workload) -> None:
        self.case, self.workload = case, workload
        self.wall: dict[str, list[float]] = {name: [] for name in workload.ways}
        self.cpu: dict[str, list[float]] = {name: [] for name in workload.ways}
        self._flush = torch.zeros(_FLUSH_BYTES // 4)
        self._reread = Limit(workload.read)
        self._round = 0
        self._slow: set[str] = set()

    def warm_up(self) -> None:
        """Two calls of each way: compiles, allocates, and finds the slow ones."""
        took = {}
        for name, way in self.workload.ways.items():
            way(0)
            start = time.perf_counter()
            way(0)
            took[name] = time.perf_counter() - start
        self._slow = {name for name, seconds in took.items() if seconds > _SLOW * took[OURS] and seconds > 0.02}

    def prepare(self) -> None:
        """Bring the caches in the state that the case asks for."""
        if self.case.cache == "cold":
            self._flush.sum()
        else:
            self._reread()

    def time(self, name: str) -> None:
        """One timed call."""
        way, idx = self.workload.ways[name], self._round % self.workload.num_sets
        self.prepare()
        cpu, wall = time.thread_time(), time.perf_counter()
        way(idx)
        self.wall[name].append(time.perf_counter() - wall)
        self.cpu[name].append(time.thread_time() - cpu)

    def others(self) -> None:
        """One round of all ways but ours; leaves the caches ready for ours."""
        for name in self.workload.ways:
            if name == OURS or (name in self._slow and self._round % 3 and len(self.wall[name]) >= 1):
                continue
            self.time(name)
        self._round += 1
        self.prepare()

    def round(self) -> None:
        """One round of all ways, for use without pytest-benchmark."""
        self.time(OURS)
        self.others()

    def set_index(self) -> int:
        """The input set of ours in the round that `others` has begun."""
        return (self._round - 1) % self.workload.num_sets

    def summaries(self) -> dict[str, dict[str, float | int]]:
        """Per way, as `summary`."""
        one_thread = torch.get_num_threads() == 1
        return {name: summary(wall, self.cpu[name] if one_thread else None) for name, wall in self.wall.items() if wall}


def measure(case: Case, workload: Workload, benchmark: Any, rounds: int) -> None:
    """Fill a pytest-benchmark fixture: its timer has our op, the other ways run before each of its rounds."""
    interleaver = Interleaver(case, workload)
    interleaver.warm_up()
    cpu: list[float] = []

    def ours() -> None:
        start = time.thread_time()
        workload.ways[OURS](interleaver.set_index())
        cpu.append(time.thread_time() - start)

    rounds = max(rounds, _LEAST_ROUNDS)
    benchmark.pedantic(ours, setup=interleaver.others, rounds=rounds, iterations=1, warmup_rounds=0)
    interleaver.wall[OURS] = list(benchmark.stats.stats.data)[-rounds:]
    interleaver.cpu[OURS] = cpu[-rounds:]
    benchmark.extra_info.update(
        case={**vars(case), "label": case.label, "threads": torch.get_num_threads()},
        ways=interleaver.summaries(),
        facts=workload.facts,
    )
