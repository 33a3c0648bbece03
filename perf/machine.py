# SPDX-License-Identifier: Apache-2.0
"""What a row of results is worth nothing without: processor, instruction set, versions, commit, date, load."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

_ROOT = Path(__file__).resolve().parent.parent


def _cpu() -> dict[str, str]:
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return {"model name": platform.processor() or platform.machine()}
    lines = path.read_text().split("\n\n")[0].splitlines()
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}


def _cache(level: int) -> str:
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            if (index / "level").read_text().strip() == str(level) and "Instr" not in (index / "type").read_text():
                return (index / "size").read_text().strip()
        except OSError:
            continue
    return "unknown"


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=_ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def describe() -> dict[str, Any]:
    """The machine, the software and the moment of a run."""
    cpu = _cpu()
    flags = cpu.get("flags", "").split()
    changed = [line[3:] for line in _git("status", "--porcelain", "csrc", "hetero_spec/ops").splitlines()]
    return {
        "cpu": cpu.get("model name", "unknown"),
        "cpu_family_model": f"{cpu.get('cpu family', '?')}/{cpu.get('model', '?')}",
        "cores": os.cpu_count(),
        "isa": torch.backends.cpu.get_cpu_capability(),
        "has_avx512_bf16": "avx512_bf16" in flags,
        "caches": {f"L{level}": _cache(level) for level in (1, 2, 3)},
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": _version("transformers"),
        "torch_threads": torch.get_num_threads(),
        "commit": _git("rev-parse", "HEAD"),
        "changed_sources": changed,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }
