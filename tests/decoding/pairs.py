# SPDX-License-Identifier: Apache-2.0
"""Targets and drafters for tests: plain laws and what their output must follow; real models and texts for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import product

import numpy as np
import torch
from torch import Tensor

from hetero_spec.decoding import SpeculativeDecoder
from hetero_spec.decoding.protocols import Sequences
from hetero_spec.decoding.target import TransformersTarget
from hetero_spec.vocab import VocabMap
from tests.decoding.toys import Law, LawDrafter, LawTarget, law_of_context

CHARACTERS = "abcde"
# Short beginnings of texts of every kind that tokenizers cut differently.
TEXTS = {
    "story": "Once upon a time, in a small village by the sea, there lived",
    "facts": "The capital of Australia is Canberra. The largest city of the country is",
    "summary": "In short, the meeting decided that",
    "explanation": "A bicycle stays upright because",
    "recipe": "Tomato soup\n\nIngredients:\n- 6 ripe tomatoes\n-",
    "dialogue": '"Where have you been?" she asked.\n\n"I',
    "accents": "Le caf\u00e9 pr\u00e8s de l'\u00e9glise est ferm\u00e9 le",
    "python": 'def fibonacci(n):\n    """Return the n-th Fibonacci number."""\n',
    "class": "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n",
    "c": '#include <stdio.h>\n\nint main(void) {\n\tprintf("',
    "json": '{"name": "Ann", "tags": ["a", "b"], "size":',
    "numbers": "1, 1, 2, 3, 5, 8, 13, 21, 34,",
    "arithmetic": "12345 + 67890 = 80235 and 1000000 / 8 =",
    "table": "| name | age |\n| --- | --- |\n| Ann | 31 |\n| Bob |",
    "csv": "id,name,price\n1,apple,0.50\n2,pear,",
    "white space": " \n\n\t   ",
    "japanese": "\u65e5\u672c\u306e\u9996\u90fd\u306f\u6771\u4eac\u3067\u3059\u3002",
    "chinese": "\u5317\u4eac\u662f\u4e2d\u56fd\u7684\u9996\u90fd\uff0c\u4e0a\u6d77",
    "korean": "\uc548\ub155\ud558\uc138\uc694. \uc800\ub294",
    "emoji": "I \u2764\ufe0f \U0001f355, \U0001f389 and \U0001f469\u200d\U0001f469\u200d\U0001f467! \U0001f999",
}

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


class RecordedTarget:
    """A real target that gives one row for one context, whatever else is in the pass.

    A pass over one token and one over several sum in another order, so that a row's last digits depend on what was
    computed beside it, and two tokens of nearly the same logit may change places. What is recorded while
    `is_recording` is given again wherever the same context comes up, once the row computed there has been found to be
    the same within `tolerance`. Texts can then be compared exactly: a wrong row is an error, rounding is not.

    Attributes
    ----------
    is_recording : bool
    num_compared : int
        Rows that were computed again and compared.
    """

    def __init__(self, target: TransformersTarget, tolerance: float) -> None:
        self._target, self.tokenizer = target, target.tokenizer
        self.tolerance = tolerance
        self.is_recording = True
        self.num_compared = 0
        self._rows: dict[tuple[int, ...], Tensor] = {}

    @property
    def vocab_size(self) -> int:
        return self._target.vocab_size

    @property
    def eos_token_ids(self) -> Collection[int]:
        return self._target.eos_token_ids

    @property
    def token_bytes(self) -> Sequence[bytes | None]:
        return self._target.token_bytes

    @property
    def max_length(self) -> int | None:
        return self._target.max_length

    def encode(self, text: str) -> Sequence[int]:
        return self._target.encode(text)

    def open(self, num_requests: int, max_length: int) -> Sequences:
        return _RecordedSequences(self, self._target.open(num_requests, max_length), num_requests)

    def settled(self, context: tuple[int, ...], row: Tensor) -> Tensor:
        """The recorded row of a context, or this one."""
        recorded = self._rows.get(context)
        if recorded is None:
            if self.is_recording:
                self._rows[context] = row.clone()
            return row
        difference = float((row - recorded).abs().max())
        assert difference < self.tolerance, f"a row after {len(context)} tokens is off by {difference}"
        self.num_compared += 1
        return recorded


class _RecordedSequences:
    """Sequences whose rows a `RecordedTarget` settles."""

    def __init__(self, target: RecordedTarget, sequences: Sequences, num_requests: int) -> None:
        self._target, self._sequences = target, sequences
        self._fed: list[list[int]] = [[] for _ in range(num_requests)]

    def feed(self, requests: Sequence[int], token_ids: Sequence[Sequence[int]], num_rows: Sequence[int]) -> Tensor:
        contexts = []
        for request, ids, kept in zip(requests, token_ids, num_rows, strict=True):
            self._fed[request] += ids
            length = len(self._fed[request])
            contexts += [tuple(self._fed[request][:end]) for end in range(length - kept + 1, length + 1)]
        rows = self._sequences.feed(requests, token_ids, num_rows)
        return torch.stack([self._target.settled(*pair) for pair in zip(contexts, rows, strict=True)])

    def truncate(self, request: int, length: int) -> None:
        del self._fed[request][length:]
        self._sequences.truncate(request, length)

    def drop(self, request: int) -> None:
        self._sequences.drop(request)
