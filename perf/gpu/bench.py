# SPDX-License-Identifier: Apache-2.0
"""Measures case after case until all are done or time is up; one JSON line each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

import torch

from perf.gpu import counted
from perf.gpu.grid import OURS, Case
from perf.gpu.inputs import Inputs, make_inputs
from perf.gpu.lines import Lines
from perf.gpu.peers import agreement, ways_of
from perf.gpu.timing import Timer


def num_accepted_of(out: Any) -> list[int]:
    """Accepted tokens of each request in what ours returned; empty for the ops of single rows."""
    accepted = getattr(out, "num_accepted_tokens", None)
    return [] if accepted is None else accepted.tolist()


def measure(case: Case, inputs: Inputs, timer: Timer, copy_gb_s: float, has_time: Callable[[], bool]) -> dict[str, Any]:
    """All ways of one case. Where time runs out, those that are left are named with that reason."""
    ways, skipped = ways_of(case, inputs, timer.device)
    outs: dict[str, Any] = {}
    times: dict[str, Any] = {}
    for name, way in ways.items():
        if not has_time():
            skipped[name] = "out of time"
            continue
        try:
            outs[name] = way()
            times[name] = timer(way)
        except (RuntimeError, TypeError, ValueError) as error:  # one peer that fails must not cost the rest
            if name == OURS:
                raise
            skipped[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
            outs.pop(name, None)
    accepted = num_accepted_of(outs[OURS]) if OURS in outs else []
    shares = agreement(case, outs) if OURS in outs else {}
    record: dict[str, Any] = {
        "case": {**asdict(case), "label": case.label, "is_headline": case.is_headline},
        "ways": times,
        "skipped": skipped,
        "agreement": shares,
        "mean_accepted": sum(accepted) / len(accepted) if accepted else None,
        "needed_bytes": counted.needed(case, accepted),
        "counted_bytes": counted.counted(case, accepted),
    }
    if OURS in times:
        ours_us = times[OURS]["median_us"]
        record["gb_s"] = round(record["counted_bytes"] / ours_us / 1e3, 1)
        record["share_of_copy"] = round(record["gb_s"] / copy_gb_s, 4)
    if case.op == "rejection_sample" and OURS in times:
        floor = counted.tight_floor(case)
        record |= {"tight_floor_bytes": floor, "plain_floor_bytes": counted.plain_floor(case)}
        # As moved by a copy, read and write together; and the time of copying a buffer of that size.
        record["over_floor_at_copy_speed"] = round(ours_us / (floor / copy_gb_s / 1e3), 3)
        if case.is_headline and has_time():
            record["copy_of_floor_us"] = timer.copy_of(floor)["median_us"]
    return record


def run(cases: Iterable[Case], device: torch.device, lines: Lines, deadline: float) -> int:
    """Measure until `deadline` (time.monotonic); returns how many cases were left."""
    timer = Timer(device)
    copy_gb_s = timer.copy_bandwidth_gb_s()
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    lines.add("device", name=name, torch=torch.__version__, copy_gb_s=round(copy_gb_s, 1))

    def has_time() -> bool:
        return time.monotonic() < deadline

    left = 0
    for case in cases:
        if not has_time():
            left += 1
            continue
        inputs = make_inputs(case, device)
        lines.add("bench", **measure(case, inputs, timer, copy_gb_s, has_time))
        del inputs
        if device.type == "cuda":
            torch.cuda.empty_cache()
    lines.add("bench_end", cases_left=left)
    return left
