# SPDX-License-Identifier: Apache-2.0
"""One typical call of every op, for tests of what all ops have in common."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hetero_spec import ops
from tests.tools.inputs import (
    Verification,
    make_cu,
    make_logits,
    make_map,
    make_parameters,
    make_verification,
    with_layout,
)
from tests.tools.kernels import make_kernel

# Names of the arguments that hold one row of logits (or probabilities) per row.
_ROWS = ("logits", "draft_logits", "target_logits", "target_probs", "draft_probs")


class Call(NamedTuple):
    """An op with its arguments, all by name."""

    name: str
    function: Callable[..., Any]
    arguments: dict[str, Any]

    def __call__(self, **changes: Any) -> tuple[Tensor, ...]:
        out = self.function(**{**self.arguments, **changes})
        return (out,) if isinstance(out, Tensor) else tuple(tensor for tensor in out if tensor is not None)

    def laid_out(self, **layout: int) -> "Call":
        """The same values in rows with another stride and start."""
        changed = {key: with_layout(self.arguments[key], **layout) for key in _ROWS if key in self.arguments}
        return self._replace(arguments={**self.arguments, **changed})

    def tensors(self) -> dict[str, Tensor]:
        return {name: value for name, value in self.arguments.items() if isinstance(value, Tensor)}


def verification_arguments(case: Verification) -> dict[str, Any]:
    names = ("target_logits", "draft_token_ids", "cu_num_draft_tokens", "max_draft_tokens")
    return {**dict(zip(names, case.positional, strict=True)), **case.keywords}


def make_call(
    name: str, *, vocab_size: int = 1003, batch_size: int = 4, dtype: torch.dtype = torch.float32, seed: int = 1
) -> Call:
    """An op by its name ("rejection_sample/block+mix": rule and kernel); B = 0 with batch_size 0."""
    name_and_rule, _, kernel_kind = name.partition("+")
    op, _, rule = name_and_rule.partition("/")
    kernel = {"kernel": make_kernel(kernel_kind, vocab_size, seed=seed)} if kernel_kind else {}
    function = getattr(ops, op)
    draft_to_target, target_to_draft = make_map("partial", vocab_size, seed=seed)
    parameters = make_parameters("per_request", batch_size)
    seeds = torch.arange(batch_size) + 10
    positions = torch.arange(batch_size) * 1000
    logits = make_logits(batch_size, vocab_size, seed=seed, dtype=dtype)
    if op == "row_stats":
        return Call(name, function, {"logits": logits, "draft_to_target_ids": draft_to_target, **parameters})
    if op == "remap_probs":
        arguments = {"draft_logits": logits, "draft_to_target_ids": draft_to_target, "target_vocab_size": vocab_size}
        return Call(name, function, {**arguments, **parameters})
    if op == "rdk_redistribute":
        return Call(
            name, function, {"draft_probs": make_logits(batch_size, vocab_size, seed=seed).softmax(-1), **kernel}
        )
    if op == "draft_sample":
        arguments = {"draft_logits": logits, "draft_to_target_ids": draft_to_target, **kernel}
        return Call(name, function, {**arguments, **parameters, "seeds": seeds, "positions": positions})
    if op == "acceptance_overlap":
        target = make_logits(batch_size, vocab_size, seed=seed + 1, dtype=dtype)
        arguments = {"target_logits": target, "draft_logits": logits, "target_to_draft_ids": target_to_draft}
        return Call(name, function, {**arguments, **kernel, **parameters})
    case = make_verification(
        vocab_size=vocab_size,
        seed=seed,
        batch_size=batch_size,
        dtype=dtype,
        parameters="per_request",
        map_kind="partial",
    )
    arguments = verification_arguments(case)
    del arguments["uniform_samples"]
    if op == "rejection_sample_probs":
        num_tokens = sum(case.lengths)
        arguments = {
            "target_probs": make_logits(num_tokens + batch_size, vocab_size, seed=seed).softmax(-1),
            "draft_probs": make_logits(num_tokens, vocab_size, seed=seed + 1).softmax(-1),
            "draft_token_ids": case.draft_token_ids,
            "cu_num_draft_tokens": case.cu_num_draft_tokens,
            "max_draft_tokens": case.max_draft_tokens,
        }
    return Call(name, function, {**arguments, **kernel, "seeds": seeds, "positions": positions, "rule": rule})


NAMES = [
    "row_stats",
    "remap_probs",
    "draft_sample",
    "rejection_sample/token",
    "rejection_sample/block",
    "rejection_sample_probs/token",
    "rejection_sample_probs/block",
    "acceptance_overlap",
    "rdk_redistribute+sparse",
    "rdk_redistribute+low_rank",
    "draft_sample+diagonal",
    "draft_sample+low_rank",
    "rejection_sample/token+general",
    "rejection_sample/block+mix",
    "rejection_sample/token+low_rank",
    "rejection_sample/block+low_rank",
    "acceptance_overlap+sparse",
    "acceptance_overlap+low_rank",
]

__all__ = ["NAMES", "Call", "make_call", "make_cu", "verification_arguments"]
