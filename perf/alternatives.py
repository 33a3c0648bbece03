# SPDX-License-Identifier: Apache-2.0
"""The ops as one composes them from torch today. Each is checked against ours before it is timed.

Verification takes uniform batches (every request K drafts), which is the kinder case for tensors: target logits
[B, K + 1, V], draft logits [B, K, Vd]. The draw is an argument: `multinomial` as most code has it, `inverse_cdf` with
the uniforms of the check, which is also the fastest that compiles well.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Draw = Callable[[Tensor, Tensor], Tensor]


def multinomial(weights: Tensor, _uniforms: Tensor) -> Tensor:
    """One id per row by torch's own sampler."""
    return torch.multinomial(weights, 1).squeeze(1)


def inverse_cdf(weights: Tensor, uniforms: Tensor) -> Tensor:
    """One id per row: the first whose cumulative weight exceeds the uniform's share of the total."""
    cumulative = weights.cumsum(-1)
    return (cumulative <= uniforms.unsqueeze(-1) * cumulative[:, -1:]).sum(-1).clamp(max=weights.shape[-1] - 1)


def wide(logits: Tensor) -> Tensor:
    """Float32 for the arithmetic; float64 stays, which the checks are made in."""
    return logits if logits.dtype == torch.float64 else logits.float()


def processed(logits: Tensor, temperature: float | Tensor, top_p: float | None) -> Tensor:
    """Float32 logits after temperature and top-p, what is cut off at -inf."""
    scores = wide(logits)
    if isinstance(temperature, Tensor) or temperature != 1.0:
        scores = scores / temperature
    if top_p is None:
        return scores
    ordered = scores.sort(dim=-1, descending=True).values
    probs = ordered.softmax(dim=-1)
    num_kept = (probs.cumsum(dim=-1) - probs < top_p).sum(-1, keepdim=True)
    # By the value of the last kept, not by scattering a mask back: ties are kept, as ours keeps them, and it is faster.
    cutoff = ordered.gather(-1, num_kept - 1)
    return scores.masked_fill(scores < cutoff, -torch.inf)


def over_target_ids(values: Tensor, target_to_draft: Tensor | None, otherwise: float) -> Tensor:
    """Rows over the drafter's ids read through the map as rows over the target's."""
    if target_to_draft is None:
        return values
    moved = values[..., target_to_draft.clamp(min=0).long()]
    return torch.where(target_to_draft >= 0, moved, otherwise)


def shared_only(logits: Tensor, draft_to_target: Tensor | None) -> Tensor:
    """Logits with what the target lacks at -inf."""
    return logits if draft_to_target is None else torch.where(draft_to_target >= 0, logits, -torch.inf)


def row_stats(logits: Tensor, temperature: float | Tensor, top_p: float | None) -> tuple[Tensor, Tensor]:
    """Largest logit and log of the normaliser relative to it."""
    scores = processed(logits, temperature, top_p)
    largest = logits.amax(-1).float()
    return largest, torch.logsumexp(scores, -1) - largest / temperature


def remap_probs(
    draft_logits: Tensor,
    draft_to_target: Tensor,
    target_to_draft: Tensor,
    temperature: float | Tensor,
    top_p: float | None,
) -> Tensor:
    """Softmax over the shared ids, gathered into the target's order."""
    probs = processed(shared_only(draft_logits, draft_to_target), temperature, top_p).softmax(-1)
    return over_target_ids(probs, target_to_draft, 0.0)


