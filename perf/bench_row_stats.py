# SPDX-License-Identifier: Apache-2.0
"""`row_stats` against max and log-sum-exp in torch, with top-p by a sort, and transformers' warper."""

from __future__ import annotations

from collections.abc import Callable

import torch

from hetero_spec import ops
from perf import alternatives, checks, peers
from perf.cases import Case
from perf.harness import OURS, Workload
from perf.inputs import make_logits, parameters
from perf.limit import KINDS, Limit


def bench_row_stats(case: Case, use_compile: bool, run: Callable[[Case, Workload], None]) -> None:
    run(case, workload(case, use_compile))


def workload(case: Case, use_compile: bool) -> Workload:
    logits = make_logits(case, case.batch_size * (case.num_drafts + 1))
    stats = ops.row_stats(logits, **parameters(case))
    largest, normalizer = alternatives.row_stats(logits.double(), case.temperature, case.top_p)
    checks.same_numbers(f"{case.label}: max_logit", stats[:, 0], largest, 0.0)
    checks.same_numbers(f"{case.label}: normalizer", stats[:, 2], normalizer, checks.TOLERANCE)

    ways: dict[str, Callable[[int], object]] = {OURS: lambda _: ops.row_stats(logits, **parameters(case))}
    ways |= {f"limit_{kind}": Limit(logits, kind) for kind in KINDS}
    ways["eager_softmax"] = lambda _: alternatives.row_stats(logits, case.temperature, case.top_p)
    if use_compile:
        function = alternatives.compiled(alternatives.row_stats)
        ways["compiled_softmax"] = lambda _: function(logits, case.temperature, case.top_p)
    if peers.is_available():
        warp = peers.warper(case)
        ways["transformers"] = lambda _: torch.logsumexp(warp(logits.float()), -1)
    num_bytes = logits.numel() * logits.element_size()
    return Workload(ways, logits, facts={"bytes_needed": num_bytes, "limit_bytes": num_bytes})
