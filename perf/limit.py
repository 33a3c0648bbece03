# SPDX-License-Identifier: Apache-2.0
"""The machine's limit, measured beside the ops: one vectorised pass over the same bytes with the same threads."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from perf.native import build

CHUNK = 4096
# `library`: the C library's vector expf. `polynomial`: a shorter exponential of our own, less exact than an op may be.
KINDS = ("library", "polynomial")
FLAGS = ("-O3", "-march=native", "-ffast-math", "-fopenmp")


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL:
    # torch is imported first, so both share one OpenMP runtime and one set of threads.
    return ctypes.CDLL(str(build("limit.cpp", *FLAGS)))


class Limit:
    """Maximum and sum of exponentials of each chunk of each row of contiguous logits."""

    def __init__(self, logits: Tensor, kind: str = "library") -> None:
        if logits.dim() != 2 or not logits.is_contiguous():
            raise ValueError(f"Limit: logits must be a contiguous matrix, got shape {list(logits.shape)}")
        rows, vocab_size = logits.shape
        self._logits = logits
        self._function: Callable[..., None] = getattr(_library(), f"limit_{kind}_{str(logits.dtype).split('.')[1]}")
        chunks = -(-vocab_size // CHUNK)
        self.maxima = torch.empty(rows, chunks)
        self.sums = torch.empty(rows, chunks)
        self.num_bytes = logits.numel() * logits.element_size()

    def __call__(self, _round: int = 0) -> None:
        rows, vocab_size = self._logits.shape
        self._function(
            ctypes.c_void_p(self._logits.data_ptr()),
            ctypes.c_int64(rows),
            ctypes.c_int64(vocab_size),
            ctypes.c_int(torch.get_num_threads()),
            ctypes.c_void_p(self.maxima.data_ptr()),
            ctypes.c_void_p(self.sums.data_ptr()),
        )

    def log_sum_exp(self) -> Tensor:
        """What the pass found, for the test that it did the work."""
        return torch.logsumexp(self.maxima + self.sums.log(), dim=-1)
