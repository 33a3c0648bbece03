# SPDX-License-Identifier: Apache-2.0
"""Where drafts come from: the protocol of a proposer, and the one that asks a drafter model (TLI).

A proposer lives as long as its batch. Each round it is asked for a draft for every active request (in target ids,
with the law that each token was drawn from), and is then told what the target emitted. It must never let a draft
token's value decide whether that token is proposed; a token once drawn stays in the draft, though it may be the last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from hetero_spec import ops
from hetero_spec.decoding.context import DraftContexts
from hetero_spec.decoding.lookahead import NUM_TOP_PROBS, DraftedToken, Lookahead
from hetero_spec.decoding.protocols import Drafter, Target
from hetero_spec.decoding.request import Request
from hetero_spec.decoding.sampling import Sampling, sampling_arguments
from hetero_spec.decoding.stats import DecodingStats


@dataclass(frozen=True)
class Draft:
    """One round's proposals for the active requests, in the ragged form of `ops.rejection_sample`.

    Attributes
    ----------
    token_ids : list of list of int
        Target ids of each request asked for, in the order asked; an empty list proposes nothing. N in all.
    logits : float [N, Vd] or None
        The rows that the tokens were drawn from, requests back to back. None: one-hot drafts (n-grams, text).
    stats : float32 [N, 4] or None
        The rows' laws as `ops.draft_sample` returned them.
    target_to_draft_ids : int32 [V] or None
        How target ids are read in the rows; None where the rows are in target ids.
    kernel : RDK kernel or None
        With which the rows' laws were redistributed.
    leaked_mass : float32 [N], [N, n + 1] with a low-rank kernel, or None
        `leaked_mass` of `ops.draft_sample` for these rows.
    verifier : callable or None
        Verifies this draft in place of `ops.rejection_sample`, for laws that no row of logits can say: takes the
        requests, the draft and the target's rows [N + B, V], and returns an `ops.RejectionSample`. Not asked when
        verification is exact.
    """

    token_ids: list[list[int]]
    logits: Tensor | None = None
    stats: Tensor | None = None
    target_to_draft_ids: Tensor | None = None
    kernel: Any = None
    leaked_mass: Tensor | None = None
    verifier: Callable[[Sequence[Request], Draft, Tensor], ops.RejectionSample] | None = None

    @property
    def counts(self) -> list[int]:
        """Number of draft tokens of each request."""
        return [len(ids) for ids in self.token_ids]


def no_draft(num_requests: int) -> Draft:
    """Return the draft that proposes nothing for this many requests."""
    return Draft([[] for _ in range(num_requests)])


@runtime_checkable
class Proposer(Protocol):
    """Makes the drafts of one batch."""

    name: str
    """Of its method, for statistics."""

    def begin(self, requests: Sequence[Request]) -> None:
        """Take up a batch of new requests; called once, before anything else."""
        ...

    def propose(self, requests: Sequence[Request], lengths: Sequence[int]) -> Draft:
        """Draft for the active requests.

        Parameters
        ----------
        requests : sequence of Request
            In ascending order of their index. Their tokens are what has been committed.
        lengths : one int per request
            Upper bounds; 0 = nothing for it, and no cost for it either.
        """
        ...

    def commit(self, request: int, num_accepted_tokens: int, emitted: Sequence[int]) -> None:
        """Learn what the target made of a round.

        Parameters
        ----------
        request : int
            Its index. Called for every request that goes on, also after rounds in which it had no draft.
        num_accepted_tokens : int
            How much of the draft was kept; 0 without a draft.
        emitted : sequence of int
            The accepted target ids and the one after them.
        """
        ...

    def drop(self, request: int) -> None:
        """Forget a finished request; it is not committed again."""
        ...


@runtime_checkable
class RetractableProposer(Proposer, Protocol):
    """A proposer that can also unlearn, as the inner one of a cascade must."""

    def retract(self, request: int, num_tokens: int) -> None:
        """Take back the last `num_tokens` committed tokens of a request, as if they had never been committed."""
        ...


@runtime_checkable
class ObservingProposer(Proposer, Protocol):
    """A proposer that wants to know how every draft fared, those of requests that finish included."""

    def observe(self, request: int, num_draft_tokens: int, num_accepted_tokens: int) -> None:
        """Learn of a verdict; called once a round for each active request, before `commit` or `drop`."""
        ...


class ProposerFactory(Protocol):
    """Makes a proposer for a batch; most are the proposer's class itself."""

    def __call__(
        self,
        target: Target,
        drafter: Drafter | None,
        requests: Sequence[Request],
        lookahead: Lookahead,
        max_draft_tokens: int,
        stats: DecodingStats,
    ) -> Proposer:
        """Return the proposer; nothing is computed yet.

        Parameters
        ----------
        target, drafter : Target, Drafter or None
        requests : sequence of Request
            Of the batch; the proposer's `begin` is given the same ones.
        lookahead : Lookahead
            Asked after each drafted token; lengths before a draft are the loop's business.
        max_draft_tokens : int
            No length asked for is ever larger.
        stats : DecodingStats
            To count calls and time into.
        """
        ...


