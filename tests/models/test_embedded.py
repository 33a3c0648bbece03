# SPDX-License-Identifier: Apache-2.0
"""The shipped drafter: its files, its tokenizer, and that it still says what its target says.

The fixture holds answers of SmolLM2-135M-Instruct to questions that the drafter was never trained on, as pieces of
text, with the top of the target's laws: no target is needed here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from hetero_spec.models import LoadedModel, load
from hetero_spec.models.registry import EMBEDDED_FOLDER
from hetero_spec.vocab import VocabMap
from hetero_spec.vocab.tokens import read_vocabulary

FIXTURE = Path(__file__).parent / "data" / "embedded_heldout.json"
TEXTS = [
    "",
    "Hello, world!",
    " leading space",
    "two  spaces,   three,        eight",
    "line\nbreaks\n\n\nand\ttabs\t\there \n",
    "def f(x):\n    if x:\n        return {'a': 1}\n",
    "1234567890 3.14 2024-05-17",
    "caf\u00e9 na\u00efve \u4f60\u597d \U0001f600 \u0000\u0007 \r\n",
    "<0x41> is no byte here, nor is </s>, nor <unk>",
]


@pytest.fixture(scope="module")
def embedded() -> LoadedModel:
    return load("embedded")


@pytest.fixture(scope="module")
def heldout() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(FIXTURE.read_text(encoding="utf-8"))
    return content


@pytest.fixture(scope="module")
def vocab_map(embedded: LoadedModel, heldout: dict[str, Any]) -> VocabMap:
    """The map of the drafter and a small target that has just the pieces of the fixture."""
    drafter = read_vocabulary(embedded.tokenizer)
    specials = {piece: index for index, piece in enumerate(heldout["pieces"]) if piece.startswith("<|")}
    pieces = [None if piece in specials else piece.encode() for piece in heldout["pieces"]]
    return VocabMap.from_bytes(
        pieces,
        drafter.tokens,
        target_specials=specials,
        draft_specials=drafter.specials,
        draft_byte_fallback_ids=drafter.byte_fallback_ids,
        draft_vocab_size=embedded.vocab_size,
    )


def test_weights_are_float16_and_at_most_8_mb() -> None:
    path = EMBEDDED_FOLDER / "model.safetensors"
    assert path.stat().st_size <= 8_000_000
    with safe_open(path, framework="pt") as weights:
        assert {weights.get_slice(name).get_dtype() for name in weights.keys()} == {"F16"}  # noqa: SIM118


def test_weights_are_finite_and_head_is_tied(embedded: LoadedModel) -> None:
    assert all(bool(weight.isfinite().all()) for weight in embedded.model.parameters())
    head, embeddings = embedded.model.get_output_embeddings(), embedded.model.get_input_embeddings()
    assert head.weight is embeddings.weight
    assert embedded.vocab_size == embedded.tokenizer.backend.get_vocab_size()
    assert 4096 <= embedded.vocab_size <= 8192


def test_card_and_notice_are_shipped() -> None:
    card = (EMBEDDED_FOLDER / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert "SmolLM2-135M-Instruct" in card
    assert "Apache" in (EMBEDDED_FOLDER / "NOTICE").read_text(encoding="utf-8")


@pytest.mark.parametrize("text", TEXTS)
def test_tokenizer_gives_every_text_back(embedded: LoadedModel, text: str) -> None:
    ids = embedded.tokenizer.encode(text)
    assert embedded.tokenizer.decode(ids, skip_special_tokens=False) == text


def test_tokenizer_style_is_sentencepiece_with_byte_fallback(embedded: LoadedModel) -> None:
    backend = embedded.tokenizer.backend
    assert backend.encode(" house").tokens == ["\u2581house"]
    assert backend.encode("house").tokens[0][0] == "h"  # no dummy space in front
    assert backend.encode("\u4f60").tokens == ["<0xE4>", "<0xBD>", "<0xA0>"]
    assert backend.encode("2024").tokens == ["2", "0", "2", "4"]
    vocabulary = read_vocabulary(embedded.tokenizer)
    assert sorted(byte for token in vocabulary.tokens if token and len(token) == 1 for byte in token)[0] == 0
    assert {token[0] for token in vocabulary.tokens if token and len(token) == 1} == set(range(256))


def test_chat_strings_are_single_tokens_with_the_roles_of_the_target(embedded: LoadedModel) -> None:
    tokenizer = embedded.tokenizer
    ids = tokenizer.encode("<|im_start|>user\nHi<|im_end|>\n")
    assert ids[0] == tokenizer.bos_token_id
    assert tokenizer.eos_token_ids[0] in ids
    text = tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}])
    assert text is not None and text.endswith("<|im_start|>assistant\n")


def overlaps(embedded: LoadedModel, vocab_map: VocabMap, case: dict[str, Any]) -> torch.Tensor:
    """Acceptance probability of one draft token at every position of a held-out answer, as TLI drafts it.

    Greedy answers: 1 where the drafter's likeliest shared token is the target's, else 0. Sampled ones: sum of
    min(target, draft) over the ten likeliest target tokens, an underestimate.
    """
    context: list[int] = []
    at: list[int] = []
    for place, piece in enumerate(case["prompt"] + case["output"]):
        if place >= len(case["prompt"]):
            at.append(len(context) - 1)
        context += vocab_map.spell_with_drafter(piece) or ()
    logits = embedded.model(torch.tensor([context])).logits[0][at]
    logits = logits.masked_fill(~draftable(embedded, vocab_map), float("-inf"))
    if case["temperature"] == 0.0:
        wanted = vocab_map.target_to_draft_ids[torch.tensor(case["output"])]
        return (logits.argmax(-1) == wanted).float()
    probs = (logits / case["temperature"]).softmax(-1)
    result = []
    for row, law in zip(probs, case["laws"], strict=True):
        shared = [(int(vocab_map.target_to_draft_ids[piece]), prob / 10000) for piece, prob in law]
        result.append(sum(min(float(row[draft_id]), prob) for draft_id, prob in shared if draft_id >= 0))
    return torch.tensor(result)


def draftable(embedded: LoadedModel, vocab_map: VocabMap) -> torch.Tensor:
    """Drafter ids that TLI may propose: text pieces and shared specials, byte pieces left out.

    The fixture's target has too few tokens for its map to be the mask; nearly all text pieces are shared with the real
    one, and of the byte pieces only halves of characters.
    """
    is_text = torch.tensor([token is not None for token in vocab_map.draft_tokens])
    is_text[sorted(read_vocabulary(embedded.tokenizer).byte_fallback_ids)] = False
    return is_text | (vocab_map.draft_to_target_ids >= 0)


@torch.inference_mode()
# Measured when the weights were shipped: 0.358, 0.409 and 0.305. The floors leave room for other kernels, not for other
# weights: a tenth of the training reaches 0.20, 0.24 and 0.15.
@pytest.mark.parametrize(("temperature", "floor"), [(0.0, 0.335), (0.7, 0.385), (1.0, 0.28)])
def test_heldout_acceptance_is_above_its_floor(
    embedded: LoadedModel, vocab_map: VocabMap, heldout: dict[str, Any], temperature: float, floor: float
) -> None:
    cases = [case for case in heldout["cases"] if case["temperature"] == temperature]
    assert len(cases) >= 4
    accepted = torch.cat([overlaps(embedded, vocab_map, case) for case in cases])
    assert len(accepted) >= 100
    assert float(accepted.mean()) >= floor
