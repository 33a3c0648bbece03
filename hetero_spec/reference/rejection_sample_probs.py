# SPDX-License-Identifier: Apache-2.0
"""Lossless verification of ragged drafts from probabilities (sources: see rejection_sample.py)."""

import numpy as np
from torch import Tensor

from hetero_spec.reference.rejection_sample import (
    RejectionSample,
    one_hot,
    pack,
    request_uniforms,
    verify_batch,
)
from hetero_spec.reference.row_law import Floats, logits_of
from hetero_spec.reference.verification import Status, TargetRow, Verdict


def probs_of(probs: Tensor, row: int) -> Floats:
    """One row in float64; what is negative counts as 0, NaN stays."""
    return np.maximum(0.0, logits_of(probs, row))


def target_row_of_probs(probs: Floats) -> TargetRow:
    """Law of a row of probabilities, or the documented id of a row that has none."""
    if not np.isfinite(probs).all():
        return TargetRow(probs, Status.TARGET_NAN, int(np.argmax(np.where(np.isnan(probs), -np.inf, probs))))
    return TargetRow(probs, Status(0) if probs.sum() > 0.0 else Status.TARGET_EMPTY, 0)


def rejection_sample_probs_verdicts(
    target_probs: Tensor,
    draft_probs: Tensor | None,
    draft_token_ids: Tensor,
    cu_num_draft_tokens: Tensor,
    max_draft_tokens: int,
    *,
    seeds: Tensor | None = None,
    positions: Tensor | None = None,
    uniform_samples: Tensor | None = None,
    rule: str = "token",
) -> list[Verdict]:
    """As ``rejection_sample_probs``, with what each request hinged on."""
    vocab_size = target_probs.shape[1]

    def make_target_row(request: int, row: int) -> TargetRow:
        return target_row_of_probs(probs_of(target_probs, row))

    def make_draft_law(request: int, row: int, token_id: int) -> Floats:
        return one_hot(token_id, vocab_size) if draft_probs is None else probs_of(draft_probs, row)

    def make_uniforms(request: int, first_row: int, num_rows: int) -> list[tuple[float, float]]:
        return request_uniforms(request, first_row, num_rows, seeds, positions, uniform_samples)

    return verify_batch(
        draft_token_ids, cu_num_draft_tokens, max_draft_tokens, rule, make_target_row, make_draft_law, make_uniforms
    )


def rejection_sample_probs(
    target_probs: Tensor,
    draft_probs: Tensor | None,
    draft_token_ids: Tensor,
    cu_num_draft_tokens: Tensor,
    max_draft_tokens: int,
    *,
    seeds: Tensor | None = None,
    positions: Tensor | None = None,
    uniform_samples: Tensor | None = None,
    rule: str = "token",
) -> RejectionSample:
    """Verify drafts; target_probs [R, V], draft_probs [N, V] over target ids or None for one-hot drafts."""
    verdicts = rejection_sample_probs_verdicts(
        target_probs,
        draft_probs,
        draft_token_ids,
        cu_num_draft_tokens,
        max_draft_tokens,
        seeds=seeds,
        positions=positions,
        uniform_samples=uniform_samples,
        rule=rule,
    )
    return pack(verdicts, max_draft_tokens)
