# SPDX-License-Identifier: Apache-2.0
"""Builds the torch module by running CMake; CMakeLists.txt holds the one list of sources and flags.

Environment: HETERO_SPEC_CUDA=auto|0|1, HETERO_SPEC_CUDA_ARCHS (a CMake list), MAX_JOBS.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent


def find_torch() -> Path:
    """The torch folder whose stable-ABI headers are compiled against. Torch is never imported here.

    pip's isolated build hides site-packages but runs the same interpreter, so its folder is looked up there too.
    """
    spec = importlib.util.find_spec("torch")
    candidates = [Path(spec.origin).parent] if spec and spec.origin else []
    candidates += [Path(sysconfig.get_path(scheme)) / "torch" for scheme in ("platlib", "purelib")]
    for folder in candidates:
        if (folder / "include/torch/csrc/stable/library.h").exists():
            return folder
    sys.exit("hetero-spec: no torch >= 2.11 was found to compile against. Install torch first, then hetero-spec.")


def torch_version(folder: Path) -> str:
    match = re.search(r"__version__ = '([^']+)'", (folder / "version.py").read_text())
    if match is None:
        sys.exit(f"hetero-spec: {folder / 'version.py'} does not say which torch this is.")
    version: str = match[1]
    if tuple(int(part) for part in version.split("+")[0].split(".")[:2]) < (2, 11):
        sys.exit(f"hetero-spec: torch must be >= 2.11, got {version}.")
    return version


def wanted_cuda(folder: Path) -> str:
    """CMake's HETERO_SPEC_CUDA. "auto" leaves the CUDA kernels out where the installed torch could never call them."""
    choice = os.environ.get("HETERO_SPEC_CUDA", "auto")
    if choice not in ("auto", "0", "1"):
        sys.exit(f"hetero-spec: HETERO_SPEC_CUDA must be auto, 0 or 1, got {choice!r}.")
    has_cuda = re.search(r"^cuda[^=]*= *'", (folder / "version.py").read_text(), re.MULTILINE)
    return "0" if choice == "auto" and not has_cuda else choice


class CMakeExtension(Extension):
    def __init__(self, name: str) -> None:
        super().__init__(name, sources=[], py_limited_api=True)


class CMakeBuild(build_ext):
    def run(self) -> None:
        torch_dir = find_torch()
        in_place = self.inplace or self.editable_mode
        output = (ROOT if in_place else Path(self.build_lib).resolve()) / "hetero_spec"
        output.mkdir(parents=True, exist_ok=True)
        # One folder per torch, kept between builds: a rebuild compiles what changed and nothing else.
        build = ROOT / "build" / f"torch-{torch_version(torch_dir)}"
        configure = [
            "cmake", "-S", str(ROOT), "-B", str(build),
            f"-DHETERO_SPEC_TORCH_INCLUDE={torch_dir / 'include'}",
            f"-DHETERO_SPEC_TORCH_LIB={torch_dir / 'lib'}",
            f"-DHETERO_SPEC_OUTPUT={output}",
            f"-DHETERO_SPEC_CUDA={wanted_cuda(torch_dir)}",
        ]  # fmt: skip
        if ninja := shutil.which("ninja"):  # given each time: a cached one may lie in a build environment that is gone
            configure += ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"]
        if archs := os.environ.get("HETERO_SPEC_CUDA_ARCHS"):
            configure.append(f"-DHETERO_SPEC_CUDA_ARCHS={archs}")
        subprocess.run(configure, check=True)
        jobs = os.environ.get("MAX_JOBS", str(os.cpu_count() or 1))
        subprocess.run(["cmake", "--build", str(build), "-j", jobs], check=True)

    def get_outputs(self) -> list[str]:
        return []


setup(
    ext_modules=[CMakeExtension("hetero_spec._C")],
    cmdclass={"build_ext": CMakeBuild},
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
