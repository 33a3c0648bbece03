# SPDX-License-Identifier: Apache-2.0
"""Everything that only a GPU can show, in one run of at most nine minutes: `make gpu-check`.

    python3 tools/gpu_check.py [--output FOLDER] [--minutes 9] [--only STEP ...] [--dry-run]

Builds the package from source in a temporary folder with what is installed (torch with CUDA, nvcc, CMake, pytest; no
network), for this GPU's architecture alone. Then, each step in a process of its own and under a limit of time:

build      the module
graphs     CUDA graphs with positions advanced on the device, streams, no waiting
ops        the whole op test suite on CUDA
memcheck   compute-sanitizer on the small cases; said to be skipped where the tool is missing
racecheck
bench      our ops against composed torch, torch.compile, Triton and FlashInfer, as long as there is time
report     the table, last

The folder (default $OUT, else build/gpu-check) gets results.jsonl, roofline.png, table.txt and check.log. Exit status 1
if a step fails. --dry-run does on a machine without a GPU what can be done there: the module that is there, the CPU in
place of the device, tiny cases.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from perf.gpu.lines import Lines  # noqa: E402  needs the folder above

STEPS = ("build", "graphs", "ops", "memcheck", "racecheck", "bench", "report")
# Seconds that a step may take at most; the benchmarks take what is left of the whole.
LIMITS = {"build": 270.0, "graphs": 60.0, "ops": 150.0, "memcheck": 75.0, "racecheck": 75.0, "report": 30.0}
_KEPT_FOR_REPORT = 15.0
_LEAST_FOR_BENCH = 20.0
_DRY_OPS = ["tests/ops/test_acceptance_overlap.py", "-k", "by_hand or without_a_law"]
_NOT_SUPPORTED = ("Device not supported", "not supported on this device", "Unable to find injection library")


class Machine(NamedTuple):
    """What is there to check with."""

    torch: str
    gpu: str | None
    arch: str | None  # as CMake names it
    nvcc: str | None
    sanitizer: str | None


def look_around(environment: dict[str, str]) -> Machine:
    """Ask torch in a process of its own, so that no CUDA context lives in this one."""
    program = (
        "import torch; print(torch.__version__); "
        "available = torch.cuda.is_available(); "
        "print(torch.cuda.get_device_name() if available else ''); "
        "print('%d%d' % torch.cuda.get_device_capability() if available else '')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        raise SystemExit(f"gpu_check: torch must be importable by {sys.executable}\n{done.stderr[-800:]}")
    version, gpu, arch = (done.stdout.splitlines() + ["", ""])[:3]
    path = environment["PATH"]
    return Machine(
        version,
        gpu or None,
        f"{arch}-real" if arch else None,
        shutil.which("nvcc", path=path),
        shutil.which("compute-sanitizer", path=path),
    )


def make_environment() -> dict[str, str]:
    """This process's environment with the tools beside the interpreter and CUDA's on the path."""
    folders = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    for home in (os.environ.get("CUDA_HOME"), "/usr/local/cuda"):
        if home and Path(home, "bin").is_dir():
            folders.append(str(Path(home, "bin")))
    return {**os.environ, "PATH": os.pathsep.join(folders), "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}


class Check:
    """Runs the steps of one check and keeps what they said."""

    def __init__(self, output: Path, minutes: float, machine: Machine, environment: dict[str, str]) -> None:
        output.mkdir(parents=True, exist_ok=True)
        self.output, self.machine, self.environment = output, machine, environment
        self.deadline = time.monotonic() + 60.0 * minutes
        self.lines = Lines(output / "results.jsonl")
        self.lines.path.unlink(missing_ok=True)
        self.log: IO[str] = (output / "check.log").open("w")
        self.lines.add("machine", **machine._asdict())
        self.failed: list[str] = []

    def close(self) -> None:
        """No further step: the log is complete."""
        self.log.close()

    def remaining(self) -> float:
        return self.deadline - time.monotonic()

    def note(self, name: str, status: str, why: str = "", seconds: float = 0.0) -> None:
        """Record and print what became of a step."""
        self.lines.add("step", name=name, status=status, why=why, seconds=round(seconds, 1))
        print(f"{name:10} {status:9} {seconds:6.1f} s  {why}".rstrip(), flush=True)
        if status == "failed":
            self.failed.append(name)

    def call(
        self, name: str, command: list[str], folder: Path, limit: float, **variables: str
    ) -> tuple[int | None, str, float]:
        """(exit status, or None where time ran out; output; seconds)."""
        start = time.monotonic()
        limit = max(1.0, min(limit, self.remaining()))
        self.log.write(f"\n==== {name}: {' '.join(command)}\n")
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**self.environment, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        status: int | None
        try:
            text, _ = process.communicate(timeout=limit)
            status = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # and what it has started
            text, _ = process.communicate()
            status = None
        self.log.write(text)
        self.log.flush()
        return status, text, time.monotonic() - start

    def step(self, name: str, command: list[str], folder: Path, **variables: str) -> bool:
        """Run a step and say how it went."""
        status, text, seconds = self.call(name, command, folder, LIMITS[name], **variables)
        if status == 0:
            last = text.strip().splitlines()[-1:] or [""]
            self.note(name, "ok", last[0][:90], seconds)
            return True
        self.note(name, "failed", "out of time" if status is None else f"exit status {status}", seconds)
        print("\n".join(f"    {line}" for line in text.strip().splitlines()[-12:]), flush=True)
        return False


def pytest_command(*arguments: str, in_parallel: bool = False) -> list[str]:
    """Pytest with the house's settings, but for those that need the very versions of constraints.txt."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--tb=short",
        "-o",
        "minversion=7.0",
        "-o",
        "filterwarnings=default",
    ]
    if importlib.util.find_spec("pytest_benchmark") is None:
        command += ["-o", "addopts=-ra"]
    if in_parallel and importlib.util.find_spec("xdist") is not None:
        command += ["-n", str(min(8, os.cpu_count() or 1))]
    return [*command, *arguments]


