# SPDX-License-Identifier: Apache-2.0
"""Seeded inputs of the benchmarks: logits, drafts with a chosen acceptance, maps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from hetero_spec import ops
from perf.cases import Case

NUM_DRAFT_SETS = 8  # other drafts of the same logits, so that rounds differ in where requests stop
SHARED_SHARE = 0.7  # of the drafter's ids, in a mapped case
_SPREAD = 2.5
_OUTLIERS = 40
_PROMPT = (
    "The sky is blue because the molecules of the air scatter short waves of light more than long ones. "
    "def mean(values):\n    return sum(values) / len(values)\n\n"
    "Once upon a time there was a lighthouse keeper who wrote letters to ships that never answered. "
)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make_logits(case: Case, rows: int, seed: int = 0) -> Tensor:
    """Normal with spread 2.5 and some outliers up to +12; flat: spread 0.5, none; smollm2: a real model's."""
    if case.logits == "smollm2":
        real = _real_logits()
        if real.shape[1] != case.vocab_size:
            raise ValueError(f"make_logits: vocab_size must be {real.shape[1]}, got {case.vocab_size}")
        picked = torch.arange(rows) % real.shape[0]
        return real[picked].to(getattr(torch, case.dtype))
    gen = generator(seed)
    logits = torch.randn(rows, case.vocab_size, generator=gen)
    if case.logits == "flat":
        logits *= 0.5
    else:
        logits *= _SPREAD
        outliers = torch.randint(case.vocab_size, (rows, _OUTLIERS), generator=gen)
        logits.scatter_add_(1, outliers, 12.0 * torch.rand(rows, _OUTLIERS, generator=gen))
    return logits.to(getattr(torch, case.dtype))


@lru_cache(maxsize=1)
def _real_logits() -> Tensor:
    from hetero_spec import models

    loaded = models.load("smollm2", progress=False)
    ids = torch.tensor([loaded.tokenizer.encode(_PROMPT)])
    with torch.inference_mode():
        logits: Tensor = loaded.model(ids).logits[0].float()
    return logits.clone()


def make_map(vocab_size: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """(draft_to_target_ids, target_to_draft_ids) of two vocabularies of one size, shared ids in random order."""
    gen = generator(seed)
    shared = int(vocab_size * SHARED_SHARE)
    draft_ids = torch.randperm(vocab_size, generator=gen)[:shared]
    target_ids = torch.randperm(vocab_size, generator=gen)[:shared]
    draft_to_target = torch.full((vocab_size,), -1, dtype=torch.int32)
    target_to_draft = torch.full((vocab_size,), -1, dtype=torch.int32)
    draft_to_target[draft_ids] = target_ids.to(torch.int32)
    target_to_draft[target_ids] = draft_ids.to(torch.int32)
    return draft_to_target, target_to_draft


@dataclass
class Drafts:
    """One set of drafted tokens for the logits of a case."""

    token_ids: Tensor  # int32 [N], target ids
    probs: Tensor  # float32 [N]
    stats: Tensor  # float32 [N, 4]
    seeds: Tensor  # int64 [B], of the verification
    positions: Tensor  # int64 [B]


@dataclass
class Verification:
    """Inputs of a verification: B requests of K drafts each."""

    target_logits: Tensor  # [R, V]
    draft_logits: Tensor  # [N, Vd]
    cu_num_draft_tokens: Tensor  # int32 [B + 1]
    draft_to_target_ids: Tensor | None
    target_to_draft_ids: Tensor | None
    drafts: list[Drafts]
    overlap: float  # mean acceptance of a position


def parameters(case: Case) -> dict[str, float | None]:
    """The case's sampling parameters, by the names of the ops."""
    return {"temperature": case.temperature, "top_p": case.top_p}


def make_verification(case: Case) -> Verification:
    """Draft laws whose overlap with the target's is `case.acceptance` at each position; 1: the very law.

    Below 1 the drafter's logits are the target's with noise, of the strength (per row, by bisection) that gives the
    overlap. With a map the drafter can't reach every id: its rows are the target's on what is shared.
    """
    batch, drafts = case.batch_size, case.num_drafts
    target = make_logits(case, batch * (drafts + 1))
    rows = torch.arange(batch * drafts)
    drafted_rows = target[rows + torch.div(rows, drafts, rounding_mode="floor")]
    draft_to_target, target_to_draft = make_map(case.vocab_size) if case.mapped else (None, None)
    base = drafted_rows
    if draft_to_target is not None:
        base = drafted_rows[:, draft_to_target.clamp(min=0).long()].contiguous()

    def overlap_of(logits: Tensor) -> Tensor:
        return ops.acceptance_overlap(
            drafted_rows, logits, target_to_draft_ids=target_to_draft, top_p=case.top_p, temperature=case.temperature
        )

    draft = base.clone()
    if case.acceptance < 1.0:
        noise = torch.randn(base.shape, generator=generator(1))
        low, high = torch.zeros(len(rows), 1), torch.full((len(rows), 1), 20.0)
        for _ in range(12):
            middle = (low + high) / 2
            too_close = overlap_of((base + middle * noise).to(base.dtype)).unsqueeze(1) > case.acceptance
            low, high = torch.where(too_close, middle, low), torch.where(too_close, high, middle)
        draft = (base + (low + high) / 2 * noise).to(base.dtype)
    sets = []
    for idx in range(NUM_DRAFT_SETS):
        proposed = ops.draft_sample(
            draft,
            draft_to_target,
            temperature=case.temperature,
            top_p=case.top_p,
            seeds=rows + 1000 * idx,
            positions=rows % drafts,
        )
        sets.append(
            Drafts(
                proposed.target_token_ids,
                proposed.probs,
                proposed.stats,
                torch.arange(batch) + 1_000_000 * (idx + 1),
                torch.zeros(batch, dtype=torch.int64),
            )
        )
    cu = torch.arange(batch + 1, dtype=torch.int32) * drafts
    overlap = float(overlap_of(draft).mean())
    return Verification(target, draft, cu, draft_to_target, target_to_draft, sets, overlap)
