# SPDX-License-Identifier: Apache-2.0
"""The loop: propose, verify, commit.

Positions. A request's committed target tokens have positions 0..L-1, prompt included. Its next round's first target
row is the one that predicts position L, so `positions` of the ops is L, and the j-th draft token of the round is drawn
for position L + j. With its own seed and these positions, a request's random numbers depend on nothing else in the
batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from hetero_spec import ops
from hetero_spec.decoding.exact import exact_sample
from hetero_spec.decoding.lookahead import Lookahead, lengths_within
from hetero_spec.decoding.proposers import Draft, ObservingProposer, Proposer, ProposerFactory, as_int64, no_draft
from hetero_spec.decoding.protocols import Drafter, Sequences, Target
from hetero_spec.decoding.request import Request
from hetero_spec.decoding.sampling import sampling_arguments
from hetero_spec.decoding.stats import DecodingStats


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


class Batch:
    """The state of a batch of requests between rounds."""

    def __init__(
        self,
        target: Target,
        drafter: Drafter | None,
        requests: Sequence[Request],
        lookahead: Lookahead,
        *,
        make_proposer: ProposerFactory | None,
        verify: str,
        rule: str,
        stats: DecodingStats,
    ) -> None:
        self.target, self.lookahead = target, lookahead
        self.verify, self.rule, self.stats = verify, rule, stats
        self.active = list(requests)
        self.max_draft_tokens = 0
        max_new_tokens = max((request.max_new_tokens for request in requests), default=0)
        if make_proposer is not None:
            # A round emits up to one token more than it drafts. Half of a drafter's window is left to its context.
            limit = None if drafter is None else drafter.max_length
            window = lookahead.max_draft_tokens if limit is None else max(1, limit // 2)
            self.max_draft_tokens = min(lookahead.max_draft_tokens, max_new_tokens - 1, window)
        longest = max((request.position for request in requests), default=0) + max_new_tokens
        self.sequences: Sequences = target.open(len(requests), longest + self.max_draft_tokens + 1)
        self.proposer: Proposer | None = None
        if make_proposer is not None and self.max_draft_tokens:
            self.proposer = make_proposer(target, drafter, requests, lookahead, self.max_draft_tokens, stats)
            self.proposer.begin(requests)
        self.observer = self.proposer if isinstance(self.proposer, ObservingProposer) else None
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
    """Ask for a draft for every active request, each as long as its lookahead allows."""
    if batch.proposer is None:
        return no_draft(len(batch.active))
    remaining = [request.max_new_tokens - len(request.tokens) for request in batch.active]
    lengths = [
        min(length, batch.max_draft_tokens)
        for length in lengths_within(batch.lookahead, [request.index for request in batch.active], remaining)
    ]
    return batch.proposer.propose(batch.active, lengths)


def verify(batch: Batch, draft: Draft) -> ops.RejectionSample:
    """Let the target look at every draft in one pass, and decide what is kept."""
    counts = draft.counts
    fed = [
        (request.tokens[-1:] or request.prompt) + ids
        for request, ids in zip(batch.active, draft.token_ids, strict=True)
    ]
    with batch.stats.timed("seconds_target"):
        requests = [request.index for request in batch.active]
        logits = batch.sequences.feed(requests, fed, [count + 1 for count in counts])
        batch.stats.target_calls += 1
    with batch.stats.timed("seconds_ops"):
        if batch.verify == "exact":
            return exact_sample(logits, draft.token_ids, batch.active)
        if draft.verifier is not None:
            return draft.verifier(batch.active, draft, logits)
        redistribution = (
            {} if draft.kernel is None else {"kernel": draft.kernel, "draft_leaked_mass": draft.leaked_mass}
        )
        return ops.rejection_sample(
            logits,
            as_int64([token_id for ids in draft.token_ids for token_id in ids], logits).to(torch.int32),
            as_int64([0, *counts], logits).cumsum(0).to(torch.int32),
            max(counts),
            draft_logits=draft.logits,
            draft_stats=draft.stats,
            target_to_draft_ids=draft.target_to_draft_ids,
            **sampling_arguments([request.sampling for request in batch.active], logits.device),
            seeds=as_int64([request.seed for request in batch.active], logits),
            positions=as_int64([request.position for request in batch.active], logits),
            rule=batch.rule,
            **redistribution,
        )


def commit(batch: Batch, draft: Draft, verdict: ops.RejectionSample) -> list[Piece]:
    """Take over what was accepted, roll target and proposer back to it, and let finished requests go."""
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
        if batch.observer is not None and not is_bad:
            batch.observer.observe(request.index, len(drafted), accepted)
        if request.finish_reason is None:
            batch.sequences.truncate(request.index, position + accepted)
            if batch.proposer is not None:
                batch.proposer.commit(request.index, accepted, emitted[: accepted + 1])
        else:
            batch.active.remove(request)
            batch.sequences.drop(request.index)
            if batch.proposer is not None:
                batch.proposer.drop(request.index)
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
        if len(request.tokens) == request.max_new_tokens:
            request.finish_reason = "length"
            break
    if request.finish_reason is not None:
        text += request.text.finish()
        if request.text.stopped:
            request.finish_reason = "stop"
    return Piece(request.index, text, tuple(kept), request.finish_reason)
