# SPDX-License-Identifier: Apache-2.0
"""`python -m perf.gpu --output FILE`: measure on this machine's GPU; `--dry-run`: the same on the CPU, tiny."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch

from perf.gpu import grid
from perf.gpu.bench import run
from perf.gpu.lines import Lines


def main(arguments: list[str] | None = None) -> int:
    """Measure until all cases are done or the time is up."""
    parser = argparse.ArgumentParser(prog="python -m perf.gpu", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="JSON lines are added to this file")
    parser.add_argument("--seconds", type=float, default=240.0, help="after these no further way is begun")
    parser.add_argument("--dry-run", action="store_true", help="tiny cases on the CPU")
    options = parser.parse_args(arguments)
    if not options.dry_run and not torch.cuda.is_available():
        print("perf.gpu: torch must see a CUDA device, got none; --dry-run needs none", file=sys.stderr)
        return 2
    device = torch.device("cpu" if options.dry_run else "cuda")
    cases = grid.smoke() if options.dry_run else grid.full()
    left = run(cases, device, Lines(options.output), time.monotonic() + options.seconds)
    print(f"measured {len(cases) - left} of {len(cases)} cases")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
