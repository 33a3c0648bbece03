# SPDX-License-Identifier: Apache-2.0
"""Toy tokenizers that are neither injective nor stable under concatenation, and pairs of laws that speak them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from itertools import product

import numpy as np

from hetero_spec.decoding import SpeculativeDecoder
from hetero_spec.decoding.text_bridge import TextBridge
from hetero_spec.vocab import VocabMap, make_vocabulary
from tests.decoding.toys import Law, LawDrafter, LawTarget, law_of_context

# "a" + "b" is "ab" and "ab" + "b" is "abb"; two ids are "a". None is the end of the text.
TARGET_TOKENS: list[bytes | None] = [b"a", b"b", b"ab", b"abb", b"c", b"a", None]
TARGET_EOS = 6
# Tokens of several target tokens ("cab", "bca"), one that the target cannot write ("z"), two ids for "b".
DRAFT_TOKENS: list[bytes | None] = [b"a", b"b", b"bb", b"cab", b"b", b"z", None, b"bca"]
DRAFT_EOS = 6


def encoder_from_the_left(tokens: Sequence[bytes | None]) -> Callable[[str], list[int]]:
    """Longest match from the left; characters without a token are dropped."""

    def encode(text: str) -> list[int]:
        data, ids = text.encode(), []
        while data:
            fitting = [i for i, token in enumerate(tokens) if token and data.startswith(token)]
            if not fitting:
                data = data[1:]
                continue
            ids.append(max(fitting, key=lambda i: (len(tokens[i] or b""), -i)))
            data = data[len(tokens[ids[-1]] or b"") :]
        return ids

    return encode


def encoder_from_the_right(tokens: Sequence[bytes | None]) -> Callable[[str], list[int]]:
    """Longest match from the right."""
    mirrored = encoder_from_the_left([token and token[::-1] for token in tokens])
    return lambda text: mirrored(text[::-1])[::-1]


def toy_map(
    target_tokens: Sequence[bytes | None] = TARGET_TOKENS, draft_tokens: Sequence[bytes | None] = DRAFT_TOKENS
) -> VocabMap:
    return VocabMap(
        make_vocabulary(
            target_tokens,
            kind="toy",
            specials={"</s>": target_tokens.index(None)} if None in target_tokens else {},
            roles={"eos": target_tokens.index(None)} if None in target_tokens else {},
            encoder=encoder_from_the_left(target_tokens),
        ),
        make_vocabulary(
            draft_tokens,
            kind="toy",
            specials={"<end>": draft_tokens.index(None)} if None in draft_tokens else {},
            roles={"eos": draft_tokens.index(None)} if None in draft_tokens else {},
            encoder=encoder_from_the_right(draft_tokens),
        ),
    )


def toy_bridge(lookback: int = 4) -> TextBridge:
    return TextBridge(toy_map(), lookback=lookback)


class TextTarget(LawTarget):
    """A law over tokens of several bytes."""

    def __init__(self, law: Law, tokens: Sequence[bytes | None], eos_token_ids: Sequence[int] = ()) -> None:
        super().__init__(law, "?" * len(tokens), eos_token_ids)
        self.token_bytes = list(tokens)

    def encode(self, text: str) -> list[int]:
        return encoder_from_the_left(self.token_bytes)(text)


def text_pair(target_seed: int = 1, draft_seed: int = 2, has_end: bool = False) -> tuple[TextTarget, LawDrafter]:
    """Two unrelated laws over few letters, with many ways to write them."""
    target_law = cache(law_of_context(len(TARGET_TOKENS), target_seed))
    draft_law = cache(law_of_context(len(DRAFT_TOKENS), draft_seed))
    target = TextTarget(target_law, TARGET_TOKENS, [TARGET_EOS] if has_end else [])
    return target, LawDrafter(draft_law, toy_map())


def exact_law(law: Law, prompt: tuple[int, ...], vocab_size: int, length: int) -> np.ndarray:
    """Probability of every continuation of this length, in order of product()."""
    probs = []
    for ids in product(range(vocab_size), repeat=length):
        prob = 1.0
        for j, token_id in enumerate(ids):
            prob *= law(prompt + ids[:j])[token_id]
        probs.append(prob)
    return np.array(probs)


def counts_of(
    decoder: SpeculativeDecoder, prompt: Sequence[int], length: int, trials: int, **arguments: object
) -> np.ndarray:
    """How often each continuation came out, over batches of differently seeded copies of one prompt."""
    counted: Counter[tuple[int, ...]] = Counter()
    batch_size = 250
    for first in range(0, trials, batch_size):
        seeds = list(range(first, first + batch_size))
        prompts = [list(prompt)] * batch_size
        for result in decoder.generate(prompts, max_new_tokens=length, seed=seeds, **arguments):
            counted[result.token_ids] += 1
    assert all(len(ids) == length for ids in counted)
    return np.array([counted[ids] for ids in product(range(decoder.target.vocab_size), repeat=length)])
