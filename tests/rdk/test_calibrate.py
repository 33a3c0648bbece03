# SPDX-License-Identifier: Apache-2.0
"""Calibration finds a gain where there is one, falls back where there is none, and the command says which."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy import stats

from hetero_spec import models
from hetero_spec.cli import main
from hetero_spec.rdk import calibration as cal
from hetero_spec.rdk import load_kernel, prune_vocabulary, records
from hetero_spec.rdk.records import Records, RecordsError, tokenizer_sha256
from hetero_spec.rdk.views import Pair, Setting
from tests.rdk.test_fit import V, toy_pair, toy_states
from tests.rdk.test_records import TEXT, flip, toy_models


def calibrated(pair: Pair, draft_states: torch.Tensor | None = None, **keywords: object) -> cal.Calibration:
    states = toy_states(1200)
    documents = torch.arange(1200, dtype=torch.int32) // 20
    return cal.calibrate(
        pair, states, states if draft_states is None else draft_states, documents, Setting(), num_epochs=2, **keywords
    )


def test_interval_is_that_of_the_documents() -> None:
    # Two documents of equal values inside: no more is known than from two numbers.
    values = torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0, 0.0])
    found = cal.estimate(values, torch.tensor([7, 7, 7, 9, 9, 9]))
    assert found.mean == pytest.approx(0.5)
    # Standard deviation of the two means, over sqrt(2).
    assert found.half_width == pytest.approx(stats.t.ppf(0.975, 1) * (0.5**0.5 / 2**0.5), rel=1e-5)
    apart = cal.estimate(values, torch.arange(6))
    assert apart.half_width == pytest.approx(stats.t.ppf(0.975, 5) * float(values.std()) / 6**0.5, rel=2e-3)
    for freedom in (2, 3, 4, 10, 100):
        assert cal._quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=0.01)
    alone = cal.estimate(values, torch.zeros(6))
    assert not alone.is_gain
    assert alone.as_dict()["half_width_95"] is None


def test_documents_are_dealt_whole_and_only_once() -> None:
    documents = torch.arange(100) // 7
    parts = cal.deal_documents(documents, (0.7, 0.15, 0.15))
    assert sorted(torch.cat(parts).tolist()) == list(range(100))
    of_part = [set(documents[part].tolist()) for part in parts]
    assert not (of_part[0] & of_part[1] or of_part[0] & of_part[2] or of_part[1] & of_part[2])
    assert len(of_part[0]) > len(of_part[1]) >= 1
    assert [len(part) for part in cal.deal_documents(torch.tensor([0, 1, 2]), (0.98, 0.01, 0.01))] == [1, 1, 1]
    with pytest.raises(RecordsError, match="at least 3 documents, got 2"):
        cal.deal_documents(torch.tensor([0, 1]), (0.7, 0.15, 0.15))


def test_a_pruned_drafter_gains() -> None:
    result = calibrated(toy_pair())
    report = result.report
    assert report["fallback"] is None
    assert report["method"].startswith("fitted")
    assert report["gain_of_best"]["mean"] > report["gain_of_best"]["half_width_95"]
    assert report["acceptance_best"]["mean"] > report["acceptance_tli"]["mean"]
    # The drafter is the target: token-level intersection accepts exactly the mass inside.
    assert report["acceptance_tli"]["mean"] == pytest.approx(report["target_mass_inside"]["mean"], abs=1e-5)
    assert result.kernel.calibration is report
    # What is reported is what the kernel does, on positions that neither fit nor choice has seen.
    pair, states, documents = toy_pair(), toy_states(1200), torch.arange(1200) // 20
    checked = cal.deal_documents(documents, (0.7, 0.15, 0.15))[2]
    laws = (states[checked] @ pair.target_weight.T).softmax(1)
    draft = torch.zeros_like(laws)
    draft[:, pair.kept_target_ids] = (states[checked] @ pair.draft_weight.T).softmax(1)
    accepted = torch.minimum(laws, result.kernel.redistribute(draft)).sum(1)
    assert float(accepted.mean()) == pytest.approx(report["acceptance_best"]["mean"], abs=2e-4)


def test_fallback_where_the_drafter_lacks_nothing() -> None:
    # The drafter is the target itself: acceptance is 1 and every move loses.
    result = calibrated(toy_pair(num_kept=V))
    assert "no kernel that accepts more" in result.report["fallback"]
    assert result.report["method"] == "token-level intersection"
    draft = toy_states(5) @ toy_pair(num_kept=V).draft_weight.T
    assert torch.equal(result.kernel.redistribute(draft.softmax(1)), draft.softmax(1))


def test_fallback_where_a_gain_is_not_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    sure = cal.estimate

    def wide(values: torch.Tensor, document_ids: torch.Tensor) -> cal.Estimate:
        found = sure(values, document_ids)
        return cal.Estimate(found.mean, 10.0, found.num_positions, found.num_documents)

    monkeypatch.setattr(cal, "estimate", wide)
    result = calibrated(toy_pair())
    assert "no sure gain" in result.report["fallback"]
    assert result.report["gain_of_best"]["mean"] > 0.0
    draft = torch.zeros(2, V)
    draft[:, toy_pair().kept_target_ids] = 1.0 / 12
    assert torch.equal(result.kernel.redistribute(draft), draft)


def test_calibration_is_reproducible_and_depends_on_the_seed() -> None:
    one, again, other = (calibrated(toy_pair(), seed=seed) for seed in (0, 0, 1))
    assert one.report == again.report
    assert torch.equal(one.kernel.weights, again.kernel.weights)
    assert one.report != other.report


def test_states_with_nan_are_refused() -> None:
    states = toy_states(1200)
    states[700, 2] = float("nan")
    with pytest.raises(RecordsError, match="draft_states must be finite"):
        calibrated(toy_pair(), states)


def test_frequent_tokens_are_those_the_target_says_and_the_ends() -> None:
    weight = torch.zeros(6, 1)
    weight[:, 0] = torch.tensor([0.0, 3.0, 1.0, 2.0, -1.0, -2.0])
    states = torch.ones(4, 1)
    assert cal.frequent_shared_ids(states, weight, None, 0.5).tolist() == [1, 2, 3]
    assert cal.frequent_shared_ids(states, weight, None, 0.5, always=[5]).tolist() == [1, 3, 5]
    # The drafter has tokens 0, 2, 4 only.
    shared = torch.tensor([4, -1, 0, 2])
    assert cal.frequent_shared_ids(states, weight, shared, 0.6, always=[5]).tolist() == [0, 2]
    assert cal.frequent_shared_ids(states, weight, None, 1e-9).tolist() == [1]


# ---- the command ---------------------------------------------------------------------------------------------------


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    target, drafter, _ = toy_models()
    monkeypatch.setattr(models, "load", lambda name, **keywords: {"target": target, "drafter": drafter}[name])
    text = tmp_path / "text"
    text.write_text(TEXT * 12)
    return text


def command(text: Path, output: Path, *more: str) -> list[str]:
    arguments = ["calibrate", "rdk", "--target", "target", "--drafter", "drafter", "--text", str(text)]
    return [*arguments, "-o", str(output), "--document-tokens", "40", "--epochs", "1", "--affinities", "8", *more]


def test_command_writes_a_kernel_that_knows_its_pair(
    toys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, drafter, vocab_map = toy_models()
    output = tmp_path / "kernel"
    assert main(command(toys, output, "--keep", "0.2")) == 0
    kernel = load_kernel(output, target.tokenizer, drafter.tokenizer)
    report = json.loads((tmp_path / "kernel.json").read_text())
    assert kernel.vocab_size == target.vocab_size
    assert kernel.calibration == report
    assert (report["target"], report["drafter"]) == ("target", "drafter")
    assert report["num_kept_tokens"] == round(0.2 * int((vocab_map.draft_to_target_ids >= 0).sum()))
    assert kernel.target_sha256 == tokenizer_sha256(target)
    printed = capsys.readouterr().out
    assert f"{report['num_kept_tokens']} tokens" in printed
    assert ("changes nothing" in printed) == (report["fallback"] is not None)


def test_command_prunes_the_target_into_its_own_drafter_and_takes_the_kept_list_again(
    toys: Path, tmp_path: Path
) -> None:
    arguments = command(toys, tmp_path / "one", "--keep", "0.1", "--drafter", "target")
    assert main(arguments) == 0
    again = command(toys, tmp_path / "two", "--keep", str(tmp_path / "one.keep"), "--drafter", "target")
    assert main([*again, "--records", str(tmp_path / "one.records")]) == 0
    one, two = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("one", "two"))
    assert one == two
    assert one["num_kept_tokens"] == 29
    assert one["acceptance_tli"]["mean"] == pytest.approx(one["target_mass_inside"]["mean"], abs=1e-4)


def test_command_goes_on_after_an_interruption(
    toys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(cal, "calibrate", lambda *arguments, **keywords: (_ for _ in ()).throw(KeyboardInterrupt))
        assert main(command(toys, tmp_path / "kernel")) == 130
    folder = tmp_path / "kernel.records"
    count = len(Records(folder))
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error == (
        f"hetero-spec calibrate: interrupted; {count} positions that were read are kept in {folder}, and the same "
        "command goes on from them"
    )
    assert not (tmp_path / "kernel").exists()
    shards = {path: path.stat().st_mtime_ns for path in folder.glob("shard*")}
    assert len(shards) > 1
    assert main(command(toys, tmp_path / "kernel")) == 0
    assert {path: path.stat().st_mtime_ns for path in shards} == shards


@pytest.mark.parametrize("num_before", [0, 1])
def test_command_says_what_an_interrupted_reading_has_kept(
    toys: Path, tmp_path: Path, num_before: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, begun = records._record_shard, []

    def interrupted(*arguments: Any) -> dict[str, torch.Tensor]:
        begun.append(1)
        if len(begun) > num_before:
            raise KeyboardInterrupt
        return whole(*arguments)

    folder = tmp_path / "kept"
    arguments = command(toys, tmp_path / "kernel", "--records", str(folder))
    with monkeypatch.context() as patch:
        patch.setattr(records, "_record_shard", interrupted)
        assert main(arguments) == 130
    error = capsys.readouterr().err.strip().splitlines()[-1]
    shards = sorted(folder.glob("shard*"))
    assert len(shards) == num_before
    if num_before == 0:
        assert error.endswith("interrupted before anything was kept; the same command begins anew")
    else:
        assert 1024 <= records.num_recorded(folder) < 1100
        assert f"{records.num_recorded(folder)} positions that were read are kept in {folder}" in error
    assert main(arguments) == 0


def test_command_names_a_damaged_shard(toys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(toys, tmp_path / "kernel")) == 0
    shard = tmp_path / "kernel.records" / "shard_00001.safetensors"
    flip(shard, -1)
    (tmp_path / "kernel").unlink()
    assert main(command(toys, tmp_path / "kernel")) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith(f"hetero-spec calibrate: --records: {shard} must be a whole shard (the checksum of ")
    assert not (tmp_path / "kernel").exists()


def test_command_refuses_a_kept_list_without_a_shared_token(
    toys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, drafter, vocab_map = toy_models()
    alone = (vocab_map.draft_to_target_ids < 0).nonzero()[:3, 0]
    prune_vocabulary(drafter, alone).save(tmp_path / "list")
    assert main(command(toys, tmp_path / "kernel", "--keep", str(tmp_path / "list"))) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.endswith(f"--keep {tmp_path / 'list'} must share a token with the target, got none")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--keep", "0"], "--keep must be a share in (0, 1] or a file"),
        (["--keep", "missing"], "--keep must be a share in (0, 1] or a file"),
        (["--keep", "TEXT"], "--keep: "),
        (["--drafter", "target"], "--drafter must be another model"),
        (["--temperature", "0"], "--temperature must be above 0"),
        (["--top-p", "nan"], "--top-p must be in (0, 1]"),
        (["--epochs", "0"], "--epochs must be at least 1"),
        (["--document-tokens", "8"], "--document-tokens must be at least 32"),
        (["-o", "FOLDER/missing/kernel"], "--output must be a file"),
        (["--text", "FOLDER/missing"], "--text: FOLDER/missing: No such file"),
        (["--text", "FOLDER/empty"], "--text: FOLDER/empty must hold text, got an empty file"),
        (["--text", "FOLDER/short"], "--text must give at least 3 documents (see --document-tokens), got"),
        (["--text", "FOLDER/latin1"], "--text: FOLDER/latin1 must be UTF-8"),
    ],
)
def test_command_names_what_is_wrong_in_one_line(
    toys: Path, tmp_path: Path, more: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").write_text(" \n")
    (tmp_path / "short").write_text("the cat sat on the mat and the dog sat on the log " * 4)
    (tmp_path / "latin1").write_bytes(b"caf\xe9")
    more = [word.replace("FOLDER", str(tmp_path)).replace("TEXT", str(toys)) for word in more]
    assert main(command(toys, tmp_path / "kernel", *more)) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith(f"hetero-spec calibrate: {message.replace('FOLDER', str(tmp_path))}")
    assert not (tmp_path / "kernel").exists()
