# SPDX-License-Identifier: Apache-2.0
"""The script for a machine with a GPU: its steps, limits and messages."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import gpu_check
from tools.gpu_check import Check, Machine

MACHINE = Machine("2.11.0+cu130", "a GPU", "90-real", "/bin/nvcc", None)


@pytest.fixture
def check(tmp_path: Path) -> Iterator[Check]:
    made = Check(tmp_path / "out", 9.0, MACHINE, gpu_check.make_environment())
    yield made
    made.close()


def statuses(check: Check) -> dict[str, str]:
    return {line["name"]: line["status"] for line in check.lines.read() if line["kind"] == "step"}


def test_a_step_that_fails_is_kept_with_what_it_said(check: Check, capsys: pytest.CaptureFixture[str]) -> None:
    program = "import os; print('before'); print('went wrong', os.environ['WHO']); raise SystemExit(3)"
    assert not check.step("ops", [sys.executable, "-c", program], gpu_check.ROOT, WHO="me")
    assert check.failed == ["ops"] and statuses(check) == {"ops": "failed"}
    printed = capsys.readouterr().out
    assert "exit status 3" in printed and "went wrong me" in printed
    assert "went wrong me" in (check.output / "check.log").read_text()


def test_a_step_is_stopped_when_its_time_is_up(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(gpu_check.LIMITS, "ops", 1.0)
    # A child that holds the output open: it has to go too, or the step would wait for it.
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(300)'])"
    assert not check.step("ops", [sys.executable, "-c", program], gpu_check.ROOT)
    assert check.lines.read()[-1]["why"] == "out of time"


def test_nothing_is_begun_that_would_not_end_in_time(check: Check) -> None:
    check.deadline -= 8.9 * 60.0
    gpu_check.bench(check, gpu_check.ROOT, False)
    assert statuses(check) == {"bench": "skipped"} and check.failed == []


def test_a_missing_sanitizer_is_said_and_no_failure(check: Check, capsys: pytest.CaptureFixture[str]) -> None:
    gpu_check.sanitize(check, "memcheck", gpu_check.ROOT)
    assert "compute-sanitizer is not installed" in capsys.readouterr().out
    assert statuses(check) == {"memcheck": "skipped"} and check.failed == []


SANITIZERS = {
    "echo '========= ERROR SUMMARY: 0 errors'": "ok",
    "echo 'Error: Device not supported.'; exit 1": "skipped",
    "echo '========= Invalid __global__ read of size 2 bytes'; exit 9": "failed",
    'case "$*" in *kernel-name*) echo unknown option kernel-name; exit 1;; esac; echo ERROR SUMMARY: 0 errors': "ok",
}


@pytest.mark.parametrize("script", SANITIZERS)
def test_what_a_sanitizer_says_decides(check: Check, tmp_path: Path, script: str) -> None:
    tool = tmp_path / "compute-sanitizer"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    check.machine = MACHINE._replace(sanitizer=str(tool))
    gpu_check.sanitize(check, "racecheck", gpu_check.ROOT)
    assert statuses(check) == {"racecheck": SANITIZERS[script]}


def test_a_dry_run_goes_through_the_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_check, "look_around", lambda _: MACHINE._replace(gpu=None, arch=None))
    arguments = ["--dry-run", "--output", str(tmp_path), "--only", "build", "memcheck", "racecheck"]
    assert gpu_check.main(arguments) == 0
    printed = capsys.readouterr().out
    assert printed.count("skipped") == 3 and "passed" in printed


def test_without_a_gpu_only_a_dry_run_is_possible(capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert gpu_check.main([]) == 2
    assert "a CUDA device must be there" in capsys.readouterr().err


def test_the_copied_sources_are_what_is_built_and_tested(tmp_path: Path) -> None:
    tree = gpu_check.copy_sources(tmp_path)
    for name in ("setup.py", "CMakeLists.txt", "csrc/ops.cpp", "tests/gpu/sanitizer_cases.py", "perf/gpu/__main__.py"):
        assert (tree / name).is_file()
    assert not list(tree.rglob("*.so")) and not (tree / "build").exists()
