# SPDX-License-Identifier: Apache-2.0
"""`rejection_sample` against composed torch, torch.compile, transformers and one pass over the target's rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from hetero_spec import ops
from perf import alternatives, checks, peers
from perf.alternatives import Draw
from perf.cases import Case
from perf.harness import OURS, Workload
from perf.inputs import Verification, generator, make_verification, parameters
from perf.kernels import Kernel, make_kernel
from perf.limit import KINDS, Limit

CHUNK = 4096  # ids that a bonus reads again


def bench_rejection_sample(case: Case, use_compile: bool, run: Callable[[Case, Workload], None]) -> None:
    run(case, workload(case, use_compile))


def kernel_workload(case: Case) -> Workload:
    """With the case's RDK kernel against the same call without, on the same drafts (of the drafter's own law)."""
    inputs = make_verification(case)
    kernel = make_kernel(case.kernel or "mix", case.vocab_size)
    # What draft_sample would have saved: coefficients, or what a leak of many values comes to.
    is_low_rank = isinstance(kernel.parts, ops.RdkFactors)
    is_summed = is_low_rank or kernel.parts.leak is not None  # type: ignore[union-attr]
    leaked = []
    for idx, drafts in enumerate(inputs.drafts):
        saved = (
            None
            if not is_summed
            else ops.draft_sample(
                inputs.draft_logits,
                inputs.draft_to_target_ids,
                kernel=kernel,
                target_to_draft_ids=inputs.target_to_draft_ids,
                seeds=torch.arange(len(drafts.token_ids)),
                positions=torch.zeros(len(drafts.token_ids), dtype=torch.int64),
                **parameters(case),
            ).leaked_mass
        )
        leaked.append(saved)
        check_kernel(case, inputs, idx, kernel, saved)

    def ours(idx: int) -> object:
        return _call(
            case,
            inputs,
            idx,
            seeds=inputs.drafts[idx].seeds,
            positions=inputs.drafts[idx].positions,
            kernel=kernel,
            draft_leaked_mass=leaked[idx],
        )

    ways: dict[str, Callable[[int], object]] = {OURS: ours, "without_kernel": _ours(case, inputs)}
    if is_low_rank:
        # The same drafts against their laws over the vocabulary: with the coefficients at hand, and without.
        ways["without_handed_over"] = lambda idx: _call(
            case, inputs, idx, seeds=inputs.drafts[idx].seeds, positions=inputs.drafts[idx].positions, kernel=kernel
        )
        ways["materialised"] = lambda idx: materialised(
            case, inputs, idx, kernel, seeds=inputs.drafts[idx].seeds, positions=inputs.drafts[idx].positions
        )
    facts = _facts(case, inputs)
    runs = [ours(idx) for idx in range(len(inputs.drafts))]
    facts["mean_accepted_with_kernel"] = round(
        float(torch.stack([run.num_accepted_tokens for run in runs]).double().mean()),
        3,  # type: ignore[attr-defined]
    )
    return Workload(ways, inputs.target_logits, len(inputs.drafts), facts)


def materialised(case: Case, inputs: Verification, idx: int, kernel: Kernel, **random: Tensor) -> ops.RejectionSample:
    """The same call with the redistributed laws as tensors over the target's ids."""
    maps = inputs.draft_to_target_ids
    maps = torch.arange(case.vocab_size, dtype=torch.int32) if maps is None else maps
    law = ops.rdk_redistribute(ops.remap_probs(inputs.draft_logits, maps, case.vocab_size, **parameters(case)), kernel)
    return ops.rejection_sample(
        inputs.target_logits,
        inputs.drafts[idx].token_ids,
        inputs.cu_num_draft_tokens,
        case.num_drafts,
        draft_logits=law.log(),
        draft_stats=torch.tensor([0.0, 1.0, 0.0, -torch.inf]).repeat(len(law), 1),
        rule=case.rule,
        **parameters(case),
        **random,
    )


def check_kernel(case: Case, inputs: Verification, idx: int, kernel: Kernel, leaked: Tensor | None) -> None:
    """The same uniforms against the redistributed laws, materialised, must give the same accepted run."""
    uniforms = torch.rand(len(inputs.target_logits), 2, generator=generator(7), dtype=torch.float64)
    expected = materialised(case, inputs, idx, kernel, uniform_samples=uniforms)
    ours = _call(case, inputs, idx, uniform_samples=uniforms, kernel=kernel, draft_leaked_mass=leaked)
    checks.same_ids(f"{case.label}: accepted", ours.num_accepted_tokens, expected.num_accepted_tokens)


def workload(case: Case, use_compile: bool) -> Workload:
    if case.kernel:
        return kernel_workload(case)
    inputs = make_verification(case)
    uniforms = torch.rand(case.batch_size, case.num_drafts + 1, 2, generator=generator(7), dtype=torch.float64)
    for name, chain in exact_chains(case, inputs).items():
        for idx in range(len(inputs.drafts)):
            check(case, inputs, f"{case.label}: {name}", idx, uniforms, chain)
    ways = make_ways(case, inputs, uniforms.float(), use_compile)
    return Workload(ways, inputs.target_logits, len(inputs.drafts), _facts(case, inputs))


def make_ways(
    case: Case, inputs: Verification, numbers: Tensor, use_compile: bool
) -> dict[str, Callable[[int], object]]:
    """Every way by its name, not checked; numbers: float32 uniforms [B, K + 1, 2]."""
    ways: dict[str, Callable[[int], object]] = {OURS: _ours(case, inputs)}
    ways |= {f"limit_{kind}": Limit(inputs.target_logits, kind) for kind in KINDS}
    for name, chain in _chains(case, inputs).items():
        if name != "logsumexp_kept":
            ways[f"eager_{name}"] = _bind(chain, numbers, alternatives.multinomial)
        if use_compile:
            ways[f"compiled_{name}"] = _bind(chain, numbers, alternatives.inverse_cdf, compile_it=True)
    loop = peers.verification(case, inputs) if case.rule == "token" else None
    if loop is not None:
        ways["transformers"] = loop
    return ways


