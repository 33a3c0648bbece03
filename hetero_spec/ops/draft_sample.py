# SPDX-License-Identifier: Apache-2.0
"""Drawing a draft token from a drafter with a vocabulary of its own."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ._arguments import FloatParameter, IntParameter, check_dense, check_rows, random_arguments, sampling_arguments


class DraftSample(NamedTuple):
    """What `draft_sample` returns: everything that verification and a lookahead need of the drafter's row."""

    target_token_ids: Tensor
    """int32 [B], -1 where the row proposes nothing."""
    draft_token_ids: Tensor
    """int32 [B], the same token in the drafter's ids; -1 likewise."""
    probs: Tensor
    """float32 [B], probability of the token under the draft law."""
    stats: Tensor
    """float32 [B, 4], the row law it was drawn from: pass it to `rejection_sample`."""
    entropy: Tensor
    """float32 [B], entropy of the draft law in nats."""
    max_prob: Tensor
    """float32 [B], largest probability of the draft law."""


def draft_sample(
    draft_logits: Tensor,
    draft_to_target_ids: Tensor | None = None,
    *,
    temperature: FloatParameter = None,
    top_k: IntParameter = None,
    top_p: FloatParameter = None,
    min_p: FloatParameter = None,
    seeds: Tensor | None = None,
    positions: Tensor | None = None,
    uniform_samples: Tensor | None = None,
) -> DraftSample:
    """Draw one token per request from the drafter's law over the shared ids (token-level intersection).

    The draw is by inverse CDF in the drafter's vocabulary order: the first id whose cumulative probability exceeds the
    uniform.

    Dimensions: B requests, Vd drafter vocabulary.

    Parameters
    ----------
    draft_logits : float32 | float16 | bfloat16 [B, Vd]
        Before temperature. Last stride 1, any row stride. Keep the row: `rejection_sample` reads it if the draft is
        rejected.
    draft_to_target_ids : int32 [Vd] or None
        -1 = not shared, never drawn. None: the drafter has the target's ids.
    temperature, top_p, min_p : float, float32 [B] or None
        As in `row_stats`; they act on what the map leaves.
    top_k : int, int32 [B] or None
        As in `row_stats`.
    seeds, positions : int64 [B]
        positions[b] is the sequence position of the token to be drawn. The uniform is Philox4x32-10 of (seed, position)
        in the stream "propose", so it never meets the verifier's.
    uniform_samples : float64 [B]
        In [0, 1); instead of seeds and positions.

    Returns
    -------
    DraftSample
        A row that proposes nothing (nothing shared, no finite logit, NaN) has ids -1 and numbers 0.

    Raises
    ------
    ValueError, TypeError
        As in `row_stats`; also if neither or both of seeds with positions and uniform_samples are given.

    Notes
    -----
    Deterministic; independent of the batch. Cost: one read of the row, and one chunk of it again.

    Source
    ------
    Timor et al. 2025, arXiv 2502.05202.

    Examples
    --------
    >>> import torch
    >>> from hetero_spec import ops
    >>> drafter = torch.tensor([[0.5, 0.2, 0.3]]).log()
    >>> shared = torch.tensor([7, -1, 2], dtype=torch.int32)
    >>> draft = ops.draft_sample(drafter, shared, uniform_samples=torch.tensor([0.7], dtype=torch.float64))
    >>> int(draft.target_token_ids), int(draft.draft_token_ids), round(float(draft.probs), 4)
    (2, 2, 0.375)
    """
    op = "draft_sample"
    draft_logits = check_rows(op, "draft_logits", draft_logits)
    batch_size, draft_vocab_size = draft_logits.shape
    device = draft_logits.device
    if draft_to_target_ids is not None:
        check_dense(op, "draft_to_target_ids", draft_to_target_ids, torch.int32, (draft_vocab_size,), device)
    params = sampling_arguments(op, batch_size, device, temperature, top_k, top_p, min_p)
    random = random_arguments(op, batch_size, (batch_size,), device, seeds, positions, uniform_samples)
    return DraftSample(*torch.ops.hetero_spec.draft_sample(draft_logits, draft_to_target_ids, *params, *random))


@torch.library.register_fake("hetero_spec::draft_sample")
def _fake(draft_logits: Tensor, *_: object) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    batch_size = draft_logits.shape[0]

    def empty(*shape: int, dtype: torch.dtype) -> Tensor:
        return draft_logits.new_empty(shape, dtype=dtype)

    return (
        empty(batch_size, dtype=torch.int32),
        empty(batch_size, dtype=torch.int32),
        empty(batch_size, dtype=torch.float32),
        empty(batch_size, 4, dtype=torch.float32),
        empty(batch_size, dtype=torch.float32),
        empty(batch_size, dtype=torch.float32),
    )