class ModelProposer:
    """Drafts with a model: token-level intersection, redistributed or not.

    Each draft token is drawn from the drafter's law restricted to the tokens that both vocabularies have (TLI, Timor et
    al. 2502.05202). With an RDK kernel (2506.03206) that law is spread over the target's whole vocabulary first; a
    token that the drafter has no id for is spelt for it with several, or ends the draft where it cannot be spelt.

    Parameters
    ----------
    target, drafter, requests, lookahead, max_draft_tokens, stats
        As of `ProposerFactory`.
    kernel : RDK kernel, optional
        Of `hetero_spec.rdk`. It is left out where every request is greedy: a greedy law has nothing to gain from
        tokens that are not its argmax.
    """

    def __init__(
        self,
        target: Target,
        drafter: Drafter | None,
        requests: Sequence[Request],
        lookahead: Lookahead,
        max_draft_tokens: int,
        stats: DecodingStats,
        *,
        kernel: Any = None,
    ) -> None:
        self.name = "tli" if kernel is None else "rdk"
        if drafter is None:
            raise ValueError(f"{self.name}: drafter must be a model, got None")
        self._target, self._drafter, self._lookahead = target, drafter, lookahead
        self._max_draft_tokens, self._stats = max_draft_tokens, stats
        prompts = [request.prompt for request in requests]
        longest = max((request.max_new_tokens for request in requests), default=0)
        self._contexts = DraftContexts(drafter, prompts, longest, max_draft_tokens)
        self._rows: Tensor | None = None
        self._kernel = kernel

    def begin(self, requests: Sequence[Request]) -> None:
        """Nothing is fed before a draft is wanted."""

    def propose(self, requests: Sequence[Request], lengths: Sequence[int]) -> Draft:
        """Draw one token per request and step, for as long as lengths and lookahead allow."""
        token_ids: list[list[int]] = [[] for _ in requests]
        drafting = [i for i, request in enumerate(requests) if lengths[i] > 0 and self._contexts.begin(request.index)]
        is_greedy = all(request.draft_sampling.temperature == 0.0 for request in requests)
        kernel = None if is_greedy else self._kernel
        redistribution: dict[str, Any] = {}
        if kernel is not None:
            redistribution = {"kernel": kernel, "target_to_draft_ids": self._drafter.target_to_draft_ids}
        rows: Tensor | None = None
        stats = torch.empty(0)
        leaked_mass: Tensor | None = None
        depth = 0
        while drafting:
            active = [requests[i] for i in drafting]
            with self._stats.timed("seconds_drafter"):
                logits = self._contexts.next_logits([request.index for request in active])
                self._stats.drafter_calls += 1
            with self._stats.timed("seconds_ops"):
                sample = ops.draft_sample(
                    logits,
                    self._drafter.draft_to_target_ids,
                    **sampling_arguments([request.draft_sampling for request in active], logits.device),
                    seeds=as_int64([request.seed for request in active], logits),
                    positions=as_int64([request.position + depth for request in active], logits),
                    **redistribution,
                )
                if rows is None:
                    rows = self._room(len(requests), logits)
                    stats = sample.stats.new_zeros(len(requests), self._max_draft_tokens, 4)
                rows[drafting, depth] = logits
                stats[drafting, depth] = sample.stats
                if kernel is not None and sample.leaked_mass is not None:
                    if leaked_mass is None:
                        leaked_mass = stats.new_zeros(*stats.shape[:2], *sample.leaked_mass.shape[1:])
                    leaked_mass[drafting, depth] = sample.leaked_mass
                target_ids, draft_ids = sample.target_token_ids.tolist(), sample.draft_token_ids.tolist()
                drafted = drafted_tokens(
                    self._lookahead,
                    [(request, request.draft_sampling, depth) for request in active],
                    logits,
                    sample,
                    draft_ids,
                    target_ids,
                    self._drafter.draft_to_target_ids,
                )
            proceeding = []
            for i, token, target_id, draft_id in zip(drafting, drafted, target_ids, draft_ids, strict=True):
                if target_id < 0:  # The drafter's law is empty here: the draft ends before this place.
                    continue
                token_ids[i].append(target_id)
                written = (draft_id,) if draft_id >= 0 else self._drafter.encode_token(target_id)
                can_go_on = self._contexts.draft(token.request, written)
                is_last = depth + 1 == lengths[i] or target_id in self._target.eos_token_ids
                if can_go_on and not is_last and self._lookahead.wants_more(token):
                    proceeding.append(i)
            drafting = proceeding
            depth += 1
        if rows is None or not any(token_ids):
            return Draft(token_ids)
        counts = [len(ids) for ids in token_ids]
        return Draft(
            token_ids,
            packed(rows, counts),
            packed(stats, counts),
            self._drafter.target_to_draft_ids,
            kernel,
            None if leaked_mass is None else packed(leaked_mass, counts),
        )

    def commit(self, request: int, num_accepted_tokens: int, emitted: Sequence[int]) -> None:
        """Roll the drafter back to what was accepted and note the token after it."""
        self._contexts.commit(request, num_accepted_tokens, emitted[-1])

    def retract(self, request: int, num_tokens: int) -> None:
        """Take back the last committed target tokens."""
        self._contexts.retract(request, num_tokens)

    def drop(self, request: int) -> None:
        """Let go of the drafter's sequence."""
        self._contexts.drop(request)

    def _room(self, num_requests: int, logits: Tensor) -> Tensor:
        """Return the round's room for draft rows, [requests, max_draft_tokens, Vd], kept from round to round."""
        if self._rows is None or self._rows.shape[0] < num_requests:
            self._rows = logits.new_empty(num_requests, self._max_draft_tokens, logits.shape[1])
        return self._rows[:num_requests]


