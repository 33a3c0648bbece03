# SPDX-License-Identifier: Apache-2.0
"""Drafts without a second model: what followed the last few tokens when they last occurred."""

from __future__ import annotations

from collections.abc import Sequence

from hetero_spec.decoding.lookahead import DraftedToken, Lookahead
from hetero_spec.decoding.proposers import Draft
from hetero_spec.decoding.protocols import Drafter, Target
from hetero_spec.decoding.request import Request
from hetero_spec.decoding.stats import DecodingStats

_LONGEST_MATCH = 16


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

    def match_lengths(self, requests: Sequence[Request]) -> list[int]:
        """Return of each request how much of its end stands before the place that it would copy from.

        Up to 16 tokens; 0 where it would propose nothing. A draft is the likelier kept, the longer its match.
        """
        return [self._histories[request.index].match_length() for request in requests]

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
        source = history.find() if length > 0 else None
        drafted: list[int] = []
        if source is None:
            return drafted
        tokens = history.tokens
        for depth in range(min(length, self._max_draft_tokens)):
            place = source + depth
            token_id = tokens[place] if place < len(tokens) else drafted[place - len(tokens)]
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

    def find(self) -> int | None:
        """Return the place after the last earlier occurrence of the longest known end of the text."""
        return next((self._places[ngram] for ngram in self._last() if ngram in self._places), None)

    def match_length(self) -> int:
        """Return how many of the last tokens stand in the same order before that place; 0 where there is none."""
        place, end = self.find(), len(self.tokens)
        if place is None:
            return 0
        longest = min(place, _LONGEST_MATCH)
        pairs = zip(self.tokens[place - longest : place], self.tokens[end - longest : end], strict=True)
        return next((length for length, (old, new) in enumerate(reversed(list(pairs))) if old != new), longest)

    def _last(self) -> list[tuple[int, ...]]:
        """Return the n-grams that end the text, longest first."""
        end = len(self.tokens)
        return [tuple(self.tokens[end - length :]) for length in self._lengths if length <= end]
