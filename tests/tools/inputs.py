# SPDX-License-Identifier: Apache-2.0
"""Seeded inputs of the op tests.

Logits have outliers: uniform or normal logits alone give probabilities that are all near zero, and every draft is then
rejected for the same reason. Drafter logits are the target's with noise, so that acceptances and rejections both
happen.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hetero_spec.reference import inverse_cdf
from hetero_spec.reference.rejection_sample import draft_law_over_target_ids
from hetero_spec.reference.row_law import logits_of, parameters_of

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
# 1 to 3: degenerate; 17, 1003, 4097: not a multiple of any vector width; 4096: exactly one chunk; 4097: one id in a
# second chunk.
SMALL_VOCAB_SIZES = [1, 2, 3, 17, 1003, 4096, 4097]


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def with_layout(values: Tensor, *, row_padding: int = 0, misalignment: int = 0) -> Tensor:
    """The same values with a row stride of width + row_padding, the first row `misalignment` elements into its storage.

    What lies between the rows is NaN: a kernel that reads past a row shows it.
    """
    rows, width = values.shape
    stride = width + row_padding
    storage = torch.full((misalignment + rows * stride + row_padding,), torch.nan, dtype=values.dtype)
    view = storage.as_strided((rows, width), (stride, 1), misalignment)
    view.copy_(values)
    return view


def make_logits(rows: int, vocab_size: int, *, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Normal logits with about four outliers a row and, from 16 ids on, about 3 % of the ids masked with -inf."""
    gen = generator(seed)
    logits = torch.randn(rows, vocab_size, generator=gen)
    outliers = torch.randint(vocab_size, (rows, 4), generator=gen)
    logits.scatter_add_(1, outliers, 4.0 + 5.0 * torch.rand(rows, 4, generator=gen))
    if vocab_size >= 16:
        masked = torch.rand(rows, vocab_size, generator=gen) < 0.03
        masked[:, 0] = False
        logits.masked_fill_(masked, -torch.inf)
    return logits.to(dtype)


def inverse_map(ids: Tensor, size: int) -> Tensor:
    """int32 [size]: position in ids of each value, -1 where it does not occur."""
    inverse = torch.full((size,), -1, dtype=torch.int32)
    mapped = torch.nonzero(ids >= 0).flatten()
    inverse[ids[mapped].long()] = mapped.to(torch.int32)
    return inverse


def make_map(kind: str, target_vocab_size: int, *, seed: int) -> tuple[Tensor, Tensor]:
    """(draft_to_target_ids, target_to_draft_ids) of one of MAP_KINDS."""
    gen = generator(seed)
    size = target_vocab_size
    if kind == "identity":
        draft_to_target = torch.arange(size, dtype=torch.int32)
    elif kind == "permuted":
        draft_to_target = torch.randperm(size, generator=gen).to(torch.int32)
    else:
        factor = {"partial": 1.0, "wider": 1.5, "narrower": 0.4}[kind]
        draft_size = max(1, int(size * factor))
        num_shared = max(1, int(0.7 * min(size, draft_size)))
        draft_to_target = torch.full((draft_size,), -1, dtype=torch.int32)
        draft_ids = torch.randperm(draft_size, generator=gen)[:num_shared]
        draft_to_target[draft_ids] = torch.randperm(size, generator=gen)[:num_shared].to(torch.int32)
    return draft_to_target, inverse_map(draft_to_target, size)


MAP_KINDS = ["identity", "partial", "permuted", "wider", "narrower"]

# Each parameter away from its default, alone and together; values differ between the requests of a batch.
PARAMETER_SETS: dict[str, dict[str, Any]] = {
    "plain": {},
    "temperature": {"temperature": 0.7},
    "hot": {"temperature": 1.9},
    "top_k": {"top_k": 5},
    "top_p": {"top_p": 0.8},
    "min_p": {"min_p": 0.05},
    "all": {"temperature": 0.8, "top_k": 20, "top_p": 0.9, "min_p": 0.02},
    "greedy": {"temperature": 0.0},
    "per_request": {
        "temperature": [1.0, 0.0, 0.6, 1.3, 1e-6, 0.9, 0.0, 2.0],
        "top_k": [0, 3, 7, -1, 2, 1, 5, 1 << 30],
        "top_p": [1.0, 0.5, 0.9, 0.7, 0.95, 1.0, 0.3, 0.85],
        "min_p": [0.0, 0.1, 0.0, 0.02, 0.3, 0.0, 1.0, 0.001],
    },
}


def make_parameters(name: str, rows: int) -> dict[str, Any]:
    """Keyword arguments of a parameter set; lists become tensors of one value per row."""
    dtypes = {"temperature": torch.float32, "top_k": torch.int32, "top_p": torch.float32, "min_p": torch.float32}
    return {
        key: torch.tensor([value[row % len(value)] for row in range(rows)], dtype=dtypes[key])
        if isinstance(value, list)
        else value
        for key, value in PARAMETER_SETS[name].items()
    }


