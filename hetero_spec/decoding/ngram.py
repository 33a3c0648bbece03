# SPDX-License-Identifier: Apache-2.0
"""Drafts without a second model: what followed the last few tokens when they last occurred."""

from __future__ import annotations

from collections.abc import Sequence

from hetero_spec.decoding.lookahead import DraftedToken, Lookahead
from hetero_spec.decoding.proposers import Draft
from hetero_spec.decoding.protocols import Drafter, Target
from hetero_spec.decoding.request import Request
from hetero_spec.decoding.stats import DecodingStats

# How many tokens what stood before a copy may have in common with the end of the text, as far as its confidence goes.
_LONGEST_MATCH = 16
# How many occurrences the confidence of the next shorter context is worth, and the confidence without any context.
# (Measured once on texts of SmolLM2 and Gemma: with these, drafts are kept as often as the confidence says.)
_SHORTER_WEIGHT = 4.0
_FIRST_CONFIDENCE = 0.3
# The latest occurrences of a token that are looked at.
_MOST_OCCURRENCES = 128


class NgramProposer:
    """Looks the end of a request's own text up in that text, prompt included, and proposes what came next.

    It works on target ids, so no tokenizer but the target's takes part. Drafts are one-hot. Looking up and keeping the
    index cost a few dictionary operations per token. Where nothing occurred before, it proposes nothing.

    Parameters
    ----------
    target, drafter, requests, lookahead, max_draft_tokens, stats
        As of `ProposerFactory`; the drafter is not used.
    min_ngram, max_ngram : int
        Fewest and most tokens that must have occurred before; the longest match wins, of equal ones the latest.

    Source
    ------
    Prompt lookup decoding (Saxena 2023); lookup of n-grams of Yang et al. 2304.04487.
    """

    name = "ngram"

    def __init__(
        self,
        target: Target,
        drafter: Drafter | None,
        requests: Sequence[Request],
        lookahead: Lookahead,
        max_draft_tokens: int,
        stats: DecodingStats,
        *,
        min_ngram: int = 2,
        max_ngram: int = 4,
    ) -> None:
        if not 1 <= min_ngram <= max_ngram:
            raise ValueError(f"ngram: min_ngram must be in [1, {max_ngram}], got {min_ngram}")
        self._target, self._lookahead, self._stats = target, lookahead, stats
        self._max_draft_tokens = max_draft_tokens
        self._lengths = range(max_ngram, min_ngram - 1, -1)
        self._histories: dict[int, _History] = {}

    def begin(self, requests: Sequence[Request]) -> None:
        """Index the prompts."""
        with self._stats.timed("seconds_drafter"):
            for request in requests:
                self._histories[request.index] = _History(self._lengths, request.prompt)

    def propose(self, requests: Sequence[Request], lengths: Sequence[int]) -> Draft:
        """Copy what followed, going on in the copy itself where it reaches the end of the text."""
        with self._stats.timed("seconds_drafter"):
            return Draft([self._copy(request, length) for request, length in zip(requests, lengths, strict=True)])

    def confidences(self, requests: Sequence[Request]) -> list[float]:
        """Return of each request how probable it is that what it would propose first comes next; 0: it has nothing.

        It is the share of earlier occurrences of the last token that what is proposed followed, then of the last two
        and so on, each held to the one before.
        """
        return [self._histories[request.index].confidence() for request in requests]

    def peek(self, request: Request, length: int) -> list[int]:
        """Return what it would propose, if nothing but the text's end stopped it."""
        return self._histories[request.index].copy(length)

    def commit(self, request: int, num_accepted_tokens: int, emitted: Sequence[int]) -> None:
        """Index what was emitted."""
        history = self._histories[request]
        for token_id in emitted:
            history.append(token_id)

    def retract(self, request: int, num_tokens: int) -> None:
        """Take back the last committed tokens."""
        self._histories[request].pop(num_tokens)

    def drop(self, request: int) -> None:
        """Forget a finished request's index."""
        del self._histories[request]

    def _copy(self, request: Request, length: int) -> list[int]:
        history = self._histories[request.index]
        drafted: list[int] = []
        for depth, token_id in enumerate(history.copy(min(length, self._max_draft_tokens))):
            drafted.append(token_id)
            token = DraftedToken(request.index, depth, 1.0, 0.0, 1.0, (1.0,), token_id)
            if token_id in self._target.eos_token_ids or not self._lookahead.wants_more(token):
                break
        return drafted