def copy_sources(folder: Path) -> Path:
    """The working tree without what was built."""
    ignored = shutil.ignore_patterns(".git", ".venv", "build", "__pycache__", "*.so", ".*_cache")
    tree = folder / "tree"
    shutil.copytree(ROOT, tree, ignore=ignored)
    return tree


def build(check: Check, tree: Path) -> bool:
    """The module for this GPU, in place in the copied tree."""
    command = [sys.executable, "setup.py", "build_ext", "--inplace"]
    archs = check.machine.arch or ""
    return check.step("build", command, tree, HETERO_SPEC_CUDA="1", HETERO_SPEC_CUDA_ARCHS=archs)


def sanitize(check: Check, tool: str, tree: Path) -> None:
    """One tool of compute-sanitizer on tests/gpu/sanitizer_cases.py."""
    if check.machine.sanitizer is None:
        check.note(tool, "skipped", "compute-sanitizer is not installed")
        return
    cases = pytest_command("-x", "tests/gpu/sanitizer_cases.py")
    options = [check.machine.sanitizer, "--tool", tool, "--error-exitcode", "9", "--print-limit", "20"]
    # Without torch's cache every tensor is an allocation of its own, whose end memcheck knows.
    variables = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    ours = ["--kernel-name", "kns=hetero_spec"]  # torch's own kernels are not looked at
    status, text, seconds = check.call(tool, [*options, *ours, *cases], tree, LIMITS[tool], **variables)
    if status not in (0, 9, None) and "kernel-name" in text:  # an older tool that does not know the option
        status, text, seconds = check.call(tool, [*options, *cases], tree, LIMITS[tool], **variables)
    if any(words in text for words in _NOT_SUPPORTED):
        check.note(tool, "skipped", "compute-sanitizer does not support this device here", seconds)
    elif status == 0:
        summary = [line.strip("= \n") for line in text.splitlines() if "SUMMARY" in line]
        check.note(tool, "ok", summary[-1] if summary else "", seconds)
    elif status is None:
        check.note(tool, "skipped", "out of time", seconds)
    else:
        check.note(tool, "failed", f"exit status {status}", seconds)
        print("\n".join(f"    {line}" for line in text.strip().splitlines()[-20:]), flush=True)


