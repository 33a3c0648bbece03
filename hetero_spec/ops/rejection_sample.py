# SPDX-License-Identifier: Apache-2.0
"""Verification of drafts against the target's logits."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ._arguments import (
    MAX_DRAFT_TOKENS,
    FloatParameter,
    IntParameter,
    check_batch,
    check_dense,
    check_int,
    check_rows,
    check_width,
    fail,
    random_arguments,
    rule_number,
    sampling_arguments,
)
from ._rdk import NO_KERNEL, RdkKernel, kept_shape, kernel_arguments


class RejectionSample(NamedTuple):
    """What verification returns."""

    output_token_ids: Tensor
    """int32 [B, K + 1]: accepted ids, then one recovered or bonus id, then -1."""
    num_accepted_tokens: Tensor
    """int32 [B]: length of the leading accepted run. num_accepted_tokens + 1 ids are emitted."""
    status: Tensor
    """int32 [B]: bits of `Status`."""


def rejection_sample(
    target_logits: Tensor,
    draft_token_ids: Tensor,
    cu_num_draft_tokens: Tensor,
    max_draft_tokens: int,
    *,
    draft_logits: Tensor | None = None,
    draft_stats: Tensor | None = None,
    target_to_draft_ids: Tensor | None = None,
    kernel: RdkKernel | None = None,
    draft_leaked_mass: Tensor | None = None,
    temperature: FloatParameter = None,
    top_k: IntParameter = None,
    top_p: FloatParameter = None,
    min_p: FloatParameter = None,
    seeds: Tensor | None = None,
    positions: Tensor | None = None,
    uniform_samples: Tensor | None = None,
    rule: str = "token",
    out: RejectionSample | None = None,
) -> RejectionSample:
    """Verify the drafts of a ragged batch: the output has the law of the target, whatever the drafter.

    Token rule: accept a draft token iff u * draft_prob < target_prob; at the first rejection draw from the normalised
    max(0, target - draft); with all accepted draw from the next target row. The draft law is read from the drafter's
    logits through the map: no tensor of the target's width is made.

    Dimensions: B requests, N draft tokens in all, R = N + B target rows, V and Vd vocabularies, K = max_draft_tokens.

    Parameters
    ----------
    target_logits : float32 | float16 | bfloat16 [R, V]
        Before temperature. Request b owns rows cu[b] + b to cu[b + 1] + b; its row j is the law of its token j. Last
        stride 1, any row stride.
    draft_token_ids : int32 [N]
        Target ids, requests back to back. -1 ends a request's draft.
    cu_num_draft_tokens : int32 [B + 1]
        Running sum of the draft lengths with a leading 0. Lengths may be 0.
    max_draft_tokens : int
        K >= 0. Of longer drafts only the first K tokens count.
    draft_logits : float32 | float16 | bfloat16 [N, Vd] or None
        The rows that the drafts were drawn from. None: drafts are one-hot (greedy drafter, n-grams, text); a softmax
        must not be passed for tokens that were chosen by argmax.
    draft_stats : float32 [N, 4] or None
        The draft laws as `draft_sample` returned them: pass them, and verification uses the very law that was drawn
        from. None: made here from draft_logits with the request's own parameters.
    target_to_draft_ids : int32 [V] or None
        -1 = not shared. None: the drafter has the target's ids (Vd = V). For heads of different widths over one
        tokenizer take the maps of `VocabMap`.
    kernel : RDK kernel or None
        The one that the drafts were drawn with (`draft_sample`). It is read at the drafted tokens, and over the
        vocabulary where a draft is rejected.
    draft_leaked_mass : float32 [N], with a low-rank kernel of n factors [N, n + 1], or None
        `leaked_mass` as `draft_sample` returned it. None: where the kernel is low-rank or its leak differs from token
        to token, made here from each draft row that is tested.
    temperature, top_p, min_p : float, float32 [B] or None
        As in `row_stats`. Greedy and sampled requests may mix in one batch.
    top_k : int, int32 [B] or None
        As in `row_stats`.
    seeds, positions : int64 [B]
        positions[b] is the sequence position of the request's first target row; row j uses positions[b] + j. With the
        same seed and position, plain decoding (an empty draft) draws the same token in every batch.
    uniform_samples : float64 [R, 2]
        In [0, 1): accept, resample; instead of seeds and positions.
    rule : "token" | "block"
        The block rule never accepts fewer tokens in expectation, and reads every row.
    out : RejectionSample or None
        Contiguous tensors for the results, which share no memory with another argument; they are what is returned. An
        engine that captures the call in a CUDA graph owns its results this way. None: new tensors.

    Returns
    -------
    RejectionSample

    Raises
    ------
    ValueError
        A shape, stride, device or scalar is out of range, or no random numbers are given.
    TypeError
        A dtype is not listed.

    Notes
    -----
    Values that only the device sees never raise: they are flagged in status (see `Status`), touch no other request, and
    the output keeps valid ids. `raise_for_status` turns them into an error.
    Deterministic; a request's result does not depend on the rest of the batch or on the number of threads.
    Cost: one read of each target row up to the one where the request stops (token rule); of the draft rows only the
    rejected one is read. With top-p or top-k one or two more reads of the rows that are needed. A kernel adds a few
    entries per test, and for a rejected row its prior and its sparse entries; a low-rank kernel of n factors n
    operations per test, V n for a rejected row, and without draft_leaked_mass 2 V n for each tested one.

    Source
    ------
    Leviathan et al. 2023, arXiv 2211.17192, Algorithm 1; Chen et al. 2023, arXiv 2302.01318; block rule: Sun et al.
    2024, arXiv 2403.10444; drafters with other vocabularies: Timor et al. 2025, arXiv 2502.05202; redistributed
    drafts: Timor et al. 2025, arXiv 2506.03206.

    Examples
    --------
    >>> import torch
    >>> from hetero_spec import ops
    >>> target = torch.tensor([[0.1, 0.9], [0.5, 0.5]]).log()
    >>> out = ops.rejection_sample(
    ...     target, torch.tensor([1], dtype=torch.int32), torch.tensor([0, 1], dtype=torch.int32), 1,
    ...     draft_logits=torch.tensor([[0.5, 0.5]]).log(),
    ...     uniform_samples=torch.tensor([[0.3, 0.0], [0.0, 0.7]], dtype=torch.float64))
    >>> out.output_token_ids.tolist(), out.num_accepted_tokens.tolist()
    ([[1, 1]], [1])
    """
    op = "rejection_sample"
    target_logits = check_rows(op, "target_logits", target_logits)
    device = target_logits.device
    batch_size, num_tokens = check_batch(op, target_logits, "target_logits", draft_token_ids, cu_num_draft_tokens)
    check_int(op, "max_draft_tokens", max_draft_tokens, 0, MAX_DRAFT_TOKENS)
    if draft_logits is not None:
        check_rows(op, "draft_logits", draft_logits)
        if draft_logits.shape[0] != num_tokens:
            fail(ValueError, op, "draft_logits", f"of shape [{num_tokens}, Vd]", f"shape {list(draft_logits.shape)}")
        if draft_logits.device != device:
            fail(ValueError, op, "draft_logits", f"on {device}", draft_logits.device)
        check_width(op, draft_logits, target_logits, target_to_draft_ids is not None)
    if draft_stats is not None:
        if draft_logits is None:
            fail(ValueError, op, "draft_stats", "given together with draft_logits", "draft_stats alone")
        check_dense(op, "draft_stats", draft_stats, torch.float32, (num_tokens, 4), device)
    if target_to_draft_ids is not None:
        check_dense(op, "target_to_draft_ids", target_to_draft_ids, torch.int32, (target_logits.shape[1],), device)
    params = sampling_arguments(op, batch_size, device, temperature, top_k, top_p, min_p)
    random = random_arguments(op, batch_size, (num_tokens + batch_size, 2), device, seeds, positions, uniform_samples)
    if draft_leaked_mass is not None and kernel is None:
        fail(ValueError, op, "draft_leaked_mass", "given together with kernel", "draft_leaked_mass alone")
    if out is not None:
        check_results(op, out, batch_size, max_draft_tokens, device)
    arguments = NO_KERNEL
    if kernel is not None:
        if draft_logits is None:
            fail(ValueError, op, "kernel", "given together with draft_logits", "kernel alone")
        arguments = kernel_arguments(op, kernel, target_logits.shape[1], device)
        if draft_leaked_mass is not None:
            shape = kept_shape(num_tokens, arguments)
            check_dense(op, "draft_leaked_mass", draft_leaked_mass, torch.float32, shape, device)
    all_arguments = (
        target_logits,
        draft_token_ids,
        cu_num_draft_tokens,
        max_draft_tokens,
        draft_logits,
        draft_stats,
        target_to_draft_ids,
        *params,
        *random,
        *arguments,
        draft_leaked_mass,
        rule_number(op, rule),
    )
    if out is None:
        return RejectionSample(*torch.ops.hetero_spec.rejection_sample(*all_arguments))
    torch.ops.hetero_spec.rejection_sample.out(*all_arguments, **out._asdict())
    return out


@torch.library.register_fake("hetero_spec::rejection_sample")
def _fake(
    target_logits: Tensor, draft_token_ids: Tensor, cu_num_draft_tokens: Tensor, max_draft_tokens: int, *_: object
) -> tuple[Tensor, Tensor, Tensor]:
    return empty_outputs(cu_num_draft_tokens, max_draft_tokens)


def check_results(op: str, out: object, batch_size: int, max_draft_tokens: int, device: torch.device) -> None:
    """The caller's tensors for the results of a verification, of both ops."""
    if not isinstance(out, RejectionSample):
        fail(TypeError, op, "out", "a RejectionSample", type(out).__name__)
    check_dense(
        op, "out.output_token_ids", out.output_token_ids, torch.int32, (batch_size, max_draft_tokens + 1), device
    )
    check_dense(op, "out.num_accepted_tokens", out.num_accepted_tokens, torch.int32, (batch_size,), device)
    check_dense(op, "out.status", out.status, torch.int32, (batch_size,), device)


def empty_outputs(cu_num_draft_tokens: Tensor, max_draft_tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    """Unfilled outputs of a verification, for the fake kernels of both ops."""
    batch_size = cu_num_draft_tokens.shape[0] - 1

    def empty(*shape: int) -> Tensor:
        return cu_num_draft_tokens.new_empty(shape, dtype=torch.int32)

    return empty(batch_size, max_draft_tokens + 1), empty(batch_size), empty(batch_size)


@torch.library.register_fake("hetero_spec::rejection_sample.out")
def _fake_out(*_: object, **__: object) -> None:
    """Results are the caller's tensors: nothing to make."""
