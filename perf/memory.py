# SPDX-License-Identifier: Apache-2.0
"""Memory of one verification beyond its inputs: every allocation counted, in a process of its own.

`python -m perf.memory WAY VOCAB_SIZE ...` is the inner process; `measure_memory` starts it with the counting allocator
before the C library's and reads its answer.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import torch

from perf.cases import Case
from perf.native import FOLDER, build

WAYS = ("ours", "eager_softmax")


def measure_memory(case: Case, way: str) -> dict[str, Any]:
    """Peak bytes above the start, and the largest single allocation, of one call that is not the first."""
    library = build("allocations.cpp", "-O2")
    command = [sys.executable, "-m", "perf.memory", way, case.dtype, str(case.vocab_size), str(case.batch_size)]
    command += ["--acceptance", str(case.acceptance)]
    if case.top_p is not None:
        command += ["--top-p", str(case.top_p)]
    environment = {**os.environ, "LD_PRELOAD": str(library), "HETERO_SPEC_ALLOCATIONS": str(library)}
    done = subprocess.run(command, env=environment, cwd=FOLDER.parent, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"measure_memory: {' '.join(command[1:])} failed:\n{done.stderr}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _way(case: Case, name: str) -> Callable[[int], object]:
    # Imported here: the parent needs none of it.
    from perf.bench_rejection_sample import make_ways
    from perf.inputs import make_verification

    numbers = torch.rand(case.batch_size, case.num_drafts + 1, 2)
    return make_ways(case, make_verification(case), numbers, use_compile=False)[name]


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("dtype")
    parser.add_argument("vocab_size", type=int)
    parser.add_argument("batch_size", type=int)
    parser.add_argument("--acceptance", type=float, default=1.0)
    parser.add_argument("--top-p", type=float, default=None)
    args = parser.parse_args()
    case = Case(
        "rejection_sample",
        args.dtype,
        args.vocab_size,
        args.batch_size,
        acceptance=args.acceptance,
        top_p=args.top_p,
    )
    counter = ctypes.CDLL(os.environ["HETERO_SPEC_ALLOCATIONS"])
    peak, largest = ctypes.c_int64(), ctypes.c_int64()
    way = _way(case, args.way)
    way(0)  # what is allocated once per process (threads, buffers that stay) is not the call's
    torch.manual_seed(0)
    counter.allocations_start()
    way(1)
    counter.allocations_read(ctypes.byref(peak), ctypes.byref(largest))
    answer = {"way": args.way, "label": case.label, "vocab_size": case.vocab_size, "batch_size": case.batch_size}
    sys.stdout.write(json.dumps({**answer, "peak_bytes": peak.value, "largest_bytes": largest.value}) + "\n")


if __name__ == "__main__":
    _main()
