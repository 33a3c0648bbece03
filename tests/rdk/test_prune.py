# SPDX-License-Identifier: Apache-2.0
import string

import pytest
import torch
from torch import nn
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM, PhiConfig, PhiForCausalLM

from hetero_spec.decoding import ConfidenceLookahead, Drafter, SpeculativeDecoder
from hetero_spec.decoding.pruned import PrunedDrafter
from hetero_spec.decoding.target import TransformersTarget
from hetero_spec.models import LoadedModel
from hetero_spec.models.packed_linear import PackedLinear, can_pack, pack_linears
from hetero_spec.rdk import frequent_tokens, load_kernel, load_pruned, prune_vocabulary, token_counts, variant_tokens
from hetero_spec.vocab import VocabMap, VocabMismatchError, make_vocabulary
from tests.decoding.toys import TableTokenizer, foreign_copy, full_logits, greedy_continuation, tiny_llama

SIZES = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
}
KEEP = [30, 1, 2, 3, 5, 8, 13, 21, 34, 39, 0]
PROMPT = [4, 30, 17, 2, 33, 9]  # kept and pruned tokens
# Logits of fewer columns are summed in another order.
ROUNDING = {"rtol": 1e-4, "atol": 1e-4}


def smollm_like(seed: int = 0) -> LlamaForCausalLM:
    """Tied embeddings, as SmolLM2 has."""
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(**SIZES, num_key_value_heads=2, initializer_range=0.3, tie_word_embeddings=True)
    ).eval()


def gemma_like() -> Gemma3ForCausalLM:
    """Tied embeddings and capped logits."""
    torch.manual_seed(1)
    config = Gemma3TextConfig(
        **SIZES, num_key_value_heads=1, head_dim=16, initializer_range=0.3, final_logit_softcapping=2.0
    )
    return Gemma3ForCausalLM(config).eval()


def phi_like() -> PhiForCausalLM:
    """An output layer of its own, with a bias."""
    torch.manual_seed(2)
    model = PhiForCausalLM(PhiConfig(**SIZES, initializer_range=0.3)).eval()
    nn.init.normal_(model.lm_head.bias)
    return model


MODELS = {"tied": smollm_like, "capped": gemma_like, "bias": phi_like, "untied": lambda: tiny_llama(40)}


# -- the model ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_the_kept_columns(name):
    model = MODELS[name]()
    before = full_logits(model, PROMPT)
    pruned = prune_vocabulary(model, KEEP)
    assert pruned.kept_ids.tolist() == sorted(KEEP) and pruned.vocab_size == 40
    logits = full_logits(pruned.model, PROMPT)
    torch.testing.assert_close(logits, before[:, pruned.kept_ids], **ROUNDING)
    if name == "capped":
        assert float(before.abs().max()) <= 2.0
        assert float(gemma_like_uncapped().abs().max()) > 2.0, "the cap must have something to do"


def gemma_like_uncapped():
    model = gemma_like()
    model.config.final_logit_softcapping = None
    return full_logits(model, PROMPT)


@pytest.mark.parametrize("name", MODELS)
def test_the_unpruned_model_stays_as_it_was_and_shares_its_weights(name):
    model = MODELS[name]()
    head, tied = model.get_output_embeddings(), model.config.tie_word_embeddings
    before = full_logits(model, PROMPT)
    pruned = prune_vocabulary(model, KEEP).model
    assert model.get_output_embeddings() is head and model.config.tie_word_embeddings == tied
    assert full_logits(model, PROMPT).equal(before)
    own, shared = pruned.get_input_embeddings().weight, model.get_input_embeddings().weight
    assert own.data_ptr() == shared.data_ptr() and own.shape[0] == 40
    weight = pruned.get_output_embeddings().weight
    assert tuple(weight.shape) == (len(KEEP), 32)
    with torch.no_grad():
        weight.zero_()
    assert full_logits(model, PROMPT).equal(before), "the new output layer is a copy"
    assert not pruned.config.tie_word_embeddings and not pruned.training


