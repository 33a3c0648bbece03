# SPDX-License-Identifier: Apache-2.0
"""What an RDK kernel hands to the ops: its tensors, by name. `kernel.tensors(device)` returns one of the two."""

from __future__ import annotations

import contextlib
import functools
import math
from typing import Any, NamedTuple, Protocol, Union
from weakref import ref

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
    spreading_ids: Tensor | None = None
    """int32 [m], rising: the ids with entries in S and a share of spread. This and the two below are an index of S, for
    rows where a draft is rejected; `indexed` makes them. None: made at every call, at a pass over V and the entries."""
    entry_target_ids: Tensor | None = None
    """int32 [nnz], the target of each entry of source_ids."""
    entry_source_numbers: Tensor | None = None
    """int32 [nnz], the place in spreading_ids of each entry of source_ids; -1: it has none."""
    constant_leak: float = math.nan
    """a where it is one number over all tokens (leak may then be None): the leaked mass is known. Else NaN."""

    def indexed(self) -> RdkTensors:
        """The kernel with the index of its sparse rows; itself where it has one, or no such rows.

        Looks at values: call it once, when the kernel is made, and not while torch.compile or torch.export traces.
        """
        if self.spread is None or self.spreading_ids is not None:
            return self
        padded = with_index(self)
        assert padded.spreading_ids is not None
        count = int((padded.spreading_ids < self.spread.shape[0]).sum())
        return padded._replace(spreading_ids=padded.spreading_ids[:count].clone())


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


# Of the schemas: a mixture's tensors, which they are (-1: none), its leak if constant; factors, scale, lam.
KernelArguments = tuple[list[Tensor], int, float, Union[Tensor, None], float, float]  # noqa: UP007
NO_KERNEL: KernelArguments = ([], -1, 0.0, None, 0.0, 0.0)
_PRIOR = ("prior", "prior_cumulative")
_SPARSE = ("spread", "row_offsets", "column_ids", "weights", "source_offsets", "source_ids", "source_weights")
_INDEX = ("spreading_ids", "entry_target_ids", "entry_source_numbers")
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
    "spreading_ids": torch.int32,
    "entry_target_ids": torch.int32,
    "entry_source_numbers": torch.int32,
}


# Of sparse kernels by id: themselves, the tensors that they handed over last, and what became of them.
_looked_at: dict[int, tuple[ref[Any], RdkTensors, KernelArguments]] = {}


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
    if torch.compiler.is_compiling() or not _has_any(parts, _INDEX):
        return _mixture_arguments(op, parts, vocab_size, device)
    # Thirteen looks a call would cost a small draft a tenth of its time.
    key = id(kernel)
    known = _looked_at.get(key)
    if known is None or known[0]() is not kernel or known[1] is not parts:
        arguments = _mixture_arguments(op, parts, vocab_size, device)
        with contextlib.suppress(TypeError):  # of classes that cannot be referred to weakly
            _looked_at[key] = (ref(kernel, functools.partial(_forget, key)), parts, arguments)
        return arguments
    return known[2]


def _forget(key: int, _: object) -> None:
    _looked_at.pop(key, None)


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
    has_index = _has_any(parts, _INDEX)
    num_entries = None if parts.column_ids is None else parts.column_ids.shape[0]
    for name, dtype in _DTYPES.items():
        size: int | None = num_entries
        if name in ("row_offsets", "source_offsets"):
            size = vocab_size + 1
        elif name in ("leak", "prior", "prior_cumulative", "spread"):
            size = vocab_size
        elif name == "spreading_ids":
            size = None
        if getattr(parts, name) is not None:
            check_dense(op, f"kernel.{name}", getattr(parts, name), dtype, (size,), device)
    leaks = parts.leak is not None if math.isnan(parts.constant_leak) else parts.constant_leak != 0.0
    is_sparse = has_index or _has_any(parts, _SPARSE)
    for names, needed in ((_PRIOR, leaks), (_SPARSE, is_sparse), (_INDEX, has_index)):
        missing = [name for name in names if getattr(parts, name) is None]
        if needed and missing:
            fail(ValueError, op, "kernel", f"given with {' and '.join(names)}", f"no {missing[0]}")
    if is_sparse and not has_index:
        parts = with_index(parts)
    tensors = [getattr(parts, name) for name in _DTYPES]
    present = sum(1 << bit for bit, tensor in enumerate(tensors) if tensor is not None)
    return [tensor for tensor in tensors if tensor is not None], present, parts.constant_leak, *NO_KERNEL[3:]


def _has_any(parts: RdkTensors, names: tuple[str, ...]) -> bool:
    return any(getattr(parts, name) is not None for name in names)


def with_index(parts: RdkTensors) -> RdkTensors:
    """A sparse kernel with the index of its rows, spreading_ids padded with V to min(V, nnz): no size hangs on a value.

    Broken offsets and ids give a broken index, never an error.
    """
    spread, row_offsets = parts.spread, parts.row_offsets
    source_offsets, source_ids = parts.source_offsets, parts.source_ids
    assert spread is not None and row_offsets is not None and source_offsets is not None and source_ids is not None
    size, num_entries, device = spread.shape[0], source_ids.shape[0], spread.device
    room = min(size, num_entries)
    is_source = (row_offsets[1:] > row_offsets[:-1]) & (spread > 0.0)  # not diff, which may overflow
    numbers = is_source.cumsum(0) - 1
    numbers = torch.where(is_source & (numbers < room), numbers, room)
    ids = torch.full((room + 1,), size, dtype=torch.int32, device=device)
    ids.scatter_(0, numbers, torch.arange(size, dtype=torch.int32, device=device))
    inside = (source_ids >= 0) & (source_ids < size)
    own = numbers[torch.where(inside, source_ids, 0).long()]
    entries = torch.arange(num_entries, dtype=torch.int32, device=device)
    return parts._replace(
        spreading_ids=ids[:room].clone(),
        entry_target_ids=torch.searchsorted(source_offsets[1:], entries, right=True, out_int32=True),
        entry_source_numbers=torch.where(inside & (own < room), own, -1).to(torch.int32),
    )


def _factor_arguments(op: str, parts: RdkFactors, vocab_size: int, device: torch.device) -> KernelArguments:
    factors = check_dense(op, "kernel.factors", parts.factors, torch.float32, (vocab_size, None), device)
    if not 1 <= factors.shape[1] <= MAX_FACTORS:
        fail(ValueError, op, "kernel.factors", f"1 to {MAX_FACTORS} columns wide", f"shape {list(factors.shape)}")
    if not 0.0 <= parts.lam <= 1.0:
        fail(ValueError, op, "kernel.lam", "in [0, 1]", parts.lam)
    if not math.isfinite(parts.scale):
        fail(ValueError, op, "kernel.scale", "finite", parts.scale)
    return *NO_KERNEL[:3], factors, float(parts.scale), float(parts.lam)
