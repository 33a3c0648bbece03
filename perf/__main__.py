# SPDX-License-Identifier: Apache-2.0
"""`python -m perf`: measure, judge, write perf/results/<name>.json with a report and plots."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

from hetero_spec.files import write_whole
from perf.cases import OPS, SELECTIONS, Case
from perf.machine import describe
from perf.memory import WAYS, measure_memory
from perf.plots import plot_ratios, plot_scaling
from perf.report import markdown
from perf.scaling import measure_scaling
from perf.targets import judge

FOLDER = Path(__file__).resolve().parent
MEMORY_CASES = (
    Case("rejection_sample"),
    Case("rejection_sample", acceptance=0.5),
    Case("rejection_sample", top_p=0.9, acceptance=0.5),
)


def main(arguments: list[str] | None = None) -> int:
    """Run the selection; 0 when everything was measured, whatever the numbers are."""
    args = _parser().parse_args(arguments)
    results = args.results
    if args.report_only:
        loaded: dict[str, Any] = json.loads((results / f"{args.name}.json").read_text())
        loaded["targets"] = judge(loaded["records"])
        _write(loaded, results, args.name)
        return 0
    if args.threads:
        torch.set_num_threads(args.threads)
    machine = describe()
    _say(f"{args.selection} selection, {args.rounds} rounds, load average {machine['load_average'][0]}")
    records, complete = _benchmarks(args)
    memory, scaling = [], []
    if args.selection in ("quick", "full") and not args.only and not args.match:
        _say("memory")
        for case in MEMORY_CASES:
            row_bytes = case.vocab_size * (2 if case.dtype == "bfloat16" else 4)
            memory += [{**measure_memory(case, way), "row_bytes": row_bytes} for way in WAYS]
        _say("time against V, B and K")
        scaling = measure_scaling(args.rounds)
    after = describe()["load_average"]
    gathered = {
        "machine": machine,
        "load_average_after": after,
        "settings": {"selection": args.selection, "rounds": args.rounds, "compile": not args.no_compile},
        "targets": judge(records),
        "records": records,
        "memory": memory,
        "scaling": scaling,
    }
    _write(gathered, results, args.name)
    if not complete:
        _say("some cases failed, see above: their rows are missing")
    return 0 if complete else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m perf", description=__doc__)
    choice = parser.add_mutually_exclusive_group()
    for name in SELECTIONS:
        choice.add_argument(f"--{name}", dest="selection", action="store_const", const=name)
    parser.set_defaults(selection="quick")
    parser.add_argument("--only", nargs="+", choices=OPS, help="these ops only")
    parser.add_argument("--match", help="cases whose name matches this expression of `pytest -k`")
    parser.add_argument("--rounds", type=int, default=15, help="interleaved rounds of each case (15)")
    parser.add_argument("--threads", type=int, default=0, help="of every case (with 1, processor time is kept too)")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--name", default="local", help="of the result files (local, which git ignores)")
    parser.add_argument("--results", type=Path, default=FOLDER / "results", help="folder of the result files")
    parser.add_argument("--report-only", action="store_true", help="tables and plots again, from the JSON of --name")
    return parser


def _benchmarks(args: argparse.Namespace) -> tuple[list[dict[str, Any]], bool]:
    """Records of the cases that ran, and whether all of them did."""
    files = [str(FOLDER / f"bench_{op}.py") for op in args.only or OPS]
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "benchmark.json"
        options = ["-c", str(FOLDER.parent / "pyproject.toml"), "--rootdir", str(FOLDER.parent), "-v"]
        for setting in ("addopts=", "python_files=bench_*.py", "python_functions=bench_*", "filterwarnings=default"):
            options += ["-o", setting]
        options += ["-p", "no:cacheprovider", "--benchmark-quiet", "--benchmark-json", str(raw)]
        options += ["--selection", args.selection, "--rounds", str(args.rounds)]
        options += ["--threads", str(args.threads)]
        options += ["--no-compile"] * args.no_compile + (["-k", args.match] if args.match else [])
        code = pytest.main([*options, *files])
        measured = json.loads(raw.read_text())["benchmarks"] if raw.exists() else []
    return [entry["extra_info"] for entry in measured if "case" in entry["extra_info"]], code == 0


def _write(results: dict[str, Any], folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = markdown(results)
    for suffix, content in ((".json", json.dumps(results, indent=1) + "\n"), (".md", text)):
        write_whole(folder / f"{name}{suffix}", content)
    plot_ratios(results["records"], folder / f"{name}_ratios.png")
    if results["scaling"]:
        plot_scaling(results["scaling"], folder / f"{name}_scaling.png")
    sys.stdout.write("\n" + text)
    _say(f"written: {folder / name}.json, .md and plots")


def _say(message: str) -> None:
    sys.stdout.write(f"--> {message}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