def _call(case: Case, inputs: Verification, idx: int, **random: Any) -> ops.RejectionSample:
    drafts = inputs.drafts[idx]
    return ops.rejection_sample(
        inputs.target_logits,
        drafts.token_ids,
        inputs.cu_num_draft_tokens,
        case.num_drafts,
        draft_logits=inputs.draft_logits,
        draft_stats=drafts.stats,
        target_to_draft_ids=inputs.target_to_draft_ids,
        rule=case.rule,
        **parameters(case),
        **random,
    )


def _ours(case: Case, inputs: Verification) -> Callable[[int], object]:
    return lambda idx: _call(case, inputs, idx, seeds=inputs.drafts[idx].seeds, positions=inputs.drafts[idx].positions)


# A chain: (idx, uniforms, draw, transform of the function) -> (num_accepted [B], id [B]).
Chain = Callable[[int, Tensor, Draw, Callable[[Any], Any]], tuple[Tensor, Tensor]]


def _chains(case: Case, inputs: Verification) -> dict[str, Chain]:
    batch, num_drafts = case.batch_size, case.num_drafts
    target = inputs.target_logits.view(batch, num_drafts + 1, -1)
    draft = inputs.draft_logits.view(batch, num_drafts, -1)
    ids = [drafts.token_ids.view(batch, num_drafts).long() for drafts in inputs.drafts]
    maps = (inputs.draft_to_target_ids, inputs.target_to_draft_ids)
    if case.rule == "block":
        return {
            "softmax": lambda idx, uniforms, draw, wrap: wrap(alternatives.verify_block)(
                target, draft, ids[idx], case.temperature, case.top_p, uniforms, draw
            )
        }
    chains: dict[str, Chain] = {
        "softmax": lambda idx, uniforms, draw, wrap: wrap(alternatives.verify_softmax)(
            target, draft, ids[idx], *maps, case.temperature, case.top_p, uniforms, draw
        )
    }
    if case.top_p is not None:
        return chains
    scores = alternatives.processed(alternatives.shared_only(draft, maps[0]), case.temperature, None)
    kept = torch.logsumexp(scores, -1)
    for name, normalizer in (("logsumexp", None), ("logsumexp_kept", kept)):
        chains[name] = lambda idx, uniforms, draw, wrap, normalizer=normalizer: wrap(alternatives.verify_logsumexp)(
            target, draft, ids[idx], *maps, case.temperature, uniforms, draw, normalizer
        )
    return chains


def exact_chains(case: Case, inputs: Verification) -> dict[str, Chain]:
    """The chains in float64, for the check: in float32 a sorted cumulative sum may miss the cutoff by a whole tie."""
    double = {"target_logits": inputs.target_logits.double(), "draft_logits": inputs.draft_logits.double()}
    return _chains(case, replace(inputs, **double))


def _bind(chain: Chain, uniforms: Tensor, draw: Draw, compile_it: bool = False) -> Callable[[int], object]:
    made: dict[Any, Any] = {}

    def wrap(function: Any) -> Any:
        if not compile_it:
            return function
        if function not in made:
            made[function] = alternatives.compiled(function)
        return made[function]

    return lambda idx: chain(idx, uniforms, draw, wrap)


def check(case: Case, inputs: Verification, what: str, idx: int, uniforms: Tensor, chain: Chain) -> None:
    """The same uniforms must give the same accepted run and, up to rounding, the same id."""
    seen: dict[str, Tensor] = {}

    def draw(weights: Tensor, numbers: Tensor) -> Tensor:
        seen["weights"], seen["uniforms"] = weights, numbers
        return alternatives.inverse_cdf(weights.double(), numbers)

    ours = _call(case, inputs, idx, uniform_samples=uniforms.reshape(-1, 2))
    accepted, token = chain(idx, uniforms, draw, lambda function: function)
    checks.same_ids(f"{what}: accepted", ours.num_accepted_tokens, accepted)
    emitted = ours.output_token_ids.gather(1, ours.num_accepted_tokens.long().unsqueeze(1)).squeeze(1)
    checks.same_draws(f"{what}: token", emitted, token, seen["weights"], seen["uniforms"])


def _facts(case: Case, inputs: Verification) -> dict[str, Any]:
    """Bytes by formula: the rows up to the stop, and at a rejection both rows once more."""
    runs = [_ours(case, inputs)(idx) for idx in range(len(inputs.drafts))]
    accepted = torch.stack([run.num_accepted_tokens for run in runs]).double()  # type: ignore[attr-defined]
    width, size = case.vocab_size, inputs.target_logits.element_size()
    rejected = float((accepted < case.num_drafts).double().mean())
    rows = case.num_drafts + 1.0 if case.rule == "block" else float(accepted.mean()) + 1.0
    needed = case.batch_size * size * (rows * width + rejected * 2 * width + (1 - rejected) * CHUNK)
    if case.rule == "block":
        needed += case.batch_size * size * 2 * width * (case.num_drafts - 1)
    return {
        "overlap": round(inputs.overlap, 4),
        "mean_accepted": round(float(accepted.mean()), 3),
        "target_rows_read_share": round(rows / (case.num_drafts + 1), 3),
        "bytes_needed": round(needed),
        "limit_bytes": inputs.target_logits.numel() * size,
    }
