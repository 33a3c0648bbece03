# SPDX-License-Identifier: Apache-2.0
"""Drawing a draft token from a drafter with a vocabulary of its own."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ._arguments import (
    FloatParameter,
    IntParameter,
    check_dense,
    check_rows,
    fail,
    random_arguments,
    sampling_arguments,
)
from ._rdk import NO_KERNEL, RdkKernel, inverse_map, kept_shape, kernel_arguments


class DraftSample(NamedTuple):
    """What `draft_sample` returns: everything that verification and a lookahead need of the drafter's row."""

    target_token_ids: Tensor
    """int32 [B], -1 where the row proposes nothing."""
    draft_token_ids: Tensor
    """int32 [B], the same token in the drafter's ids; -1 likewise, and where the drafter has no such token (a kernel
    moved the draft there)."""
    probs: Tensor
    """float32 [B], probability of the token under the draft law."""
    stats: Tensor
    """float32 [B, 4], the row law it was drawn from (before a kernel): pass it to `rejection_sample`."""
    entropy: Tensor
    """float32 [B], entropy of the row law in nats."""
    max_prob: Tensor
    """float32 [B], largest probability of the row law."""
    leaked_mass: Tensor | None = None
    """float32 [B], mass that the kernel gives to its prior: pass it to `rejection_sample` as `draft_leaked_mass`. With
    a low-rank kernel of n factors [B, n + 1]: the row's coefficients U^T law, then the total weight Z (all 0 where the
    kernel's lam is 0). None without a kernel."""


def draft_sample(
    draft_logits: Tensor,
    draft_to_target_ids: Tensor | None = None,
    *,
    temperature: FloatParameter = None,
    top_k: IntParameter = None,
    top_p: FloatParameter = None,
    min_p: FloatParameter = None,
    kernel: RdkKernel | None = None,
    target_to_draft_ids: Tensor | None = None,
    seeds: Tensor | None = None,
    positions: Tensor | None = None,
    uniform_samples: Tensor | None = None,
    out: DraftSample | None = None,
) -> DraftSample:
    """Draw one token per request from the drafter's law over the shared ids (token-level intersection).

    The draw is by inverse CDF in the drafter's vocabulary order: the first id whose cumulative probability exceeds the
    uniform. A kernel then redistributes it over the target's ids (RDK): the token is kept, or another one is drawn from
    the kernel's prior or from the token's sparse row; with a low-rank kernel, with probability lam from the weights
    max(0, 1 + scale U U^T law).

    Dimensions: B requests, Vd drafter vocabulary, V target vocabulary.

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
    kernel : RDK kernel or None
        Of `hetero_spec.rdk`, over the target's V ids. None: the drafter's law itself.
    target_to_draft_ids : int32 [V] or None
        The inverse map, read with a kernel only. None: made from draft_to_target_ids at every call, which costs a pass
        over the map, and takes the kernel's width for V: only a map that is given can show that a kernel is another
        target's.
    seeds, positions : int64 [B]
        positions[b] is the sequence position of the token to be drawn. The uniform is Philox4x32-10 of (seed, position)
        in the stream "propose" (with a kernel also "leak" and "redraw"), so it never meets the verifier's.
    uniform_samples : float64 [B], or [B, 3] with a kernel
        In [0, 1); instead of seeds and positions. With a kernel: token, leak, redraw.
    out : DraftSample or None
        Contiguous tensors for the results, which share no memory with another argument; they are what is returned. An
        engine that captures the call in a CUDA graph owns its results this way. `leaked_mass` is a tensor with a kernel
        and None otherwise. None: new tensors.

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
    Deterministic; independent of the batch. Cost: one read of the row, and one chunk of it again. A kernel adds a
    binary search or the scan of a sparse row; one whose leak differs from token to token a pass over the row, for the
    mass that leaks. A low-rank kernel of n factors takes 2 V n operations a row (V n where the drafter has mass at few
    ids) and one chunk of its factors again for the draw; no tensor over the vocabulary is made. One whose factors make
    no law (NaN, no weight above 0) proposes nothing.

    Source
    ------
    Timor et al. 2025, arXiv 2502.05202; redistribution: Timor et al. 2025, arXiv 2506.03206.

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
    shape = (batch_size,) if kernel is None else (batch_size, 3)
    random = random_arguments(op, batch_size, shape, device, seeds, positions, uniform_samples)
    if kernel is None:
        if out is not None:
            _check_results(op, out, batch_size, device, None)
        return _draw(out, (draft_logits, draft_to_target_ids, None, *params, *random, *NO_KERNEL))
    target_to_draft_ids = _inverse_of(op, draft_to_target_ids, target_to_draft_ids, kernel, device)
    vocab_size = draft_vocab_size if target_to_draft_ids is None else target_to_draft_ids.shape[0]
    arguments = kernel_arguments(op, kernel, vocab_size, device)
    if out is not None:
        _check_results(op, out, batch_size, device, kept_shape(batch_size, arguments))
    return _draw(out, (draft_logits, draft_to_target_ids, target_to_draft_ids, *params, *random, *arguments))


def _has_kernel(arguments: tuple[object, ...]) -> bool:
    """Whether the schema's arguments, which end with those of a kernel, hold one."""
    return arguments[-5] != -1 or arguments[-3] is not None  # parts of a mixture; factors


