# SPDX-License-Identifier: Apache-2.0
"""The measurements on a GPU, as far as they go without one."""

from __future__ import annotations

import json
import time
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

from hetero_spec import ops
from perf.gpu import __main__ as command
from perf.gpu import bench, counted, grid, report
from perf.gpu.grid import OURS, Case
from perf.gpu.inputs import make_inputs
from perf.gpu.lines import Lines
from perf.gpu.peers import agreement, ways_of
from perf.gpu.timing import Timer

CPU = torch.device("cpu")


def test_every_combination_is_measured_and_the_headline_comes_first() -> None:
    cases = grid.full()
    assert len(set(cases)) == len(cases)
    of_op = {(c.batch_size, c.num_drafts, c.vocab_size, c.temperature, c.top_p) for c in cases if c.num_drafts}
    wanted = product((1, 8, 32, 128, 512), (4, 7), (32_000, 128_256, 151_936, 262_144), (1.0, 0.7), (None, 0.9))
    assert set(wanted) <= of_op
    headline = [case.is_headline for case in cases]
    assert sum(headline) == 4 and all(headline[:4])
    assert {(case.temperature, case.acceptance) for case in cases[:4]} == set(product((1.0, 0.7), (1.0, 0.7)))


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_dry_run_measures_every_way_and_reports_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results, plot = tmp_path / "results.jsonl", tmp_path / "roofline.png"
    assert command.main(["--dry-run", "--output", str(results)]) == 0
    records = [line for line in Lines(results).read() if line["kind"] == "bench"]
    assert [record["case"]["label"] for record in records] == [case.label for case in grid.smoke()]
    for record in records:
        assert {OURS, "eager", "compiled"} <= record["ways"].keys()
        assert all(times["p20_us"] <= times["median_us"] <= times["p80_us"] for times in record["ways"].values())
        assert set(record["agreement"].values()) <= {1.0}
        assert record["gb_s"] > 0.0
    assert records[0]["agreement"].keys() == records[0]["ways"].keys() - {OURS}
    assert records[0]["skipped"].keys() == {"triton", "flashinfer"}
    capsys.readouterr()
    assert report.main([str(results), "--plot", str(plot), "--most", "3"]) == 0
    printed = capsys.readouterr().out
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert "not measured everywhere: triton" in printed
    assert printed.splitlines()[-1].startswith(f"... and {len(records) - 3} more in")
    assert all(record["case"]["label"] in printed for record in records[:3])


def test_without_a_gpu_nothing_is_measured_but_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert command.main(["--output", str(tmp_path / "results.jsonl")]) == 2
    assert "must see a CUDA device" in capsys.readouterr().err


def test_when_time_is_up_cases_are_left_and_counted(tmp_path: Path) -> None:
    lines = Lines(tmp_path / "results.jsonl")
    assert bench.run(grid.smoke(), CPU, lines, time.monotonic()) == len(grid.smoke())
    assert [line["kind"] for line in lines.read()] == ["device", "bench_end"]


def test_a_peer_that_fails_costs_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("row_stats", 2, 0, 17)
    inputs = make_inputs(case, CPU)

    def broken() -> None:
        raise RuntimeError("no such kernel\nand more")

    ways = {OURS: lambda: ops.row_stats(inputs.draft.flatten(0, 1)), "broken": broken, "other": lambda: None}
    monkeypatch.setattr(bench, "ways_of", lambda *_: (ways, {}))
    record = bench.measure(case, inputs, Timer(CPU), 1.0, lambda: True)
    assert record["skipped"] == {"broken": "RuntimeError: no such kernel"}
    assert record["ways"].keys() == {OURS, "other"}


def test_agreement_sees_another_count_and_another_id() -> None:
    case = Case("rejection_sample", 8, 3, 101)
    ways, _ = ways_of(case, make_inputs(case, CPU), CPU)
    ours, eager = ways[OURS](), ways["eager"]()
    assert agreement(case, {OURS: ours, "eager": eager}) == {"eager": 1.0}
    assert 0 < ours.num_accepted_tokens.sum() < 24
    accepted, last = eager[0].clone(), eager[1].clone()
    accepted[0] ^= 1
    last[1] ^= 1
    assert agreement(case, {OURS: ours, "eager": (accepted, last)}) == {"eager": 0.75}


@pytest.mark.parametrize("acceptance", [0.5, 0.9])
def test_drafts_are_accepted_as_often_as_asked(acceptance: float) -> None:
    case = Case("rejection_sample", 16, 4, 1003, acceptance=acceptance)
    inputs = make_inputs(case, CPU)
    overlap = ops.acceptance_overlap(inputs.target[:, :-1].flatten(0, 1), inputs.draft.flatten(0, 1)).mean()
    assert float(overlap) == pytest.approx(acceptance, abs=0.12)


def test_floors_by_hand() -> None:
    case = Case("rejection_sample", 2, 3, 1000)
    assert counted.plain_floor(case) == 2 * 4 * 2000
    assert counted.tight_floor(case) == (2 * 4 + 4) * 2000
    assert counted.needed(case, [3, 1]) == (4 + 2 + 2) * 2000


@pytest.mark.parametrize("accepted", range(5))
def test_modelled_bytes_are_those_counted(accepted: int) -> None:
    counts = json.loads(counted._COUNTS.read_text())
    settings = {case["setting"]: case["loads_bytes"] for case in counts["cases"] if case["op"] == "rejection_sample"}
    case = Case("rejection_sample", counts["batch_size"], counts["num_drafts"], counts["vocab_size"])
    modelled = counted.counted(case, [accepted] * case.batch_size)
    assert modelled == pytest.approx(settings[f"T = 1, {accepted} of 4 accepted"], rel=4e-3)


def record_of(ours_us: float, peer_us: float, copy_us: float) -> dict[str, Any]:
    case = grid.full()[0]
    return {
        "case": {"label": case.label, "is_headline": True, "batch_size": 32},
        "ways": {OURS: {"median_us": ours_us}, "slow": {"median_us": 1e6}, "fast": {"median_us": peer_us}},
        "copy_of_floor_us": copy_us,
        "agreement": {"fast": 1.0},
    }


@pytest.mark.parametrize(
    ("ours_us", "peer_us", "copy_us", "said"),
    [(10.0, 40.0, 8.0, ["yes", "yes"]), (10.0, 39.0, 8.0, ["yes", "NO"]), (10.0, 40.0, 7.0, ["NO", "yes"])],
)
def test_verdicts_on_the_targets(ours_us: float, peer_us: float, copy_us: float, said: list[str]) -> None:
    lines = report.verdicts([record_of(ours_us, peer_us, copy_us)])
    assert [line.partition(":")[0] for line in lines] == said
    assert "fast" in lines[1]


def test_a_way_that_disagrees_is_named() -> None:
    record = record_of(1.0, 1.0, 1.0)
    assert report.disagreements([record]) == []
    record["agreement"] = {"fast": 0.9}
    assert len(report.disagreements([record])) == 1
