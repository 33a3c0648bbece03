# SPDX-License-Identifier: Apache-2.0
"""The loop: propose, verify, commit.

Positions. A request's committed target tokens have positions 0..L-1, prompt included. Its next round's first target
row is the one that predicts position L, so `positions` of the ops is L, and the j-th draft token of the round is drawn
for position L + j. With its own seed and these positions, a request's random numbers depend on nothing else in the
batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from hetero_spec import ops
from hetero_spec.decoding.context import DraftContexts
from hetero_spec.decoding.lookahead import DraftedToken, Lookahead, lengths_within
from hetero_spec.decoding.protocols import Drafter, Sequences, Target
from hetero_spec.decoding.sampling import Sampling, sampling_arguments
from hetero_spec.decoding.stats import DecodingStats
from hetero_spec.decoding.text import TextStream


@dataclass(eq=False)
class Request:
    """One request: its committed target tokens and what is known about its end."""

    index: int
    prompt: list[int]
    seed: int
    sampling: Sampling
    draft_sampling: Sampling
    text: TextStream
    tokens: list[int] = field(default_factory=list)
    finish_reason: str | None = None

    @property
    def position(self) -> int:
        """Position of the next token."""
        return len(self.prompt) + len(self.tokens)


@dataclass(frozen=True)
class Piece:
    """What one round added to one request.

    Attributes
    ----------
    request : int
        Number of the prompt.
    text : str
        New text, possibly empty.
    token_ids : tuple of int
        New target tokens; an end-of-text token is the last of them.
    finish_reason : str or None
        None while it goes on; then "eos", "stop" (a stop string), "length" (max_new_tokens), or "error" (the target's
        logits hold NaN or leave no token; nothing of that round is kept).
    """

    request: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: str | None


@dataclass(frozen=True)
class Draft:
    """One round's proposals for the active requests, in the ragged form of `ops.rejection_sample`."""

    token_ids: list[list[int]]
    logits: Tensor | None
    stats: Tensor | None


