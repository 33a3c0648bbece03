# SPDX-License-Identifier: Apache-2.0
"""RDK kernels as the ops see them: tensors made here, by hand, for every form there is."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hetero_spec.ops import RdkFactors, RdkTensors
from tests.tools.inputs import generator


class Kernel(NamedTuple):
    """The least that an op asks of a kernel."""

    vocab_size: int
    parts: RdkTensors | RdkFactors

    def tensors(self, device: torch.device) -> RdkTensors | RdkFactors:
        moved = {key: value.to(device) for key, value in self.parts._asdict().items() if isinstance(value, Tensor)}
        return self.parts._replace(**moved)

    def changed(self, **changes: Any) -> Kernel:
        return self._replace(parts=self.parts._replace(**changes))

    def indexed(self) -> Kernel:
        """The same kernel with the index of its sparse rows, as those of `hetero_spec.rdk` have it."""
        assert isinstance(self.parts, RdkTensors)
        return self._replace(parts=self.parts.indexed())


def with_prior(prior: Tensor, **fields: Any) -> RdkTensors:
    prior = prior.float()
    return RdkTensors(prior=prior, prior_cumulative=prior.double().cumsum(0), **fields)


def sparse_rows(rows: list[dict[int, float]]) -> dict[str, Tensor]:
    """Both forms of S from its rows {target id: weight}."""

    def packed(lists: list[dict[int, float]]) -> tuple[Tensor, Tensor, Tensor]:
        offsets = torch.tensor([0, *torch.tensor([len(row) for row in lists]).cumsum(0).tolist()], dtype=torch.int32)
        ids = torch.tensor([column for row in lists for column in row], dtype=torch.int32)
        return offsets, ids, torch.tensor([weight for row in lists for weight in row.values()], dtype=torch.float32)

    transposed: list[dict[int, float]] = [{} for _ in rows]
    for source, row in enumerate(rows):
        for column, weight in row.items():
            transposed[column][source] = weight
    forward, backward = packed(rows), packed(transposed)
    names = ("row_offsets", "column_ids", "weights"), ("source_offsets", "source_ids", "source_weights")
    return dict(zip(names[0], forward, strict=True)) | dict(zip(names[1], backward, strict=True))


def random_rows(vocab_size: int, gen: torch.Generator, entries: int = 3) -> list[dict[int, float]]:
    """About half of the rows, 300 at most, hold `entries` weights that sum to 1, one of them 0 if there is room."""
    full = torch.rand(vocab_size, generator=gen) < min(0.5, 300 / vocab_size)
    full[0] = True
    rows: list[dict[int, float]] = [{} for _ in range(vocab_size)]
    for source in torch.nonzero(full).flatten().tolist():
        columns = torch.randint(vocab_size, (entries,), generator=gen).unique()
        weights = torch.rand(len(columns), generator=gen)
        if len(weights) > 2:
            weights[0] = 0.0
        rows[source] = dict(zip(columns.tolist(), (weights / weights.sum()).tolist(), strict=True))
    return rows


def random_prior(vocab_size: int, gen: torch.Generator) -> Tensor:
    """A law with about a third of its ids at 0."""
    prior = torch.rand(vocab_size, generator=gen, dtype=torch.float64) ** 3
    prior[torch.rand(vocab_size, generator=gen) < 0.3] = 0.0
    prior[-1] += 0.1
    return prior / prior.sum()


def make_kernel(kind: str, vocab_size: int, *, seed: int, num_factors: int = 4) -> Kernel:
    """One of KINDS; num_factors of a low-rank one."""
    gen = generator(seed)
    prior = random_prior(vocab_size, gen)
    if kind == "mix":
        return Kernel(vocab_size, with_prior(prior, constant_leak=0.3))
    if kind == "per_token_mix":
        leak = torch.rand(vocab_size, generator=gen)
        leak[::3], leak[1::5] = 0.0, 1.0
        return Kernel(vocab_size, with_prior(prior, leak=leak))
    if kind == "diagonal":
        variance = 5.0 * torch.rand(vocab_size, generator=gen)
        even = torch.full((vocab_size,), 1.0 / vocab_size)
        return Kernel(vocab_size, with_prior(even, leak=vocab_size / (vocab_size + variance * vocab_size)))
    if kind == "low_rank":
        laws = torch.rand(num_factors, vocab_size, generator=gen) ** 8
        laws = laws / laws.sum(1, keepdim=True)
        factors = (laws - laws.mean(0)).T.contiguous()
        return Kernel(vocab_size, RdkFactors(factors, scale=30.0 * vocab_size, lam=0.8))  # some weights are clamped
    rows = random_rows(vocab_size, gen)
    spread = torch.tensor([0.4 if row else 0.0 for row in rows]) * (0.5 + torch.rand(vocab_size, generator=gen))
    if kind == "sparse":
        return Kernel(vocab_size, RdkTensors(spread=spread, **sparse_rows(rows)))
    assert kind == "general"
    leak = torch.rand(vocab_size, generator=gen) * (1.0 - spread)
    leak[::4] = 0.0
    return Kernel(vocab_size, with_prior(prior, leak=leak, spread=spread, **sparse_rows(rows)))


MIXTURES = ["mix", "per_token_mix", "diagonal", "sparse", "general"]
KINDS = [*MIXTURES, "low_rank"]


def identities(vocab_size: int, seed: int = 1) -> dict[str, Kernel]:
    """Kernels that move nothing, each in another way."""
    gen = generator(seed)
    zeros, prior = torch.zeros(vocab_size), random_prior(vocab_size, gen)
    rows = sparse_rows(random_rows(vocab_size, gen))
    low_rank = make_kernel("low_rank", vocab_size, seed=seed)
    return {
        "nothing": Kernel(vocab_size, RdkTensors(constant_leak=0.0)),
        "no_leak": Kernel(vocab_size, RdkTensors()),
        "constant_zero": Kernel(vocab_size, with_prior(prior, constant_leak=0.0)),
        "zero_leak": Kernel(vocab_size, with_prior(prior, leak=zeros)),
        "zero_spread": Kernel(vocab_size, RdkTensors(spread=zeros, **rows)),
        "all_zero": Kernel(vocab_size, with_prior(prior, leak=zeros, spread=zeros, **rows)),
        "low_rank_without_a_share": low_rank.changed(lam=0.0),
    }


def dense_matrix(kernel: Kernel) -> Tensor:
    """M of a mixture, float64 [V, V]."""
    parts, size = kernel.parts, kernel.vocab_size
    assert isinstance(parts, RdkTensors)
    leak = torch.full((size,), parts.constant_leak) if is_constant(kernel) else parts.leak
    leak = torch.zeros(size) if leak is None else leak
    spread = torch.zeros(size) if parts.spread is None else parts.spread
    matrix = torch.diag((1.0 - leak - spread).double())
    if parts.prior is not None:
        matrix += torch.outer(leak.double(), parts.prior.double())
    if parts.spread is not None:
        assert parts.row_offsets is not None and parts.column_ids is not None and parts.weights is not None
        sources = torch.repeat_interleave(torch.arange(size), torch.diff(parts.row_offsets).long())
        matrix.index_put_((sources, parts.column_ids.long()), spread[sources].double() * parts.weights, accumulate=True)
    return matrix


def is_constant(kernel: Kernel) -> bool:
    return isinstance(kernel.parts, RdkTensors) and not math.isnan(kernel.parts.constant_leak)
