# SPDX-License-Identifier: Apache-2.0
"""Runs sanitizer_cases.py under a sanitizer, which must be loaded before Python is: in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from .conftest import ROOT, SANITIZER_EXIT

LIBRARIES = {"asan": ("libasan.so", "libubsan.so"), "tsan": ("libtsan.so",)}
TIMEOUT_S = 600


def _library(name: str) -> str:
    found = subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout
    return str(Path(found.strip()).resolve())


def run_cases(
    flavour: str, built: Path, select: str = "", *, tree: Path = ROOT, stop_at_first: bool = False
) -> tuple[int, str]:
    """(exit status, output) of a tree's cases in one flavour, with the module in the folder `built`."""
    environment = {
        **os.environ,
        "HETERO_SPEC_SIMT_FLAVOUR": flavour,
        "HETERO_SPEC_SIMT_BUILD": str(built),
        "LD_PRELOAD": " ".join(_library(name) for name in LIBRARIES[flavour]),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "ASAN_OPTIONS": f"detect_leaks=0:exitcode={SANITIZER_EXIT}",
        "UBSAN_OPTIONS": f"exitcode={SANITIZER_EXIT}",
        "TSAN_OPTIONS": f"report_signal_unsafe=0:exitcode={SANITIZER_EXIT}",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:benchmark", "-o", "addopts="]
    command += ["-k", select] * bool(select) + ["-x"] * stop_at_first + ["tests/simt/sanitizer_cases.py"]
    done = subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, errors="replace"
    )
    return done.returncode, done.stdout + done.stderr
