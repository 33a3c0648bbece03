# SPDX-License-Identifier: Apache-2.0
"""The drafter's side of a batch that drafts by text: contexts that may be cut anew at their end."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from hetero_spec.decoding.protocols import Drafter
from hetero_spec.decoding.text_bridge import TextBridge, common_prefix_length


class TextContexts:
    """Keeps the drafter's sequences in step with the text that the target has emitted.

    Before a draft the drafter's tokens become what its tokenizer makes of the new text (`TextBridge.extend`), and its
    cache is cut back to the part that stayed the same: accepted drafts that the tokenizer would have cut in the same
    way are not fed again. Nothing is encoded or fed before it is needed, so rounds without a draft cost nothing.

    Parameters
    ----------
    drafter : Drafter
    bridge : TextBridge
    prompts : sequences of target ids, one per request
    max_new_tokens : int
        Target tokens that may follow, for sizing the cache.
    max_draft_tokens : int
        Longest draft, in the drafter's tokens.
    """

    def __init__(
        self,
        drafter: Drafter,
        bridge: TextBridge,
        prompts: Sequence[Sequence[int]],
        max_new_tokens: int,
        max_draft_tokens: int,
    ) -> None:
        self._drafter, self._bridge = drafter, bridge
        self._max_draft_tokens = max_draft_tokens
        self._tokens = [drafter.encode_context(prompt) for prompt in prompts]
        self._drafts: list[list[int]] = [[] for _ in prompts]
        self._held = [b"" for _ in prompts]
        self._emitted: list[list[int]] = [[] for _ in prompts]
        self._num_fed = [0] * len(prompts)
        longest = max((len(tokens) for tokens in self._tokens), default=0) + max_new_tokens + max_draft_tokens
        limit = drafter.max_length
        self._sequences = drafter.open(len(prompts), longest if limit is None else min(longest, limit))

    def begin(self, request: int) -> bool:
        """Take over what was emitted, make room for a draft; return whether there is a context to draft from."""
        self._take_over(request)
        limit = self._drafter.max_length
        tokens = self._tokens[request]
        if limit is not None and len(tokens) + self._max_draft_tokens > limit:
            # The drafter's window is full: go on from the newest half of it.
            prefix = self._drafter.num_prefix_tokens
            newest = max(0, min(limit // 2, limit - self._max_draft_tokens) - prefix)
            self._tokens[request] = tokens = tokens[:prefix] + tokens[len(tokens) - newest :]
            self._cut(request, prefix)
        return bool(tokens) and (limit is None or len(tokens) + self._max_draft_tokens <= limit)

    def held(self, request: int) -> bytes:
        """After `begin`: return the emitted bytes of an unfinished character, with which the draft has to begin."""
        return self._held[request]

    def tokens(self, request: int) -> list[int]:
        """After `begin`: return a request's context in drafter ids, without its draft."""
        return self._tokens[request]

    def next_logits(self, requests: Sequence[int]) -> Tensor:
        """Bring requests up to date and return the row [Vd] that follows each, float [len(requests), Vd]."""
        new = []
        for request in requests:
            tokens, draft = self._tokens[request], self._drafts[request]
            # Where everything has been fed already, the last token is fed again for its row.
            self._cut(request, len(tokens) + len(draft) - 1)
            fed = self._num_fed[request]
            new.append(tokens[fed:] + draft[max(0, fed - len(tokens)) :])
        logits = self._sequences.feed(requests, new, [1] * len(new))
        for request, ids in zip(requests, new, strict=True):
            self._num_fed[request] += len(ids)
        return logits

    def draft(self, request: int, draft_token_id: int) -> None:
        """Append a drafted token."""
        self._drafts[request].append(draft_token_id)

    def commit(self, request: int, emitted: Sequence[int]) -> None:
        """Replace the draft by what the target emitted; `begin` does the work."""
        self._emitted[request] += emitted

    def drop(self, request: int) -> None:
        """Forget a finished request."""
        self._sequences.drop(request)

    def _take_over(self, request: int) -> None:
        """Continue the context with the emitted tokens."""
        tokens, draft, emitted = self._tokens[request], self._drafts[request], self._emitted[request]
        if not emitted and not draft:
            return
        num_kept, tail, self._held[request] = self._bridge.extend(tokens, self._held[request], emitted)
        self._cut(request, num_kept + common_prefix_length(tokens[num_kept:] + draft, tail))
        tokens[num_kept:] = tail
        draft.clear()
        emitted.clear()

    def _cut(self, request: int, length: int) -> None:
        """Roll the cache back to its first `length` tokens, if it holds more."""
        if self._num_fed[request] > length:
            self._sequences.truncate(request, length)
            self._num_fed[request] = length
