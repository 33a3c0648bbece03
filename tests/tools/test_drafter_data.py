# SPDX-License-Identifier: Apache-2.0
"""What a drafter with a vocabulary of its own is trained on: its tokenizer, and the target's text in its tokens."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from hetero_spec.models import TextTokenizer
from hetero_spec.vocab import VocabMap, make_vocabulary

TARGET = [None, b"the", b" cat", b" sat", b" on", b"12", b"\xf0\x9f", b"\x99\x82", b"!", b"x"]
END = 0


@pytest.fixture(scope="module")
def data() -> ModuleType:
    path = Path(__file__).parents[2] / "tools" / "drafter_data.py"
    spec = importlib.util.spec_from_file_location("drafter_data", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["drafter_data"] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def tokenizer(data: ModuleType) -> TextTokenizer:
    backend = data.build_own_tokenizer(["the cat sat on the cat"] * 3, 264)
    return TextTokenizer(backend, bos_token_id=1, eos_token_ids=(2,))


@pytest.fixture(scope="module")
def vocab_map(tokenizer: TextTokenizer) -> VocabMap:
    target = make_vocabulary(TARGET, kind="toy", specials={"<|im_end|>": END}, roles={"eos": END})
    return VocabMap.from_tokenizers(target, tokenizer)


def test_own_vocabulary_is_bytes_and_merges_of_its_own(data: ModuleType, tokenizer: TextTokenizer) -> None:
    assert tokenizer.backend.get_vocab_size() == 264
    assert [tokenizer.backend.token_to_id(text) for text in data.SPECIALS] == [0, 1, 2]
    text = "the cat, \U0001f642 12\n"
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids) == text and len(ids) < len(text.encode())
    only_bytes = data.build_own_tokenizer(["the cat"], len(data.SPECIALS) + 256)
    assert len(only_bytes.encode(text).ids) == len(text.encode())


def conversation(data: ModuleType, output_ids: list[int]) -> object:
    """A law of two tokens at every position: the one that followed, and " on"."""
    top_ids = torch.tensor([[token_id, 4] for token_id in output_ids], dtype=torch.int32)
    logprobs = torch.tensor([[0.75, 0.25]] * len(output_ids)).log().half()
    return data.Conversation([1], output_ids, 0.7, top_ids, logprobs, torch.zeros(len(output_ids)).half())


def test_text_is_cut_by_the_drafter_and_predicted_where_both_have_a_boundary(
    data: ModuleType, tokenizer: TextTokenizer, vocab_map: VocabMap
) -> None:
    # The second half of the character begins where the drafter, too, has a boundary: it knows bytes.
    output_ids = [2, 5, 6, 7, 8, END]
    sequences = data.map_texts([conversation(data, output_ids)], vocab_map, tokenizer, 100)
    (ids,), (positions,), (inner,) = sequences.ids, sequences.positions, sequences.inner_positions
    prompt = tokenizer.encode("the", add_special_tokens=False)
    text = tokenizer.encode(" cat12\U0001f642!", add_special_tokens=False)
    assert ids.tolist() == [*prompt, *text, 2]
    assert sorted(positions.tolist() + inner.tolist()) == list(range(len(prompt) - 1, len(ids) - 1))
    assert len(positions) == len(output_ids)
    # At its place every law names what comes next, first.
    (draft_ids,), (following,) = sequences.draft_ids, sequences.next_draft_ids
    assert draft_ids[:, 0].tolist() == following.tolist() == ids[positions + 1].tolist()
    on = tokenizer.encode(" on", add_special_tokens=False)[0]
    assert set(draft_ids[:, 1].tolist()) == {on}
    assert sequences.logprobs[0].exp()[:, 0].tolist() == pytest.approx([0.75] * len(output_ids), abs=1e-3)


def test_a_boundary_of_the_target_alone_predicts_nothing(
    data: ModuleType, tokenizer: TextTokenizer, vocab_map: VocabMap
) -> None:
    # "the" is one token of the drafter; the target says "th" and "e".
    tokens = [None, b"th", b"e", b" cat"]
    own = VocabMap.from_tokenizers(
        make_vocabulary(tokens, kind="toy", specials={"<|im_end|>": END}, roles={"eos": END}), tokenizer
    )
    top_ids = torch.tensor([[1], [2], [3]], dtype=torch.int32)
    conversation = data.Conversation([3], [1, 2, 3], 0.0, top_ids, torch.zeros(3, 1).half(), torch.zeros(3).half())
    sequences = data.map_texts([conversation], own, tokenizer, 100)
    words = [tokenizer.encode(word, add_special_tokens=False) for word in (" cat", "the", " cat")]
    assert len(words[1]) == 1
    assert sequences.positions[0].tolist() == [len(words[0]) - 1, len(words[0])]


def test_sequences_end_at_the_longest_length(data: ModuleType, tokenizer: TextTokenizer, vocab_map: VocabMap) -> None:
    sequences = data.map_texts([conversation(data, [2, 5, 3, 8])], vocab_map, tokenizer, 4)
    assert len(sequences.ids[0]) == 4
    assert int(sequences.positions[0].max()) < 3 and sequences.inner_positions[0].max() < 3
    assert len(sequences.positions[0]) == len(sequences.draft_ids[0]) == len(sequences.next_draft_ids[0])
