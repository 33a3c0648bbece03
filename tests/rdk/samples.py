# SPDX-License-Identifier: Apache-2.0
"""One kernel of every class over a small vocabulary, and draft laws with tokens that the drafter lacks."""

import torch
from torch import Tensor

from hetero_spec.rdk import DenseSoftmaxKernel, DiagonalKernel, Kernel, LowRankKernel, MixKernel, SparseKernel
from tests.tools.inputs import generator


def make_laws(rows: int, vocab_size: int, seed: int) -> Tensor:
    """float64 [rows, V] with outliers."""
    logits = 2.0 * torch.randn(rows, vocab_size, generator=generator(seed), dtype=torch.float64)
    return torch.softmax(logits, dim=1)


def make_draft_laws(rows: int, vocab_size: int, seed: int) -> Tensor:
    """float64 [rows, V], 0 on every third token: outside the intersection."""
    laws = make_laws(rows, vocab_size, seed)
    laws[:, ::3] = 0.0
    return laws / laws.sum(1, keepdim=True)


def make_neighbours(vocab_size: int, k: int, seed: int) -> tuple[Tensor, Tensor]:
    """Indices int64 [V, k], none twice in a row and about a fifth of them -1; values float64 [V, k] above 0."""
    gen = generator(seed)
    indices = torch.stack([torch.randperm(vocab_size, generator=gen)[:k] for _ in range(vocab_size)])
    indices[torch.rand(vocab_size, k, generator=gen) < 0.2] = -1
    return indices, torch.rand(vocab_size, k, generator=gen, dtype=torch.float64) + 0.05


def make_kernels(vocab_size: int, seed: int = 1) -> dict[str, Kernel]:
    gen = generator(seed)
    prior = make_laws(1, vocab_size, seed + 1)[0]
    shares = torch.rand(vocab_size, generator=gen)
    indices, values = make_neighbours(vocab_size, min(3, vocab_size), seed + 2)
    laws = make_laws(4, vocab_size, seed + 3)
    return {
        "mix": MixKernel(0.3, prior),
        "mix_per_token": MixKernel(shares, prior),
        "diagonal": DiagonalKernel(laws.var(0), 0.002),
        "sparse": SparseKernel.from_topk(indices, values, shares),
        "sparse_with_leak": SparseKernel.from_topk(indices, values, 0.5 * shares, leak=0.4 * shares, prior=prior),
        "low_rank": LowRankKernel(laws, 0.5),
        "low_rank_clamped": LowRankKernel(laws, 0.002, 0.7),
        "dense_softmax": DenseSoftmaxKernel.from_laws(laws, 0.01),
    }


KINDS = tuple(make_kernels(4))
MIXTURES = tuple(name for name in KINDS if name.startswith(("mix", "diagonal", "sparse")))
