# SPDX-License-Identifier: Apache-2.0
"""Verification for callers that already hold probabilities."""

from __future__ import annotations

import torch
from torch import Tensor

from ._arguments import MAX_DRAFT_TOKENS, check_batch, check_int, check_rows, fail, random_arguments, rule_number
from .rejection_sample import RejectionSample, check_results, empty_outputs


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
    out: RejectionSample | None = None,
) -> RejectionSample:
    """`rejection_sample` on probabilities instead of logits.

    Dimensions: B requests, N draft tokens in all, R = N + B target rows, V vocabulary, K = max_draft_tokens.

    Parameters
    ----------
    target_probs : float32 [R, V]
        Rows of the target's law after all processors; each sums to 1. Last stride 1, any row stride.
    draft_probs : float32 [N, V] or None
        The laws that the drafts were drawn from, over target ids. None: one-hot drafts.
    draft_token_ids, cu_num_draft_tokens, max_draft_tokens
        As in `rejection_sample`.
    seeds, positions : int64 [B]
        As in `rejection_sample`.
    uniform_samples : float64 [R, 2]
        As in `rejection_sample`.
    rule : "token" | "block"
        As in `rejection_sample`.
    out : RejectionSample or None
        As in `rejection_sample`.

    Returns
    -------
    RejectionSample

    Raises
    ------
    ValueError, TypeError
        As in `rejection_sample`.

    Notes
    -----
    Every target row up to the one where its request stops is summed whole, so that a NaN anywhere in it is flagged.
    Negative entries count as 0.

    Source
    ------
    Leviathan et al. 2023, arXiv 2211.17192, Algorithm 1; Sun et al. 2024, arXiv 2403.10444.

    Examples
    --------
    >>> import torch
    >>> from hetero_spec import ops
    >>> out = ops.rejection_sample_probs(
    ...     torch.tensor([[0.0, 1.0], [0.5, 0.5]]), None,
    ...     torch.tensor([0], dtype=torch.int32), torch.tensor([0, 1], dtype=torch.int32), 1,
    ...     uniform_samples=torch.zeros(2, 2, dtype=torch.float64))
    >>> out.output_token_ids.tolist(), out.num_accepted_tokens.tolist()
    ([[1, -1]], [0])
    """
    op = "rejection_sample_probs"
    target_probs = check_rows(op, "target_probs", target_probs, (torch.float32,))
    device = target_probs.device
    batch_size, num_tokens = check_batch(op, target_probs, "target_probs", draft_token_ids, cu_num_draft_tokens)
    check_int(op, "max_draft_tokens", max_draft_tokens, 0, MAX_DRAFT_TOKENS)
    if draft_probs is not None:
        check_rows(op, "draft_probs", draft_probs, (torch.float32,))
        if tuple(draft_probs.shape) != (num_tokens, target_probs.shape[1]):
            expected = f"of shape [{num_tokens}, {target_probs.shape[1]}]"
            fail(ValueError, op, "draft_probs", expected, f"shape {list(draft_probs.shape)}")
        if draft_probs.device != device:
            fail(ValueError, op, "draft_probs", f"on {device}", draft_probs.device)
    random = random_arguments(op, batch_size, (num_tokens + batch_size, 2), device, seeds, positions, uniform_samples)
    arguments = (
        target_probs,
        draft_probs,
        draft_token_ids,
        cu_num_draft_tokens,
        max_draft_tokens,
        *random,
        rule_number(op, rule),
    )
    if out is None:
        return RejectionSample(*torch.ops.hetero_spec.rejection_sample_probs(*arguments))
    check_results(op, out, batch_size, max_draft_tokens, device)
    torch.ops.hetero_spec.rejection_sample_probs.out(*arguments, **out._asdict())
    return out


@torch.library.register_fake("hetero_spec::rejection_sample_probs")
def _fake(
    target_probs: Tensor,
    draft_probs: Tensor | None,
    draft_token_ids: Tensor,
    cu_num_draft_tokens: Tensor,
    max_draft_tokens: int,
    *_: object,
) -> tuple[Tensor, Tensor, Tensor]:
    return empty_outputs(cu_num_draft_tokens, max_draft_tokens)


@torch.library.register_fake("hetero_spec::rejection_sample_probs.out")
def _fake_out(*_: object, **__: object) -> None:
    """Results are the caller's tensors: nothing to make."""
