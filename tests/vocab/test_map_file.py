# SPDX-License-Identifier: Apache-2.0
import os

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from hetero_spec.vocab import VocabMap, VocabMismatchError, make_vocabulary
from hetero_spec.vocab.map_file import FORMAT
from tests.vocab.samples import byte_level_tokenizer, spm_style_tokenizer


@pytest.fixture
def tokenizers():
    return (
        spm_style_tokenizer(["<0x0A>", "▁a", "\n", "b"], ("<s>", "</s>")),
        byte_level_tokenizer([b"\n", b" a", b"b", b" "], ("<|endoftext|>", "<s>")),
    )


@pytest.fixture
def saved(tokenizers, tmp_path):
    path = tmp_path / "pair.map"
    vocab_map = VocabMap.from_tokenizers(*tokenizers, target_vocab_size=9, draft_vocab_size=5)
    vocab_map.save(path)
    return path, vocab_map


def test_loaded_map_is_the_saved_one(saved):
    path, vocab_map = saved
    loaded = VocabMap.load(path)
    assert loaded.draft_to_target_ids.equal(vocab_map.draft_to_target_ids)
    assert loaded.target_to_draft_ids.equal(vocab_map.target_to_draft_ids)
    assert loaded.target == vocab_map.target and loaded.drafter == vocab_map.drafter
    assert loaded.target_tokens == vocab_map.target_tokens and loaded.draft_tokens == vocab_map.draft_tokens
    assert loaded.specials == vocab_map.specials
    assert loaded.target_to_draft_tokens == vocab_map.target_to_draft_tokens
    assert loaded.report().as_dict() == vocab_map.report().as_dict()


def test_rule_of_duplicates_is_kept(tmp_path):
    vocab_map = VocabMap.from_bytes([b"x", b"x"], [b"x"], target_byte_fallback_ids=[1], duplicates="byte")
    vocab_map.save(tmp_path / "m")
    loaded = VocabMap.load(tmp_path / "m")
    assert loaded.duplicates == "byte" and loaded.draft_to_target_ids.tolist() == [1]


def test_matching_tokenizers_are_taken_and_can_encode(saved, tokenizers):
    loaded = VocabMap.load(saved[0], *tokenizers)
    assert loaded.report("b").target.num_text_tokens == 1
    assert VocabMap.load(saved[0], drafter_tokenizer=tokenizers[1]).target.encoder is None


@pytest.mark.parametrize("side", ["target", "drafter"])
def test_another_tokenizer_is_an_error(saved, tokenizers, side):
    other = byte_level_tokenizer([b"\n", b" a", b"b", b"  "], ("<|endoftext|>", "<s>"))
    with pytest.raises(VocabMismatchError, match=f"{side} tokenizer must be the one that the map was made for"):
        VocabMap.load(saved[0], **{f"{side}_tokenizer": other})


def test_swapped_tokenizers_are_an_error(saved, tokenizers):
    with pytest.raises(VocabMismatchError):
        VocabMap.load(saved[0], tokenizers[1], tokenizers[0])


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_half_written_file_is_an_error(saved, share):
    path, _ = saved
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(ValueError, match="must be a complete vocabulary map"):
        VocabMap.load(path)


def test_altered_byte_is_an_error(saved):
    path, _ = saved
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match="the file was altered"):
        VocabMap.load(path)


def test_other_safetensors_file_is_an_error(saved, tmp_path):
    arrays = load_file(saved[0])
    save_file(arrays, tmp_path / "other")
    with pytest.raises(ValueError, match=f"must be of format '{FORMAT}', got None"):
        VocabMap.load(tmp_path / "other")


def test_missing_file_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such vocabulary map"):
        VocabMap.load(tmp_path / "nothing")


def test_file_is_written_whole_or_not_at_all(saved, monkeypatch):
    path, _ = saved
    before = path.read_bytes()

    def fail(source, destination):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        VocabMap.from_bytes([b"z"], [b"z"]).save(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_saving_twice_gives_the_same_bytes(saved, tokenizers):
    path, vocab_map = saved
    first = path.read_bytes()
    vocab_map.save(path)
    assert path.read_bytes() == first


def test_empty_vocabulary_parts_survive(tmp_path):
    vocab_map = VocabMap(make_vocabulary([b"a"], kind="k"), make_vocabulary([None, b"a", None], kind="k"))
    vocab_map.save(tmp_path / "m")
    assert VocabMap.load(tmp_path / "m").draft_to_target_ids.tolist() == [-1, 0, -1]


@pytest.mark.parametrize("header", ["[1]", '{"description": "[1]"}', '{"description": 3}'])
def test_description_that_is_no_object_is_an_error(tmp_path, header):
    save_file({"x": np.zeros(1)}, tmp_path / "m", metadata={"hetero_spec": header})
    with pytest.raises(ValueError, match="must be of format"):
        VocabMap.load(tmp_path / "m")


def test_error_of_a_file_names_the_file_that_was_asked_for(saved, tmp_path):
    with pytest.raises(OSError) as caught:
        saved[1].save(tmp_path / "none" / "m")
    assert caught.value.filename == str(tmp_path / "none" / "m")
