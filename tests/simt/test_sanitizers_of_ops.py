# SPDX-License-Identifier: Apache-2.0
"""The kernels of every op under AddressSanitizer, UndefinedBehaviorSanitizer and the race detector.

Sanitizers must be loaded before Python is, so each run is a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import ROOT, SANITIZER_EXIT, build

LIBRARIES = {"asan": ("libasan.so", "libubsan.so"), "tsan": ("libtsan.so",)}


def _library(name: str) -> str:
    found = subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout
    return str(Path(found.strip()).resolve())


@pytest.mark.parametrize("flavour", LIBRARIES)
def test_every_op_is_clean(flavour: str) -> None:
    build(f"_simt_{flavour}")
    environment = {
        **os.environ,
        "HETERO_SPEC_SIMT_FLAVOUR": flavour,
        "LD_PRELOAD": " ".join(_library(name) for name in LIBRARIES[flavour]),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "ASAN_OPTIONS": f"detect_leaks=0:exitcode={SANITIZER_EXIT}",
        "UBSAN_OPTIONS": f"exitcode={SANITIZER_EXIT}",
        "TSAN_OPTIONS": f"report_signal_unsafe=0:exitcode={SANITIZER_EXIT}",
    }
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:benchmark",
        "-o",
        "addopts=",
        "tests/simt/sanitizer_cases.py",
    ]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    assert " passed" in done.stdout
