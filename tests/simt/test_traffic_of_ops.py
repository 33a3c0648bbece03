# SPDX-License-Identifier: Apache-2.0
"""Counted bytes: every case of traffic_report.py is held to its limits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.tools.inputs import make_logits, with_layout

from . import traffic_report
from .traffic_report import BATCH_SIZE, CASES, DRAFTS, ITEM, OUTPUT, PLAIN, ROW, TIGHT, Case, count

# A thread for every id of the target: seconds here, so the committed report has to do.
QUICK_CASES = [case for case in CASES if case.op != "remap_probs"]


@pytest.mark.parametrize("case", QUICK_CASES, ids=lambda case: case.name)
def test_op_stays_near_what_it_needs_and_exits_early(case: Case) -> None:
    counted = count(case)
    traffic = counted.traffic
    assert counted.loaded <= case.most * case.least
    assert counted.store_share < case.stores
    assert counted.wide_share > case.wide
    if "top-" not in case.setting:  # there each thread copies a struct with its padding
        assert traffic["uninitialised_shared_loads"] == 0
    if case.accepted is None:
        return
    assert counted.out.num_accepted_tokens.tolist() == [case.accepted] * BATCH_SIZE
    if case.most > 1.05:
        return
    scale = case.row // ROW
    assert counted.loaded <= 1.05 * max(scale * TIGHT, case.least)
    if case.accepted <= 1:
        assert counted.loaded < scale * PLAIN
    if "draft_stats" not in case.setting and "rule" not in case.setting:
        # Draft rows of accepted tokens: one number each; a rejected one once, and the chunk of the draw again.
        loads = traffic["loads"]["draft_probs" if case.op == "rejection_sample_probs" else "draft_logits"]
        assert loads <= BATCH_SIZE * ((case.accepted < DRAFTS) * 1.03 * case.row + DRAFTS * 32)


@pytest.mark.parametrize("case", [case for case in CASES if case.op == "draft_sample"], ids=lambda case: case.name)
def test_draft_sample_reads_its_rows_once(case: Case) -> None:
    reads = 3.03 if "top-p" in case.setting else 1.03
    assert count(case).traffic["loads"]["draft_logits"] <= reads * BATCH_SIZE * ROW


@pytest.mark.parametrize("misalignment", [0, 3])
def test_row_stats_reads_each_logit_once_wherever_the_row_starts(misalignment: int) -> None:
    logits = with_layout(make_logits(2, 32003, seed=5, dtype=torch.bfloat16), row_padding=5, misalignment=misalignment)
    traffic = count(Case("row_stats", "", lambda: ((logits,), {}), 2 * 32003 * ITEM, 0.0)).traffic
    # A shifted row costs one 16-byte load in 32 more.
    assert traffic["loads"]["logits"] <= 2 * 32003 * ITEM * (1.001 if misalignment == 0 else 1.05)
    assert traffic["wide_load_bytes"] > 0.93 * traffic["loads"]["logits"]


def test_report_has_a_row_for_every_case_and_is_written_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    some = [case for case in CASES if case.op == "row_stats"]
    monkeypatch.setattr(traffic_report, "CASES", some)
    monkeypatch.setattr(traffic_report, "OUTPUT", tmp_path / "counted")
    assert traffic_report.main(["--write"]) == 0
    printed = capsys.readouterr().out
    assert printed == (tmp_path / "counted.md").read_text()
    rows = json.loads((tmp_path / "counted.json").read_text())["cases"]
    assert [row["setting"] for row in rows] == [case.setting for case in some]
    assert all(f"| `row_stats` | {case.setting} | " in printed for case in some)


def test_committed_report_is_of_these_cases() -> None:
    rows = json.loads(OUTPUT.with_suffix(".json").read_text())["cases"]
    assert [(row["op"], row["setting"]) for row in rows] == [(case.op, case.setting) for case in CASES]
    assert [row["op"] for row, case in zip(rows, CASES, strict=True) if row["loads_over_least"] > case.most] == []
