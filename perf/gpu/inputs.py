# SPDX-License-Identifier: Apache-2.0
"""Seeded inputs of the measurements, made on the device: large batches would take minutes on the host."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hetero_spec import ops
from perf.gpu.grid import Case

_SPREAD, _OUTLIERS, _HIGHEST = 2.5, 40, 12.0
_CHUNK_BYTES = 1 << 30  # of float32 noise at a time
_PROBE_ROWS = 8


@dataclass
class Inputs:
    """A batch of B requests with K drafts each; for the ops of single rows only `draft` is there."""

    target: Tensor  # bfloat16 [B, K + 1, V]
    draft: Tensor  # bfloat16 [B, K, V]
    draft_ids: Tensor  # int32 [B, K]
    draft_stats: Tensor  # float32 [B * K, 4]
    cu: Tensor  # int32 [B + 1]
    uniforms: Tensor  # float64 [B, K + 1, 2]


def _logits(rows: int, vocab_size: int, generator: torch.Generator) -> Tensor:
    """Normal with spread 2.5 and some outliers up to +12, in bfloat16."""
    device = generator.device
    out = torch.empty(rows, vocab_size, dtype=torch.bfloat16, device=device)
    step = max(1, _CHUNK_BYTES // (4 * vocab_size))
    for first in range(0, rows, step):
        part = out[first : first + step]
        values = torch.randn(part.shape, generator=generator, device=device) * _SPREAD
        at = torch.randint(vocab_size, (len(part), _OUTLIERS), generator=generator, device=device)
        values.scatter_add_(1, at, _HIGHEST * torch.rand(at.shape, generator=generator, device=device))
        part.copy_(values)
    return out


def _noisy(logits: Tensor, strength: float, generator: torch.Generator) -> Tensor:
    out = torch.empty_like(logits)
    step = max(1, _CHUNK_BYTES // (4 * logits.shape[1]))
    for first in range(0, len(logits), step):
        part = logits[first : first + step]
        noise = torch.randn(part.shape, generator=generator, device=logits.device)
        out[first : first + step].copy_(part + strength * noise)
    return out


def _strength(rows: Tensor, case: Case, generator: torch.Generator) -> float:
    """Strength of the noise at which drafts are accepted as often as the case wants, by bisection on a few rows."""
    low, high = 0.0, 20.0
    rows = rows[:_PROBE_ROWS]
    for _ in range(10):
        middle = (low + high) / 2
        draft = _noisy(rows, middle, generator)
        overlap = ops.acceptance_overlap(rows, draft, temperature=case.temperature, top_p=case.top_p)
        low, high = (middle, high) if float(overlap.mean()) > case.acceptance else (low, middle)
    return (low + high) / 2


def make_inputs(case: Case, device: torch.device, seed: int = 1) -> Inputs:
    """Logits, drafts from the drafter's own law, and the uniforms of the verification."""
    generator = torch.Generator(device).manual_seed(seed)
    batch, drafts, vocab = case.batch_size, case.num_drafts, case.vocab_size
    parameters = {"temperature": case.temperature, "top_p": case.top_p}
    none = torch.empty(0, device=device)
    if case.op != "rejection_sample":
        return Inputs(none, _logits(batch, vocab, generator).view(batch, 1, vocab), none, none, none, none)
    target = _logits(batch * (drafts + 1), vocab, generator).view(batch, drafts + 1, vocab)
    rows = target[:, :-1].flatten(0, 1)
    draft = rows if case.acceptance == 1.0 else _noisy(rows, _strength(rows, case, generator), generator)
    proposed = ops.draft_sample(
        draft,
        None,
        **parameters,
        seeds=torch.arange(batch * drafts, device=device),
        positions=torch.arange(drafts, device=device).repeat(batch),
    )
    return Inputs(
        target,
        draft.view(batch, drafts, vocab),
        proposed.target_token_ids.view(batch, drafts),
        proposed.stats,
        (torch.arange(batch + 1, device=device) * drafts).to(torch.int32),
        torch.rand(batch, drafts + 1, 2, generator=generator, device=device, dtype=torch.float64),
    )
