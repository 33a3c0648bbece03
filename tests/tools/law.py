# SPDX-License-Identifier: Apache-2.0
"""The exact output law of a sampler that is a function of its uniforms.

The unit interval of every uniform is cut at the points where the result can change (acceptance thresholds, edges of
the CDFs); the sampler is called once inside each cell, and its answer counts with the cell's volume. Nothing is
random, so the law comes out exact to rounding, for every draft that the drafter can make.
"""

import math
from collections import defaultdict
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hetero_spec.reference.output_law import Law, Prefix
from hetero_spec.reference.row_law import Floats
from hetero_spec.reference.verification import RULES, Status, TargetRow
from tests.tools.inputs import make_cu

_SMALLEST_CELL = 1e-9


def log_probs(laws: Any) -> Tensor:
    """float32 logits of laws; -inf where a probability is 0."""
    return torch.tensor(np.asarray(laws), dtype=torch.float64).log().float()


def _cells(points: list[float]) -> list[tuple[float, float]]:
    """(middle, length) of the cells that points cut [0, 1] into."""
    edges = [0.0, *sorted(point for point in points if 0.0 < point < 1.0), 1.0]
    pairs = zip(edges, edges[1:], strict=False)
    return [((low + high) / 2, high - low) for low, high in pairs if high - low > _SMALLEST_CELL]


def _cdf_edges(weights: Floats) -> list[float]:
    total = weights.sum()
    return (np.cumsum(weights) / total).tolist() if total > 0.0 else []


def law_by_cells(
    sampler: Callable[..., Any],
    target_law: Law,
    draft_law: Law,
    num_draft_tokens: int,
    rule: str,
    *,
    from_logits: bool,
    drafter_law: Law | None = None,
) -> dict[Prefix, float]:
    """Law of the outputs of rejection_sample (from_logits) or rejection_sample_probs when drafts follow draft_law.

    drafter_law is what the sampler is given instead, where it makes the draft law of it itself (by a kernel).
    """
    target_rows: list[Floats] = []
    draft_rows: list[Floats] = []
    draft_ids: list[int] = []
    uniforms: list[tuple[float, float]] = []
    weights: list[float] = []
    vocab_size = len(target_law(()))
    for token_ids in product(range(vocab_size), repeat=num_draft_tokens):
        drafts = [draft_law(token_ids[:j]) for j in range(num_draft_tokens)]
        given = drafts if drafter_law is None else [drafter_law(token_ids[:j]) for j in range(num_draft_tokens)]
        probability = math.prod(float(drafts[j][token_ids[j]]) for j in range(num_draft_tokens))
        if probability == 0.0:
            continue
        targets = [target_law(token_ids[:j]) for j in range(num_draft_tokens + 1)]
        rows = [TargetRow(law, Status(0), 0) for law in targets]
        # With uniforms of 0 every draft whose target has it is kept, so that every threshold is listed.
        zero = [(0.0, 0.5)] * (num_draft_tokens + 1)
        thresholds = RULES[rule](rows, drafts, token_ids, zero).thresholds
        thresholds += [0.0] * (num_draft_tokens - len(thresholds))
        prefix = 1.0
        edges = _cdf_edges(targets[-1])
        for j in range(num_draft_tokens):
            edges += _cdf_edges(np.maximum(0.0, (prefix if rule == "block" else 1.0) * targets[j] - drafts[j]))
            edges += _cdf_edges(targets[j])
            prefix = min(1.0, prefix * float(targets[j][token_ids[j]] / drafts[j][token_ids[j]]))
        for cells in product(*(_cells([threshold]) for threshold in thresholds), _cells(edges)):
            *accepts, (resample, _) = cells
            target_rows += targets
            draft_rows += given
            draft_ids += token_ids
            uniforms += [(accept, resample) for accept, _ in accepts] + [(0.5, resample)]
            weights.append(probability * math.prod(length for _, length in cells))
    batch_size = len(weights)
    laws = [
        torch.tensor(np.array(rows).reshape(-1, vocab_size), dtype=torch.float32) for rows in (target_rows, draft_rows)
    ]
    cu = make_cu([num_draft_tokens] * batch_size)
    ids = torch.tensor(draft_ids, dtype=torch.int32)
    keywords = {"uniform_samples": torch.tensor(uniforms, dtype=torch.float64), "rule": rule}
    if from_logits:
        out = sampler(laws[0].log(), ids, cu, num_draft_tokens, draft_logits=laws[1].log(), **keywords)
    else:
        out = sampler(laws[0], laws[1], ids, cu, num_draft_tokens, **keywords)
    law: dict[Prefix, float] = defaultdict(float)
    for output, accepted, weight in zip(
        out.output_token_ids.tolist(), out.num_accepted_tokens.tolist(), weights, strict=True
    ):
        law[tuple(output[: accepted + 1])] += weight
    return dict(law)