def draft_sample(
    draft_logits: Tensor,
    draft_to_target: Tensor | None,
    temperature: float | Tensor,
    top_p: float | None,
    uniforms: Tensor,
    draw: Draw,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(token in the drafter's ids, its probability, entropy, largest probability)."""
    probs = processed(shared_only(draft_logits, draft_to_target), temperature, top_p).softmax(-1)
    ids = draw(probs, uniforms)
    entropy = torch.special.entr(probs).sum(-1)
    return ids, probs.gather(1, ids.unsqueeze(1)).squeeze(1), entropy, probs.amax(-1)


def acceptance_overlap(
    target_logits: Tensor, draft_logits: Tensor, temperature: float | Tensor, top_p: float | None
) -> Tensor:
    """Sum of the smaller of two softmaxes."""
    target = processed(target_logits, temperature, top_p).softmax(-1)
    return torch.minimum(target, processed(draft_logits, temperature, top_p).softmax(-1)).sum(-1)


def verify_probs(
    target_probs: Tensor, draft_probs: Tensor, draft_ids: Tensor, uniforms: Tensor, draw: Draw
) -> tuple[Tensor, Tensor]:
    """Token rule on probabilities; uniforms [B, K + 1, 2]. Returns (num_accepted, the recovered or bonus id)."""
    num_drafts = draft_ids.shape[1]
    at_draft = draft_ids.unsqueeze(-1)
    target_prob = target_probs[:, :-1].gather(2, at_draft).squeeze(-1)
    draft_prob = draft_probs.gather(2, at_draft).squeeze(-1)
    accepted = (uniforms[:, :-1, 0] * draft_prob < target_prob).int().cumprod(1).sum(1)
    request = torch.arange(len(draft_ids), device=draft_ids.device)
    weights = target_probs[request, accepted]
    residual = (weights - draft_probs[request, accepted.clamp(max=num_drafts - 1)]).clamp(min=0.0)
    weights = torch.where((accepted < num_drafts).unsqueeze(1), residual, weights)
    return accepted, draw(weights, uniforms[request, accepted, 1])


def verify_softmax(
    target_logits: Tensor,
    draft_logits: Tensor,
    draft_ids: Tensor,
    draft_to_target: Tensor | None,
    target_to_draft: Tensor | None,
    temperature: float | Tensor,
    top_p: float | None,
    uniforms: Tensor,
    draw: Draw,
) -> tuple[Tensor, Tensor]:
    """Token rule from logits through two softmaxes."""
    target_probs = processed(target_logits, temperature, top_p).softmax(-1)
    draft_probs = processed(shared_only(draft_logits, draft_to_target), temperature, top_p).softmax(-1)
    draft_probs = over_target_ids(draft_probs, target_to_draft, 0.0)
    return verify_probs(target_probs, draft_probs, draft_ids, uniforms, draw)


def verify_logsumexp(
    target_logits: Tensor,
    draft_logits: Tensor,
    draft_ids: Tensor,
    draft_to_target: Tensor | None,
    target_to_draft: Tensor | None,
    temperature: float | Tensor,
    uniforms: Tensor,
    draw: Draw,
    draft_normalizer: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Token rule from log-sum-exps: probabilities only at the drafts and in the rows where requests stop.

    `draft_normalizer` [B, K]: the drafter's log-sum-exps, if they were kept from drafting (as ours are).
    """
    num_drafts = draft_ids.shape[1]
    at_draft = draft_ids.unsqueeze(-1)
    target_normalizer = torch.logsumexp(processed(target_logits, temperature, None), -1)
    if draft_normalizer is None:
        scores = processed(shared_only(draft_logits, draft_to_target), temperature, None)
        draft_normalizer = torch.logsumexp(scores, -1)
    at_draft_rows = at_draft if target_to_draft is None else target_to_draft.long()[at_draft]
    target_log = wide(target_logits[:, :-1].gather(2, at_draft).squeeze(-1)) / temperature
    draft_log = wide(draft_logits.gather(2, at_draft_rows).squeeze(-1)) / temperature
    log_ratio = target_log - target_normalizer[:, :-1] - draft_log + draft_normalizer
    accepted = (uniforms[:, :-1, 0] < log_ratio.exp()).int().cumprod(1).sum(1)
    request, last = torch.arange(len(draft_ids), device=draft_ids.device), accepted.clamp(max=num_drafts - 1)
    row = wide(target_logits[request, accepted]) / temperature
    weights = (row - target_normalizer[request, accepted].unsqueeze(1)).exp()
    draft_row = wide(over_target_ids(draft_logits[request, last], target_to_draft, -torch.inf)) / temperature
    residual = (weights - (draft_row - draft_normalizer[request, last].unsqueeze(1)).exp()).clamp(min=0.0)
    weights = torch.where((accepted < num_drafts).unsqueeze(1), residual, weights)
    return accepted, draw(weights, uniforms[request, accepted, 1])


def verify_block(
    target_logits: Tensor,
    draft_logits: Tensor,
    draft_ids: Tensor,
    temperature: float | Tensor,
    top_p: float | None,
    uniforms: Tensor,
    draw: Draw,
) -> tuple[Tensor, Tensor]:
    """Block rule (Sun et al. 2024, arXiv 2403.10444) through two softmaxes."""
    target_probs = processed(target_logits, temperature, top_p).softmax(-1)
    draft_probs = processed(draft_logits, temperature, top_p).softmax(-1)
    batch, num_drafts = draft_ids.shape
    at_draft = draft_ids.unsqueeze(-1)
    ratio = (target_probs[:, :-1].gather(2, at_draft) / draft_probs.gather(2, at_draft)).squeeze(-1)
    prefixes = [torch.ones(batch, device=draft_ids.device)]
    for position in range(num_drafts):
        prefixes.append((prefixes[-1] * ratio[:, position]).clamp(max=1.0))
    prefix = torch.stack(prefixes, 1)
    residual_mass = (prefix[:, :-1, None] * target_probs[:, :-1] - draft_probs).clamp(min=0.0).sum(-1)
    inner = residual_mass[:, 1:] / (residual_mass[:, 1:] + 1.0 - prefix[:, 1:-1])
    bound = torch.cat([inner.nan_to_num(1.0), prefix[:, -1:]], 1)
    block = torch.arange(1, num_drafts + 1, device=draft_ids.device)
    accepted = torch.where(uniforms[:, :-1, 0] < bound, block, 0).amax(1)
    request, last = torch.arange(batch, device=draft_ids.device), accepted.clamp(max=num_drafts - 1)
    weights = target_probs[request, accepted]
    residual = (prefix[request, accepted].unsqueeze(1) * weights - draft_probs[request, last]).clamp(min=0.0)
    weights = torch.where((accepted < num_drafts).unsqueeze(1), residual, weights)
    return accepted, draw(weights, uniforms[request, accepted, 1])


def compiled(function: Callable[..., object]) -> Callable[..., object]:
    """`torch.compile` for the very shapes that it is called with (the fastest code that inductor makes)."""
    import torch._dynamo

    torch._dynamo.config.recompile_limit = 1000  # one function serves the shapes of all cases
    torch._dynamo.config.accumulated_recompile_limit = 10_000
    return torch.compile(function, dynamic=False)
