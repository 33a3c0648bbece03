# SPDX-License-Identifier: Apache-2.0
"""How many tokens to draft before the target looks at them, request by request.

A policy may bound a draft before it starts and may end it after each drafted token. It never discards a token: the
token whose probability ends a draft stays in it and is verified, because dropping a token for its sampled value would
change the law of the output (algorithms of Leviathan et al. 2211.17192 need the draft exactly as it was drawn).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Protocol


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
    """

    request: int
    depth: int
    prob: float
    entropy: float
    max_prob: float


class Lookahead(Protocol):
    """A lookahead policy."""

    max_draft_tokens: int
    """No draft is ever longer than this."""

    needs_prob: bool
    """Whether `wants_more` reads `prob`; greedy requests cost one more pass over the drafter's row if so."""

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
        """Learn how a draft fared."""
        ...


class FixedLookahead:
    """Always `num_tokens` draft tokens; 0 is plain decoding.

    Parameters
    ----------
    num_tokens : int
        Length of every draft, at least 0.
    """

    needs_prob = False

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


def as_lookahead(lookahead: int | str | Lookahead) -> Lookahead:
    """Read a policy from what `SpeculativeDecoder` accepts: a number, a name, or a policy.

    Parameters
    ----------
    lookahead : int, str or Lookahead
        A number k is `FixedLookahead(k)`; "confidence" is `ConfidenceLookahead()` with its defaults.
    """
    if isinstance(lookahead, bool):
        raise ValueError(f"lookahead: must be a number, a name or a policy, got {lookahead}")
    if isinstance(lookahead, int | Integral):
        return FixedLookahead(int(lookahead))
    if isinstance(lookahead, str):
        if lookahead == "confidence":
            return ConfidenceLookahead()
        raise ValueError(f"lookahead: must be a number or 'confidence', got {lookahead!r}")
    if not hasattr(lookahead, "max_draft_tokens"):
        raise ValueError(f"lookahead: must be a number, a name or a policy, got {lookahead!r}")
    return lookahead


def lengths_within(lookahead: Lookahead, requests: Sequence[int], remaining: Sequence[int]) -> list[int]:
    """Bound the coming drafts by the policy and by the tokens still wanted.

    A round emits up to one token more than it drafts, so a draft never needs more than remaining - 1.
    """
    return [
        max(0, min(lookahead.length(request), lookahead.max_draft_tokens, left - 1))
        for request, left in zip(requests, remaining, strict=True)
    ]
