# SPDX-License-Identifier: Apache-2.0
"""Records of toy models: states give the models' own laws, an interrupted run goes on, wrong folders are refused."""

import json
import shutil
from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from hetero_spec.decoding.drafter import TransformersDrafter
from hetero_spec.models import LoadedModel, TextTokenizer
from hetero_spec.rdk import records as module
from hetero_spec.rdk.priors import Priors, gather_priors
from hetero_spec.rdk.records import Document, Records, RecordsError, collect, documents_of_text, head_weight
from hetero_spec.vocab import VocabMap
from tests.decoding.toys import foreign_copy, tiny_llama, trained_pair

TEXT = "the cat sat on the mat and the dog sat on the log. a man and a can in a pan. one tin lid. " * 6


@cache
def toy_models() -> tuple[LoadedModel, LoadedModel, VocabMap]:
    one, other = trained_pair()
    target_tokenizer = TextTokenizer(one, eos_token_ids=(0,))
    draft_tokenizer = TextTokenizer(other, bos_token_id=1, eos_token_ids=(2,))
    sizes = one.get_vocab_size(), other.get_vocab_size()
    vocab_map = VocabMap.from_tokenizers(
        target_tokenizer, draft_tokenizer, target_vocab_size=sizes[0], draft_vocab_size=sizes[1]
    )
    target_model = tiny_llama(sizes[0])
    draft_model = foreign_copy(target_model, vocab_map.draft_to_target_ids.tolist())
    target = LoadedModel(target_model, target_tokenizer, "target", "none", sizes[0])
    return target, LoadedModel(draft_model, draft_tokenizer, "drafter", "none", sizes[1]), vocab_map


def toy_documents(max_tokens: int = 40) -> list[Document]:
    return documents_of_text(TEXT, toy_models()[0].tokenizer, max_tokens=max_tokens, num_prompt_tokens=4)


def test_states_give_both_models_own_laws(tmp_path: Path) -> None:
    target, drafter, vocab_map = toy_models()
    documents = toy_documents()
    records = collect(tmp_path, documents, target, drafter, vocab_map, shard_positions=50)
    assert len(records.paths) > 1
    assert len(records) == sum(len(document.token_ids) - 4 for document in documents)
    shown = TransformersDrafter(drafter.model, drafter.tokenizer, vocab_map)
    place = 0
    for index, document in enumerate(documents):
        ids = list(document.token_ids)
        with torch.no_grad():
            rows = target.model(torch.tensor([ids])).logits[0]
        context = list(shown.encode_context(ids[:4]))
        for at in range(4, len(ids)):
            torch.testing.assert_close(
                records.target_states[place] @ head_weight(target).T, rows[at - 1], rtol=1e-4, atol=1e-4
            )
            if at % 5 == 0:
                with torch.no_grad():
                    expected = drafter.model(torch.tensor([context])).logits[0, -1]
                torch.testing.assert_close(
                    records.draft_states[place] @ head_weight(drafter).T, expected, rtol=1e-4, atol=1e-4
                )
            assert int(records.token_ids[place]) == ids[at]
            assert int(records.document_ids[place]) == index
            context += shown.encode_token(ids[at])
            place += 1
    assert place == len(records)


def test_a_target_that_is_its_own_drafter_is_read_once(tmp_path: Path) -> None:
    target, _, _ = toy_models()
    records = collect(tmp_path, toy_documents(), target, None, None)
    assert not records.has_drafter
    assert torch.equal(records.draft_states, records.target_states)


def test_an_interrupted_run_goes_on_and_gives_the_same_files(tmp_path: Path) -> None:
    target, drafter, vocab_map = toy_models()
    arguments = (toy_documents(), target, drafter, vocab_map)
    whole = collect(tmp_path / "whole", *arguments, shard_positions=40)
    told: list[int] = []

    def interrupt(count: int) -> None:
        told.append(count)
        if len(told) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        collect(tmp_path / "cut", *arguments, shard_positions=40, on_positions=interrupt)
    with pytest.raises(RecordsError, match="an interrupted run"):
        Records(tmp_path / "cut")
    kept = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "cut").glob("shard*")}
    assert len(kept) == 2 < len(whole.paths)
    resumed: list[int] = []
    cut = collect(tmp_path / "cut", *arguments, shard_positions=40, on_positions=resumed.append)
    assert sum(resumed) == len(whole)
    assert {name: (tmp_path / "cut" / name).stat().st_mtime_ns for name in kept} == kept
    for one, other in zip(whole.paths, cut.paths, strict=True):
        assert one.read_bytes() == other.read_bytes()
    assert not list((tmp_path / "cut").glob(".*"))