class _History:
    """A text and, of every n-gram in it, where the token after its last occurrence is."""

    def __init__(self, lengths: range, tokens: Sequence[int]) -> None:
        self._lengths = lengths
        self.tokens: list[int] = []
        self._places: dict[tuple[int, ...], int] = {}
        # Of every token after the first ones, what its n-grams' places were before it came.
        self._previous: list[list[tuple[tuple[int, ...], int | None]]] = []
        # Of every token, the places after its occurrences.
        self._after: dict[int, list[int]] = {}
        for token_id in tokens:
            self.append(token_id)
        self._previous.clear()

    def append(self, token_id: int) -> None:
        """Add a token: the n-grams before it now have something that follows them."""
        place = len(self.tokens)
        changed = []
        for ngram in self._last():
            changed.append((ngram, self._places.get(ngram)))
            self._places[ngram] = place
        self._previous.append(changed)
        if place:
            self._after.setdefault(self.tokens[-1], []).append(place)
        self.tokens.append(token_id)

    def pop(self, num_tokens: int) -> None:
        """Take the last tokens back, as if they had never been added."""
        for _ in range(num_tokens):
            for ngram, place in self._previous.pop():
                if place is None:
                    del self._places[ngram]
                else:
                    self._places[ngram] = place
            self.tokens.pop()
            if self.tokens:
                self._after[self.tokens[-1]].pop()

    def find(self) -> int | None:
        """Return the place after the last earlier occurrence of the longest known end of the text."""
        return next((self._places[ngram] for ngram in self._last() if ngram in self._places), None)

    def copy(self, length: int) -> list[int]:
        """Return what followed, going on in the copy itself where it reaches the end of the text."""
        source = self.find() if length > 0 else None
        if source is None:
            return []
        copied = self.tokens[source : source + length]
        while len(copied) < length:
            copied.append(copied[source + len(copied) - len(self.tokens)])
        return copied

    def confidence(self) -> float:
        """Return how probable it is that the first copied token comes next; 0 where there is none."""
        source = self.find()
        if source is None:
            return 0.0
        proposed, longest = self.tokens[source], self._lengths.start
        # Of the last one, two, ... tokens: how often they have occurred, and been followed by what is proposed.
        counts, kept = [0] * longest, [0] * longest
        for place in self._after[self.tokens[-1]][-_MOST_OCCURRENCES:]:
            for length in range(self._match_length(place, longest)):
                counts[length] += 1
                kept[length] += self.tokens[place] == proposed
        confidence = _FIRST_CONFIDENCE
        for num_kept, count in zip(kept, counts, strict=True):
            confidence = (num_kept + _SHORTER_WEIGHT * confidence) / (count + _SHORTER_WEIGHT)
        # Longer contexts have occurred once, as far as is known, and it came next.
        longer = max(0, self._match_length(source, _LONGEST_MATCH) - longest)
        return 1.0 - (1.0 - confidence) * (_SHORTER_WEIGHT / (_SHORTER_WEIGHT + 1.0)) ** longer

    def _match_length(self, place: int, longest: int) -> int:
        """Return how many of the last tokens stand in the same order before a place, at most so many."""
        tokens, end = self.tokens, len(self.tokens)
        longest = min(place, longest)
        return next((i for i in range(longest) if tokens[place - 1 - i] != tokens[end - 1 - i]), longest)

    def _last(self) -> list[tuple[int, ...]]:
        """Return the n-grams that end the text, longest first."""
        end = len(self.tokens)
        return [tuple(self.tokens[end - length :]) for length in self._lengths if length <= end]
