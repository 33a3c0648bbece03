# SPDX-License-Identifier: Apache-2.0
"""The ways of doing one job, ours first. All start from the same logits; what is missing says why.

Ours verifies with the stats that `draft_sample` has left. The others make the drafter's probabilities (or its
log-sum-exps) again, as their users do, except `kept`: composed torch with log-sum-exps kept from drafting.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from hetero_spec import ops
from perf import alternatives
from perf.gpu.grid import OURS, Case
from perf.gpu.inputs import Inputs

Way = Callable[[], Any]
# What a way returns of a verification, brought to (num_accepted [B], the last id of each request [B]).
Verdict = tuple[Tensor, Tensor]

_compiled: dict[Any, Any] = {}


def _compile(function: Callable[..., Any], is_dry: bool) -> Callable[..., Any]:
    """One compiled form for all shapes: a compilation a case would cost the whole budget."""
    if function not in _compiled:
        import torch._dynamo

        torch._dynamo.config.recompile_limit = 64
        backend = "eager" if is_dry else "inductor"
        _compiled[function] = torch.compile(function, dynamic=True, backend=backend)
    return _compiled[function]  # type: ignore


def _last_ids(token_ids: Tensor, num_accepted: Tensor) -> Tensor:
    return token_ids.gather(1, num_accepted.long().unsqueeze(1)).squeeze(1)


def verdict_of(name: str, out: Any) -> Verdict | None:
    """The verdict in what a way returned; None where it uses random numbers of its own."""
    if name == OURS:
        return out.num_accepted_tokens, _last_ids(out.output_token_ids, out.num_accepted_tokens)
    if name == "triton":
        return out[1], _last_ids(*out)
    if name == "flashinfer":
        return None
    return out


def why_no_triton(device: torch.device) -> str | None:
    """Why the Triton kernels can't be run here, or None."""
    if device.type != "cuda":
        return "Triton's kernels need a GPU"
    return None if importlib.util.find_spec("triton") else "triton is not installed"


def why_no_flashinfer(device: torch.device) -> str | None:
    """Why FlashInfer can't be run here, or None."""
    if device.type != "cuda":
        return "FlashInfer needs a GPU"
    return None if importlib.util.find_spec("flashinfer") else "flashinfer is not installed"


