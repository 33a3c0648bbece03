# SPDX-License-Identifier: Apache-2.0
"""`rejection_sample_probs` against composed torch. The limit is one pass over the rows where the requests stop."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from hetero_spec import ops
from perf import alternatives, checks
from perf.cases import Case
from perf.harness import OURS, Workload
from perf.inputs import generator, make_verification
from perf.limit import KINDS, Limit


def bench_rejection_sample_probs(case: Case, use_compile: bool, run: Callable[[Case, Workload], None]) -> None:
    run(case, workload(case, use_compile))


def workload(case: Case, use_compile: bool) -> Workload:
    inputs = make_verification(case)
    batch, num_drafts, width = case.batch_size, case.num_drafts, case.vocab_size
    target = alternatives.processed(inputs.target_logits, case.temperature, case.top_p).softmax(-1)
    draft = alternatives.processed(inputs.draft_logits, case.temperature, case.top_p).softmax(-1)
    target_rows, draft_rows = target.view(batch, num_drafts + 1, width), draft.view(batch, num_drafts, width)
    ids = [drafts.token_ids.view(batch, num_drafts).long() for drafts in inputs.drafts]
    uniforms = torch.rand(batch, num_drafts + 1, 2, generator=generator(7), dtype=torch.float64)
    numbers = uniforms.float()

    def ours(idx: int, **random: Tensor) -> ops.RejectionSample:
        drafts, cu = inputs.drafts[idx], inputs.cu_num_draft_tokens
        return ops.rejection_sample_probs(target, draft, drafts.token_ids, cu, num_drafts, rule=case.rule, **random)

    rejected = 0.0
    for idx in range(len(ids)):
        seen: dict[str, Tensor] = {}

        def draw(weights: Tensor, at: Tensor, seen: dict[str, Tensor] = seen) -> Tensor:
            seen["weights"], seen["uniforms"] = weights, at
            return alternatives.inverse_cdf(weights.double(), at)

        out = ours(idx, uniform_samples=uniforms.reshape(-1, 2))
        accepted, token = alternatives.verify_probs(target_rows, draft_rows, ids[idx], uniforms, draw)
        checks.same_ids(f"{case.label}: accepted", out.num_accepted_tokens, accepted)
        emitted = out.output_token_ids.gather(1, accepted.unsqueeze(1)).squeeze(1)
        checks.same_draws(f"{case.label}: token", emitted, token, seen["weights"], seen["uniforms"])
        rejected += float((accepted < num_drafts).double().mean()) / len(ids)

    stop_rows = torch.cat([target[:batch]] + [draft[:batch]] * (case.acceptance < 1.0))
    ways: dict[str, Callable[[int], object]] = {
        OURS: lambda idx: ours(idx, seeds=inputs.drafts[idx].seeds, positions=inputs.drafts[idx].positions)
    }
    ways |= {f"limit_{kind}": Limit(stop_rows, kind) for kind in KINDS}
    multinomial, inverse_cdf = alternatives.multinomial, alternatives.inverse_cdf
    ways["eager_softmax"] = lambda idx: alternatives.verify_probs(
        target_rows, draft_rows, ids[idx], numbers, multinomial
    )
    if use_compile:
        function = alternatives.compiled(alternatives.verify_probs)
        ways["compiled_softmax"] = lambda idx: function(target_rows, draft_rows, ids[idx], numbers, inverse_cdf)
    facts = {
        "overlap": round(inputs.overlap, 4),
        "bytes_needed": round(4 * batch * width * (1 + rejected)),
        "limit_bytes": stop_rows.numel() * 4,
    }
    return Workload(ways, target, len(ids), facts)