def drafted_tokens(
    lookahead: Lookahead,
    owners: Sequence[tuple[Request, Sampling, int]],
    logits: Tensor,
    sample: ops.DraftSample,
    draft_ids: Sequence[int],
    target_ids: Sequence[int] | None = None,
    draft_to_target_ids: Tensor | None = None,
) -> list[DraftedToken]:
    """Collect what a lookahead policy may know about tokens just drawn, one a row.

    Parameters
    ----------
    lookahead : Lookahead
        What it does not read is not computed.
    owners : one (Request, Sampling, depth) per row
        Whose token it is, how it was drawn, and its place in the draft.
    logits : float [rows, Vd]
    sample : ops.DraftSample
        Of these rows; its probs, stats, entropy and max_prob are read.
    draft_ids : one id per row
        The tokens; -1 where the drafter has none.
    target_ids : one id per row, optional
        Default: not known (text).
    draft_to_target_ids : int32 [Vd], optional
        The map that the tokens were drawn through. Default: the drafter's whole vocabulary.
    """
    probs, stats = sample.probs.tolist(), sample.stats
    needs_top_probs = bool(getattr(lookahead, "needs_top_probs", False))
    greedy = [row for row, (_, sampling, _) in enumerate(owners) if sampling.temperature == 0.0]
    if greedy and (lookahead.needs_prob or needs_top_probs):
        # A greedy law gives its one token probability 1; how sure the drafter is shows at temperature 1.
        warm = ops.row_stats(logits, temperature=1.0, draft_to_target_ids=draft_to_target_ids)
        stats = stats.clone()
        stats[greedy] = warm[greedy]
        for row in greedy:
            if draft_ids[row] >= 0:
                maximum, _, log_normalizer, _ = stats[row].tolist()
                probs[row] = math.exp(float(logits[row, draft_ids[row]]) - maximum - log_normalizer)
    top_probs: list[tuple[float, ...]] = [()] * len(owners)
    if needs_top_probs:
        shared = logits.float()
        if draft_to_target_ids is not None:
            shared = shared.masked_fill(draft_to_target_ids < 0, -math.inf)
        top = shared.topk(min(NUM_TOP_PROBS, shared.shape[1])).values
        maxima, inv_temperatures, log_normalizers, cutoffs = stats.unsqueeze(1).unbind(2)
        laws = ((top - maxima) * inv_temperatures - log_normalizers).exp()
        # Where nothing is shared, or a NaN spoils the row, nothing is drafted.
        top_probs = [tuple(row) for row in torch.where(top >= cutoffs, laws, 0.0).nan_to_num(0.0).tolist()]
    known_ids = [-1] * len(owners) if target_ids is None else target_ids
    columns = zip(owners, probs, sample.entropy.tolist(), sample.max_prob.tolist(), top_probs, known_ids, strict=True)
    return [DraftedToken(request.index, depth, *values) for (request, _, depth), *values in columns]


def packed(rows: Tensor, counts: Sequence[int]) -> Tensor:
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


def as_int64(values: Sequence[int], like: Tensor) -> Tensor:
    """Return values as int64 on the device of another tensor."""
    return torch.tensor(values, dtype=torch.int64, device=like.device)
