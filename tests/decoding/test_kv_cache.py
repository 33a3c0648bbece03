# SPDX-License-Identifier: Apache-2.0
"""The ragged cache: logits equal a plain full forward whatever was fed, rolled back and dropped before."""

import pytest
import torch
from transformers import PreTrainedModel

from hetero_spec.decoding.causal_model import CausalModel
from hetero_spec.decoding.kv_cache import RaggedCache, visible_slots
from tests.decoding.toys import full_logits, tiny_gemma3, tiny_llama

VOCAB_SIZE = 40
# Logits of these models are of order 1 to 10; the same sums in another order stay well below this.
TOLERANCE = 1e-4


@pytest.fixture(params=["llama", "gemma3", "gemma3_eager"])
def model(request: pytest.FixtureRequest) -> PreTrainedModel:
    if request.param == "llama":
        return tiny_llama(VOCAB_SIZE)
    return tiny_gemma3(VOCAB_SIZE, attention="eager" if request.param == "gemma3_eager" else "sdpa")


def random_ids(seed: int, count: int) -> list[int]:
    return torch.randint(VOCAB_SIZE, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


class Followed:
    """Sequences beside a plain record of what they should hold; checks every row that is returned."""

    def __init__(self, model: PreTrainedModel, num_requests: int, capacity: int = 0) -> None:
        self.model = model
        self.sequences = CausalModel(model).open(num_requests, capacity)
        self.tokens: list[list[int]] = [[] for _ in range(num_requests)]
        self.num_feeds = 0

    def feed(self, counts: dict[int, int], rows: int | None = None) -> None:
        new = []
        for request, count in counts.items():
            self.num_feeds += 1
            new.append(random_ids(self.num_feeds, count))
            self.tokens[request] += new[-1]
        kept = [count if rows is None else min(rows, count) for count in counts.values()]
        logits = self.sequences.feed(list(counts), new, kept)
        expected = [
            full_logits(self.model, self.tokens[request])[-count:] for request, count in zip(counts, kept, strict=True)
        ]
        assert logits.shape == (sum(kept), VOCAB_SIZE)
        torch.testing.assert_close(logits, torch.cat(expected), rtol=0, atol=TOLERANCE)

    def truncate(self, request: int, length: int) -> None:
        self.sequences.truncate(request, length)
        del self.tokens[request][length:]


def test_logits_equal_a_full_forward_for_one_request_across_the_window(model: PreTrainedModel) -> None:
    followed = Followed(model, 1)
    for count in (5, 1, 4, 1, 7, 3):
        followed.feed({0: count})


def test_logits_equal_a_full_forward_for_ragged_lengths_and_ragged_steps(model: PreTrainedModel) -> None:
    followed = Followed(model, 3)
    followed.feed({0: 3, 1: 11, 2: 6})
    followed.feed({0: 5, 1: 1, 2: 2})
    followed.feed({0: 1, 1: 6, 2: 1})
    followed.feed({0: 1, 1: 1, 2: 1})


def test_logits_equal_a_full_forward_after_roll_backs_over_the_window(model: PreTrainedModel) -> None:
    followed = Followed(model, 2)
    followed.feed({0: 12, 1: 9})
    followed.feed({0: 6, 1: 3})
    followed.truncate(0, 13)
    followed.truncate(1, 4)
    followed.feed({0: 2, 1: 5})
    followed.truncate(0, 0)
    followed.feed({0: 10, 1: 1})


def test_logits_equal_a_full_forward_when_some_requests_sit_out(model: PreTrainedModel) -> None:
    followed = Followed(model, 4)
    followed.feed({0: 4, 1: 10, 2: 2, 3: 9})
    followed.feed({1: 2, 2: 3})
    followed.feed({0: 1, 3: 4})
    followed.feed({2: 6})
    followed.feed({0: 2, 1: 2, 2: 2, 3: 2})


def test_other_requests_keep_their_logits_when_one_is_dropped(model: PreTrainedModel) -> None:
    followed = Followed(model, 4)
    followed.feed({0: 4, 1: 10, 2: 12, 3: 9})
    followed.sequences.drop(1)
    followed.feed({0: 2, 2: 1, 3: 3})
    followed.sequences.drop(0)
    followed.truncate(2, 8)
    followed.feed({2: 4, 3: 1})
    followed.feed({3: 2})


@pytest.mark.parametrize("rows", [1, 2])
def test_only_the_wanted_rows_come_back(model: PreTrainedModel, rows: int) -> None:
    followed = Followed(model, 3)
    followed.feed({0: 7, 1: 2, 2: 10}, rows)
    followed.feed({1: 3}, rows)
    followed.feed({0: 4, 1: 4, 2: 4}, rows)


def test_cache_grows_past_its_first_capacity_without_losing_anything(model: PreTrainedModel) -> None:
    followed = Followed(model, 2, capacity=8)
    followed.feed({0: 6, 1: 3})
    followed.feed({0: 70, 1: 2})
    followed.feed({0: 1, 1: 80})


def test_head_padding_is_cut_off_the_logits() -> None:
    model = tiny_llama(VOCAB_SIZE)
    logits = CausalModel(model, 33).open(1, 8).feed([0], [[1, 2, 3]], [2])
    torch.testing.assert_close(logits, full_logits(model, [1, 2, 3])[-2:, :33], rtol=0, atol=TOLERANCE)


def test_both_names_of_the_cache_argument_are_served() -> None:
    model = tiny_llama(VOCAB_SIZE)

    class OlderLlama(type(model)):  # type: ignore[misc]
        def forward(self, input_ids, attention_mask, position_ids, past_key_values, use_cache):  # type: ignore[no-untyped-def]
            return super().forward(
                input_ids, attention_mask, position_ids=position_ids, cache=past_key_values, use_cache=use_cache
            )

    model.__class__ = OlderLlama
    sequences = CausalModel(model).open(2, 0)
    logits = sequences.feed([0, 1], [[1, 2, 3], [4]], [2, 1])
    model.__class__ = OlderLlama.__mro__[1]
    expected = torch.cat([full_logits(model, [1, 2, 3])[-2:], full_logits(model, [4])])
    torch.testing.assert_close(logits, expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("bad", [-1, VOCAB_SIZE])
def test_an_id_outside_the_vocabulary_never_reaches_the_embedding(bad: int) -> None:
    # cases.md 47: a -1 placeholder was fed to an embedding.
    sequences = CausalModel(tiny_llama(VOCAB_SIZE)).open(1, 8)
    with pytest.raises(ValueError, match="feed: token_ids must be ids of the model's vocabulary"):
        sequences.feed([0], [[3, bad]], [1])


@pytest.mark.parametrize("kept", [0, 3])
def test_feed_refuses_a_wrong_number_of_rows(kept: int) -> None:
    sequences = CausalModel(tiny_llama(VOCAB_SIZE)).open(1, 8)
    with pytest.raises(ValueError, match=r"feed: num_rows must be in \[1, 2\]"):
        sequences.feed([0], [[3, 4]], [kept])


@pytest.mark.parametrize("length", [-1, 4])
def test_truncate_refuses_a_length_that_is_not_there(length: int) -> None:
    cache = RaggedCache(1)
    cache.begin([0], [3])
    cache.commit()
    with pytest.raises(ValueError, match=r"truncate: length must be in \[0, 3\]"):
        cache.truncate(0, length)


def test_a_model_that_cannot_be_rolled_back_is_refused() -> None:
    model = tiny_gemma3(VOCAB_SIZE)
    model.config.layer_types = ["linear_attention", "full_attention"]
    with pytest.raises(ValueError, match="layer_types must be among"):
        CausalModel(model)


def test_an_attention_without_prepared_masks_is_refused() -> None:
    model = tiny_llama(VOCAB_SIZE)
    model.config._attn_implementation = "flash_attention_2"
    with pytest.raises(ValueError, match="attention implementation must be 'sdpa' or 'eager'"):
        CausalModel(model)


def test_visible_slots_are_those_of_the_window() -> None:
    positions = torch.tensor([[3, 4], [0, 1]])
    assert visible_slots(positions, 5).squeeze(1).tolist() == [
        [[True, True, True, True, False], [True] * 5],
        [[True, False, False, False, False], [True, True, False, False, False]],
    ]
    assert visible_slots(positions, 5, window=2)[0, 0].tolist() == [
        [False, False, True, True, False],
        [False, False, False, True, True],
    ]
    assert visible_slots(positions, 5, chunk=2)[0, 0].tolist() == [
        [False, False, True, True, False],
        [False, False, False, False, True],
    ]
