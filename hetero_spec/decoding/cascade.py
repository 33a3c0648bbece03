# SPDX-License-Identifier: Apache-2.0
"""A cascade: drafts drawn from a middle model, which has a drafter of its own to be quicker at it.

The middle model draws each draft token from its own law (restricted to the target's vocabulary, as in TLI), helped by
an inner proposer whose drafts it verifies. Inner verification is lossless, so the tokens follow the middle model's law
exactly; hence the rows of the middle model are the rows the target has to verify with. The inner proposer's law never
leaves the cascade.

Random numbers. Inner verification consumes the uniforms of each position, and the target's verification must not see
the same ones again: the inner draws have seeds of their own.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hetero_spec import ops
from hetero_spec.decoding.context import DraftContexts
from hetero_spec.decoding.lookahead import DraftedToken, FixedLookahead, Lookahead
from hetero_spec.decoding.proposers import Draft, ProposerFactory, RetractableProposer, as_int64, drafted_tokens
from hetero_spec.decoding.protocols import Drafter, Sequences, Target
from hetero_spec.decoding.request import Request
from hetero_spec.decoding.sampling import sampling_arguments
from hetero_spec.decoding.stats import DecodingStats, RequestStats
from hetero_spec.decoding.text import TextStream

_MASK = 2**64 - 1


def inner_seed(seed: int) -> int:
    """Return the seed of a cascade's inner draws: another number for every seed, spread by splitmix64."""
    mixed = (seed + 0x9E3779B97F4A7C15) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    mixed ^= mixed >> 31
    return (mixed + 2**63) % 2**64 - 2**63


@dataclass(eq=False)
class _InnerRequest(Request):
    """A request as the middle model sees it: its tokens are the middle model's, its positions the target's."""

    shift: int = 0

    @property
    def position(self) -> int:
        """Position, in the target's text, of the next token."""
        return len(self.prompt) + len(self.tokens) + self.shift


class MiddleTarget:
    """The middle model as the target of its own drafter; satisfies the `Target` protocol.

    Parameters
    ----------
    middle : Drafter
        The target's drafter.
    eos_token_ids : collection of int
        The target's.
    token_bytes : sequence of bytes or None, optional
        Of the middle model's ids.
    """

    def __init__(
        self, middle: Drafter, eos_token_ids: Collection[int], token_bytes: Sequence[bytes | None] | None = None
    ) -> None:
        self._middle = middle
        self.vocab_size = middle.vocab_size
        self.max_length = middle.max_length
        self.token_bytes: Sequence[bytes | None] = [None] * middle.vocab_size if token_bytes is None else token_bytes
        ends = frozenset(eos_token_ids)
        self.eos_token_ids: Collection[int] = frozenset(
            draft_id for draft_id, target_id in enumerate(middle.draft_to_target_ids.tolist()) if target_id in ends
        )
        self.tokenizer = getattr(middle, "tokenizer", None)

    def encode(self, text: str) -> Sequence[int]:
        """Nobody gives the middle model a text."""
        raise NotImplementedError("cascade: the middle model is prompted by the target's tokens only")

    def open(self, num_requests: int, max_length: int) -> Sequences:
        """Start a batch of the middle model's sequences."""
        return self._middle.open(num_requests, max_length)


