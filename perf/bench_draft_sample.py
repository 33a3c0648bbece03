# SPDX-License-Identifier: Apache-2.0
"""`draft_sample` against mask, softmax, multinomial, entropy in torch, and transformers' processors."""

from __future__ import annotations

from collections.abc import Callable

import torch

from hetero_spec import ops
from perf import alternatives, checks, peers
from perf.cases import Case
from perf.harness import OURS, Workload
from perf.inputs import generator, make_logits, make_map, parameters
from perf.kernels import make_kernel
from perf.limit import KINDS, Limit


def bench_draft_sample(case: Case, use_compile: bool, run: Callable[[Case, Workload], None]) -> None:
    run(case, workload(case, use_compile))


def kernel_workload(case: Case) -> Workload:
    """With the case's RDK kernel against the same call without."""
    logits = make_logits(case, case.batch_size)
    draft_to_target, target_to_draft = make_map(case.vocab_size) if case.mapped else (None, None)
    kernel = make_kernel(case.kernel or "mix", case.vocab_size)
    keywords = {"seeds": torch.arange(case.batch_size), "positions": torch.zeros(case.batch_size, dtype=torch.int64)}
    with_kernel = {"kernel": kernel, "target_to_draft_ids": target_to_draft}
    draft = ops.draft_sample(logits, draft_to_target, **keywords, **with_kernel, **parameters(case))
    maps = draft_to_target if draft_to_target is not None else torch.arange(case.vocab_size, dtype=torch.int32)
    law = ops.rdk_redistribute(ops.remap_probs(logits, maps, case.vocab_size, **parameters(case)), kernel)
    expected = law.gather(1, draft.target_token_ids.long().unsqueeze(1)).squeeze(1)
    checks.same_numbers(f"{case.label}: probs", draft.probs, expected, checks.TOLERANCE)
    ways: dict[str, Callable[[int], object]] = {
        OURS: lambda _: ops.draft_sample(logits, draft_to_target, **keywords, **with_kernel, **parameters(case)),
        "without_kernel": lambda _: ops.draft_sample(logits, draft_to_target, **keywords, **parameters(case)),
    }
    if isinstance(kernel.parts, ops.RdkFactors):

        def materialised(_: int) -> object:
            law = ops.rdk_redistribute(ops.remap_probs(logits, maps, case.vocab_size, **parameters(case)), kernel)
            return ops.draft_sample(law.log(), **keywords)

        ways["materialised"] = materialised
    num_bytes = logits.numel() * logits.element_size()
    return Workload(ways, logits, facts={"bytes_needed": num_bytes, "limit_bytes": num_bytes})


def workload(case: Case, use_compile: bool) -> Workload:
    if case.kernel:
        return kernel_workload(case)
    logits = make_logits(case, case.batch_size)
    draft_to_target = make_map(case.vocab_size)[0] if case.mapped else None
    uniforms = torch.rand(case.batch_size, generator=generator(7), dtype=torch.float64)
    ours = ops.draft_sample(logits, draft_to_target, uniform_samples=uniforms, **parameters(case))
    scores = alternatives.shared_only(logits.double(), draft_to_target)
    probs = alternatives.processed(scores, case.temperature, case.top_p).softmax(-1)
    ids, _, entropy, max_prob = alternatives.draft_sample(
        logits.double(), draft_to_target, case.temperature, case.top_p, uniforms, alternatives.inverse_cdf
    )
    checks.same_numbers(f"{case.label}: max_prob", ours.max_prob, max_prob, checks.TOLERANCE)
    checks.same_numbers(f"{case.label}: entropy", ours.entropy, entropy, 20 * checks.TOLERANCE)
    checks.same_draws(f"{case.label}: token", ours.draft_token_ids, ids, probs, uniforms)

    seeds, positions = torch.arange(case.batch_size), torch.zeros(case.batch_size, dtype=torch.int64)
    ways: dict[str, Callable[[int], object]] = {
        OURS: lambda _: ops.draft_sample(logits, draft_to_target, seeds=seeds, positions=positions, **parameters(case))
    }
    ways |= {f"limit_{kind}": Limit(logits, kind) for kind in KINDS}
    arguments = (logits, draft_to_target, case.temperature, case.top_p, uniforms.float())
    ways["eager_softmax"] = lambda _: alternatives.draft_sample(*arguments, alternatives.multinomial)
    if use_compile:
        function = alternatives.compiled(alternatives.draft_sample)
        ways["compiled_softmax"] = lambda _: function(*arguments, alternatives.inverse_cdf)
    if peers.is_available():
        suppress = peers.suppressor(draft_to_target) if draft_to_target is not None else lambda scores: scores
        warp = peers.warper(case)
        ways["transformers"] = lambda _: torch.multinomial(warp(suppress(logits.float())).softmax(-1), 1)
    num_bytes = logits.numel() * logits.element_size()
    chunk = case.batch_size * 4096 * logits.element_size()
    return Workload(ways, logits, facts={"bytes_needed": num_bytes + chunk, "limit_bytes": num_bytes})
