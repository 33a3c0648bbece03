# SPDX-License-Identifier: Apache-2.0
"""What an engine must give to take part in speculative decoding.

One idea for both sides: a batch of token sequences that can be fed, answers with rows of logits, and can be cut
back. A `Target` adds its tokenizer's facts, a `Drafter` adds how the target's tokens are written in its own.
Nothing here mentions transformers: a server engine, a lookup table or an n-gram model can stand behind either.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol, runtime_checkable

from torch import Tensor


@runtime_checkable
class Sequences(Protocol):
    """Token sequences of one model, one per request, each with its own length.

    Requests are named by the number they had when the batch was opened (0 to num_requests - 1), whatever has been
    dropped since.
    """

    def feed(self, requests: Sequence[int], token_ids: Sequence[Sequence[int]], num_rows: Sequence[int]) -> Tensor:
        """Append tokens to some requests and return logits of the last ones.

        Parameters
        ----------
        requests : sequence of int, ascending
            The requests that are fed; the others stay as they are.
        token_ids : one non-empty sequence of ids per request
            Ids of this model's own vocabulary, in [0, vocab_size).
        num_rows : one int per request
            How many of the fed tokens need a row: the last num_rows, at least 1.

        Returns
        -------
        logits : float [sum(num_rows), vocab_size]
            Requests back to back in the order given. Row i of a request predicts the token after its i-th kept token.
        """
        ...

    def truncate(self, request: int, length: int) -> None:
        """Roll a request back to its first `length` tokens, as if the later ones had never been fed."""
        ...

    def drop(self, request: int) -> None:
        """Forget a finished request and let go of what it holds."""
        ...


@runtime_checkable
class Target(Protocol):
    """The model whose law must be kept."""

    @property
    def vocab_size(self) -> int:
        """Width V of the logits."""
        ...

    @property
    def eos_token_ids(self) -> Collection[int]:
        """Ids that end a text."""
        ...

    @property
    def token_bytes(self) -> Sequence[bytes | None]:
        """The bytes each id adds to the text, None for special and unused ids."""
        ...

    @property
    def max_length(self) -> int | None:
        """Longest sequence the model takes, in tokens; None if there is no limit."""
        ...

    def encode(self, text: str) -> Sequence[int]:
        """Token ids of a prompt, with what the tokenizer puts in front of one (BOS)."""
        ...

    def open(self, num_requests: int, max_length: int) -> Sequences:
        """Start a batch of empty sequences; max_length tokens are expected of the longest, more must still work."""
        ...


@runtime_checkable
class Drafter(Protocol):
    """A model that proposes, in a vocabulary of its own."""

    @property
    def vocab_size(self) -> int:
        """Width Vd of the logits."""
        ...

    @property
    def draft_to_target_ids(self) -> Tensor:
        """int32 [Vd]: target id of each drafter id, -1 where not shared."""
        ...

    @property
    def target_to_draft_ids(self) -> Tensor:
        """int32 [V]: drafter id of each target id, -1 where not shared."""
        ...

    @property
    def max_length(self) -> int | None:
        """Longest sequence the model takes, in tokens; None if there is no limit."""
        ...

    @property
    def num_prefix_tokens(self) -> int:
        """How many tokens at the start of a context (BOS: 1) are kept when a long one is cut."""
        ...

    def encode_context(self, target_token_ids: Sequence[int]) -> list[int]:
        """Drafter ids of a prompt given in target ids, in the drafter's own segmentation, BOS at most once."""
        ...

    def encode_token(self, target_token_id: int) -> Sequence[int]:
        """Drafter ids of one emitted target token: the shared id, or pieces of the same bytes, or nothing."""
        ...

    def open(self, num_requests: int, max_length: int) -> Sequences:
        """Start a batch of empty sequences; max_length tokens are expected of the longest, more must still work."""
        ...