@pytest.mark.skipif(not can_pack(), reason="this torch or processor has no packed layers")
def test_packed_models():
    tied = smollm_like()
    expected = full_logits(tied, PROMPT)[:, sorted(KEEP)]
    pack_linears(tied)
    pruned = prune_vocabulary(tied, KEEP).model
    assert isinstance(pruned.get_output_embeddings(), PackedLinear)
    torch.testing.assert_close(full_logits(pruned, PROMPT), expected, **ROUNDING)
    untied = tiny_llama(40)
    pack_linears(untied)
    with pytest.raises(ValueError, match="model must be unpacked, or of tied embeddings, got a packed output layer"):
        prune_vocabulary(untied, KEEP)


def test_loaded_model_brings_its_tokenizer():
    tokenizer = TableTokenizer([b"a"])
    loaded = LoadedModel(smollm_like(), tokenizer, "tiny", "none", 40)
    pruned = prune_vocabulary(loaded, torch.tensor(KEEP, dtype=torch.int32))
    assert pruned.tokenizer is tokenizer and pruned.kept_ids.tolist() == sorted(KEEP)


@pytest.mark.parametrize(
    ("keep", "error", "message"),
    [
        ([], ValueError, r"keep must be one id or more, of shape \[K\]"),
        ([[1]], ValueError, r"keep must be one id or more, of shape \[K\]"),
        ([1, 40], ValueError, r"keep must be in \[0, 40\), got 1..40"),
        ([-1], ValueError, r"keep must be in \[0, 40\), got -1..-1"),
        ([3, 1, 3], ValueError, "keep must be ids that are all different, got 3 twice"),
        ([0.5], TypeError, "keep must be whole numbers"),
        (torch.ones(40, dtype=torch.bool), TypeError, "keep must be whole numbers, got torch.bool"),
    ],
)
def test_what_cannot_be_kept(keep, error, message):
    with pytest.raises(error, match=f"prune_vocabulary: {message}"):
        prune_vocabulary(smollm_like(), keep)


def test_what_has_no_output_layer():
    with pytest.raises(TypeError, match="a causal language model with a linear output layer, got Linear"):
        prune_vocabulary(nn.Linear(2, 2), [0])


# -- the file ----------------------------------------------------------------------------------------------------------


def small_vocabulary(size):
    return make_vocabulary(TOKENS[:size], kind="test")


def test_saved_choice_of_tokens(tmp_path):
    model = smollm_like()
    pruned = prune_vocabulary(model, KEEP, tokenizer=small_vocabulary(40))
    pruned.save(tmp_path / "kept")
    again = load_pruned(tmp_path / "kept", model, tokenizer=small_vocabulary(40))
    assert again.kept_ids.equal(pruned.kept_ids) and again.vocab_size == 40
    assert full_logits(again.model, PROMPT).equal(full_logits(pruned.model, PROMPT))
    assert load_pruned(tmp_path / "kept", model).kept_ids.equal(pruned.kept_ids)
    with pytest.raises(VocabMismatchError, match="tokenizer must be the one that tokens were chosen with"):
        load_pruned(tmp_path / "kept", model, tokenizer=small_vocabulary(39))
    with pytest.raises(ValueError, match="model must be 40 ids wide, got 41"):
        load_pruned(tmp_path / "kept", tiny_llama(41))
    (tmp_path / "cut").write_bytes((tmp_path / "kept").read_bytes()[:-9])
    with pytest.raises(ValueError, match="must be a complete list of kept tokens"):
        load_pruned(tmp_path / "cut", model)
    with pytest.raises(
        ValueError, match="must be of format 'hetero_spec rdk kernel 1', got 'hetero_spec kept tokens 1'"
    ):
        load_kernel(tmp_path / "kept")


# -- maps --------------------------------------------------------------------------------------------------------------


