# SPDX-License-Identifier: Apache-2.0
"""`rdk_redistribute` against the kernel's matrix in torch (small V), and its own form composed in torch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from hetero_spec import ops
from perf import checks
from perf.cases import Case
from perf.harness import OURS, Workload
from perf.inputs import make_logits
from perf.kernels import Kernel, dense, make_kernel
from perf.limit import KINDS, Limit

LARGEST_DENSE = 8192  # a matrix of 256 MiB


def bench_rdk_redistribute(case: Case, use_compile: bool, run: Callable[[Case, Workload], None]) -> None:
    run(case, workload(case))


def composed(laws: Tensor, kernel: Kernel) -> Tensor:
    """The mixture by torch's operators."""
    parts = kernel.parts
    leak = parts.constant_leak if parts.leak is None else parts.leak
    leak = 0.0 if not isinstance(leak, Tensor) and leak != leak else leak
    spread = 0.0 if parts.spread is None else parts.spread
    moved = laws * (1.0 - leak - spread)
    if parts.prior is not None:
        moved += (laws * leak).sum(-1, keepdim=True) * parts.prior
    if parts.spread is not None:
        assert parts.row_offsets is not None and parts.column_ids is not None and parts.weights is not None
        sources = torch.repeat_interleave(torch.arange(kernel.vocab_size), torch.diff(parts.row_offsets).long())
        moved.index_add_(1, parts.column_ids.long(), (laws * spread)[:, sources] * parts.weights)
    return moved


def workload(case: Case) -> Workload:
    kernel = make_kernel(case.kernel or "mix", case.vocab_size)
    laws = make_logits(case, case.batch_size).float().softmax(-1)
    checks.same_numbers(
        f"{case.label}: probs", ops.rdk_redistribute(laws, kernel), composed(laws.double(), kernel), checks.TOLERANCE
    )
    ways: dict[str, Callable[[int], object]] = {OURS: lambda _: ops.rdk_redistribute(laws, kernel)}
    ways |= {f"limit_{kind}": Limit(laws, kind) for kind in KINDS}
    ways["eager_composed"] = lambda _: composed(laws, kernel)
    if case.vocab_size <= LARGEST_DENSE:
        matrix = dense(kernel)
        checks.same_numbers(f"{case.label}: dense", ops.rdk_redistribute(laws, kernel), laws @ matrix, checks.TOLERANCE)
        ways["eager_dense"] = lambda _: laws @ matrix
    read = laws.numel() * 4
    return Workload(ways, laws, facts={"bytes_needed": 2 * read, "limit_bytes": read})
