# SPDX-License-Identifier: Apache-2.0
"""Tiny models, tokenizers and engines for the tests of decoding."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from hetero_spec.vocab import VocabMap

# Wide enough that logits differ by much more than float rounding.
_INITIALIZER_RANGE = 0.3


def tiny_llama(vocab_size: int, seed: int = 0) -> PreTrainedModel:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        initializer_range=_INITIALIZER_RANGE,
        tie_word_embeddings=False,
    )
    return LlamaForCausalLM(config).eval()


def tiny_gemma3(vocab_size: int, seed: int = 0, attention: str = "sdpa") -> PreTrainedModel:
    """Two layers, the first with a sliding window of 8 positions."""
    torch.manual_seed(seed)
    config = Gemma3TextConfig(
        vocab_size=vocab_size,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=256,
        sliding_window=8,
        layer_types=["sliding_attention", "full_attention"],
        initializer_range=_INITIALIZER_RANGE,
        attn_implementation=attention,
    )
    return Gemma3ForCausalLM(config).eval()


def foreign_copy(
    model: PreTrainedModel, token_ids: Sequence[int], noise: float = 0.0, seed: int = 7
) -> PreTrainedModel:
    """A Llama with the same body whose id i is the model's token_ids[i] (-1: a token of its own), weights shaken a bit.

    A drafter in another vocabulary that often agrees with the target, and sometimes does not.
    """
    torch.manual_seed(seed)
    drafter = tiny_llama(len(token_ids), seed)
    state = copy.deepcopy(model.state_dict())
    own = drafter.state_dict()
    rows = torch.tensor(token_ids)
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        state[name] = torch.where(rows[:, None] >= 0, state[name][rows.clamp(min=0)], own[name])
    drafter.load_state_dict({name: value + noise * torch.randn_like(value) for name, value in state.items()})
    return drafter.eval()


class TableTokenizer:
    """Greedy longest match over a list of byte strings, None for specials; BOS in front if there is one."""

    def __init__(
        self, tokens: Sequence[bytes | None], *, bos_token_id: int | None = None, eos_token_ids: Sequence[int] = ()
    ) -> None:
        self.tokens = list(tokens)
        self.bos_token_id = bos_token_id
        self.eos_token_ids = tuple(eos_token_ids)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        data, ids = text.encode(), [] if self.bos_token_id is None or not add_special_tokens else [self.bos_token_id]
        while data:
            best = max(
                (i for i, token in enumerate(self.tokens) if token and data.startswith(token)),
                key=lambda i: len(self.tokens[i] or b""),
            )
            ids.append(best)
            data = data[len(self.tokens[best] or b"") :]
        return ids


TRAINING_TEXT = ["the cat sat on the mat and the dog sat on the log", "a man and a can in a pan", "one tin lid"] * 4


def trained_pair() -> tuple[Tokenizer, Tokenizer]:
    """A byte-level BPE target and a SentencePiece-like drafter with byte fallback."""
    target = Tokenizer(models.BPE())
    target.pre_tokenizer, target.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    target.train_from_iterator(
        TRAINING_TEXT,
        trainers.BpeTrainer(vocab_size=290, special_tokens=["<eos>"], initial_alphabet=alphabet, show_progress=False),
    )
    drafter = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    drafter.pre_tokenizer = pre_tokenizers.Metaspace()
    drafter.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    specials = ["<unk>", "<s>", "</s>"]
    pieces = [f"<0x{byte:02X}>" for byte in range(256)]
    drafter.train_from_iterator(
        TRAINING_TEXT, trainers.BpeTrainer(vocab_size=320, special_tokens=specials + pieces, show_progress=False)
    )
    return target, drafter


# Law of the token after a context.
Law = Callable[[tuple[int, ...]], np.ndarray]


class LawSequences:
    """Sequences whose rows are a law of the tokens so far; remembers what it was fed."""

    def __init__(self, law: Law, num_requests: int) -> None:
        self.law = law
        self.tokens: dict[int, list[int]] = {request: [] for request in range(num_requests)}
        self.calls: list[list[int]] = []

    def feed(self, requests: Sequence[int], token_ids: Sequence[Sequence[int]], num_rows: Sequence[int]) -> Tensor:
        self.calls.append(list(requests))
        rows = []
        for request, ids, kept in zip(requests, token_ids, num_rows, strict=True):
            assert len(ids) >= kept >= 1
            assert all(token_id >= 0 for token_id in ids)
            self.tokens[request] += ids
            context = tuple(self.tokens[request])
            rows += [self.law(context[: len(context) - j]) for j in range(kept - 1, -1, -1)]
        with np.errstate(divide="ignore"):
            return torch.tensor(np.log(np.array(rows))).float()

    def truncate(self, request: int, length: int) -> None:
        assert 0 <= length <= len(self.tokens[request])
        del self.tokens[request][length:]

    def drop(self, request: int) -> None:
        del self.tokens[request]


class LawTarget:
    """A target that is a law; tokens are single characters."""

    def __init__(self, law: Law, characters: str, eos_token_ids: Sequence[int] = ()) -> None:
        self.law = law
        self.characters = characters
        self.vocab_size = len(characters)
        self.eos_token_ids = frozenset(eos_token_ids)
        self.token_bytes: list[bytes | None] = [
            None if i in self.eos_token_ids else character.encode() for i, character in enumerate(characters)
        ]
        self.max_length: int | None = None
        self.opened: list[LawSequences] = []

    def encode(self, text: str) -> list[int]:
        return [self.characters.index(character) for character in text]

    def open(self, num_requests: int, max_length: int) -> LawSequences:
        self.opened.append(LawSequences(self.law, num_requests))
        return self.opened[-1]


class LawDrafter:
    """A drafter that is a law over drafter ids, with a map given by bytes."""

    def __init__(self, law: Law, vocab_map: VocabMap, max_length: int | None = None) -> None:
        self.law = law
        self.vocab_map = vocab_map
        self.vocab_size = vocab_map.draft_vocab_size
        self.draft_to_target_ids = vocab_map.draft_to_target_ids
        self.target_to_draft_ids = vocab_map.target_to_draft_ids
        self.max_length = max_length
        self.num_prefix_tokens = 0
        self.opened: list[LawSequences] = []

    def encode_context(self, target_token_ids: Sequence[int]) -> list[int]:
        return [piece for token_id in target_token_ids for piece in self.encode_token(token_id)]

    def encode_token(self, target_token_id: int) -> Sequence[int]:
        return self.vocab_map.spell_with_drafter(target_token_id) or ()

    def open(self, num_requests: int, max_length: int) -> LawSequences:
        self.opened.append(LawSequences(self.law, num_requests))
        return self.opened[-1]


def law_of_context(vocab_size: int, seed: int, order: int = 2) -> Law:
    """Another random law after every `order` last tokens."""

    @cache
    def law_after(end: tuple[int, ...]) -> np.ndarray:
        gen = np.random.default_rng([seed, *(1 + token_id for token_id in end)])
        weights = gen.gamma(0.7, size=vocab_size) + 1e-3
        return np.asarray(weights / weights.sum())

    return lambda context: law_after(context[-order:])


@torch.no_grad()
def greedy_continuation(model: PreTrainedModel, prompt: Sequence[int], num_tokens: int) -> list[int]:
    """Plain greedy decoding by full forward passes, without any cache."""
    ids = list(prompt)
    for _ in range(num_tokens):
        ids.append(int(model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
    return ids[len(prompt) :]


@torch.no_grad()
def full_logits(model: Any, token_ids: Sequence[int]) -> Tensor:
    """Logits of every position by one plain forward pass, [T, V]."""
    logits: Tensor = model(input_ids=torch.tensor([list(token_ids)]), use_cache=False).logits[0]
    return logits
