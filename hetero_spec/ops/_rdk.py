# SPDX-License-Identifier: Apache-2.0
"""What an RDK kernel hands to the ops: its tensors, by name. `kernel.tensors(device)` returns one of the two."""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol, Union

import torch
from torch import Tensor

from ._arguments import check_dense, fail

MAX_FACTORS = 4096  # of a low-rank kernel


class RdkTensors(NamedTuple):
    """A row-stochastic V x V matrix; row i is (1 - a_i - b_i) delta_i + a_i r + b_i S_i.

    V is the target's vocabulary; a + b is at most 1 everywhere. Values are the kernel's business: no op looks at them.
    """

    leak: Tensor | None = None
    """float32 [V], a in [0, 1]: the share of each token that goes to the prior. None: 0."""
    prior: Tensor | None = None
    """float32 [V], r, sums to 1. None only where nothing leaks."""
    prior_cumulative: Tensor | None = None
    """float64 [V], running sum of the prior, not below 0 and never falling: draws search it."""
    spread: Tensor | None = None
    """float32 [V], b in [0, 1]: the share of each token that goes along its row of S. None: 0."""
    row_offsets: Tensor | None = None
    """int32 [V + 1]: row i of S has entries [row_offsets[i], row_offsets[i + 1]) of the two below."""
    column_ids: Tensor | None = None
    """int32 [nnz], target ids."""
    weights: Tensor | None = None
    """float32 [nnz], S; each row sums to 1."""
    source_offsets: Tensor | None = None
    """int32 [V + 1]: S transposed, so target t has its sources at [source_offsets[t], source_offsets[t + 1])."""
    source_ids: Tensor | None = None
    """int32 [nnz], target ids."""
    source_weights: Tensor | None = None
    """float32 [nnz], S_it of the source i and the target t."""
    constant_leak: float = math.nan
    """a where it is one number over all tokens (leak may then be None): the leaked mass is known. Else NaN."""


class RdkFactors(NamedTuple):
    """Low rank: (1 - lam) law + lam w / sum(w) with w = max(0, 1 + scale U U^T law)."""

    factors: Tensor
    """float32 [V, n], U: n centred target laws (each column sums to 0)."""
    scale: float
    """1 / (n * tau)."""
    lam: float = 1.0
    """Share of the redistributed law, in [0, 1]."""


class RdkKernel(Protocol):
    """What the ops need of an RDK kernel (`hetero_spec.rdk` has them)."""

    @property
    def vocab_size(self) -> int:
        """The target's vocabulary, V."""

    def tensors(self, device: torch.device) -> Union[RdkTensors, RdkFactors]:  # noqa: UP007
        """The kernel on a device; the same tensors at every call."""


# Of the schemas: a mixture's tensors, which of the ten they are (-1: none), its leak if constant; factors, scale, lam.
KernelArguments = tuple[list[Tensor], int, float, Union[Tensor, None], float, float]  # noqa: UP007
NO_KERNEL: KernelArguments = ([], -1, 0.0, None, 0.0, 0.0)
_PRIOR = ("prior", "prior_cumulative")
_SPARSE = ("spread", "row_offsets", "column_ids", "weights", "source_offsets", "source_ids", "source_weights")
_DTYPES = {
    "leak": torch.float32,
    "prior": torch.float32,
    "prior_cumulative": torch.float64,
    "spread": torch.float32,
    "row_offsets": torch.int32,
    "column_ids": torch.int32,
    "weights": torch.float32,
    "source_offsets": torch.int32,
    "source_ids": torch.int32,
    "source_weights": torch.float32,
}


def kernel_parts(op: str, kernel: object, vocab_size: int, device: torch.device) -> Union[RdkTensors, RdkFactors]:  # noqa: UP007
    """The tensors of an RDK kernel on a device, after a look at its width."""
    width, tensors = getattr(kernel, "vocab_size", None), getattr(kernel, "tensors", None)
    if width is None or not callable(tensors):
        fail(TypeError, op, "kernel", "an RDK kernel (with vocab_size and tensors)", type(kernel).__name__)
    if width != vocab_size:
        fail(ValueError, op, "kernel", f"over the target's {vocab_size} ids", f"{width} ids")
    parts = tensors(device)
    if not isinstance(parts, (RdkTensors, RdkFactors)):
        fail(TypeError, op, "kernel.tensors(device)", "RdkTensors or RdkFactors", type(parts).__name__)
    return parts


def kernel_arguments(op: str, kernel: object, vocab_size: int, device: torch.device) -> KernelArguments:
    """The schemas' arguments for a kernel over the target's ids."""
    parts = kernel_parts(op, kernel, vocab_size, device)
    if isinstance(parts, RdkFactors):
        return _factor_arguments(op, parts, vocab_size, device)
    return _mixture_arguments(op, parts, vocab_size, device)


def kept_shape(num_rows: int, arguments: KernelArguments) -> tuple[int, ...]:
    """Shape of what a kernel keeps of rows: the leaked mass of each; low rank, its coefficients and total weight."""
    factors = arguments[3]
    return (num_rows,) if factors is None else (num_rows, factors.shape[1] + 1)


def inverse_map(ids: Tensor, width: int) -> Tensor:
    """int32 [width]: where in `ids` each value stands, -1 where it does not. Values outside [0, width) are ignored."""
    inside = (ids >= 0) & (ids < width)
    places = torch.where(inside, ids, width).long()
    numbers = torch.arange(ids.shape[0], dtype=torch.int32, device=ids.device)
    inverse = torch.full((width + 1,), -1, dtype=torch.int32, device=ids.device)
    return inverse.scatter_(0, places, numbers)[:width].contiguous()


def _mixture_arguments(op: str, parts: RdkTensors, vocab_size: int, device: torch.device) -> KernelArguments:
    given: list[Tensor] = []
    present = 0
    num_entries = None if parts.column_ids is None else parts.column_ids.shape[0]
    for bit, (name, dtype) in enumerate(_DTYPES.items()):
        tensor = getattr(parts, name)
        if tensor is None:
            continue
        size: int | None = vocab_size
        if name in ("row_offsets", "source_offsets"):
            size = vocab_size + 1
        elif name in ("column_ids", "weights", "source_ids", "source_weights"):
            size = num_entries
        given.append(check_dense(op, f"kernel.{name}", tensor, dtype, (size,), device))
        present |= 1 << bit
    leaks = parts.leak is not None if math.isnan(parts.constant_leak) else parts.constant_leak != 0.0
    for names, needed in ((_PRIOR, leaks), (_SPARSE, any(getattr(parts, name) is not None for name in _SPARSE))):
        missing = [name for name in names if getattr(parts, name) is None]
        if needed and missing:
            fail(ValueError, op, "kernel", f"given with {' and '.join(names)}", f"no {missing[0]}")
    return given, present, parts.constant_leak, *NO_KERNEL[3:]


def _factor_arguments(op: str, parts: RdkFactors, vocab_size: int, device: torch.device) -> KernelArguments:
    factors = check_dense(op, "kernel.factors", parts.factors, torch.float32, (vocab_size, None), device)
    if not 1 <= factors.shape[1] <= MAX_FACTORS:
        fail(ValueError, op, "kernel.factors", f"1 to {MAX_FACTORS} columns wide", f"shape {list(factors.shape)}")
    if not 0.0 <= parts.lam <= 1.0:
        fail(ValueError, op, "kernel.lam", "in [0, 1]", parts.lam)
    if not math.isfinite(parts.scale):
        fail(ValueError, op, "kernel.scale", "finite", parts.scale)
    return *NO_KERNEL[:3], factors, float(parts.scale), float(parts.lam)
