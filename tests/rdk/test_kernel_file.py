# SPDX-License-Identifier: Apache-2.0
import os

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from hetero_spec.rdk import MixKernel, load_kernel, save_kernel
from hetero_spec.rdk.kernel_file import FORMAT
from hetero_spec.rdk.kernels import MixtureKernel
from hetero_spec.vocab import VocabMap, VocabMismatchError, make_vocabulary
from tests.rdk.samples import KINDS, MIXTURES, make_draft_laws, make_kernels

TARGET = make_vocabulary([b"a", b"b", b"c"], kind="test")
DRAFTER = make_vocabulary([b"a", b"b"], kind="test")


@pytest.fixture
def saved(tmp_path):
    kernel = MixKernel(0.25, torch.tensor([0.5, 0.25, 0.25]), target_sha256=TARGET.sha256)
    kernel.drafter_sha256 = DRAFTER.sha256
    kernel.calibration = {"text": "two poems", "positions": 932, "gain": [0.01, None]}
    path = tmp_path / "mix.rdk"
    kernel.save(path)
    return path, kernel


@pytest.mark.parametrize("vocab_size", [4, 1003])
@pytest.mark.parametrize("name", KINDS)
def test_loaded_kernel_is_the_saved_one(name, vocab_size, tmp_path):
    kernel = make_kernels(vocab_size)[name]
    kernel.clamped_mass = 0.125
    kernel.save(tmp_path / "kernel")
    loaded = load_kernel(tmp_path / "kernel")
    assert type(loaded) is type(kernel) and loaded.vocab_size == vocab_size and loaded.clamped_mass == 0.125
    draft = make_draft_laws(3, vocab_size, 60).float()
    assert loaded.redistribute(draft).equal(kernel.redistribute(draft))
    if name in MIXTURES:
        for ours, theirs in zip(kernel.tensors("cpu")[:-1], loaded.tensors("cpu")[:-1], strict=True):
            assert (ours is None and theirs is None) or ours.equal(theirs)
        assert np.array_equal(kernel.constant_leak, loaded.constant_leak, equal_nan=True)


def test_facts_are_kept(saved):
    path, kernel = saved
    loaded = load_kernel(path, TARGET, DRAFTER)
    assert loaded.target_sha256 == TARGET.sha256 and loaded.drafter_sha256 == DRAFTER.sha256
    assert loaded.calibration == kernel.calibration


def test_another_tokenizer_is_an_error(saved):
    path, _ = saved
    with pytest.raises(VocabMismatchError, match="target tokenizer must be the one that the kernel was made for"):
        load_kernel(path, DRAFTER)
    with pytest.raises(VocabMismatchError, match="drafter tokenizer must be the one that the kernel was made for"):
        load_kernel(path, TARGET, TARGET)


def test_a_kernel_that_names_no_tokenizer_fits_none(tmp_path):
    MixKernel(0.5, torch.tensor([0.5, 0.25, 0.25])).save(tmp_path / "k")
    assert load_kernel(tmp_path / "k").target_sha256 is None
    with pytest.raises(VocabMismatchError, match="made for \\(an unknown one\\)"):
        load_kernel(tmp_path / "k", TARGET)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_half_written_file_is_an_error(saved, share):
    path, _ = saved
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(ValueError, match="must be a complete rdk kernel"):
        load_kernel(path)


def test_altered_byte_is_an_error(saved):
    path, _ = saved
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match="the file was altered"):
        load_kernel(path)


@pytest.mark.parametrize("header", [None, "[1]", "3", "{", '{"description": "[1]"}', '{"description": 3}'])
def test_foreign_file_is_an_error(saved, tmp_path, header):
    metadata = {} if header is None else {"hetero_spec": header}
    save_file(load_file(saved[0]), tmp_path / "other", metadata=metadata)
    with pytest.raises(ValueError, match=f"must be of format '{FORMAT}', got None"):
        load_kernel(tmp_path / "other")


def test_a_map_is_no_kernel(tmp_path):
    VocabMap.from_bytes([b"a"], [b"a"]).save(tmp_path / "m")
    with pytest.raises(ValueError, match=f"must be of format '{FORMAT}', got 'hetero_spec vocabulary map 1'"):
        load_kernel(tmp_path / "m")


def test_text_file_and_missing_file(tmp_path):
    (tmp_path / "text").write_text("not a kernel at all\n" * 10)
    with pytest.raises(ValueError, match="must be a complete rdk kernel"):
        load_kernel(tmp_path / "text")
    with pytest.raises(FileNotFoundError, match="no such rdk kernel"):
        load_kernel(tmp_path / "nothing")


def test_file_is_written_whole_or_not_at_all(saved, monkeypatch):
    path, kernel = saved
    before = path.read_bytes()

    def fail(source, destination):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    kernel.calibration = {"text": "another"}
    with pytest.raises(OSError, match="disk full"):
        kernel.save(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_saving_twice_gives_the_same_bytes(saved):
    path, kernel = saved
    first = path.read_bytes()
    kernel.save(path)
    assert path.read_bytes() == first


def test_what_cannot_be_saved(saved, tmp_path):
    _, kernel = saved
    kernel.calibration = {"when": object()}
    with pytest.raises(TypeError, match="save_kernel: calibration must be made of JSON values"):
        kernel.save(tmp_path / "k")
    with pytest.raises(TypeError, match="save_kernel: kernel must be one of .*, got MixtureKernel"):
        save_kernel(MixtureKernel(3), tmp_path / "k")
    assert not (tmp_path / "k").exists()
