# SPDX-License-Identifier: Apache-2.0
"""What the parts of a kernel must be, checked when it is made: `<what>: <argument> must be <expectation>, got ...`."""

from __future__ import annotations

import math
from typing import Any, NoReturn

import torch
from torch import Tensor

MAX_VOCAB_SIZE = 1 << 24
"""The widest vocabulary of the ops."""

SUM_TOLERANCE = 1e-4
"""How far a law given as floats may be from total 1: float16 values of a large vocabulary add up no better."""

_ROUNDING = 2.0**-23


def fail(error: type[Exception], what: str, argument: str, expected: str, actual: object) -> NoReturn:
    """Raise `<what>: <argument> must be <expected>, got <actual>`."""
    raise error(f"{what}: {argument} must be {expected}, got {actual}")


def as_tensor(what: str, argument: str, value: Any, dtype: torch.dtype) -> Tensor:
    """Copy a tensor, array or list to the CPU in one dtype; whole numbers only become integers."""
    try:
        tensor = torch.as_tensor(value).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        fail(TypeError, what, argument, "a tensor or numbers", f"{type(value).__name__} ({error})")
    is_whole = not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)
    if tensor.is_complex() or tensor.dtype == torch.bool or (not dtype.is_floating_point and not is_whole):
        kind = "real numbers" if dtype.is_floating_point else "whole numbers"
        if tensor.numel() or not isinstance(value, list):
            fail(TypeError, what, argument, kind, tensor.dtype)
    return tensor.to(dtype, copy=True).contiguous()


def vector(what: str, argument: str, value: Any, size: int | None = None) -> Tensor:
    """Float64 [size] of finite numbers; any size of a vocabulary where none is given."""
    tensor = as_tensor(what, argument, value, torch.float64)
    wanted = "any" if size is None else str(size)
    if tensor.dim() != 1 or (size is not None and tensor.shape[0] != size):
        fail(ValueError, what, argument, f"of shape [{wanted}]", f"shape {list(tensor.shape)}")
    if not 1 <= tensor.shape[0] <= MAX_VOCAB_SIZE:
        fail(ValueError, what, argument, f"1 to {MAX_VOCAB_SIZE} ids wide", tensor.shape[0])
    bad = ~torch.isfinite(tensor)
    if bool(bad.any()):
        where = int(bad.nonzero()[0, 0])
        fail(ValueError, what, argument, "finite everywhere", f"{float(tensor[where])} at id {where}")
    return tensor


def non_negative(what: str, argument: str, tensor: Tensor) -> Tensor:
    """Refuse a number below 0, which no probability may come from."""
    least = int(tensor.argmin())
    if float(tensor[least]) < 0.0:
        fail(ValueError, what, argument, "0 or more everywhere", f"{float(tensor[least]):g} at id {least}")
    return tensor


def share(what: str, argument: str, value: Any, size: int) -> Tensor:
    """Float32 [size] in [0, 1] from one number or one per token."""
    if isinstance(value, bool):
        fail(TypeError, what, argument, "a number or a tensor", "bool")
    if isinstance(value, int | float) or getattr(value, "ndim", None) == 0:  # a number, of NumPy or torch too
        return torch.full((size,), scalar_share(what, argument, float(value)), dtype=torch.float32)
    tensor = vector(what, argument, value, size)
    outside = (tensor < 0.0) | (tensor > 1.0)
    if bool(outside.any()):
        where = int(outside.nonzero()[0, 0])
        fail(ValueError, what, argument, "in [0, 1]", f"{float(tensor[where]):g} at id {where}")
    return tensor.float()


def scalar_share(what: str, argument: str, value: float) -> float:
    """Refuse a number outside [0, 1]."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        fail(TypeError, what, argument, "a number", type(value).__name__)
    if not 0.0 <= value <= 1.0:
        fail(ValueError, what, argument, "in [0, 1]", value)
    return float(value)


def temperature(what: str, value: float) -> float:
    """Refuse a tau that isn't a positive, finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        fail(TypeError, what, "tau", "a number", type(value).__name__)
    if not (value > 0.0 and math.isfinite(value)):
        fail(ValueError, what, "tau", "positive and finite", value)
    return float(value)


def law(what: str, argument: str, value: Any, size: int | None = None) -> Tensor:
    """Float32 [size], finite, not negative, total 1 to float32 rounding."""
    tensor = non_negative(what, argument, vector(what, argument, value, size))
    total = float(tensor.sum())
    if abs(total - 1.0) > SUM_TOLERANCE:
        fail(ValueError, what, argument, "a law (total 1)", f"total {total:.6g}")
    return normalized(tensor, torch.tensor(total, dtype=torch.float64))


def normalized(values: Tensor, totals: Tensor) -> Tensor:
    """Float32 values of total 1, given float64 ones and their totals.

    What adds up to 1 within float32 rounding stays as it is: a kernel that was saved comes back in the same bits.
    """
    return (values / torch.where((totals - 1.0).abs() <= _ROUNDING, 1.0, totals)).float()


def draft_rows(what: str, draft_probs: Any, vocab_size: int) -> Tensor:
    """Refuse what isn't a float matrix of rows over the kernel's vocabulary."""
    if not isinstance(draft_probs, Tensor):
        fail(TypeError, what, "draft_probs", "a tensor", type(draft_probs).__name__)
    if not draft_probs.is_floating_point():
        fail(TypeError, what, "draft_probs", "of a float dtype", draft_probs.dtype)
    if draft_probs.dim() != 2 or draft_probs.shape[1] != vocab_size:
        fail(ValueError, what, "draft_probs", f"of shape [any, {vocab_size}]", f"shape {list(draft_probs.shape)}")
    return draft_probs


def finite(what: str, argument: str, tensor: Tensor) -> Tensor:
    """Refuse NaN and infinities."""
    if not bool(torch.isfinite(tensor).all()):
        bad = tensor[~torch.isfinite(tensor)]
        fail(ValueError, what, argument, "finite everywhere", f"{float(bad.reshape(-1)[0])} ({bad.numel()} of them)")
    return tensor


def in_range(what: str, argument: str, ids: Tensor, vocab_size: int) -> None:
    """Refuse an id outside the vocabulary."""
    if ids.numel() and not (int(ids.min()) >= 0 and int(ids.max()) < vocab_size):
        fail(ValueError, what, argument, f"in [0, {vocab_size})", f"{int(ids.min())}..{int(ids.max())}")
