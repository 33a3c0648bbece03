# SPDX-License-Identifier: Apache-2.0
"""How many tokens to draft before the target looks at them, request by request.

A policy may bound a draft before it starts and may end it after each drafted token. It never discards a token: the
token whose probability ends a draft stays in it and is verified, because dropping a token for its sampled value would
change the law of the output (algorithms of Leviathan et al. 2211.17192 need the draft exactly as it was drawn).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Protocol

NAMES = ("confidence", "heuristic", "disco")
"""What `as_lookahead` knows by name."""

NUM_TOP_PROBS = 10
"""How many of the drafter's largest probabilities a policy may ask for."""


@dataclass(frozen=True)
class DraftedToken:
    """What a policy may know about the token just drafted.

    Attributes
    ----------
    request : int
        The request it belongs to.
    depth : int
        Its place in the draft, from 0.
    prob : float
        Drafter's probability of the token; for a greedy request the one at temperature 1 (at 0 it says nothing).
    entropy : float
        Entropy of the law it was drawn from, in nats.
    max_prob : float
        Largest probability of that law.
    top_probs : tuple of float
        Where the policy has `needs_top_probs`: the NUM_TOP_PROBS largest probabilities of the drafter's law, largest
        first (fewer where the vocabulary has fewer; 0 for what the law excludes); for a greedy request those at
        temperature 1. Else empty.
    token_id : int
        The token in the target's ids; -1 where it is not known yet (a drafter's token whose text does not end one).
    """

    request: int
    depth: int
    prob: float
    entropy: float
    max_prob: float
    top_probs: tuple[float, ...] = ()
    token_id: int = -1


class Lookahead(Protocol):
    """A lookahead policy."""

    max_draft_tokens: int
    """No draft is ever longer than this."""

    needs_prob: bool
    """Whether `wants_more` reads `prob`; greedy requests cost one more pass over the drafter's row if so."""

    needs_top_probs: bool
    """Whether `wants_more` reads `top_probs`, which costs a search for the largest in the drafter's row."""

    def begin(self, num_requests: int) -> None:
        """Forget what was learnt about earlier requests."""
        ...

    def length(self, request: int) -> int:
        """Upper bound of the coming draft; 0 decodes plainly and leaves the drafter alone."""
        ...

    def wants_more(self, drafted: DraftedToken) -> bool:
        """Whether to draft another token after this one."""
        ...

    def observe(self, request: int, num_draft_tokens: int, num_accepted_tokens: int) -> None:
        """Learn how a draft fared; called after every round, also after one without a draft."""
        ...


class FixedLookahead:
    """Always `num_tokens` draft tokens; 0 is plain decoding.

    Parameters
    ----------
    num_tokens : int
        Length of every draft, at least 0.
    """

    needs_prob = False
    needs_top_probs = False

    def __init__(self, num_tokens: int) -> None:
        if num_tokens < 0:
            raise ValueError(f"lookahead: num_tokens must be at least 0, got {num_tokens}")
        self.max_draft_tokens = num_tokens

    def begin(self, num_requests: int) -> None:
        """Nothing to forget."""

    def length(self, request: int) -> int:
        """Return the fixed length."""
        return self.max_draft_tokens

    def wants_more(self, drafted: DraftedToken) -> bool:
        """Return True: only the length ends a draft."""
        return True

    def observe(self, request: int, num_draft_tokens: int, num_accepted_tokens: int) -> None:
        """Nothing to learn."""


class ConfidenceLookahead(FixedLookahead):
    """Draft while the drafter is sure: stop after the first token whose probability is below a threshold.

    Parameters
    ----------
    threshold : float
        In [0, 1]. 0 never stops early.
    max_draft_tokens : int
        Length at which every draft ends.

    Notes
    -----
    The defaults were the quickest of a few tried with the embedded drafter on eight prompts that it was not trained on.
    """

    needs_prob = True

    def __init__(self, threshold: float = 0.3, max_draft_tokens: int = 4) -> None:
        super().__init__(max_draft_tokens)
        if not 0.0 <= threshold <= 1.0:
            raise ValueError(f"lookahead: threshold must be in [0, 1], got {threshold}")
        self.threshold = threshold

    def wants_more(self, drafted: DraftedToken) -> bool:
        """Return whether the token just drafted (which stays in the draft) was likely enough."""
        return drafted.prob >= self.threshold


