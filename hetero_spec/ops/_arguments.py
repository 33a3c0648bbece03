# SPDX-License-Identifier: Apache-2.0
"""Checks and conversions that the op wrappers share. None of them looks at a tensor's values: nothing waits."""

from __future__ import annotations

import math
from typing import NoReturn, Union

import torch
from torch import Tensor

FloatParameter = Union[float, Tensor, None]  # noqa: UP007  evaluated at run time on Python 3.10
IntParameter = Union[int, Tensor, None]  # noqa: UP007
LOGIT_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
MAX_FLOAT32 = torch.finfo(torch.float32).max
MIN_FLOAT32 = torch.finfo(torch.float32).smallest_normal
MAX_DRAFT_TOKENS = 1 << 16
MAX_VOCAB_SIZE = 1 << 24  # a greedy row keeps an id in a float32

SamplingArguments = tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None, float, int, float, float]


def fail(error: type[Exception], op: str, argument: str, expected: str, actual: object) -> NoReturn:
    """Raise `<op>: <argument> must be <expected>, got <actual>`."""
    raise error(f"{op}: {argument} must be {expected}, got {actual}")


def check_tensor(op: str, argument: str, value: object) -> Tensor:
    """Refuse what is no tensor."""
    if not isinstance(value, Tensor):
        fail(TypeError, op, argument, "a tensor", type(value).__name__)
    return value


def check_rows(op: str, argument: str, value: object, dtypes: tuple[torch.dtype, ...] = LOGIT_DTYPES) -> Tensor:
    """A matrix of logits or probabilities: 2-dimensional, dense along the vocabulary."""
    tensor = check_tensor(op, argument, value)
    if tensor.dtype not in dtypes:
        fail(TypeError, op, argument, " or ".join(str(dtype) for dtype in dtypes), tensor.dtype)
    if tensor.dim() != 2:
        fail(ValueError, op, argument, "2-dimensional [rows, vocabulary]", f"shape {list(tensor.shape)}")
    if not 1 <= tensor.shape[1] <= MAX_VOCAB_SIZE:
        fail(ValueError, op, argument, f"1 to {MAX_VOCAB_SIZE} ids wide", f"shape {list(tensor.shape)}")
    if tensor.shape[1] > 1 and tensor.stride(1) != 1:
        fail(ValueError, op, argument, "contiguous along the vocabulary (last stride 1)", f"stride {tensor.stride()}")
    return tensor


def check_dense(
    op: str, argument: str, value: object, dtype: torch.dtype, shape: tuple[int | None, ...], device: torch.device
) -> Tensor:
    """A contiguous tensor of one dtype, shape (None = any size) and device."""
    tensor = check_tensor(op, argument, value)
    if tensor.dtype != dtype:
        fail(TypeError, op, argument, str(dtype), tensor.dtype)
    if tensor.dim() != len(shape) or any(
        size is not None and tensor.shape[axis] != size for axis, size in enumerate(shape)
    ):
        # The text is made only here: torch.compile cannot trace the name of a symbolic size.
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        fail(ValueError, op, argument, f"of shape [{wanted}]", f"shape {list(tensor.shape)}")
    if not tensor.is_contiguous():
        fail(ValueError, op, argument, "contiguous", f"strides {tensor.stride()}")
    if tensor.device != device:
        fail(ValueError, op, argument, f"on {device}", tensor.device)
    return tensor