def test_records_of_something_else_are_refused(tmp_path: Path) -> None:
    target, drafter, vocab_map = toy_models()
    documents = toy_documents()
    collect(tmp_path, documents, target, drafter, vocab_map)
    with pytest.raises(RecordsError, match="another num_documents, documents_sha256"):
        collect(tmp_path, documents[:-1], target, drafter, vocab_map)
    with pytest.raises(RecordsError, match="another drafter"):
        collect(tmp_path, documents, target, None, None)


def test_a_shard_that_was_cut_short_is_named(tmp_path: Path) -> None:
    target, drafter, vocab_map = toy_models()
    records = collect(tmp_path, toy_documents(), target, drafter, vocab_map)
    data = records.paths[0].read_bytes()
    records.paths[0].write_bytes(data[: len(data) // 2])
    with pytest.raises(RecordsError, match=f"{records.paths[0].name} must be a whole shard .*; delete it"):
        len(Records(tmp_path))


def flip(path: Path, at: int) -> None:
    """Damage one byte of a file."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_a_shard_with_a_flipped_bit_is_named_and_not_used(tmp_path: Path) -> None:
    target, drafter, vocab_map = toy_models()
    arguments = (toy_documents(), target, drafter, vocab_map)
    records = collect(tmp_path, *arguments, shard_positions=60)
    whole = records.paths[1].read_bytes()
    # The last byte of the file is one of the tensor's that stands last.
    flip(records.paths[1], -1)
    wrong = f"{records.paths[1].name} must be a whole shard .*the checksum of .* is wrong.*; delete it"
    with pytest.raises(RecordsError, match=wrong):
        _ = [Records(tmp_path).target_states, Records(tmp_path).draft_states, Records(tmp_path).token_ids]
    heard: list[int] = []
    with pytest.raises(RecordsError, match=wrong):
        collect(tmp_path, *arguments, shard_positions=60, on_positions=heard.append)
    assert len(heard) == 1
    records.paths[1].unlink()
    collect(tmp_path, *arguments, shard_positions=60)
    assert records.paths[1].read_bytes() == whole


def test_checksums_are_of_type_shape_and_bytes() -> None:
    some = torch.arange(6, dtype=torch.int32)
    others = [some.reshape(2, 3), some.view(torch.float32), some.flip(0), some[:0]]
    assert len({module._checksum(each) for each in [some, *others]}) == 5
    assert module._checksum(some) == module._checksum(some.clone())


def test_a_shard_without_checksums_or_with_a_tensor_less_is_named(tmp_path: Path) -> None:
    target, drafter, vocab_map = toy_models()
    arguments = (toy_documents(), target, drafter, vocab_map)
    path = collect(tmp_path, *arguments).paths[0]
    tensors = load_file(path)
    save_file(tensors, path)
    with pytest.raises(RecordsError, match="the checksum of token_ids is wrong"):
        _ = Records(tmp_path).token_ids
    path.write_bytes(module._shard_bytes(tensors))
    assert torch.equal(Records(tmp_path).token_ids, tensors["token_ids"])
    with safe_open(path, "pt") as file:
        notes = file.metadata()
    del tensors["draft_states"]
    save_file(tensors, path, metadata=notes)
    with pytest.raises(RecordsError, match=f"{path.name} must be a whole shard"):
        collect(tmp_path, *arguments)


def older(folder: Path) -> dict[str, bytes]:
    """Turn records into those of format 1: no checksums."""
    manifest = json.loads((folder / module.MANIFEST).read_text())
    (folder / module.MANIFEST).write_text(json.dumps(manifest | {"format": 1}))
    for path in folder.glob("shard*"):
        save_file(load_file(path), path)
    return {path.name: path.read_bytes() for path in folder.glob("shard*")}


def test_finished_records_of_format_1_are_read_as_they_are(tmp_path: Path) -> None:
    target, drafter, vocab_map = toy_models()
    arguments = (toy_documents(), target, drafter, vocab_map)
    expected = collect(tmp_path, *arguments, shard_positions=100).target_states
    before = older(tmp_path)
    assert len(before) > 1
    heard: list[int] = []
    found = collect(tmp_path, *arguments, shard_positions=60, on_positions=heard.append)
    assert torch.equal(found.target_states, expected)
    assert heard == [len(expected)]
    assert {path.name: path.read_bytes() for path in tmp_path.glob("shard*")} == before
    with pytest.raises(RecordsError, match="another num_documents, documents_sha256"):
        collect(tmp_path, toy_documents()[:-1], target, drafter, vocab_map)


def test_the_beginning_of_records_of_format_1_is_refused(tmp_path: Path) -> None:
    target, drafter, vocab_map = toy_models()
    arguments = (toy_documents(), target, drafter, vocab_map)
    collect(tmp_path, *arguments, shard_positions=100).paths[-1].unlink()
    older(tmp_path)
    with pytest.raises(RecordsError, match="must be of format 2 to be gone on with, got the beginning .*: delete it"):
        collect(tmp_path, *arguments, shard_positions=100)


def test_positions_on_disk_are_counted_and_damaged_shards_are_not(tmp_path: Path) -> None:
    assert module.num_recorded(tmp_path / "none") == 0
    target, _, _ = toy_models()
    records = collect(tmp_path, toy_documents(), target, None, None, shard_positions=60)
    assert module.num_recorded(tmp_path) == len(records)
    whole = records.paths[0].read_bytes()
    records.paths[0].write_bytes(whole[:50])
    assert 0 < module.num_recorded(tmp_path) < len(records)


def test_no_text_is_an_error_before_any_file(tmp_path: Path) -> None:
    target, drafter, vocab_map = toy_models()
    assert documents_of_text("", target.tokenizer) == []
    with pytest.raises(RecordsError, match="is the text empty"):
        collect(tmp_path / "none", [], target, drafter, vocab_map)
    assert not (tmp_path / "none").exists()


def test_a_damaged_model_is_an_error(tmp_path: Path) -> None:
    target, _, _ = toy_models()
    damaged = tiny_llama(target.vocab_size)
    damaged.model.norm.weight.data[3] = float("nan")
    model = LoadedModel(damaged, target.tokenizer, "damaged", "none", target.vocab_size)
    with pytest.raises(RecordsError, match=r"difference of nan|must be finite"):
        collect(tmp_path, toy_documents(), model, None, None)
    assert not list(tmp_path.glob("shard*"))


def test_a_model_whose_logits_are_not_its_output_layers_is_refused(tmp_path: Path) -> None:
    target, _, _ = toy_models()
    model = tiny_llama(target.vocab_size)
    forward = type(model).forward

    class Capped(type(model)):  # type: ignore[misc]
        def forward(self, *arguments: object, **keywords: object) -> object:
            output = forward(self, *arguments, **keywords)
            output.logits = torch.tanh(output.logits)
            return output

    model.__class__ = Capped
    capped = LoadedModel(model, target.tokenizer, "capped", "none", target.vocab_size)
    with pytest.raises(RecordsError, match="capped: logits must be"):
        collect(tmp_path, toy_documents(), capped, None, None)


@pytest.mark.parametrize("content", ["{", '{"format": 7}'])
def test_a_broken_manifest_is_an_error(tmp_path: Path, content: str) -> None:
    with pytest.raises(RecordsError, match="must hold records"):
        Records(tmp_path)
    (tmp_path / module.MANIFEST).write_text(content)
    with pytest.raises(RecordsError, match=r"must be JSON|format 1 or 2, got 7"):
        Records(tmp_path)


def test_documents_past_the_drafters_length_are_cut_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, drafter, vocab_map = toy_models()
    monkeypatch.setattr(TransformersDrafter, "max_length", 20)
    ids = target.tokenizer.encode(TEXT, add_special_tokens=False)[:60]
    records = collect(tmp_path, [Document(ids, 4)], target, drafter, vocab_map)
    shown = TransformersDrafter(drafter.model, drafter.tokenizer, vocab_map)
    length, count = len(shown.encode_context(ids[:4])), 0
    for token_id in ids[4:]:
        count += length <= 20
        length += len(shown.encode_token(token_id))
    assert 0 < count == len(records) < 56
    assert records.token_ids.tolist() == ids[4 : 4 + count]


def test_priors_are_the_moments_of_the_laws_and_survive_a_file(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    weight, states = torch.randn(30, 5, generator=generator), torch.randn(200, 5, generator=generator)
    laws = (states.double() @ weight.double().T).softmax(1)
    priors = gather_priors(weight, states)
    torch.testing.assert_close(priors.mean.double(), laws.mean(0), rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(priors.variance.double(), laws.var(0, correction=0), rtol=1e-4, atol=1e-7)
    roots = laws.sqrt().mean(0).square()
    torch.testing.assert_close(priors.root_mean.double(), roots / roots.sum(), rtol=1e-5, atol=1e-7)
    path = tmp_path / "priors"
    priors.save(path, tokenizer_sha256="a" * 64)
    again = Priors.load(path, tokenizer_sha256="a" * 64)
    assert torch.equal(again.mean, priors.mean)
    assert again.num_positions == 200
    with pytest.raises(RecordsError, match="must be of the tokenizer bbbb"):
        Priors.load(path, tokenizer_sha256="b" * 64)
    priors.mean[3] = float("nan")
    priors.save(path, tokenizer_sha256="a" * 64)
    with pytest.raises(RecordsError, match="mean in .* must be finite"):
        Priors.load(path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(RecordsError, match="must be a file of priors"):
        Priors.load(path)
    with pytest.raises(RecordsError, match="finite laws"):
        gather_priors(weight, torch.full((2, 5), float("nan")))
    with pytest.raises(RecordsError, match="got none"):
        gather_priors(weight, states[:0])
    shutil.rmtree(tmp_path)
