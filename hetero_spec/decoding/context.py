# SPDX-License-Identifier: Apache-2.0
"""The drafter's side of a batch: what each request's context is in drafter ids, and how much of it is in its cache."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from hetero_spec.decoding.protocols import Drafter


class DraftContexts:
    """Keeps the drafter's sequences in step with what the target has accepted.

    Nothing is fed before it is needed: a committed token waits until the drafter is next asked for a row, so a
    request that is not drafting costs no drafter call, and one that starts again catches up in one.

    Parameters
    ----------
    drafter : Drafter
    prompts : sequences of target ids, one per request
    max_new_tokens : int
        Target tokens that may follow, for sizing the cache.
    max_draft_tokens : int
        Longest draft.
    """

    def __init__(
        self, drafter: Drafter, prompts: Sequence[Sequence[int]], max_new_tokens: int, max_draft_tokens: int
    ) -> None:
        self._drafter = drafter
        self._max_draft_tokens = max_draft_tokens
        self._tokens = [drafter.encode_context(prompt) for prompt in prompts]
        self._num_fed = [0] * len(prompts)
        self._num_committed = [len(tokens) for tokens in self._tokens]
        # Of each request, the context's length after each token of its draft: a drafted target token that the drafter
        # has no id for is written with several.
        self._ends: list[list[int]] = [[] for _ in prompts]
        # The context's length before each committed target token, newest last, for taking tokens back.
        self._starts: list[list[int]] = [[] for _ in prompts]
        longest = max(self._num_committed, default=0) + max_new_tokens + max_draft_tokens
        limit = drafter.max_length
        self._sequences = drafter.open(len(prompts), longest if limit is None else min(longest, limit))

    def begin(self, request: int) -> bool:
        """Make room for a draft; return whether the request has a context to draft from at all."""
        limit = self._drafter.max_length
        tokens = self._tokens[request]
        if limit is not None and len(tokens) + self._max_draft_tokens > limit:
            # The drafter's window is full: go on from the newest half of it. What it proposes changes, and with it
            # acceptance; the law of the output does not.
            prefix = self._drafter.num_prefix_tokens
            newest = max(0, min(limit // 2, limit - self._max_draft_tokens) - prefix)
            removed = len(tokens) - newest - prefix
            self._tokens[request] = tokens = tokens[:prefix] + tokens[len(tokens) - newest :]
            self._starts[request] = [max(prefix, start - removed) for start in self._starts[request]]
            self._num_committed[request] = len(tokens)
            self._sequences.truncate(request, min(prefix, self._num_fed[request]))
            self._num_fed[request] = min(prefix, self._num_fed[request])
        return bool(tokens) and (limit is None or len(tokens) + self._max_draft_tokens <= limit)

    def next_logits(self, requests: Sequence[int], num_rows: Sequence[int] | None = None) -> Tensor:
        """Bring requests up to date and return the rows [Vd] that follow their last tokens.

        Parameters
        ----------
        requests : sequence of int, ascending
        num_rows : one int per request, optional
            After how many of its last tokens a row is wanted. Default: one each.

        Returns
        -------
        logits : float [sum(num_rows), Vd]
        """
        num_rows = [1] * len(requests) if num_rows is None else num_rows
        new = []
        for request, count in zip(requests, num_rows, strict=True):
            # Everything may have been fed already (a rejected draft whose replacement has no spelling): the last
            # token is fed again for its row.
            start = min(self._num_fed[request], len(self._tokens[request]) - count)
            if start < self._num_fed[request]:
                self._sequences.truncate(request, start)
            new.append(self._tokens[request][start:])
        logits = self._sequences.feed(requests, new, num_rows)
        for request in requests:
            self._num_fed[request] = len(self._tokens[request])
        return logits

    def draft(self, request: int, draft_token_ids: Sequence[int]) -> bool:
        """Append a drafted token, for as long as the target has not rejected it.

        Parameters
        ----------
        request : int
        draft_token_ids : sequence of int
            The token in drafter ids: one, several that spell it, or none if it cannot be written.

        Returns
        -------
        bool
            Whether the drafter can go on from it: it has been told of the token, and its window has room for it.
        """
        tokens = self._tokens[request]
        tokens += draft_token_ids
        self._ends[request].append(len(tokens))
        limit = self._drafter.max_length
        return bool(draft_token_ids) and (limit is None or len(tokens) <= limit)

    def keep(self, request: int, num_tokens: int) -> None:
        """Cut the draft in progress to its first tokens."""
        kept = self._ends[request][num_tokens - 1] if num_tokens else self._num_committed[request]
        del self._ends[request][num_tokens:], self._tokens[request][kept:]
        if self._num_fed[request] > kept:
            self._sequences.truncate(request, kept)
            self._num_fed[request] = kept

    def commit(self, request: int, num_accepted_tokens: int, target_token_id: int) -> list[int]:
        """Keep the accepted part of the draft, append the token that the target emitted after it, and return it.

        Returns
        -------
        list of int
            What was appended, in drafter ids: one, several, or none.
        """
        self.keep(request, num_accepted_tokens)
        self._starts[request] += [self._num_committed[request], *self._ends[request]]
        self._ends[request].clear()
        written = list(self._drafter.encode_token(target_token_id))
        self._tokens[request] += written
        self._num_committed[request] = len(self._tokens[request])
        return written

    def retract(self, request: int, num_tokens: int) -> None:
        """Take the last committed target tokens back; only between rounds."""
        if num_tokens:
            self._num_committed[request] = self._starts[request][-num_tokens]
            del self._starts[request][-num_tokens:]
            self.keep(request, 0)

    def drop(self, request: int) -> None:
        """Forget a finished request."""
        self._sequences.drop(request)

    def token_ids(self, request: int) -> tuple[int, ...]:
        """Return a request's context in drafter ids, the draft in progress included."""
        return tuple(self._tokens[request])