def bench(check: Check, tree: Path, is_dry: bool) -> None:
    """The measurements, as long as there is time."""
    seconds = check.remaining() - _KEPT_FOR_REPORT
    if seconds < _LEAST_FOR_BENCH:
        check.note("bench", "skipped", "out of time")
        return
    command = [sys.executable, "-m", "perf.gpu", "--output", str(check.lines.path), "--seconds", f"{seconds - 10:.0f}"]
    status, text, took = check.call("bench", command + ["--dry-run"] * is_dry, tree, seconds)
    last = (text.strip().splitlines() or [""])[-1][:110]
    if status is None:  # what was measured is in the file
        check.note("bench", "ok", "stopped for lack of time", took)
    else:
        check.note("bench", "ok" if status == 0 else "failed", last, took)
        if status != 0:
            print("\n".join(f"    {line}" for line in text.strip().splitlines()[-12:]), flush=True)


def report(check: Check, tree: Path) -> None:
    """The table, printed last and kept."""
    command = [
        sys.executable,
        "-m",
        "perf.gpu.report",
        str(check.lines.path),
        "--plot",
        str(check.output / "roofline.png"),
    ]
    status, text, seconds = check.call("report", command, tree, LIMITS["report"])
    check.note("report", "ok" if status == 0 else "failed", "", seconds)
    (check.output / "table.txt").write_text(text)
    print(f"\n{text.strip()}\n", flush=True)


def run(check: Check, steps: list[str], tree: Path, is_dry: bool) -> None:
    """All the steps asked for, in order; without a build the others make no sense."""
    if "build" in steps:
        if is_dry:
            check.note("build", "skipped", "a dry run uses the module that is there")
        elif not build(check, tree):
            return
    if "graphs" in steps:
        check.step("graphs", pytest_command("tests/gpu"), tree)
    if "ops" in steps:
        chosen = _DRY_OPS if is_dry else ["tests/ops", "tests/test_cases.py"]
        device = "cpu" if is_dry else "cuda"
        check.step("ops", pytest_command(*chosen, in_parallel=not is_dry), tree, HETERO_SPEC_TEST_DEVICE=device)
    for tool in ("memcheck", "racecheck"):
        if tool in steps and is_dry:
            check.note(tool, "skipped", "compute-sanitizer needs a GPU")
        elif tool in steps:
            sanitize(check, tool, tree)
    if "bench" in steps:
        bench(check, tree, is_dry)
    if "report" in steps:
        report(check, tree)


def main(arguments: list[str] | None = None) -> int:
    """Run a check; 0 if nothing failed, 1 if something did, 2 if there is nothing to check with."""
    parser = argparse.ArgumentParser(prog="gpu_check", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path(os.environ.get("OUT") or ROOT / "build" / "gpu-check"))
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--only", nargs="+", choices=STEPS, default=list(STEPS), metavar="STEP")
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args(arguments)
    environment = make_environment()
    machine = look_around(environment)
    if not options.dry_run and (machine.gpu is None or machine.nvcc is None):
        missing = "a CUDA device" if machine.gpu is None else "nvcc"
        print(f"gpu_check: {missing} must be there, got none; --dry-run does what can be done without", file=sys.stderr)
        return 2
    print(f"{machine.gpu or 'no GPU'}, torch {machine.torch}, Python {sys.version.split()[0]}", flush=True)
    check = Check(options.output, options.minutes, machine, environment)
    try:
        with tempfile.TemporaryDirectory(prefix="gpu-check-") as folder:
            tree = ROOT if options.dry_run else copy_sources(Path(folder))
            run(check, options.only, tree, options.dry_run)
    finally:
        check.close()
    print(f"{'FAILED: ' + ', '.join(check.failed) if check.failed else 'passed'}; {check.output}")
    return 1 if check.failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