def test_maps_by_hand():
    pruned = prune_vocabulary(smollm_like(), [1, 3, 39])
    to_target, to_draft = pruned.maps()
    assert to_target.tolist() == [1, 3, 39] and to_target.dtype == to_draft.dtype == torch.int32
    assert {t: d for t, d in enumerate(to_draft.tolist()) if d >= 0} == {1: 0, 3: 1, 39: 2}
    assert pruned.column_of_token.tolist() == to_draft.tolist()
    to_target, to_draft = pruned.maps(target_vocab_size=20)
    assert to_target.tolist() == [1, 3, -1] and len(to_draft) == 20
    foreign = VocabMap.from_bytes([b"x", b"d", b"b"], [b"a", b"b", b"c", b"d"])
    to_target, to_draft = pruned.maps(foreign)
    assert to_target.tolist() == [2, 1, -1] and to_draft.tolist() == [-1, 1, 0]
    with pytest.raises(ValueError, match="kept_ids must be shared with the target in one place or more"):
        prune_vocabulary(smollm_like(), [0, 2]).maps(foreign)
    with pytest.raises(ValueError, match="vocab_map must be of a drafter of up to 40 ids, got 41"):
        pruned.maps(VocabMap.from_bytes([b"a"], [b"a"], draft_vocab_size=41))


# -- what to keep ------------------------------------------------------------------------------------------------------

LETTERS = TableTokenizer([b"a", b"b", b"c", b"d", None], eos_token_ids=[4])


def test_frequent_tokens():
    assert token_counts(LETTERS, ["abba", "ca"], 6).tolist() == [3, 2, 1, 0, 0, 0]
    assert frequent_tokens(LETTERS, ["abba", "ca"], 3, vocab_size=6).tolist() == [0, 1, 4], "the end token comes first"
    assert frequent_tokens(LETTERS, ["dd"], 3, vocab_size=6).tolist() == [0, 3, 4], (
        "unseen ones fill up from the lowest"
    )
    with pytest.raises(ValueError, match=r"frequent_tokens: count must be in \[1, 6\], got 7"):
        frequent_tokens(LETTERS, ["a"], 7, vocab_size=6)
    with pytest.raises(TypeError, match="texts must be a sequence of texts, got one text"):
        token_counts(LETTERS, "abba", 6)
    with pytest.raises(ValueError, match=r"the tokenizer's ids must be in \[0, 2\)"):
        token_counts(LETTERS, ["abc"], 2)


def test_variant_tokens():
    variance = torch.tensor([0.1, 0.3, 0.0, 0.3, 0.2])
    assert variant_tokens(variance, 2).tolist() == [1, 3]
    assert variant_tokens(torch.zeros(4), 2).tolist() == [0, 1]
    with pytest.raises(ValueError, match="variance must be 0 or more everywhere, got -1 at id 1"):
        variant_tokens(torch.tensor([0.0, -1.0]), 1)
    with pytest.raises(ValueError, match="variance must be finite everywhere, got nan at id 0"):
        variant_tokens(torch.tensor([torch.nan, 1.0]), 1)
    with pytest.raises(ValueError, match=r"count must be in \[1, 2\], got 0"):
        variant_tokens(torch.ones(2), 0)


# -- the drafter -------------------------------------------------------------------------------------------------------


def test_context_holds_pruned_tokens():
    model = smollm_like()
    drafter = prune_vocabulary(model, KEEP).drafter()
    assert isinstance(drafter, Drafter) and drafter.vocab_size == len(KEEP)
    context = drafter.encode_context(PROMPT)
    sequences = drafter.open(1, 16)
    rows = sequences.feed([0], [context], [2])
    expected = full_logits(model, PROMPT)[-2:, sorted(KEEP)]
    torch.testing.assert_close(rows, expected, **ROUNDING)
    sequences.truncate(0, len(PROMPT) - 1)
    columns = sorted(KEEP)
    rows = sequences.feed([0], [[columns.index(13), *drafter.encode_token(6)]], [1])  # a drafted id, then a pruned one
    torch.testing.assert_close(rows, full_logits(model, [*PROMPT[:-1], 13, 6])[-1:, columns], **ROUNDING)
    for bad in ([-1], [len(KEEP) + 40]):
        with pytest.raises(ValueError, match=r"feed: token_ids must be in \[0, 51\)"):
            sequences.feed([0], [bad], [1])


