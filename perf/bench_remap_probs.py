# SPDX-License-Identifier: Apache-2.0
"""`remap_probs` against mask, softmax and gather in torch, and transformers' translator. The limit reads, only."""

from __future__ import annotations

from collections.abc import Callable

from hetero_spec import ops
from perf import alternatives, checks, peers
from perf.cases import Case
from perf.harness import OURS, Workload
from perf.inputs import make_logits, make_map, parameters
from perf.limit import KINDS, Limit


def bench_remap_probs(case: Case, use_compile: bool, run: Callable[[Case, Workload], None]) -> None:
    run(case, workload(case, use_compile))


def workload(case: Case, use_compile: bool) -> Workload:
    logits = make_logits(case, case.batch_size)
    draft_to_target, target_to_draft = make_map(case.vocab_size)
    ours = ops.remap_probs(logits, draft_to_target, case.vocab_size, **parameters(case))
    theirs = alternatives.remap_probs(logits.double(), draft_to_target, target_to_draft, case.temperature, case.top_p)
    checks.same_numbers(f"{case.label}: probs", ours, theirs, checks.TOLERANCE)

    ways: dict[str, Callable[[int], object]] = {
        OURS: lambda _: ops.remap_probs(logits, draft_to_target, case.vocab_size, **parameters(case))
    }
    ways |= {f"limit_{kind}": Limit(logits, kind) for kind in KINDS}
    arguments = (logits, draft_to_target, target_to_draft, case.temperature, case.top_p)
    ways["eager_softmax"] = lambda _: alternatives.remap_probs(*arguments)
    if use_compile:
        function = alternatives.compiled(alternatives.remap_probs)
        ways["compiled_softmax"] = lambda _: function(*arguments)
    if peers.is_available():
        suppress, warp = peers.suppressor(draft_to_target), peers.warper(case)
        translate = peers.translator(draft_to_target, case.vocab_size)
        ways["transformers"] = lambda _: translate(warp(suppress(logits.float()))).softmax(-1)
    read = logits.numel() * logits.element_size()
    facts = {"bytes_needed": 2 * read + logits.numel() * 4, "limit_bytes": read}
    return Workload(ways, logits, facts=facts)