def check_int(op: str, argument: str, value: object, least: int, most: int) -> int:
    """A Python int from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, (int, torch.SymInt)):
        fail(TypeError, op, argument, "an int", type(value).__name__)
    if not least <= value <= most:
        fail(ValueError, op, argument, f"from {least} to {most}", value)
    return value  # type: ignore[return-value]


def _float_parameter(
    op: str, argument: str, value: FloatParameter, off: float, low: float, high: float, open_low: bool
) -> float:
    if value is None:
        return off
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        fail(TypeError, op, argument, "a number, a float32 tensor or None", type(value).__name__)
    number = float(value)
    # Kernels hold parameters in float32, where a larger number is infinite and a smaller one is 0.
    low, high = (max(low, MIN_FLOAT32) if open_low else low), min(high, MAX_FLOAT32)
    inside = low <= number <= high
    if not inside:
        fail(ValueError, op, argument, f"in [{low:g}, {high:g}]", value)
    return number


def sampling_arguments(
    op: str,
    batch_size: int,
    device: torch.device,
    temperature: FloatParameter,
    top_k: IntParameter,
    top_p: FloatParameter,
    min_p: FloatParameter,
) -> SamplingArguments:
    """The eight sampling arguments of the schemas: four optional tensors, four scalars."""
    tensors: list[Tensor | None] = []
    for argument, value in (("temperature", temperature), ("top_k", top_k), ("top_p", top_p), ("min_p", min_p)):
        if isinstance(value, Tensor):
            dtype = torch.int32 if argument == "top_k" else torch.float32
            tensors.append(check_dense(op, argument, value, dtype, (batch_size,), device))
        else:
            tensors.append(None)
    scalar_top_k = 0
    if top_k is not None and not isinstance(top_k, Tensor):
        if isinstance(top_k, bool) or not isinstance(top_k, int):
            fail(TypeError, op, "top_k", "an int, an int32 tensor or None", type(top_k).__name__)
        scalar_top_k = top_k if top_k <= MAX_VOCAB_SIZE else 0  # no vocabulary is larger: off
    return (
        tensors[0],
        tensors[1],
        tensors[2],
        tensors[3],
        1.0
        if isinstance(temperature, Tensor)
        else _float_parameter(op, "temperature", temperature, 1.0, 0, math.inf, False),
        scalar_top_k,
        1.0 if isinstance(top_p, Tensor) else _float_parameter(op, "top_p", top_p, 1.0, 0, math.inf, True),
        0.0 if isinstance(min_p, Tensor) else _float_parameter(op, "min_p", min_p, 0.0, 0, 1, False),
    )


def random_arguments(
    op: str,
    batch_size: int,
    uniform_shape: tuple[int, ...],
    device: torch.device,
    seeds: Tensor | None,
    positions: Tensor | None,
    uniform_samples: Tensor | None,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Seeds and positions, or uniforms: exactly one of the two."""
    if uniform_samples is not None:
        if seeds is not None or positions is not None:
            fail(ValueError, op, "uniform_samples", "given instead of seeds and positions", "both")
        return None, None, check_dense(op, "uniform_samples", uniform_samples, torch.float64, uniform_shape, device)
    if seeds is None or positions is None:
        missing = "neither" if seeds is None and positions is None else "only one of them"
        fail(ValueError, op, "seeds and positions", "given together, or uniform_samples instead", missing)
    return (
        check_dense(op, "seeds", seeds, torch.int64, (batch_size,), device),
        check_dense(op, "positions", positions, torch.int64, (batch_size,), device),
        None,
    )


def check_batch(
    op: str, target: Tensor, argument: str, draft_token_ids: object, cu_num_draft_tokens: object
) -> tuple[int, int]:
    """The ragged batch's B and N; the target must have N + B rows."""
    ids = check_dense(op, "draft_token_ids", draft_token_ids, torch.int32, (None,), target.device)
    offsets = check_dense(op, "cu_num_draft_tokens", cu_num_draft_tokens, torch.int32, (None,), target.device)
    if offsets.shape[0] < 1:
        fail(ValueError, op, "cu_num_draft_tokens", "of shape [B + 1]", "shape [0]")
    batch_size, num_tokens = offsets.shape[0] - 1, ids.shape[0]
    if target.shape[0] != num_tokens + batch_size:
        expected = f"[N + B, V] with N + B = {num_tokens} + {batch_size} rows"
        fail(ValueError, op, argument, expected, f"shape {list(target.shape)}")
    return batch_size, num_tokens


def check_width(op: str, draft: Tensor, target: Tensor, has_map: bool) -> None:
    """Without a map the drafter's ids are the target's: a different width means that a map was forgotten."""
    if not has_map and draft.shape[1] != target.shape[1]:
        expected = f"{target.shape[1]} ids wide without target_to_draft_ids"
        fail(ValueError, op, "draft_logits", expected, f"shape {list(draft.shape)}")


def rule_number(op: str, rule: str) -> int:
    """The schema's number of a rule."""
    if rule not in ("token", "block"):
        fail(ValueError, op, "rule", "'token' or 'block'", repr(rule))
    return ("token", "block").index(rule)
