# SPDX-License-Identifier: Apache-2.0
"""RDK kernels of the benchmarks, as the ops see them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hetero_spec.ops import RdkFactors, RdkTensors
from perf.inputs import generator

LEAK = 0.05  # small, so that drafts of the drafter's own law are accepted about as often with the kernel as without
SPREAD = 0.05
SOURCE_SHARE = 0.01  # of the target's ids have a sparse row: the drafter's vocabulary at 99 % pruning
ENTRIES = 8  # of a sparse row
FACTORS = 64  # of a low-rank kernel


@dataclass(frozen=True)
class Kernel:
    """The least that an op asks of a kernel; its tensors are on the CPU."""

    vocab_size: int
    parts: RdkTensors | RdkFactors

    def tensors(self, device: torch.device) -> RdkTensors | RdkFactors:
        return self.parts


def prior(vocab_size: int) -> dict[str, Tensor]:
    """A heavy-tailed law and its running sum."""
    weights = torch.rand(vocab_size, generator=generator(11), dtype=torch.float64) ** 8
    law = (weights / weights.sum()).float()
    return {"prior": law, "prior_cumulative": law.double().cumsum(0)}


def sparse(vocab_size: int, source_share: float = SOURCE_SHARE, entries: int = ENTRIES) -> dict[str, Tensor]:
    """Rows of `entries` equal weights for a random share of the ids, by sources and by targets."""
    gen = generator(12)
    sources = torch.randperm(vocab_size, generator=gen)[: max(1, int(source_share * vocab_size))].sort().values
    pairs = torch.stack(
        [sources.repeat_interleave(entries), torch.randint(vocab_size, (len(sources) * entries,), generator=gen)]
    )
    spread = torch.zeros(vocab_size)
    spread[sources] = SPREAD

    def packed(keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        order = keys.argsort(stable=True)
        offsets = torch.zeros(vocab_size + 1, dtype=torch.int32)
        offsets[1:] = torch.bincount(keys, minlength=vocab_size).cumsum(0)
        return offsets, values[order].to(torch.int32)

    weights = torch.full((pairs.shape[1],), 1.0 / entries)
    forward, backward = packed(pairs[0], pairs[1]), packed(pairs[1], pairs[0])
    return {
        "spread": spread,
        "row_offsets": forward[0],
        "column_ids": forward[1],
        "weights": weights,
        "source_offsets": backward[0],
        "source_ids": backward[1],
        "source_weights": weights.clone(),
    }


def make_kernel(kind: str, vocab_size: int) -> Kernel:
    """mix: a constant leak to a prior; diagonal: a leak of its own for each token; sparse: rows for some tokens;
    low_rank: FACTORS centred laws, some of whose weights are clamped."""
    if kind == "low_rank":
        laws = torch.rand(FACTORS, vocab_size, generator=generator(14)) ** 8
        laws /= laws.sum(1, keepdim=True)
        factors = (laws - laws.mean(0)).T.contiguous()
        return Kernel(vocab_size, RdkFactors(factors, scale=4.0 * vocab_size, lam=LEAK))
    if kind == "mix":
        return Kernel(vocab_size, RdkTensors(constant_leak=LEAK, **prior(vocab_size)))
    if kind == "diagonal":
        leak = 2 * LEAK * torch.rand(vocab_size, generator=generator(13))
        return Kernel(vocab_size, RdkTensors(leak=leak, **prior(vocab_size)))
    if kind == "sparse":
        return Kernel(vocab_size, RdkTensors(**sparse(vocab_size)).indexed())
    raise ValueError(f"make_kernel: kind must be mix, diagonal, sparse or low_rank, got {kind!r}")


def dense(kernel: Kernel) -> Tensor:
    """The kernel's matrix, float32 [V, V]: for small V only."""
    size, parts = kernel.vocab_size, kernel.parts
    assert isinstance(parts, RdkTensors)
    leak = torch.full((size,), parts.constant_leak) if parts.leak is None else parts.leak
    leak = torch.nan_to_num(leak)
    spread = torch.zeros(size) if parts.spread is None else parts.spread
    matrix = torch.diag(1.0 - leak - spread)
    if parts.prior is not None:
        matrix += torch.outer(leak, parts.prior)
    if parts.spread is not None:
        assert parts.row_offsets is not None and parts.column_ids is not None and parts.weights is not None
        sources = torch.repeat_interleave(torch.arange(size), torch.diff(parts.row_offsets).long())
        matrix.index_put_((sources, parts.column_ids.long()), spread[sources] * parts.weights, accumulate=True)
    return matrix