def _verifications(case: Case, inputs: Inputs, device: torch.device) -> tuple[dict[str, Way], dict[str, str]]:
    is_dry = device.type != "cuda"
    parameters = {"temperature": case.temperature, "top_p": case.top_p}
    as_tensor = torch.tensor(case.temperature, device=device)  # so that a compiled form serves every temperature
    target, draft = inputs.target, inputs.draft
    ids64, uniforms32 = inputs.draft_ids.long(), inputs.uniforms.float()
    target_rows, draft_rows = target.flatten(0, 1), draft.flatten(0, 1)
    flat_ids, flat_uniforms = inputs.draft_ids.flatten(), inputs.uniforms.flatten(0, 1)

    def ours() -> Any:
        return ops.rejection_sample(
            target_rows,
            flat_ids,
            inputs.cu,
            case.num_drafts,
            draft_logits=draft_rows,
            draft_stats=inputs.draft_stats,
            uniform_samples=flat_uniforms,
            **parameters,
        )

    draw = alternatives.inverse_cdf

    def softmax(function: Callable[..., Any], temperature: float | Tensor) -> Way:
        return lambda: function(target, draft, ids64, None, None, temperature, case.top_p, uniforms32, draw)

    def logsumexp(function: Callable[..., Any], temperature: float | Tensor, kept: Tensor) -> Way:
        return lambda: function(target, draft, ids64, None, None, temperature, uniforms32, draw, kept)

    ways: dict[str, Way] = {
        OURS: ours,
        "eager": softmax(alternatives.verify_softmax, case.temperature),
        "compiled": softmax(_compile(alternatives.verify_softmax, is_dry), as_tensor),
    }
    if case.top_p is None:
        kept = torch.logsumexp(draft.float() / case.temperature, -1)
        function = alternatives.verify_logsumexp
        ways["eager lse, kept"] = logsumexp(function, case.temperature, kept)
        ways["compiled lse, kept"] = logsumexp(_compile(function, is_dry), as_tensor, kept)

    skipped = {}
    if reason := why_no_triton(device):
        skipped["triton"] = reason
    else:
        from perf.gpu import triton_kernels

        def truncated(logits: Tensor) -> Tensor:
            return alternatives.processed(logits, case.temperature, case.top_p).softmax(-1)

        def with_triton() -> Any:
            if case.top_p is None:
                probs = [triton_kernels.softmax(logits, case.temperature) for logits in (target, draft)]
            else:
                probs = [truncated(target), truncated(draft)]
            return triton_kernels.verify(probs[0], probs[1], inputs.draft_ids, uniforms32)

        ways["triton"] = with_triton
    if reason := why_no_flashinfer(device):
        skipped["flashinfer"] = reason
    else:
        from flashinfer import sampling

        def with_flashinfer() -> Any:
            probs = [
                sampling.softmax(rows, temperature=case.temperature).view(logits.shape)
                for logits, rows in ((target, target_rows), (draft, draft_rows))
            ]
            if case.top_p is not None:
                probs = [sampling.top_p_renorm_probs(prob.flatten(0, 1), case.top_p).view(prob.shape) for prob in probs]
            return sampling.chain_speculative_sampling(probs[1], inputs.draft_ids, probs[0])

        ways["flashinfer"] = with_flashinfer
    return ways, skipped


def _rows(case: Case, inputs: Inputs, device: torch.device) -> tuple[dict[str, Way], dict[str, str]]:
    is_dry = device.type != "cuda"
    rows = inputs.draft.flatten(0, 1)
    parameters = {"temperature": case.temperature, "top_p": case.top_p}
    temperature, as_tensor = case.temperature, torch.tensor(case.temperature, device=device)
    if case.op == "row_stats":
        function = alternatives.row_stats
        compiled = _compile(function, is_dry)
        return {
            OURS: lambda: ops.row_stats(rows, **parameters),
            "eager": lambda: function(rows, temperature, case.top_p),
            "compiled": lambda: compiled(rows, as_tensor, case.top_p),
        }, {}
    uniforms = torch.rand(len(rows), device=device, dtype=torch.float64)
    uniforms32, draw = uniforms.float(), alternatives.inverse_cdf
    sample = alternatives.draft_sample
    compiled = _compile(sample, is_dry)
    return {
        OURS: lambda: ops.draft_sample(rows, None, **parameters, uniform_samples=uniforms),
        "eager": lambda: sample(rows, None, temperature, case.top_p, uniforms32, draw),
        "eager, multinomial": lambda: sample(rows, None, temperature, case.top_p, uniforms32, alternatives.multinomial),
        "compiled": lambda: compiled(rows, None, as_tensor, case.top_p, uniforms32, draw),
    }, {}


def ways_of(case: Case, inputs: Inputs, device: torch.device) -> tuple[dict[str, Way], dict[str, str]]:
    """(ways by name, why others are missing)."""
    return (_verifications if case.op == "rejection_sample" else _rows)(case, inputs, device)


def agreement(case: Case, outs: dict[str, Any]) -> dict[str, float]:
    """Share of the requests in which each other way reaches our verdict: 1, but for float32 at a boundary."""
    if case.op != "rejection_sample":
        return {}
    ours = verdict_of(OURS, outs[OURS])
    assert ours is not None
    shares = {}
    for name, out in outs.items():
        verdict = verdict_of(name, out)
        if name != OURS and verdict is not None:
            same = (verdict[0] == ours[0]) & (verdict[1] == ours[1])
            shares[name] = float(same.double().mean())
    return shares
