# SPDX-License-Identifier: Apache-2.0
"""One request of a batch, as the loop and the proposers see it."""

from __future__ import annotations

from dataclasses import dataclass, field

from hetero_spec.decoding.sampling import Sampling
from hetero_spec.decoding.text import TextStream


@dataclass(eq=False)
class Request:
    """One request: its committed target tokens and what is known about its end.

    Attributes
    ----------
    index : int
        Its number in the batch; never changes.
    prompt, tokens : list of int
        Target ids given, and emitted so far. Proposers read them; only the loop appends.
    seed : int
        Of its random numbers, as a signed 64-bit integer.
    sampling, draft_sampling : Sampling
        The target's law, and the drafter's own parameters.
    text : TextStream
        Where its tokens become text.
    max_new_tokens : int
        The request ends at this many emitted tokens.
    finish_reason : str or None
        None while it goes on.
    """

    index: int
    prompt: list[int]
    seed: int
    sampling: Sampling
    draft_sampling: Sampling
    text: TextStream
    max_new_tokens: int
    tokens: list[int] = field(default_factory=list)
    finish_reason: str | None = None

    @property
    def position(self) -> int:
        """Position of the next token."""
        return len(self.prompt) + len(self.tokens)
