# SPDX-License-Identifier: Apache-2.0
"""`hetero-spec calibrate lookahead` with tiny models in place of the real ones, and a clock that counts."""

import argparse
import json
from pathlib import Path

import pytest

from hetero_spec.cli import calibrate_lookahead
from hetero_spec.cli.errors import UsageError
from hetero_spec.decoding.disco import DiscoLookahead
from hetero_spec.decoding.lookahead import as_lookahead
from tests.bench.conftest import Ticks, loads, ticks, tiny_models  # noqa: F401 - fixtures

PROMPTS = 'the cat sat\n\n"a man\\nand a pan"\none tin lid\nthe dog on the log\nthe mat\n'
Capture = pytest.CaptureFixture[str]
SMALL = ("--temperatures", "0,1", "--max-new-tokens", "12", "--max-draft-tokens", "3")


def calibrate(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    calibrate_lookahead.add_parser(parser.add_subparsers())
    args = parser.parse_args(["lookahead", *arguments])
    code: int = args.run(args)
    return code


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.txt"
    path.write_text(PROMPTS, encoding="utf-8")
    return path


def test_a_classifier_comes_out_that_serves_as_a_lookahead(
    loads: list[str],  # noqa: F811
    prompts: Path,
    tmp_path: Path,
    capsys: Capture,
) -> None:
    output = tmp_path / "own.json"
    assert calibrate("--prompts", str(prompts), "-o", str(output), *SMALL) == 0
    policy = as_lookahead(str(output))
    assert isinstance(policy, DiscoLookahead)
    assert 1 <= policy.max_draft_tokens <= 3
    assert policy.made_for["target"] == "smollm2"
    assert len(policy.made_for["drafter_tokenizer_sha256"]) == 64
    report = json.loads(output.read_text(encoding="utf-8"))["report"]
    assert report["num_prompts"] == 5
    assert report["num_examples"] > report["num_examples_held_out"] > 0
    assert len(report["costs"]["verify"]) == 4
    assert list(report["replays"])[0::2] == ["plain", "disco"]
    error = capsys.readouterr().err
    for words in ("disco", "oracle", "tokens per target call", "recording 5 prompts"):
        assert words in error
    assert {path.name for path in tmp_path.iterdir()} == {"own.json", "own.json.records.jsonl", "prompts.txt"}


def test_an_interrupted_run_keeps_its_records_and_ends_with_the_same_file(
    loads: list[str],  # noqa: F811
    ticks: type[Ticks],  # noqa: F811
    prompts: Path,
    tmp_path: Path,
    capsys: Capture,
) -> None:
    whole, resumed = tmp_path / "whole.json", tmp_path / "resumed.json"
    ticks()
    assert calibrate("--prompts", str(prompts), "-o", str(whole), *SMALL) == 0
    counts = []
    for limit in (300, 500):
        ticks(limit)
        assert calibrate("--prompts", str(prompts), "-o", str(resumed), *SMALL) == 130
        assert "the same command goes on from there" in capsys.readouterr().err
        assert not resumed.exists()
        counts.append(len((tmp_path / "resumed.json.records.jsonl").read_text().splitlines()))
    assert 1 < counts[0] < counts[1] < 12
    ticks()
    assert calibrate("--prompts", str(prompts), "-o", str(resumed), *SMALL) == 0
    assert resumed.read_bytes() == whole.read_bytes()
    kept = (tmp_path / "resumed.json.records.jsonl").read_bytes()
    assert kept == (tmp_path / "whole.json.records.jsonl").read_bytes()
    # Another setting is another record.
    with pytest.raises(UsageError, match="was begun with seed = 1, got 2"):
        calibrate("--prompts", str(prompts), "-o", str(resumed), *SMALL, "--seed", "2")


def test_a_text_is_cut_into_passages(loads: list[str], tmp_path: Path) -> None:  # noqa: F811
    text, output = tmp_path / "text.txt", tmp_path / "own.json"
    text.write_text("the cat sat on the mat and the dog sat on the log. " * 40, encoding="utf-8")
    assert calibrate("--text", str(text), "-o", str(output), "--num-prompts", "3", *SMALL) == 0
    assert json.loads(output.read_text(encoding="utf-8"))["report"]["num_prompts"] == 3


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["-o", "own.bin"], "output must be a .json file"),
        (["-o", "absent/own.json"], "output must be a file in a folder that can be written to"),
        (["--temperatures", "warm"], "temperatures must be numbers"),
        (["--temperatures", "0,0"], "temperatures must differ"),
        (["--temperatures", "-1"], "temperatures must be finite"),
        (["--max-draft-tokens", "1"], "max-draft-tokens must be at least 2, got 1"),
        (["--threads", "0"], "threads must be in"),
        (["--num-prompts", "1"], "num-prompts must be at least 2, got 1"),
        (["--prompts", "absent.txt"], "absent.txt: No such file"),
        (["--prompts", "one.txt"], "prompts must be at least 2, got 1"),
        (["--prompts", "broken.txt"], "got neither in line 1"),
        (["--prompts", "binary.txt"], "must be UTF-8 text"),
    ],
)
def test_errors_come_before_any_work(
    arguments: list[str],
    message: str,
    loads: list[str],  # noqa: F811
    prompts: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "one.txt").write_text("only one\n")
    (tmp_path / "broken.txt").write_text('"no end\nnext\n')
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00")
    monkeypatch.chdir(tmp_path)
    defaults = {"--prompts": str(prompts), "-o": "own.json"}
    for name, value in zip(arguments[::2], arguments[1::2], strict=True):
        defaults[name] = value
    with pytest.raises(UsageError, match=message):
        calibrate(*(part for pair in defaults.items() for part in pair))
    assert loads == []
    assert not list(tmp_path.glob("*.jsonl"))


def test_what_cannot_be_decoded_or_loaded_is_one_line(loads: list[str], prompts: Path, tmp_path: Path) -> None:  # noqa: F811
    arguments = ("--prompts", str(prompts), "-o", str(tmp_path / "own.json"))
    with pytest.raises(UsageError, match="must fit the target's 256 positions"):
        calibrate(*arguments, "--max-new-tokens", "255")
    with pytest.raises(UsageError, match="no model gemma3-270m"):
        calibrate(*arguments, "--target", "gemma3-270m")
    # What failed before anything was recorded stands in nobody's way.
    assert calibrate(*arguments, *SMALL) == 0