@dataclass
class Verification:
    """Arguments of one call of rejection_sample."""

    target_logits: Tensor
    draft_token_ids: Tensor
    cu_num_draft_tokens: Tensor
    max_draft_tokens: int
    keywords: dict[str, Any] = field(default_factory=dict)

    @property
    def positional(self) -> tuple[Tensor, Tensor, Tensor, int]:
        return self.target_logits, self.draft_token_ids, self.cu_num_draft_tokens, self.max_draft_tokens

    @property
    def lengths(self) -> list[int]:
        return torch.diff(self.cu_num_draft_tokens).tolist()

    def request(self, index: int) -> "Verification":
        """The same request alone in a batch, with copied inputs."""
        begin, end = self.cu_num_draft_tokens[index : index + 2].tolist()
        rows = slice(begin + index, end + index + 1)
        keywords = {}
        for name, value in self.keywords.items():
            if name == "uniform_samples":
                keywords[name] = value[rows].clone()
            elif name in ("draft_logits", "draft_stats") and value is not None:
                keywords[name] = value[begin:end].clone()
            elif name != "target_to_draft_ids" and isinstance(value, Tensor):
                keywords[name] = value[index : index + 1].clone()
            else:
                keywords[name] = value
        return Verification(
            self.target_logits[rows].clone(),
            self.draft_token_ids[begin:end].clone(),
            torch.tensor([0, end - begin], dtype=torch.int32),
            self.max_draft_tokens,
            keywords,
        )


def make_cu(lengths: list[int]) -> Tensor:
    return torch.tensor([0, *np.cumsum(lengths).tolist()], dtype=torch.int32)


def make_lengths(batch_size: int, max_draft_tokens: int, *, seed: int) -> list[int]:
    """Ragged lengths that contain 0 and the maximum as soon as there is room for both."""
    lengths = torch.randint(0, max_draft_tokens + 1, (batch_size,), generator=generator(seed)).tolist()
    if batch_size >= 2:
        lengths[0], lengths[1] = max_draft_tokens, 0
    return lengths


def make_verification(
    *,
    vocab_size: int,
    seed: int,
    batch_size: int = 6,
    max_draft_tokens: int = 3,
    dtype: torch.dtype = torch.float32,
    parameters: str = "plain",
    map_kind: str | None = None,
    one_hot: bool = False,
    noise: float = 0.7,
    row_padding: int = 0,
    misalignment: int = 0,
) -> Verification:
    """A ragged batch whose drafts come from the draft law (float64), now and then from anywhere in the vocabulary."""
    gen = generator(seed)
    lengths = make_lengths(batch_size, max_draft_tokens, seed=seed)
    cu = make_cu(lengths)
    num_tokens = sum(lengths)
    target = make_logits(num_tokens + batch_size, vocab_size, seed=seed, dtype=dtype)
    owners = [request for request, length in enumerate(lengths) for _ in range(length)]
    target_rows = [token + request for token, request in enumerate(owners)]
    keywords: dict[str, Any] = make_parameters(parameters, batch_size)
    keywords["uniform_samples"] = torch.rand(num_tokens + batch_size, 2, generator=gen, dtype=torch.float64)

    aligned = target[target_rows].float()
    mapping = None
    draft_to_target = torch.arange(vocab_size, dtype=torch.int32)
    if map_kind is not None:
        draft_to_target, target_to_draft = make_map(map_kind, vocab_size, seed=seed)
        keywords["target_to_draft_ids"] = target_to_draft
        mapping = target_to_draft.tolist()
    # Ids outside the map get large logits: a kernel that forgets the mask moves all of the mass there.
    draft = torch.where(draft_to_target >= 0, aligned[:, draft_to_target.clamp(min=0).long()], 6.0)
    draft = (draft + noise * torch.randn(draft.shape, generator=gen)).to(dtype)

    token_ids = []
    for token, request in enumerate(owners):
        law = draft_law_over_target_ids(
            logits_of(draft, token),
            None,
            parameters_of(request, *(keywords.get(name) for name in ("temperature", "top_k", "top_p", "min_p"))),
            mapping,
            vocab_size,
        )
        chosen, anywhere = torch.rand(2, generator=gen, dtype=torch.float64).tolist()
        if anywhere < 0.1 or not law.sum() > 0.0:
            token_ids.append(int(chosen * vocab_size))
        else:
            token_ids.append(inverse_cdf.sample(law, chosen))

    layout = {"row_padding": row_padding, "misalignment": misalignment}
    if not one_hot:
        keywords["draft_logits"] = with_layout(draft, **layout)
    elif map_kind is not None:
        del keywords["target_to_draft_ids"]
    return Verification(
        with_layout(target, **layout),
        torch.tensor(token_ids, dtype=torch.int32),
        cu,
        max_draft_tokens,
        keywords,
    )
