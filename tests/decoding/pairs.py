# SPDX-License-Identifier: Apache-2.0
"""A target and a drafter that are plain laws, and what their output must follow."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np

from hetero_spec.decoding import SpeculativeDecoder
from hetero_spec.vocab import VocabMap
from tests.decoding.toys import Law, LawDrafter, LawTarget, law_of_context

CHARACTERS = "abcde"
# The drafter knows b, a, d and has x of its own; c and e are outside the intersection and spelt by nothing.
DRAFT_TOKENS = [b"b", b"a", b"x", b"d"]


def make_map(draft_tokens: list[bytes | None] = DRAFT_TOKENS, target: str = CHARACTERS) -> VocabMap:  # type: ignore[assignment]
    return VocabMap.from_bytes([character.encode() for character in target], draft_tokens)


def make_pair(target_seed: int = 1, draft_seed: int = 2) -> tuple[LawTarget, LawDrafter]:
    target = LawTarget(law_of_context(len(CHARACTERS), target_seed), CHARACTERS)
    return target, LawDrafter(law_of_context(len(DRAFT_TOKENS), draft_seed), make_map())


def agreeing_drafter(target: LawTarget, draft_tokens: list[bytes | None] = DRAFT_TOKENS) -> LawDrafter:  # type: ignore[assignment]
    """A drafter whose law is the target's, read through its own ids (as far as it can see the context)."""
    vocab_map = make_map(draft_tokens, target.characters)
    ids = vocab_map.draft_to_target_ids.tolist()

    def law(context: tuple[int, ...]) -> np.ndarray:
        own = target.law(tuple(ids[token_id] for token_id in context if ids[token_id] >= 0))
        weights = np.array([own[token_id] if token_id >= 0 else 0.05 for token_id in ids])
        return np.asarray(weights / weights.sum())

    return LawDrafter(law, vocab_map)


def exact_law(law: Law, prompt: tuple[int, ...], vocab_size: int, length: int) -> np.ndarray:
    """Probability of every continuation of this length, in order of product()."""
    probs = []
    for ids in product(range(vocab_size), repeat=length):
        prob = 1.0
        for j, token_id in enumerate(ids):
            prob *= law(prompt + ids[:j])[token_id]
        probs.append(prob)
    return np.array(probs)


def counts_of(decoder: SpeculativeDecoder, prompt: list[int], length: int, trials: int) -> np.ndarray:
    """How often each continuation came out, over batches of differently seeded copies of one prompt."""
    counted: Counter[tuple[int, ...]] = Counter()
    batch_size = 250
    for first in range(0, trials, batch_size):
        seeds = list(range(first, first + batch_size))
        for result in decoder.generate([prompt] * batch_size, max_new_tokens=length, seed=seeds):
            counted[result.token_ids] += 1
    vocab_size = decoder.target.vocab_size
    assert all(len(ids) == length for ids in counted)
    return np.array([counted[ids] for ids in product(range(vocab_size), repeat=length)])
