# SPDX-License-Identifier: Apache-2.0
"""The house rule of CONTRIBUTING.md: an op's name is the base name of everything about it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hetero_spec import ops

ROOT = Path(__file__).resolve().parent.parent
NOT_OPS = {"common", "simt"}
OPS = sorted(folder.name for folder in (ROOT / "csrc").iterdir() if folder.is_dir() and folder.name not in NOT_OPS)
COMPANIONS = (
    "csrc/{op}/{op}.h",
    "csrc/{op}/{op}_cpu.cpp",
    "csrc/{op}/{op}_binding.cpp",
    "hetero_spec/ops/{op}.py",
    "hetero_spec/reference/{op}.py",
    "tests/ops/test_{op}.py",
    "perf/bench_{op}.py",
)
# What its CUDA kernels are made of, and what runs their sources without a GPU.
CUDA_COMPANIONS = (
    "csrc/{op}/{op}_cuda.h",
    "csrc/{op}/{op}.cuh",
    "csrc/{op}/{op}.cu",
    "csrc/simt/python/{op}.cpp",
    "tests/simt/test_{op}_cuda_source.py",
)


def test_there_are_ops():
    assert "rejection_sample" in OPS


@pytest.mark.parametrize("op", OPS)
def test_op_has_all_its_companions(op):
    missing = [name for name in (path.format(op=op) for path in COMPANIONS) if not (ROOT / name).is_file()]
    assert not missing


@pytest.mark.parametrize("op", OPS)
def test_op_has_all_its_companions_on_cuda(op):
    missing = [name for name in (path.format(op=op) for path in CUDA_COMPANIONS) if not (ROOT / name).is_file()]
    assert not missing
    binding = (ROOT / f"csrc/{op}/{op}_binding.cpp").read_text()
    assert "STABLE_TORCH_LIBRARY_IMPL(hetero_spec, CUDA" in binding
    assert f"HETERO_SPEC_BIND({op})" in (ROOT / "csrc/simt/python/ops.inc").read_text()


@pytest.mark.parametrize("op", OPS)
def test_op_is_declared_and_exported(op):
    schemas = (ROOT / "csrc/ops.cpp").read_text()
    assert re.search(rf'm\.def\(\s*"{op}\(', schemas)
    assert op in ops.__all__
    assert f"`{op}`" in (ROOT / "README.md").read_text()


def sources(*patterns: str) -> list[Path]:
    return sorted(path for pattern in patterns for path in (ROOT / "csrc").rglob(pattern))


@pytest.mark.parametrize("path", sources("*_cpu.cpp", "*.cu", "*.cuh"), ids=lambda path: path.name)
def test_kernels_know_no_torch(path):
    assert not re.search(r'#include [<"](torch|ATen|c10)/', path.read_text())


@pytest.mark.parametrize("path", sources("row_kernels_*.cpp", "*.inl"), ids=lambda path: path.name)
def test_instruction_set_files_use_no_shared_templates(path):
    """A template of the standard library compiled for AVX-512 may be the copy that an older processor gets."""
    code = re.sub(r"//.*", "", path.read_text())
    assert not re.search(r"\bstd::(?!memcpy)", code)


def test_every_source_names_its_licence():
    folders = ("csrc", "hetero_spec", "tests", "perf", "tools")
    suffixes = {".py", ".h", ".cpp", ".inl", ".cu", ".cuh"}
    code = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in suffixes]
    assert code
    licence = "SPDX-License-Identifier: Apache-2.0"
    assert not [str(path.relative_to(ROOT)) for path in code if licence not in path.read_text()[:200]]