def _draw(out: DraftSample | None, arguments: tuple[object, ...]) -> DraftSample:
    """The registered op, with new results or the caller's; leaked_mass is None without a kernel."""
    if out is not None:
        torch.ops.hetero_spec.draft_sample.out(*arguments, **out._asdict())
        return out
    sample = DraftSample(*torch.ops.hetero_spec.draft_sample(*arguments))
    return sample if _has_kernel(arguments) else sample._replace(leaked_mass=None)


def _check_results(
    op: str, out: object, batch_size: int, device: torch.device, leaked_mass_shape: tuple[int, ...] | None
) -> None:
    """The caller's tensors for the results."""
    if not isinstance(out, DraftSample):
        fail(TypeError, op, "out", "a DraftSample", type(out).__name__)
    for name in ("target_token_ids", "draft_token_ids"):
        check_dense(op, f"out.{name}", getattr(out, name), torch.int32, (batch_size,), device)
    for name in ("probs", "entropy", "max_prob"):
        check_dense(op, f"out.{name}", getattr(out, name), torch.float32, (batch_size,), device)
    check_dense(op, "out.stats", out.stats, torch.float32, (batch_size, 4), device)
    if leaked_mass_shape is not None:
        check_dense(op, "out.leaked_mass", out.leaked_mass, torch.float32, leaked_mass_shape, device)
    elif out.leaked_mass is not None:
        fail(ValueError, op, "out.leaked_mass", "None without a kernel", "a tensor")


def _inverse_of(
    op: str,
    draft_to_target_ids: Tensor | None,
    target_to_draft_ids: Tensor | None,
    kernel: RdkKernel,
    device: torch.device,
) -> Tensor | None:
    """The inverse map; None where the ids are the same."""
    if target_to_draft_ids is not None:
        if draft_to_target_ids is None:
            fail(ValueError, op, "target_to_draft_ids", "given together with draft_to_target_ids", "it alone")
        return check_dense(op, "target_to_draft_ids", target_to_draft_ids, torch.int32, (None,), device)
    width = getattr(kernel, "vocab_size", None)
    if draft_to_target_ids is None or width is None:
        return None
    return inverse_map(draft_to_target_ids, width)


@torch.library.register_fake("hetero_spec::draft_sample")
def _fake(draft_logits: Tensor, *arguments: object) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    batch_size = draft_logits.shape[0]
    factors = arguments[-3]
    kept: tuple[int, ...] = (batch_size if _has_kernel(arguments) else 0,)
    if isinstance(factors, Tensor):
        kept = (batch_size, factors.shape[1] + 1)

    def empty(*shape: int, dtype: torch.dtype) -> Tensor:
        return draft_logits.new_empty(shape, dtype=dtype)

    return (
        empty(batch_size, dtype=torch.int32),
        empty(batch_size, dtype=torch.int32),
        empty(batch_size, dtype=torch.float32),
        empty(batch_size, 4, dtype=torch.float32),
        empty(batch_size, dtype=torch.float32),
        empty(batch_size, dtype=torch.float32),
        empty(*kept, dtype=torch.float32),
    )


@torch.library.register_fake("hetero_spec::draft_sample.out")
def _fake_out(*_: object, **__: object) -> None:
    """Results are the caller's tensors: nothing to make."""
