# SPDX-License-Identifier: Apache-2.0
"""Rounds are interleaved, statistics and verdicts are right, and the whole run writes its files."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from perf.cases import OPS, SELECTIONS, Case
from perf.harness import OURS, Interleaver, Workload, summary
from perf.memory import measure_memory
from perf.targets import TARGETS, judge

ROOT = Path(__file__).resolve().parents[2]
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="the yardstick is compiled with g++")


def test_summary_has_quantiles_in_microseconds() -> None:
    times = summary([1e-6 * value for value in range(101)])
    assert (times["min_us"], times["p20_us"], times["median_us"], times["p80_us"]) == (0.0, 20.0, 50.0, 80.0)


@needs_compiler
def test_every_way_runs_once_a_round_on_the_same_input_set() -> None:
    calls: list[tuple[str, int]] = []

    def way(name: str) -> Any:
        return lambda idx: calls.append((name, idx))

    workload = Workload({OURS: way(OURS), "other": way("other")}, torch.zeros(1, 64), num_sets=3)
    interleaver = Interleaver(Case("row_stats"), workload)
    for _ in range(4):
        interleaver.round()
    assert calls == [(name, idx) for idx in (0, 1, 2, 0) for name in (OURS, "other")]
    assert {name: times["rounds"] for name, times in interleaver.summaries().items()} == {OURS: 4, "other": 4}


def _record(ours: float, others: float, **case: Any) -> dict[str, Any]:
    values = {**vars(Case("rejection_sample")), "label": "x", **case}
    ways = {
        name: {"median_us": others, "min_us": others}
        for name in ("limit_library", "eager_softmax", "compiled_softmax", "compiled_logsumexp")
    }
    return {"case": values, "ways": {OURS: {"median_us": ours, "min_us": ours}, **ways}}


def test_targets_are_reached_or_missed_by_the_ratio() -> None:
    fast, slow = judge([_record(1.0, 100.0)]), judge([_record(1.0, 0.5)])
    assert len(fast) == len(slow) == 4
    assert all(verdict["reached"] for verdict in fast)
    assert not any(verdict["reached"] for verdict in slow)
    assert judge([_record(1.0, 100.0, vocab_size=1000)]) == []


def test_every_target_has_a_case_in_a_quick_selection() -> None:
    cases = [vars(case) for selection in ("quick", "rdk") for case in SELECTIONS[selection]()]
    assert all(any(target.applies(case) for case in cases) for target in TARGETS)


@pytest.mark.parametrize("selection", sorted(SELECTIONS))
def test_no_selection_measures_a_case_twice(selection: str) -> None:
    cases = [(case.op, case.label) for case in SELECTIONS[selection]()]
    assert len(cases) == len(set(cases))
    assert selection in ("headline", "rdk") or {op for op, _ in cases} == set(OPS)


@needs_compiler
def test_verification_allocates_nothing_the_size_of_a_row_and_the_composed_way_does() -> None:
    case = Case("rejection_sample", "float32", vocab_size=65_536, batch_size=2, acceptance=0.5)
    row_bytes = 4 * case.vocab_size
    ours, eager = measure_memory(case, "ours"), measure_memory(case, "eager_softmax")
    assert ours["peak_bytes"] < row_bytes / 8
    assert eager["largest_bytes"] >= row_bytes * case.batch_size * (case.num_drafts + 1)


@needs_compiler
def test_a_run_writes_results_report_and_plot(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "perf", "--smoke", "--only", "row_stats", "--rounds", "5", "--results"]
    done = subprocess.run([*command, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((tmp_path / "local.json").read_text())
    (record,) = results["records"]
    assert record["case"]["op"] == "row_stats"
    assert {"ours", "limit_library", "eager_softmax"} <= set(record["ways"])
    assert results["machine"]["torch"] == torch.__version__
    assert "### row_stats" in (tmp_path / "local.md").read_text()
