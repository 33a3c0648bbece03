# SPDX-License-Identifier: Apache-2.0
"""Compiles the helpers of this folder that must run beside the ops: perf/limit.cpp and perf/allocations.cpp."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
BUILD_FOLDER = FOLDER.parent / "build" / "perf"


def compiler() -> str:
    """The C++ compiler: CXX, or g++."""
    name = os.environ.get("CXX", "g++")
    if shutil.which(name) is None:
        raise RuntimeError(f"perf: the benchmarks need a C++ compiler, and {name!r} (CXX) is not on the path")
    return name


def build(source: str, *flags: str) -> Path:
    """Compile perf/<source> to a shared library, once per content and flags.

    Linked without -ffast-math: with it g++ adds start-up code that makes the whole process flush subnormal numbers.
    """
    text = (FOLDER / source).read_bytes()
    compile_command = [compiler(), "-std=c++17", "-fPIC", "-c", *flags]
    link_command = [compiler(), "-shared", *(flag for flag in flags if flag != "-ffast-math")]
    digest = hashlib.sha256(text + " ".join([*compile_command, *link_command]).encode()).hexdigest()[:16]
    library = BUILD_FOLDER / f"{Path(source).stem}-{digest}.so"
    if library.exists():
        return library
    BUILD_FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD_FOLDER) as folder:
        compiled, unfinished = Path(folder) / "compiled.o", Path(folder) / library.name
        subprocess.run([*compile_command, str(FOLDER / source), "-o", str(compiled)], check=True)
        subprocess.run([*link_command, str(compiled), "-o", str(unfinished), "-ldl"], check=True)
        os.replace(unfinished, library)
    return library
