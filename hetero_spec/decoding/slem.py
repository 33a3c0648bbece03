# SPDX-License-Identifier: Apache-2.0
"""SLEM, string-level exact match: drafts cross from one tokenizer to the other as text.

The drafter draws from its whole vocabulary. The text of the draft, encoded by the target's tokenizer behind what has
been emitted, is proposed without a law; the target draws its own token at every row, and the draft holds for as long as
it says the same. Every emitted token is the target's own draw, so nothing that happens to the text can change the law,
and with a seed the tokens are those of plain seeded decoding, whatever the drafter.

Source
------
Timor et al. 2025, arXiv 2502.05202, Algorithm 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor

from hetero_spec import ops
from hetero_spec.decoding.lookahead import Lookahead
from hetero_spec.decoding.proposers import Draft, as_int64, drafted_tokens
from hetero_spec.decoding.protocols import Drafter, Target
from hetero_spec.decoding.request import Request
from hetero_spec.decoding.sampling import Sampling, sampling_arguments
from hetero_spec.decoding.stats import DecodingStats
from hetero_spec.decoding.text_bridge import TextBridge
from hetero_spec.decoding.text_context import TextContexts
from hetero_spec.vocab import VocabMap

# Masks of the drafter's ids that can finish a character: each is as wide as its vocabulary.
_MAX_MASKS = 64


class SlemProposer:
    """Drafts by text, for verification by exact match.

    Lengths count the drafter's tokens; how many target tokens their text makes is another number.

    Parameters
    ----------
    target, drafter, requests, lookahead, max_draft_tokens, stats
        As of `ProposerFactory`. The drafter must have a `vocab_map` whose vocabularies can encode.
    draft_temperature : float or None
        0 (greedy) proposes the drafter's likeliest token: a proposal without a law is accepted with the target's
        probability of it, which a random draw can only lower on average where the models agree. None follows the
        request's draft_sampling. A request that was given a draft_sampling of its own keeps it.
    bridge : TextBridge, optional
        Default: one over the drafter's `vocab_map`.

    Raises
    ------
    ValueError   no drafter, or one without a `vocab_map` that can encode
    """

    name = "slem"

    def __init__(
        self,
        target: Target,
        drafter: Drafter | None,
        requests: Sequence[Request],
        lookahead: Lookahead,
        max_draft_tokens: int,
        stats: DecodingStats,
        *,
        draft_temperature: float | None = 0.0,
        bridge: TextBridge | None = None,
    ) -> None:
        if drafter is None:
            raise ValueError(f"{self.name}: drafter must be a model, got None")
        self.bridge = bridge_of(drafter, self.name) if bridge is None else bridge
        self._target, self._lookahead, self._stats = target, lookahead, stats
        self._draft_temperature = draft_temperature
        longest = max((request.max_new_tokens for request in requests), default=0)
        prompts = [request.prompt for request in requests]
        self._contexts = TextContexts(drafter, self.bridge, prompts, longest, max_draft_tokens)
        self._allowed = lru_cache(_MAX_MASKS)(self._make_allowed)

    def begin(self, requests: Sequence[Request]) -> None:
        """Nothing is fed before a draft is wanted."""

    def propose(self, requests: Sequence[Request], lengths: Sequence[int]) -> Draft:
        """Draft up to `lengths` drafter tokens for each request and return their text in target ids."""
        drafts: list[list[int]] = [[] for _ in requests]
        samplings = [self._sampling(request) for request in requests]
        drafting = [i for i, request in enumerate(requests) if lengths[i] > 0 and self._contexts.begin(request.index)]
        depth = 0
        while drafting:
            active = [requests[i] for i in drafting]
            with self._stats.timed("seconds_drafter"):
                logits = self._contexts.next_logits([request.index for request in active])
                self._stats.drafter_calls += 1
            with self._stats.timed("seconds_ops"):
                logits = self._finishing(logits, active, [drafts[i] for i in drafting])
                sample = ops.draft_sample(
                    logits,
                    **sampling_arguments([samplings[i] for i in drafting], logits.device),
                    seeds=as_int64([request.seed for request in active], logits),
                    positions=as_int64([request.position + depth for request in active], logits),
                )
                draft_ids = sample.draft_token_ids.tolist()
                owners = [(requests[i], samplings[i], depth) for i in drafting]
                drafted = drafted_tokens(self._lookahead, owners, logits, sample, draft_ids)
            proceeding = []
            for i, token, draft_id in zip(drafting, drafted, draft_ids, strict=True):
                if draft_id < 0:  # No finite logit, or a NaN.
                    continue
                drafts[i].append(draft_id)
                self._contexts.draft(token.request, draft_id)
                # A special token ends the text, and with it the draft.
                is_last = depth + 1 == lengths[i] or self.bridge.drafter.token_bytes[draft_id] is None
                if not is_last and self._lookahead.wants_more(token):
                    proceeding.append(i)
            drafting = proceeding
            depth += 1
        return Draft([self._in_target_ids(request, ids) for request, ids in zip(requests, drafts, strict=True)])

    def commit(self, request: int, num_accepted_tokens: int, emitted: Sequence[int]) -> None:
        """Take the emitted text over into the drafter's context."""
        self._contexts.commit(request, emitted)

    def drop(self, request: int) -> None:
        """Let go of the drafter's sequence."""
        self._contexts.drop(request)

    def _in_target_ids(self, request: Request, draft_ids: Sequence[int]) -> list[int]:
        """Encode a draft behind what the request has emitted, no longer than the request may still grow."""
        if not draft_ids:
            return []
        # A round emits one token more than it was proposed.
        room = request.max_new_tokens - len(request.tokens) - 1
        emitted = emitted_tail(request, self.bridge.lookback)
        return self.bridge.propose(emitted, draft_ids, self._contexts.held(request.index))[:room]

    def _sampling(self, request: Request) -> Sampling:
        # The decoder hands the request's own sampling on where no other was asked for.
        if self._draft_temperature is None or request.draft_sampling is not request.sampling:
            return request.draft_sampling
        return replace(request.draft_sampling, temperature=self._draft_temperature)

    def _finishing(self, logits: Tensor, requests: Sequence[Request], drafts: Sequence[Sequence[int]]) -> Tensor:
        """Keep only tokens that go on with an unfinished character, where the target has emitted the start of one."""
        for row, (request, draft) in enumerate(zip(requests, drafts, strict=True)):
            held = self._contexts.held(request.index)
            missing = held[len(self.bridge.drafter.bytes_of(draft)) :] if held else b""
            if missing:
                allowed = self._allowed(missing)
                if bool(allowed.any()):
                    logits = logits.clone()
                    logits[row].masked_fill_(~allowed.to(logits.device), -math.inf)
        return logits

    def _make_allowed(self, prefix: bytes) -> Tensor:
        """Return which of the drafter's tokens begin with a prefix or are the beginning of it, bool [Vd]."""
        return torch.tensor(
            [
                token is not None and (token.startswith(prefix) or prefix.startswith(token))
                for token in self.bridge.drafter.token_bytes
            ]
        )


def bridge_of(drafter: Drafter, name: str) -> TextBridge:
    """Return the bridge over a drafter's own map."""
    vocab_map = getattr(drafter, "vocab_map", None)
    if vocab_map is None:
        raise ValueError(
            f"{name}: drafter must have a vocab_map of all that it drafts, got {type(drafter).__name__} without"
        )
    return _bridge_over(vocab_map)


@lru_cache(maxsize=4)
def _bridge_over(vocab_map: VocabMap) -> TextBridge:
    """Return the bridge over a map, made once: that takes a third of a second for the largest vocabularies."""
    return TextBridge(vocab_map)


def emitted_tail(request: Request, num_tokens: int) -> list[int]:
    """Return the last target tokens of a request, prompt included."""
    tail = request.tokens[-num_tokens:] if num_tokens else []
    return request.prompt[len(request.prompt) - max(0, num_tokens - len(tail)) :] + tail if num_tokens else []
