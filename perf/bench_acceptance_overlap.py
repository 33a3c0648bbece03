# SPDX-License-Identifier: Apache-2.0
"""`acceptance_overlap` against two softmaxes, a minimum and a sum. The limit is one pass over both matrices."""

from __future__ import annotations

from collections.abc import Callable

import torch

from hetero_spec import ops
from perf import alternatives, checks
from perf.cases import Case
from perf.harness import OURS, Workload
from perf.inputs import generator, make_logits, parameters
from perf.limit import KINDS, Limit


def bench_acceptance_overlap(case: Case, use_compile: bool, run: Callable[[Case, Workload], None]) -> None:
    run(case, workload(case, use_compile))


def workload(case: Case, use_compile: bool) -> Workload:
    target = make_logits(case, case.batch_size * case.num_drafts)
    draft = (target + torch.randn(target.shape, generator=generator(1))).to(target.dtype)
    ours = ops.acceptance_overlap(target, draft, **parameters(case))
    arguments = (target, draft, case.temperature, case.top_p)
    exact = alternatives.acceptance_overlap(target.double(), draft.double(), case.temperature, case.top_p)
    checks.same_numbers(f"{case.label}: overlap", ours, exact, checks.TOLERANCE)

    ways: dict[str, Callable[[int], object]] = {
        OURS: lambda _: ops.acceptance_overlap(target, draft, **parameters(case))
    }
    both = torch.cat([target, draft])
    ways |= {f"limit_{kind}": Limit(both, kind) for kind in KINDS}
    ways["eager_softmax"] = lambda _: alternatives.acceptance_overlap(*arguments)
    if use_compile:
        function = alternatives.compiled(alternatives.acceptance_overlap)
        ways["compiled_softmax"] = lambda _: function(*arguments)
    read = both.numel() * both.element_size()
    facts = {"overlap": round(float(ours.mean()), 4), "bytes_needed": 2 * read, "limit_bytes": read}
    return Workload(ways, both, facts=facts)