class HeuristicLookahead(FixedLookahead):
    """Two tokens more after a draft that was accepted whole, one fewer after any other, request by request.

    Parameters
    ----------
    num_tokens : int
        Length of a request's first draft, at least 1.
    max_draft_tokens : int
        Length at which growth ends, at least num_tokens.

    Notes
    -----
    The length never falls below 1: a draft of none could never be accepted whole, and so would never grow again.

    Source
    ------
    The schedule "heuristic" of transformers' assisted generation (Gante 2023), idea only.
    """

    def __init__(self, num_tokens: int = 4, max_draft_tokens: int = 16) -> None:
        super().__init__(max_draft_tokens)
        if not 1 <= num_tokens <= max_draft_tokens:
            raise ValueError(f"lookahead: num_tokens must be in [1, {max_draft_tokens}], got {num_tokens}")
        self.num_tokens = num_tokens
        self._lengths: dict[int, int] = {}

    def begin(self, num_requests: int) -> None:
        """Every request begins with the first length again."""
        self._lengths = {}

    def length(self, request: int) -> int:
        """Return the request's present length."""
        return self._lengths.get(request, self.num_tokens)

    def observe(self, request: int, num_draft_tokens: int, num_accepted_tokens: int) -> None:
        """Lengthen or shorten; a round without a draft teaches nothing."""
        if num_draft_tokens:
            step = 2 if num_accepted_tokens == num_draft_tokens else -1
            self._lengths[request] = max(1, min(self.length(request) + step, self.max_draft_tokens))


class OracleLookahead(FixedLookahead):
    """Knows the text in advance and ends each draft right after the first token that differs from it.

    It measures what any policy could gain, and is of no other use. The text must be the one that the target will emit
    whatever is drafted: plain decoding's at temperature 0, or with the same seed where drafts are verified by exact
    match (`verify="exact"`). Under rejection sampling it would make a draft's length depend on the target's own law,
    and the output would not follow that law.

    Parameters
    ----------
    tokens_by_request : sequence of sequence of int
        Target tokens that plain decoding emits for each request of the batch.
    max_draft_tokens : int
        Length at which every draft ends.
    """

    def __init__(self, tokens_by_request: Sequence[Sequence[int]], max_draft_tokens: int = 16) -> None:
        super().__init__(max_draft_tokens)
        self._tokens = [list(tokens) for tokens in tokens_by_request]
        self._num_emitted = [0] * len(self._tokens)

    def begin(self, num_requests: int) -> None:
        """Start all texts again.

        Raises
        ------
        ValueError   the batch has another number of requests than there are texts
        """
        if num_requests != len(self._tokens):
            raise ValueError(f"lookahead: tokens_by_request must be {num_requests} texts, got {len(self._tokens)}")
        self._num_emitted = [0] * num_requests

    def length(self, request: int) -> int:
        """Return what is left of the text, within the maximum."""
        return max(0, min(self.max_draft_tokens, len(self._tokens[request]) - self._num_emitted[request]))

    def wants_more(self, drafted: DraftedToken) -> bool:
        """Return whether the token is the one that the text has there; an unknown one is given the benefit."""
        place = self._num_emitted[drafted.request] + drafted.depth
        tokens = self._tokens[drafted.request]
        return place < len(tokens) and drafted.token_id in (-1, tokens[place])

    def observe(self, request: int, num_draft_tokens: int, num_accepted_tokens: int) -> None:
        """Move on in the text: what was accepted and the target's own token."""
        self._num_emitted[request] += num_accepted_tokens + 1


def as_lookahead(lookahead: int | str | os.PathLike[str] | Lookahead) -> Lookahead:
    """Read a policy from what `SpeculativeDecoder` accepts: a number, a name, a file or a policy.

    Parameters
    ----------
    lookahead : int, str, path or Lookahead
        A number k is `FixedLookahead(k)`. "confidence", "heuristic" and "disco" are `ConfidenceLookahead`,
        `HeuristicLookahead` and `DiscoLookahead` with their defaults; the last has the classifier that comes with this
        package, made for SmolLM2 <- the embedded drafter. A path, or a name that ends in ".json", is a classifier's
        file, as `hetero-spec calibrate lookahead` writes it.

    Raises
    ------
    ValueError   none of these, or a file that is no classifier
    OSError      the file cannot be read
    """
    if isinstance(lookahead, bool):
        raise ValueError(f"lookahead: must be a number, a name or a policy, got {lookahead}")
    if isinstance(lookahead, int | Integral):
        return FixedLookahead(int(lookahead))
    if isinstance(lookahead, str | os.PathLike):
        return _by_name(lookahead)
    if not hasattr(lookahead, "max_draft_tokens"):
        raise ValueError(f"lookahead: must be a number, a name or a policy, got {lookahead!r}")
    return lookahead


def _by_name(name: str | os.PathLike[str]) -> Lookahead:
    if name == "confidence":
        return ConfidenceLookahead()
    if name == "heuristic":
        return HeuristicLookahead()
    if isinstance(name, str) and name != "disco" and not name.endswith(".json"):
        raise ValueError(f"lookahead: must be a number, {', '.join(NAMES)} or a .json file, got {name!r}")
    from hetero_spec.decoding.disco import SHIPPED_CLASSIFIER, DiscoLookahead

    return DiscoLookahead.load(SHIPPED_CLASSIFIER if name == "disco" else name)


def lengths_within(lookahead: Lookahead, requests: Sequence[int], remaining: Sequence[int]) -> list[int]:
    """Bound the coming drafts by the policy and by the tokens still wanted.

    A round emits up to one token more than it drafts, so a draft never needs more than remaining - 1.
    """
    return [
        max(0, min(lookahead.length(request), lookahead.max_draft_tokens, left - 1))
        for request, left in zip(requests, remaining, strict=True)
    ]