class Batch:
    """The state of a batch of requests between rounds."""

    def __init__(
        self,
        target: Target,
        drafter: Drafter | None,
        requests: Sequence[Request],
        lookahead: Lookahead,
        *,
        max_new_tokens: int,
        rule: str,
        stats: DecodingStats,
    ) -> None:
        self.target, self.drafter, self.lookahead = target, drafter, lookahead
        self.max_new_tokens, self.rule, self.stats = max_new_tokens, rule, stats
        self.active = list(requests)
        self.max_draft_tokens = 0
        if drafter is not None:
            # A round emits up to one token more than it drafts. Half of a drafter's window is left to its context.
            limit = drafter.max_length
            window = lookahead.max_draft_tokens if limit is None else max(1, limit // 2)
            self.max_draft_tokens = min(lookahead.max_draft_tokens, max_new_tokens - 1, window)
        longest = max((request.position for request in requests), default=0) + max_new_tokens
        self.sequences: Sequences = target.open(len(requests), longest + self.max_draft_tokens + 1)
        self.contexts: DraftContexts | None = None
        if drafter is not None and self.max_draft_tokens:
            prompts = [request.prompt for request in requests]
            self.contexts = DraftContexts(drafter, prompts, max_new_tokens, self.max_draft_tokens)
        self.draft_rows: Tensor | None = None
        lookahead.begin(len(requests))


def run(batch: Batch) -> Iterator[list[Piece]]:
    """Decode until every request has finished; yield each round's pieces."""
    while batch.active:
        with batch.stats.timed("seconds"):
            draft = propose(batch)
            verdict = verify(batch, draft)
            pieces = commit(batch, draft, verdict)
        yield pieces


def propose(batch: Batch) -> Draft:
    """Draw a draft for every active request, each as long as its lookahead allows."""
    token_ids: list[list[int]] = [[] for _ in batch.active]
    contexts, drafter = batch.contexts, batch.drafter
    if contexts is None or drafter is None:
        return Draft(token_ids, None, None)
    remaining = [batch.max_new_tokens - len(request.tokens) for request in batch.active]
    lengths = [
        min(length, batch.max_draft_tokens)
        for length in lengths_within(batch.lookahead, [request.index for request in batch.active], remaining)
    ]
    drafting = [i for i, request in enumerate(batch.active) if lengths[i] > 0 and contexts.begin(request.index)]
    rows: Tensor | None = None
    stats = torch.empty(0)
    depth = 0
    while drafting:
        requests = [batch.active[i] for i in drafting]
        with batch.stats.timed("seconds_drafter"):
            logits = contexts.next_logits([request.index for request in requests])
            batch.stats.drafter_calls += 1
        with batch.stats.timed("seconds_ops"):
            sample = ops.draft_sample(
                logits,
                drafter.draft_to_target_ids,
                **sampling_arguments([request.draft_sampling for request in requests]),
                seeds=_int64([request.seed for request in requests], logits),
                positions=_int64([request.position + depth for request in requests], logits),
            )
            if rows is None:
                rows = _draft_rows(batch, logits)
                stats = sample.stats.new_zeros(len(batch.active), batch.max_draft_tokens, 4)
            rows[drafting, depth] = logits
            stats[drafting, depth] = sample.stats
            drafted = _drafted_tokens(batch, requests, depth, logits, sample)
        proceeding = []
        for i, token, target_id, draft_id in zip(
            drafting, drafted, sample.target_token_ids.tolist(), sample.draft_token_ids.tolist(), strict=True
        ):
            if target_id < 0:  # The drafter's law is empty here: the draft ends before this place.
                continue
            token_ids[i].append(target_id)
            contexts.draft(token.request, draft_id)
            is_last = depth + 1 == lengths[i] or target_id in batch.target.eos_token_ids
            if not is_last and batch.lookahead.wants_more(token):
                proceeding.append(i)
        drafting = proceeding
        depth += 1
    if rows is None or not any(token_ids):
        return Draft(token_ids, None, None)
    counts = [len(ids) for ids in token_ids]
    return Draft(token_ids, _packed(rows, counts), _packed(stats, counts))


def verify(batch: Batch, draft: Draft) -> ops.RejectionSample:
    """Let the target look at every draft in one pass, and decide what is kept."""
    counts = [len(ids) for ids in draft.token_ids]
    fed = [
        (request.tokens[-1:] or request.prompt) + ids
        for request, ids in zip(batch.active, draft.token_ids, strict=True)
    ]
    with batch.stats.timed("seconds_target"):
        requests = [request.index for request in batch.active]
        logits = batch.sequences.feed(requests, fed, [count + 1 for count in counts])
        batch.stats.target_calls += 1
    with batch.stats.timed("seconds_ops"):
        return ops.rejection_sample(
            logits,
            _int64([token_id for ids in draft.token_ids for token_id in ids], logits).to(torch.int32),
            _int64([0, *counts], logits).cumsum(0).to(torch.int32),
            max(counts),
            draft_logits=draft.logits,
            draft_stats=draft.stats,
            target_to_draft_ids=None
            if batch.drafter is None or draft.logits is None
            else batch.drafter.target_to_draft_ids,
            **sampling_arguments([request.sampling for request in batch.active]),
            seeds=_int64([request.seed for request in batch.active], logits),
            positions=_int64([request.position for request in batch.active], logits),
            rule=batch.rule,
        )


def commit(batch: Batch, draft: Draft, verdict: ops.RejectionSample) -> list[Piece]:
    """Take over what was accepted, roll both caches back to it, and let finished requests go."""
    pieces = []
    for request, drafted, emitted, accepted, status in zip(
        list(batch.active),
        draft.token_ids,
        verdict.output_token_ids.tolist(),
        verdict.num_accepted_tokens.tolist(),
        verdict.status.tolist(),
        strict=True,
    ):
        position = request.position
        is_bad = bool(status & ~int(ops.Status.RESIDUAL_EMPTY))
        piece = _append(request, [] if is_bad else emitted[: accepted + 1], batch)
        if is_bad:
            request.finish_reason = "error"
            piece = Piece(request.index, request.text.finish(), (), "error")
        batch.stats.add(request.index, proposed=len(drafted), accepted=accepted, tokens=len(piece.token_ids))
        batch.lookahead.observe(request.index, len(drafted), accepted)
        if request.finish_reason is None:
            batch.sequences.truncate(request.index, position + accepted)
            if batch.contexts is not None:
                batch.contexts.commit(request.index, accepted, emitted[accepted])
        else:
            batch.active.remove(request)
            batch.sequences.drop(request.index)
            if batch.contexts is not None:
                batch.contexts.drop(request.index)
        pieces.append(piece)
    return pieces


def _append(request: Request, emitted: Sequence[int], batch: Batch) -> Piece:
    """Append emitted tokens up to the one that ends the request; what follows it is discarded."""
    text, kept = "", []
    for token_id in emitted:
        request.tokens.append(token_id)
        kept.append(token_id)
        if token_id in batch.target.eos_token_ids:
            request.finish_reason = "eos"
            break
        text += request.text.push(token_id)
        if request.text.stopped:
            request.finish_reason = "stop"
            break
        if len(request.tokens) == batch.max_new_tokens:
            request.finish_reason = "length"
            break
    if request.finish_reason is not None:
        text += request.text.finish()
        if request.text.stopped:
            request.finish_reason = "stop"
    return Piece(request.index, text, tuple(kept), request.finish_reason)


def _drafted_tokens(
    batch: Batch, requests: Sequence[Request], depth: int, logits: Tensor, sample: ops.DraftSample
) -> list[DraftedToken]:
    """Collect what the lookahead policy may know about the tokens just drawn."""
    probs = sample.probs.tolist()
    greedy = [i for i, request in enumerate(requests) if request.draft_sampling.temperature == 0.0]
    if batch.lookahead.needs_prob and batch.drafter is not None and greedy:
        # A greedy law gives its one token probability 1; how sure the drafter is shows at temperature 1.
        stats = ops.row_stats(logits, temperature=1.0, draft_to_target_ids=batch.drafter.draft_to_target_ids)
        for i in greedy:
            draft_id = int(sample.draft_token_ids[i])
            if draft_id >= 0:
                maximum, _, log_normalizer, _ = stats[i].tolist()
                probs[i] = math.exp(float(logits[i, draft_id]) - maximum - log_normalizer)
    return [
        DraftedToken(request.index, depth, prob, entropy, max_prob)
        for request, prob, entropy, max_prob in zip(
            requests, probs, sample.entropy.tolist(), sample.max_prob.tolist(), strict=True
        )
    ]


def _draft_rows(batch: Batch, logits: Tensor) -> Tensor:
    """Return the round's room for draft rows, [active, max_draft_tokens, Vd], kept from round to round."""
    rows = batch.draft_rows
    if rows is None:
        rows = logits.new_empty(len(batch.active), batch.max_draft_tokens, logits.shape[1])
        batch.draft_rows = rows
    return rows[: len(batch.active)]


def _packed(rows: Tensor, counts: Sequence[int]) -> Tensor:
    """Close the gaps of rows [B, K, ...]: request b's first counts[b] rows, back to back, as a view [N, ...].

    One request, or full drafts, need no move at all; else only rows behind the first short draft move.
    """
    flat = rows.flatten(0, 1)
    width, end = rows.shape[1], 0
    for request, count in enumerate(counts):
        if end != request * width:
            for j in range(count):
                flat[end + j] = flat[request * width + j]
        end += count
    return flat[:end]


def _int64(values: Sequence[int], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=torch.int64, device=like.device)
