# SPDX-License-Identifier: Apache-2.0
"""Time of `rejection_sample` and of the limit against V, B and K: each axis alone, every draft accepted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from perf.bench_rejection_sample import make_ways
from perf.cases import Case
from perf.harness import OURS, Interleaver, Workload
from perf.inputs import make_verification

BASE = Case("rejection_sample", vocab_size=151_936, batch_size=8, num_drafts=4)
AXES: dict[str, tuple[int, ...]] = {
    "vocab_size": (16_384, 32_768, 65_536, 131_072, 262_144),
    "batch_size": (1, 2, 4, 8, 16, 32),
    "num_drafts": (1, 2, 4, 8, 16),
}
KEPT = (OURS, "limit_library", "limit_polynomial")


def measure_scaling(rounds: int, axes: dict[str, tuple[int, ...]] | None = None) -> list[dict[str, Any]]:
    """One record per point: the axis, its value, and microseconds of each way."""
    points = []
    for axis, values in (axes or AXES).items():
        for value in values:
            case = replace(BASE, **{axis: value})
            inputs = make_verification(case)
            ways = make_ways(case, inputs, torch.rand(case.batch_size, case.num_drafts + 1, 2), use_compile=False)
            kept = {name: ways[name] for name in KEPT}
            interleaver = Interleaver(case, Workload(kept, inputs.target_logits, len(inputs.drafts)))
            interleaver.warm_up()
            for _ in range(rounds):
                interleaver.round()
            points.append({"axis": axis, "value": value, "ways": interleaver.summaries()})
    return points