class CascadeProposer:
    """Drafts with a middle model that has a drafter of its own.

    Parameters
    ----------
    target, drafter, requests, lookahead, max_draft_tokens, stats
        As of `ProposerFactory`; the drafter is the middle model.
    make_inner : ProposerFactory
        Of the inner proposer, which must be retractable (`ModelProposer` and `NgramProposer` are).
    inner_drafter : Drafter or None
        From its ids to the middle model's.
    inner_lookahead : Lookahead
        How much the inner proposer drafts before the middle model looks.
    """

    name = "cascade"

    def __init__(
        self,
        target: Target,
        drafter: Drafter | None,
        requests: Sequence[Request],
        lookahead: Lookahead,
        max_draft_tokens: int,
        stats: DecodingStats,
        *,
        make_inner: ProposerFactory,
        inner_drafter: Drafter | None = None,
        inner_lookahead: Lookahead | None = None,
    ) -> None:
        if drafter is None:
            raise ValueError("cascade: drafter must be the middle model, got None")
        self._target, self._middle, self._lookahead, self._stats = target, drafter, lookahead, stats
        self._max_draft_tokens = max_draft_tokens
        self._inner_lookahead = FixedLookahead(4) if inner_lookahead is None else inner_lookahead
        longest = max((request.max_new_tokens for request in requests), default=0)
        self._contexts = DraftContexts(drafter, [request.prompt for request in requests], longest, max_draft_tokens)
        self._unshared = drafter.draft_to_target_ids < 0
        self._to_target: list[int] = drafter.draft_to_target_ids.tolist()
        as_target = MiddleTarget(drafter, target.eos_token_ids)
        self._inner_requests = {
            request.index: _InnerRequest(
                request.index,
                list(self._contexts.token_ids(request.index)),
                inner_seed(request.seed),
                request.draft_sampling,
                request.draft_sampling,
                TextStream(()),
                request.max_new_tokens,
            )
            for request in requests
        }
        inner_max = min(self._inner_lookahead.max_draft_tokens, max_draft_tokens)
        if inner_drafter is not None and inner_drafter.max_length is not None:
            inner_max = min(inner_max, max(1, inner_drafter.max_length // 2))
        inner = make_inner(
            as_target, inner_drafter, list(self._inner_requests.values()), self._inner_lookahead, inner_max, stats
        )
        if not isinstance(inner, RetractableProposer):
            raise ValueError(f"cascade: make_inner must make a proposer with retract, got {inner.name}")
        self._inner: RetractableProposer = inner
        self._inner_max = inner_max
        self._num_drafted: dict[int, int] = {}

    def begin(self, requests: Sequence[Request]) -> None:
        """Pass the requests, as the middle model sees them, to the inner proposer."""
        self._stats.inner = RequestStats()
        self._inner_lookahead.begin(len(requests))
        self._inner.begin(list(self._inner_requests.values()))

    def propose(self, requests: Sequence[Request], lengths: Sequence[int]) -> Draft:
        """Let the middle model decode ahead, in rounds of its own, until every request has its length."""
        token_ids: list[list[int]] = [[] for _ in requests]
        rows: list[list[Tensor]] = [[] for _ in requests]
        stats: list[list[Tensor]] = [[] for _ in requests]
        lengths = [min(length, self._max_draft_tokens) for length in lengths]
        drafting = [i for i, request in enumerate(requests) if lengths[i] > 0 and self._contexts.begin(request.index)]
        for request in requests:
            inner = self._inner_requests[request.index]
            inner.shift += request.position - inner.position
            self._num_drafted[request.index] = 0
        while drafting:
            active = [self._inner_requests[requests[i].index] for i in drafting]
            # The middle model adds a token of its own to each inner draft.
            room = [min(self._inner_max, lengths[i] - len(token_ids[i]) - 1) for i in drafting]
            wanted = [
                max(0, min(self._inner_lookahead.length(inner.index), most))
                for inner, most in zip(active, room, strict=True)
            ]
            decoded = self._decode(active, [len(token_ids[i]) for i in drafting], self._inner.propose(active, wanted))
            proceeding = []
            for i, inner, run in zip(drafting, active, decoded, strict=True):
                is_open = run.is_open
                for surplus, token in zip(range(len(run.tokens) - 1, -1, -1), run.tokens, strict=True):
                    token_ids[i].append(token.token_id)
                    is_last = len(token_ids[i]) == lengths[i] or token.token_id in self._target.eos_token_ids
                    if is_last or not self._lookahead.wants_more(token):
                        # What the middle model has decoded beyond this token was not asked for.
                        self._contexts.keep(inner.index, len(token_ids[i]))
                        self._retract(inner, surplus)
                        is_open = False
                        break
                num_kept = len(token_ids[i]) - len(rows[i])
                rows[i] += run.logits[:num_kept]
                stats[i] += run.stats[:num_kept]
                self._num_drafted[inner.index] = len(token_ids[i])
                if is_open:
                    proceeding.append(i)
            drafting = proceeding
        if not any(token_ids):
            return Draft(token_ids)
        flat_rows = [row for request_rows in rows for row in request_rows]
        flat_stats = [row for request_stats in stats for row in request_stats]
        return Draft(token_ids, torch.stack(flat_rows), torch.stack(flat_stats), self._middle.target_to_draft_ids)

    def commit(self, request: int, num_accepted_tokens: int, emitted: Sequence[int]) -> None:
        """Roll middle model and inner proposer back to what the target accepted, and tell both what it emitted."""
        inner = self._inner_requests[request]
        rejected = self._num_drafted.pop(request, 0) - num_accepted_tokens
        self._retract(inner, rejected)
        for token_id in self._contexts.commit(request, num_accepted_tokens, emitted[-1]):
            self._inner.commit(request, 0, [token_id])
            inner.tokens.append(token_id)

    def drop(self, request: int) -> None:
        """Forget a finished request."""
        self._contexts.drop(request)
        self._inner.drop(request)
        del self._inner_requests[request]

    def _decode(self, requests: Sequence[_InnerRequest], depths: Sequence[int], draft: Draft) -> list[_Run]:
        """One inner round: the middle model looks at the inner drafts and adds a token to what it keeps.

        Parameters
        ----------
        requests : sequence of _InnerRequest
        depths : one int per request
            Length of its outer draft so far.
        draft : Draft
            In the middle model's ids.
        """
        counts = draft.counts
        for request, ids in zip(requests, draft.token_ids, strict=True):
            for draft_id in ids:
                self._contexts.draft(request.index, (draft_id,))
        with self._stats.timed("seconds_drafter"):
            logits = self._contexts.next_logits(
                [request.index for request in requests], [count + 1 for count in counts]
            )
            self._stats.drafter_calls += 1
        with self._stats.timed("seconds_ops"):
            owners = [request for request, count in zip(requests, counts, strict=True) for _ in range(count + 1)]
            row_depths = [depth + j for depth, count in zip(depths, counts, strict=True) for j in range(count + 1)]
            positions = as_int64([request.position for request in requests], logits)
            # What it draws is not used: the rows' laws, with what a lookahead reads of them.
            sample = ops.draft_sample(
                logits,
                self._middle.draft_to_target_ids,
                **sampling_arguments([request.sampling for request in owners], logits.device),
                uniform_samples=torch.zeros(len(owners), dtype=torch.float64, device=logits.device),
            )
            verdict = ops.rejection_sample(
                # The law to keep is the one that drafts for the target: without what the target does not have.
                logits.masked_fill(self._unshared, -math.inf),
                as_int64([draft_id for ids in draft.token_ids for draft_id in ids], logits).to(torch.int32),
                as_int64([0, *counts], logits).cumsum(0).to(torch.int32),
                max(counts),
                draft_logits=draft.logits,
                draft_stats=draft.stats,
                target_to_draft_ids=draft.target_to_draft_ids,
                **sampling_arguments([request.sampling for request in requests], logits.device),
                seeds=as_int64([request.seed for request in requests], logits),
                positions=positions,
            )
            emitted = verdict.output_token_ids.tolist()
            accepted, status = verdict.num_accepted_tokens.tolist(), verdict.status.tolist()
            drawn = [
                emitted[b][j] if j <= accepted[b] else -1 for b, count in enumerate(counts) for j in range(count + 1)
            ]
            sample = sample._replace(probs=_law_at(logits, sample.stats, drawn))
            tokens = drafted_tokens(
                self._lookahead,
                [(owner, owner.draft_sampling, row_depth) for owner, row_depth in zip(owners, row_depths, strict=True)],
                logits,
                sample,
                drawn,
                [self._to_target[draft_id] for draft_id in drawn],
                self._middle.draft_to_target_ids,
            )
        runs = []
        row = 0
        for b, request in enumerate(requests):
            assert self._stats.inner is not None
            self._stats.inner.proposed += counts[b]
            self._stats.inner.accepted += accepted[b]
            self._stats.inner.target_steps += 1
            self._inner_lookahead.observe(request.index, counts[b], accepted[b])
            self._contexts.keep(request.index, depths[b] + accepted[b])
            self._inner.commit(request.index, accepted[b], emitted[b][: accepted[b] + 1])
            request.tokens += emitted[b][: accepted[b] + 1]
            num_kept = accepted[b] + 1
            is_open = not status[b] & ~int(ops.Status.RESIDUAL_EMPTY)
            if is_open:
                self._contexts.draft(request.index, (emitted[b][accepted[b]],))
            else:  # The middle model's row has no law here: the draft ends before this place.
                self._retract(request, 1)
                num_kept -= 1
            self._stats.inner.tokens += num_kept
            end = row + num_kept
            runs.append(_Run(tokens[row:end], list(logits[row:end]), list(sample.stats[row:end]), is_open))
            row += counts[b] + 1
        return runs

    def _retract(self, request: _InnerRequest, num_tokens: int) -> None:
        """Let the inner proposer unlearn a request's last tokens."""
        if num_tokens:
            self._inner.retract(request.index, num_tokens)
            del request.tokens[-num_tokens:]


@dataclass(frozen=True)
class _Run:
    """What one inner round added to one request: tokens, the rows they were drawn from, and whether it may go on."""

    tokens: list[DraftedToken]
    logits: list[Tensor]
    stats: list[Tensor]
    is_open: bool


def _law_at(logits: Tensor, stats: Tensor, draft_ids: Sequence[int]) -> Tensor:
    """Probability of one id per row under the row's law, float32 [rows]; 0 for an id of -1."""
    ids = torch.tensor(draft_ids, dtype=torch.int64, device=logits.device)
    chosen = logits.float().gather(1, ids.clamp(min=0)[:, None])[:, 0]
    maximum, inv_temperature, log_normalizer, cutoff = stats.unbind(1)
    probs = ((chosen - maximum) * inv_temperature - log_normalizer).exp()
    return torch.where((ids >= 0) & (chosen >= cutoff), probs, 0.0)
