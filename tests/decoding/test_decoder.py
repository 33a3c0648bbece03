# SPDX-License-Identifier: Apache-2.0
"""The decoder over tiny transformers models with tokenizers of different makes."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from hetero_spec.decoding import ConfidenceLookahead, SpeculativeDecoder
from hetero_spec.decoding.drafter import TransformersDrafter
from hetero_spec.decoding.target import TransformersTarget
from hetero_spec.models import LoadedModel, TextTokenizer
from hetero_spec.vocab import (
    EmptyIntersectionError,
    VocabMap,
    VocabMismatchError,
    make_vocabulary,
    read_vocabulary,
)
from tests.decoding.toys import (
    TableTokenizer,
    foreign_copy,
    greedy_continuation,
    tiny_gemma3,
    tiny_llama,
    trained_pair,
)

LETTERS = [bytes([byte]) for byte in b" etaoinshrdlu.\n"]
# 0 to 2 are specials; then letters, words, and the bytes of an emoji.
EMOJI = "🦙".encode()
TARGET_TOKENS: list[bytes | None] = [
    None,
    None,
    None,
    *LETTERS,
    b" the",
    b" that",
    b" in",
    b" sat",
    b"nd",
    b" solid",
    b" line",
    b"an",
    *(EMOJI[i : i + 1] for i in range(4)),
]
TARGET_EOS, TARGET_BOS, TARGET_USER = 1, 0, 2
V = len(TARGET_TOKENS)
# The drafter: letters in another order, some words, a special of its own, and words that the target lacks. It has no
# single bytes of the emoji but the first.
DRAFT_TOKENS: list[bytes | None] = [
    b" in",
    *reversed(LETTERS),
    None,
    b" the",
    b" a",
    b"and",
    b" sat",
    None,
    None,
    EMOJI[:1],
    b" that",
    b"an",
]
DRAFT_BOS, DRAFT_EOS, DRAFT_UNK = 16, 22, 21


def make_map(target_vocab_size: int | None = None, draft_vocab_size: int | None = None) -> VocabMap:
    return VocabMap.from_bytes(
        TARGET_TOKENS,
        DRAFT_TOKENS,
        target_specials={"<user>": TARGET_USER},
        target_roles={"eos": TARGET_EOS, "bos": TARGET_BOS},
        draft_roles={"eos": DRAFT_EOS, "bos": DRAFT_BOS, "unk": DRAFT_UNK},
        target_vocab_size=target_vocab_size,
        draft_vocab_size=draft_vocab_size,
    )


VOCAB_MAP = make_map()
TARGET_TOKENIZER = TableTokenizer(TARGET_TOKENS, bos_token_id=TARGET_BOS, eos_token_ids=[TARGET_EOS])
DRAFT_TOKENIZER = TableTokenizer(DRAFT_TOKENS, bos_token_id=DRAFT_BOS, eos_token_ids=[DRAFT_EOS])
PROMPTS = ["the line", "that sat in the sand", "no tin", "an island is land and the sea is not"]
LONG_PROMPT = PROMPTS[3]


def tokenizer_without_eos() -> TableTokenizer:
    """Random models say EOS early; most tests want the whole length."""
    return TableTokenizer(TARGET_TOKENS, bos_token_id=TARGET_BOS)


@pytest.fixture(scope="module")
def llama() -> PreTrainedModel:
    """A model in which the last token counts most, so that a drafter which sees other tokens before it can agree."""
    model = tiny_llama(V, 1)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight *= 0.1
    return model


@pytest.fixture(scope="module")
def gemma3() -> PreTrainedModel:
    return tiny_gemma3(V, 1)


@pytest.fixture(scope="module")
def drafter_model(llama: PreTrainedModel) -> PreTrainedModel:
    return foreign_copy(llama, VOCAB_MAP.draft_to_target_ids.tolist(), noise=0.01)


def make_decoder(target: PreTrainedModel, drafter: PreTrainedModel, **arguments: object) -> SpeculativeDecoder:
    return SpeculativeDecoder(
        (target, tokenizer_without_eos()), (drafter, DRAFT_TOKENIZER), vocab_map=VOCAB_MAP, **arguments
    )


# -- greedy ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lookahead", [0, 1, 4, 7, ConfidenceLookahead(0.3, 6)])
def test_greedy_text_is_plain_greedy_text_with_a_foreign_drafter(
    llama: PreTrainedModel, drafter_model: PreTrainedModel, lookahead: int | ConfidenceLookahead
) -> None:
    decoder = make_decoder(llama, drafter_model, lookahead=lookahead)
    results = decoder.generate(PROMPTS, max_new_tokens=30, temperature=0)
    for prompt, result in zip(PROMPTS, results, strict=True):
        assert list(result.token_ids) == greedy_continuation(llama, decoder.target.encode(prompt), 30)
    if lookahead != 0:
        assert 0.1 < decoder.stats.acceptance_rate < 1.0


@pytest.mark.parametrize("batch_size", [1, 2, 3])
def test_greedy_text_does_not_depend_on_the_batch(
    llama: PreTrainedModel, drafter_model: PreTrainedModel, batch_size: int
) -> None:
    decoder = make_decoder(llama, drafter_model, lookahead=3)
    for first in range(0, len(PROMPTS), batch_size):
        prompts = PROMPTS[first : first + batch_size]
        for prompt, result in zip(prompts, decoder.generate(prompts, max_new_tokens=20, temperature=0), strict=True):
            assert list(result.token_ids) == greedy_continuation(llama, decoder.target.encode(prompt), 20)


def test_greedy_text_is_plain_greedy_text_over_a_sliding_window(
    gemma3: PreTrainedModel, llama: PreTrainedModel
) -> None:
    # The window is 8 positions; roll-backs cross it all the time.
    drafter = tiny_gemma3(len(DRAFT_TOKENS), 5)
    decoder = make_decoder(gemma3, drafter, lookahead=4)
    results = decoder.generate(PROMPTS, max_new_tokens=30, temperature=0)
    for prompt, result in zip(PROMPTS, results, strict=True):
        assert list(result.token_ids) == greedy_continuation(gemma3, decoder.target.encode(prompt), 30)


def test_the_target_as_its_own_drafter_is_always_accepted(llama: PreTrainedModel) -> None:
    vocab_map = VocabMap.from_bytes(
        TARGET_TOKENS,
        TARGET_TOKENS,
        target_specials={"<user>": 2},
        draft_specials={"<user>": 2},
        target_roles={"eos": 1, "bos": 0},
        draft_roles={"eos": 1, "bos": 0},
    )
    pair = (llama, tokenizer_without_eos())
    decoder = SpeculativeDecoder(pair, pair, vocab_map=vocab_map, lookahead=5)
    for temperature in (0.0, 1.0):
        decoder.generate(PROMPTS, max_new_tokens=24, temperature=temperature, seed=3)
        assert decoder.stats.acceptance_rate > 0.99
        assert decoder.stats.target_calls == 4


def test_sampled_text_does_not_depend_on_the_batch(llama: PreTrainedModel, drafter_model: PreTrainedModel) -> None:
    decoder = make_decoder(llama, drafter_model, lookahead=4)
    together = decoder.generate(PROMPTS, max_new_tokens=25, temperature=0.8, top_p=0.9, seed=12)
    for prompt, result in zip(PROMPTS, together, strict=True):
        assert decoder.generate(prompt, max_new_tokens=25, temperature=0.8, top_p=0.9, seed=12) == result
    assert decoder.generate(PROMPTS, max_new_tokens=25, temperature=0.8, top_p=0.9, seed=13) != together


def test_finished_requests_leave_the_batch_of_a_real_cache(
    llama: PreTrainedModel, drafter_model: PreTrainedModel
) -> None:
    # Every prompt meets its stop string at another time.
    decoder = make_decoder(llama, drafter_model, lookahead=3)
    plain = SpeculativeDecoder((llama, tokenizer_without_eos()), method="none", vocab_map=VOCAB_MAP)
    results = decoder.generate(PROMPTS, max_new_tokens=40, temperature=0, stop=["e", "an"])
    assert len({len(result.token_ids) for result in results}) > 1
    for prompt, result in zip(PROMPTS, results, strict=True):
        alone = plain.generate(prompt, max_new_tokens=40, temperature=0, stop=["e", "an"])
        assert (result.text, result.token_ids, result.finish_reason) == (
            alone.text,
            alone.token_ids,
            alone.finish_reason,
        )


def test_end_of_text_ends_a_request(llama: PreTrainedModel, drafter_model: PreTrainedModel) -> None:
    pair = (llama, TARGET_TOKENIZER), (drafter_model, DRAFT_TOKENIZER)
    decoder = SpeculativeDecoder(*pair, vocab_map=VOCAB_MAP, lookahead=4)
    results = [decoder.generate("the line", max_new_tokens=60, temperature=2.0, seed=seed) for seed in range(10)]
    ended = [result for result in results if result.finish_reason == "eos"]
    assert ended
    for result in ended:
        assert result.token_ids.index(TARGET_EOS) == len(result.token_ids) - 1


def test_streamed_text_is_the_generated_text(llama: PreTrainedModel, drafter_model: PreTrainedModel) -> None:
    decoder = make_decoder(llama, drafter_model, lookahead=3)
    for seed in range(6):
        whole = decoder.generate("the", max_new_tokens=30, temperature=3.0, seed=seed)
        pieces = list(decoder.stream("the", max_new_tokens=30, temperature=3.0, seed=seed))
        assert "".join(pieces) == whole.text
        assert all(pieces)
        data = b"".join(TARGET_TOKENS[token_id] or b"\xff" for token_id in whole.token_ids if token_id > 2)
        if all(token_id > 2 for token_id in whole.token_ids):
            assert whole.text == data.decode("utf-8", errors="replace")


# -- the drafter's context ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def context_drafter(drafter_model: PreTrainedModel) -> TransformersDrafter:
    return TransformersDrafter(drafter_model, DRAFT_TOKENIZER, VOCAB_MAP)


def texts_of(draft_ids: Sequence[int]) -> list[bytes | None]:
    return [DRAFT_TOKENS[draft_id] for draft_id in draft_ids]


def test_the_prompt_is_given_in_the_drafters_own_segmentation(context_drafter: TransformersDrafter) -> None:
    # The target writes " the" + "nd" where the drafter's tokenizer has " the" and the letters of its own.
    context = context_drafter.encode_context(TARGET_TOKENIZER.encode(" sand the"))
    assert texts_of(context) == [None, b" ", b"s", b"and", b" the"]
    assert context[0] == DRAFT_BOS


@pytest.mark.parametrize("num_bos", [0, 1, 2])
def test_the_drafters_bos_stands_in_front_exactly_once(context_drafter: TransformersDrafter, num_bos: int) -> None:
    # cases.md 53: a BOS was inserted at each re-tokenisation.
    ids = [TARGET_BOS] * num_bos + TARGET_TOKENIZER.encode(" the", add_special_tokens=False)
    assert context_drafter.encode_context(ids).count(DRAFT_BOS) == 1
    assert context_drafter.encode_context(ids)[0] == DRAFT_BOS


def test_a_drafter_that_adds_no_bos_gets_none(drafter_model: PreTrainedModel) -> None:
    silent = TableTokenizer(DRAFT_TOKENS)
    silent.encode = lambda text, add_special_tokens=True: TableTokenizer.encode(silent, text, False)  # type: ignore[method-assign]
    drafter = TransformersDrafter(drafter_model, silent, VOCAB_MAP)
    assert DRAFT_BOS not in drafter.encode_context(TARGET_TOKENIZER.encode("the", add_special_tokens=False))


def test_two_rounds_leave_one_bos_in_the_drafters_cache(llama: PreTrainedModel, drafter_model: PreTrainedModel) -> None:
    # cases.md 53, with 14 target and more drafter tokens in the prompt.
    decoder = make_decoder(llama, drafter_model, lookahead=2)
    fed: list[int] = []
    feed = type(decoder.drafter.open(1, 8)).feed  # type: ignore[union-attr]

    def recording(self, requests, token_ids, num_rows):  # type: ignore[no-untyped-def]
        if self._causal_model is decoder.drafter:
            fed.extend(token_ids[0])
        return feed(self, requests, token_ids, num_rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hetero_spec.decoding.causal_model.CachedSequences.feed", recording)
        decoder.generate(LONG_PROMPT, max_new_tokens=9, temperature=0)
    assert decoder.stats.target_calls >= 2
    # The greedy draft never contains BOS here, so every BOS that was fed is the context's.
    assert fed.count(DRAFT_BOS) == 1


def test_specials_are_mapped_or_left_out(context_drafter: TransformersDrafter) -> None:
    # cases.md 54: specials by role; <user> has no counterpart.
    ids = [TARGET_USER, *TARGET_TOKENIZER.encode(" the", False), TARGET_EOS, *TARGET_TOKENIZER.encode(" in", False)]
    context = context_drafter.encode_context(ids)
    assert context == [DRAFT_BOS, DRAFT_TOKENS.index(b" the"), DRAFT_EOS, DRAFT_TOKENS.index(b" in")]
    assert context_drafter.encode_token(TARGET_USER) == ()


def test_a_token_outside_the_intersection_is_spelt_never_unknown(context_drafter: TransformersDrafter) -> None:
    # cases.md 42.
    solid = context_drafter.encode_token(TARGET_TOKENS.index(b" solid"))
    assert b"".join(token or b"?" for token in texts_of(solid)) == b" solid"
    for target_id, token in enumerate(TARGET_TOKENS):
        pieces = context_drafter.encode_token(target_id)
        assert DRAFT_UNK not in pieces
        assert (DRAFT_EOS in pieces) == (target_id == TARGET_EOS)
        if token is not None and pieces:
            assert b"".join(piece or b"?" for piece in texts_of(pieces)) == token


def test_a_byte_the_drafter_lacks_is_left_out(context_drafter: TransformersDrafter) -> None:
    first, second = TARGET_TOKENS.index(EMOJI[:1]), TARGET_TOKENS.index(EMOJI[1:2])
    assert texts_of(context_drafter.encode_token(first)) == [EMOJI[:1]]
    assert context_drafter.encode_token(second) == ()


def test_a_prompt_that_is_not_utf8_is_spelt_token_by_token(context_drafter: TransformersDrafter) -> None:
    ids = [*TARGET_TOKENIZER.encode(" solid", False), TARGET_TOKENS.index(EMOJI[:1])]
    context = texts_of(context_drafter.encode_context(ids))
    assert b"".join(token or b"" for token in context) == b" solid" + EMOJI[:1]


# -- widths, coercions, errors -----------------------------------------------------------------------------------------


def test_columns_beyond_the_tokenizer_are_never_emitted() -> None:
    # cases.md 38: heads padded to different widths; the padding has the largest logits here.
    target, drafter = tiny_llama(V + 5, 1), tiny_llama(len(DRAFT_TOKENS) + 3, 2)
    for model, size in ((target, V), (drafter, len(DRAFT_TOKENS))):
        with torch.no_grad():
            model.lm_head.weight[size:] = 50 * model.lm_head.weight[:1]
    for vocab_map in (make_map(V + 5, len(DRAFT_TOKENS) + 3), make_map(None, len(DRAFT_TOKENS) + 3)):
        decoder = SpeculativeDecoder(
            (target, tokenizer_without_eos()), (drafter, DRAFT_TOKENIZER), vocab_map=vocab_map, lookahead=2
        )
        assert decoder.target.vocab_size == V
        results = decoder.generate([[5]] * 40, max_new_tokens=10, seed=list(range(40)))
        assert all(0 <= token_id < V for result in results for token_id in result.token_ids)
        assert decoder.stats.accepted > 0


@pytest.mark.parametrize("kind", ["loaded", "tuple", "transformers"])
def test_models_and_tokenizers_are_taken_as_they_come(kind: str) -> None:
    target_backend, drafter_backend = trained_pair()
    target = tiny_llama(target_backend.get_vocab_size() + 6, 3)
    drafter = tiny_gemma3(drafter_backend.get_vocab_size(), 4)
    eos, drafter_eos = target_backend.token_to_id("<eos>"), drafter_backend.token_to_id("</s>")
    if kind == "transformers":
        parts = [
            (target, PreTrainedTokenizerFast(tokenizer_object=target_backend, eos_token="<eos>")),
            (drafter, PreTrainedTokenizerFast(tokenizer_object=drafter_backend, eos_token="</s>", unk_token="<unk>")),
        ]
    else:
        parts = [
            (target, TextTokenizer(target_backend, eos_token_ids=[eos])),
            (drafter, TextTokenizer(drafter_backend, eos_token_ids=[drafter_eos])),
        ]
    given = (
        [LoadedModel(*part, "tiny", "Apache-2.0", part[0].config.vocab_size) for part in parts]
        if kind == "loaded"
        else parts
    )
    decoder = SpeculativeDecoder(*given, lookahead=3)
    assert isinstance(decoder.target, TransformersTarget)
    assert decoder.target.vocab_size == target_backend.get_vocab_size()
    assert list(decoder.target.eos_token_ids) == [eos]
    prompt = "the man and the dog"
    result = decoder.generate(prompt, max_new_tokens=12, temperature=0)
    expected = []
    for token_id in greedy_with_width(target, target_backend.encode(prompt).ids, 12, decoder.target.vocab_size):
        expected.append(token_id)
        if token_id == eos:
            break
    assert list(result.token_ids) == expected
    assert decoder.stats.proposed > 0
    # The drafter reads the prompt as its own tokenizer writes it.
    assert decoder.drafter is not None
    assert decoder.drafter.encode_context(target_backend.encode(prompt).ids) == drafter_backend.encode(prompt).ids


@torch.no_grad()
def greedy_with_width(model: PreTrainedModel, prompt: Sequence[int], num_tokens: int, width: int) -> list[int]:
    ids = list(prompt)
    for _ in range(num_tokens):
        ids.append(int(model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1, :width].argmax()))
    return ids[len(prompt) :]


def test_vocabularies_that_share_nothing_are_refused() -> None:
    with pytest.raises(EmptyIntersectionError):
        VocabMap.from_bytes([b"a"], [b"b"])


def test_a_map_that_is_too_small_is_refused(llama: PreTrainedModel, drafter_model: PreTrainedModel) -> None:
    small = VocabMap.from_bytes(TARGET_TOKENS[:10], DRAFT_TOKENS)
    target = TransformersTarget(llama, TARGET_TOKENIZER, TARGET_TOKENS)
    with pytest.raises(ValueError, match=f"vocab_map must cover the target's {V} ids, got 10"):
        SpeculativeDecoder(target, (drafter_model, DRAFT_TOKENIZER), vocab_map=small)


def test_a_bare_target_needs_a_map(llama: PreTrainedModel, drafter_model: PreTrainedModel) -> None:
    target = TransformersTarget(llama, TARGET_TOKENIZER, TARGET_TOKENS)
    with pytest.raises(ValueError, match="vocab_map must be given"):
        SpeculativeDecoder(target, (drafter_model, DRAFT_TOKENIZER))


def test_the_models_are_left_as_they_were(llama: PreTrainedModel, drafter_model: PreTrainedModel) -> None:
    before = {name: value.clone() for name, value in llama.state_dict().items()}
    implementation = llama.config._attn_implementation
    make_decoder(llama, drafter_model).generate(PROMPTS, max_new_tokens=5, seed=1)
    assert all(torch.equal(before[name], value) for name, value in llama.state_dict().items())
    assert llama.config._attn_implementation == implementation


# -- what is given -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["target", "drafter"])
@pytest.mark.parametrize("is_bare", [False, True])
def test_a_map_made_for_another_tokenizer_is_refused(side: str, is_bare: bool) -> None:
    backends = trained_pair()
    target, drafter = (
        (tiny_llama(backend.get_vocab_size(), 3), TextTokenizer(backend, eos_token_ids=[])) for backend in backends
    )
    vocabularies = [read_vocabulary(tokenizer) for _, tokenizer in (target, drafter)]
    given = TransformersTarget(*target) if is_bare else target
    SpeculativeDecoder(given, drafter, vocab_map=VocabMap(*vocabularies))
    index = ("target", "drafter").index(side)
    tokens = list(vocabularies[index].tokens)
    tokens[-1], tokens[-2] = tokens[-2], tokens[-1]
    vocabularies[index] = make_vocabulary(tokens, kind="bytes", specials=vocabularies[index].specials)
    with pytest.raises(VocabMismatchError, match=f"must be made for the {side}'s tokenizer"):
        SpeculativeDecoder(given, drafter, vocab_map=VocabMap(*vocabularies))


@pytest.mark.parametrize("as_prompt", [np.array, torch.tensor, tuple, lambda ids: list(np.array(ids))])
def test_token_ids_are_taken_as_they_come(
    llama: PreTrainedModel, drafter_model: PreTrainedModel, as_prompt: Callable[[list[int]], Any]
) -> None:
    decoder = make_decoder(llama, drafter_model, lookahead=np.int64(2))
    expected = decoder.generate([5, 6, 7], max_new_tokens=5, temperature=0)
    assert decoder.generate(as_prompt([5, 6, 7]), max_new_tokens=np.int64(5), temperature=0, seed=np.int64(1)) == (
        dataclasses.replace(expected, stats=decoder.stats.requests[0])
    )
    (result,) = decoder.generate([as_prompt([5, 6, 7])], max_new_tokens=5, temperature=0)
    assert result.token_ids == expected.token_ids


@pytest.mark.parametrize(
    ("prompt", "arguments", "message"),
    [
        (b"the", {}, "prompt must be text, token ids or a sequence of them, got bytes"),
        ([b"the"], {}, "prompt must be text or token ids, got bytes"),
        ([True, False], {}, "prompt must be text or token ids, got a bool"),
        ([1.5, 2.0], {}, "prompt must be text or token ids, got float"),
        (torch.tensor(3), {}, "prompt must be text, token ids or a sequence of them, got int"),
        ("the", {"seed": 1.5}, "seed must be a whole number, got 1.5"),
        ("the", {"seed": [True]}, "seed must be a whole number, got True"),
        ("the", {"max_new_tokens": 2.5}, "max_new_tokens must be a whole number, got 2.5"),
        ("the", {"stop": None}, "stop must be a string or a sequence of strings, got None"),
        ("the", {"stop": [b"x"]}, "stop must be a string or a sequence of strings"),
    ],
)
def test_what_is_of_another_type_is_refused_before_any_work(
    llama: PreTrainedModel, drafter_model: PreTrainedModel, prompt: Any, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        make_decoder(llama, drafter_model).stream(prompt, **arguments)
