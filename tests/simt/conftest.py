# SPDX-License-Identifier: Apache-2.0
"""Builds what the tests of the SIMT layer run: once a session, incrementally, in build/simt."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("HETERO_SPEC_SIMT_BUILD", ROOT / "build" / "simt"))
FLAVOURS = ("plain", "asan", "tsan", "traffic")
SANITIZER_EXIT = 66
AS_BUILT = "HETERO_SPEC_SIMT_AS_BUILT"  # set: the folder holds what is to be tested, nothing is built


def _run(command: list[str]) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        pytest.fail(f"{' '.join(command)} failed:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}", pytrace=False)


def build(target: str) -> None:
    """Bring one target of csrc/simt up to date; safe when several test processes ask at once."""
    if os.environ.get(AS_BUILT):
        return
    BUILD.mkdir(parents=True, exist_ok=True)
    with open(BUILD / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (BUILD / "build.ninja").exists():
            _run(["cmake", "-S", str(ROOT / "csrc" / "simt"), "-B", str(BUILD), "-G", "Ninja"])
        _run(["cmake", "--build", str(BUILD), "--target", target, "-j", os.environ.get("MAX_JOBS", "2")])


class Outcome:
    """Exit status and output of one case."""

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        self.text = text

    @property
    def counts(self) -> dict[str, int]:
        """The counters that the traffic flavour prints last."""
        pairs = (line.split() for line in self.text.splitlines())
        return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


RunCase = Callable[..., Outcome]


@pytest.fixture(scope="session")
def run_case() -> RunCase:
    """Run one case of tests/simt/programs in one flavour, in a process of its own."""
    if shutil.which("g++") is None:
        pytest.skip("the SIMT layer is compiled with g++, which is not installed")
    built: set[str] = set()

    def run(flavour: str, case: str, **options: object) -> Outcome:
        if flavour not in built:
            build(f"simt_bench_{flavour}")
            built.add(flavour)
        # Leaks: a case that fails abandons its stacks on purpose. Symbols come from the sanitizers themselves.
        environment = {
            **os.environ,
            "ASAN_OPTIONS": f"exitcode={SANITIZER_EXIT}:detect_leaks=0",
            "UBSAN_OPTIONS": f"exitcode={SANITIZER_EXIT}",
            "TSAN_OPTIONS": f"exitcode={SANITIZER_EXIT}:report_signal_unsafe=0",
        }
        command = [str(BUILD / f"simt_bench_{flavour}"), case, *(f"{key}={value}" for key, value in options.items())]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
        return Outcome(done.returncode, done.stdout + done.stderr)

    return run


SCHEDULES: dict[str, dict[str, object]] = {
    "forward": {"order": "forward"},
    "random": {"order": "random", "seed": 3, "resident_blocks": 4},
}


@pytest.fixture(params=SCHEDULES)
def any_schedule(request: pytest.FixtureRequest) -> None:
    """Run the kernels of a test under one of the schedules."""
    from . import device_ops

    device_ops.module().configure(**SCHEDULES[request.param])