TOKENS: list[bytes | None] = [None, *(letter.encode() for letter in string.ascii_letters[:39])]
TOKENIZER = TableTokenizer(TOKENS)
PROMPTS = ["afkuz", "Fp", "qrstuvwa"]


def target_of(model):
    return TransformersTarget(model, TOKENIZER, TOKENS)


@pytest.mark.parametrize("lookahead", [1, 4, ConfidenceLookahead(0.3, 6)])
def test_greedy_text_is_plain_with_the_target_pruned_as_its_own_drafter(lookahead):
    model = smollm_like(3)
    keep = [i for i in range(40) if i % 3]
    drafter = prune_vocabulary(model, keep).drafter()
    decoder = SpeculativeDecoder(target_of(model), drafter, lookahead=lookahead)
    for prompt, result in zip(PROMPTS, decoder.generate(PROMPTS, max_new_tokens=30, temperature=0), strict=True):
        plain = greedy_continuation(model, TOKENIZER.encode(prompt), 30)
        assert list(result.token_ids) == plain
    assert 0.1 < decoder.stats.acceptance_rate < 1.0


def test_every_draft_is_accepted_when_nothing_is_pruned():
    model = smollm_like(3)
    decoder = SpeculativeDecoder(target_of(model), prune_vocabulary(model, range(40)).drafter(), lookahead=3)
    decoder.generate(PROMPTS, max_new_tokens=24, temperature=0)
    assert decoder.stats.acceptance_rate == 1.0


def test_greedy_text_is_plain_with_a_pruned_foreign_drafter():
    target = smollm_like(3)
    draft_tokens = [b"ab", *reversed(TOKENS[1:]), None]
    vocab_map = VocabMap.from_bytes(TOKENS, draft_tokens)
    model = foreign_copy(tiny_like(target), vocab_map.draft_to_target_ids.tolist(), noise=0.02)
    keep = [i for i in range(len(draft_tokens)) if i % 4]
    pruned = prune_vocabulary(model, keep)
    drafter = pruned.drafter(vocab_map, tokenizer=TableTokenizer(draft_tokens))
    decoder = SpeculativeDecoder(target_of(target), drafter, lookahead=4)
    prompts = ["bakuz", "Fb", "qrabtuva"]
    for prompt, result in zip(prompts, decoder.generate(prompts, max_new_tokens=30, temperature=0), strict=True):
        assert list(result.token_ids) == greedy_continuation(target, TOKENIZER.encode(prompt), 30)
    assert 0.1 < decoder.stats.acceptance_rate < 1.0


def tiny_like(model: LlamaForCausalLM) -> LlamaForCausalLM:
    """The same weights, untied, so that `foreign_copy` finds both matrices."""
    untied = tiny_llama(40)
    untied.load_state_dict({**model.state_dict(), "lm_head.weight": model.get_input_embeddings().weight})
    return untied


def test_foreign_drafter_needs_its_tokenizer():
    vocab_map = VocabMap.from_bytes(TOKENS, TOKENS)
    pruned = prune_vocabulary(smollm_like(), KEEP)
    with pytest.raises(ValueError, match="tokenizer must be given with a vocab_map, got None"):
        PrunedDrafter(pruned, vocab_map)
    drafter = pruned.drafter(vocab_map, tokenizer=TOKENIZER)
    assert drafter.target_sha256 == vocab_map.target.sha256 and drafter.drafter_sha256 == vocab_map.drafter.sha256


def test_begin_token_of_the_drafter():
    model = smollm_like()
    tokenizer = TableTokenizer(TOKENS, bos_token_id=0)
    assert prune_vocabulary(model, KEEP, tokenizer=tokenizer).drafter().num_prefix_tokens == 1
    assert prune_vocabulary(model, KEEP, tokenizer=TOKENIZER).drafter().num_prefix_tokens == 0
