# SPDX-License-Identifier: Apache-2.0
"""SLRS, string-level rejection sampling: drafts cross as text, and are verified with the law of that text.

The drafter draws tokens d_1, d_2, ... from its whole vocabulary (without tokens that have no text). They are read from
the left as target tokens, by a rule that looks at nothing but the draws themselves:

* a drafter token whose text is one target token opens a candidate; each further draw that joins the candidate's text
  to the text of one target token again is joined to it, up to `max_pieces` draws and `max_token_bytes` bytes;
* the first draw that does not join ends the candidate, and opens the next one;
* a drafter token whose text is several target tokens gives all of them: the first as a candidate, the others, which
  are then certain, as one-hot drafts. A special token that has a counterpart is a candidate of its own, and the last.

So a candidate is the first target token of encode_T(decode_D(d_1..d_i)) for a number of draws i that the draws decide.
With E(b) = the drafter's tokens that would join to text b, its law is exactly

    psi(t) = sum over the ways (d_1..d_k) to write t with such joins of
                 q(d_1) q(d_2 | d_1) .. q(d_k | d_1..d_{k-1}) (1 - q(E(t) | d_1..d_k))
           + sum over the d whose text is several target tokens, t the first of them, of q(d)

where the last factor is 1 after the last draw there is room for, and q(d_1) is q(d_1) / (1 - q(E)) over d_1 not in E
where d_1 is the draw that ended the candidate before. Every q of it is the drafter's own row after the same tokens:
the ways are found in a trie of its vocabulary and evaluated in batches.

Given what was drawn for the candidates before it, psi is the law that the candidate was drawn from, so the token rule
applies: accept t with probability min(1, target(t) / psi(t)), else draw from norm((target - psi)+). That residual is
drawn without psi over the vocabulary, from an envelope that is the residual itself at the tokens whose psi is known and
target(y) at the others: a known y is taken, of another one psi is made known and y is kept with probability
(1 - psi(y) / target(y))+. A draw that is not kept makes one token more known: the draws end, and their law is exact.

Bound: candidates longer than `max_token_bytes` arise only where the drafter has the very token (one way to write it).

Source
------
Timor et al. 2025, arXiv 2502.05202, Algorithm 3. There i is fixed and psi is given as a sum over D^i; the stopping rule
above, which makes that sum finite work, is this package's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from hetero_spec import ops
from hetero_spec.decoding.lookahead import Lookahead
from hetero_spec.decoding.proposers import Draft
from hetero_spec.decoding.protocols import Drafter, Target
from hetero_spec.decoding.request import Request
from hetero_spec.decoding.sampling import sampling_arguments
from hetero_spec.decoding.slem import bridge_of
from hetero_spec.decoding.stats import DecodingStats
from hetero_spec.decoding.text_bridge import TextBridge, common_prefix_length
from hetero_spec.decoding.text_context import TextContexts
from hetero_spec.decoding.text_tables import tables_of
from hetero_spec.reference.philox import Stream, uniform

# Streams of the random numbers, above those of the ops. Draws are keyed by the position at which the round began and
# their number in it: a round may begin where an earlier one had drawn ahead, and its numbers must be new.
_DRAW_STREAM = 1 << 10
_TRY_STREAM = 1 << 16
# 1 - q(E) is never less than rounding can tell from 0.
_MIN_MASS = 1e-9


@dataclass(frozen=True)
class _Row:
    """A drafter's row with its law."""

    logits: Tensor
    maximum: float
    inv_temperature: float
    log_normalizer: float
    cutoff: float

    @classmethod
    def of(cls, logits: Tensor, stats: Tensor) -> _Row:
        return cls(logits, *(float(value) for value in stats.tolist()))

    @property
    def is_valid(self) -> bool:
        """Whether there is anything to draw: finite numbers, or a greedy row's id."""
        return self.log_normalizer == self.log_normalizer and self.maximum > -math.inf

    def law(self) -> Tensor:
        """Return the probabilities of all ids, float64 on the CPU; the row is valid."""
        return self._law(torch.arange(len(self.logits)))

    def probs(self, ids: Sequence[int]) -> list[float]:
        """Return the probabilities of ids."""
        if not self.is_valid or not ids:
            return [0.0] * len(ids)
        values: list[float] = self._law(torch.tensor(ids)).tolist()
        return values

    def _law(self, ids: Tensor) -> Tensor:
        if self.inv_temperature == math.inf:
            return (ids == int(self.log_normalizer)).double()
        logits = self.logits[ids.to(self.logits.device)].double().cpu()
        probs = ((logits - self.maximum) * self.inv_temperature - self.log_normalizer).exp()
        return torch.where(logits >= self.cutoff, probs, 0.0)

    def prob(self, token_id: int) -> float:
        """Return the probability of an id."""
        return self.probs([token_id])[0]


@dataclass
class _Start:
    """Where a candidate begins: all that its law depends on.

    Attributes
    ----------
    request : Request
    drafted : tuple of int
        The draws before it.
    room : int
        Draws that the round still has for it, at least 1.
    excluded : frozenset of int
        E of the candidate before, where its end is known by the first draw of this one.
    excluded_mass : float
        Their probability.
    rows : dict
        Rows known so far, by the draws since the candidate's beginning; () is the row of its first draw.
    laws : dict
        psi of the target ids asked for so far.
    certain : int or None
        The one token that this can be, where earlier draws have decided it.
    """

    request: Request
    drafted: tuple[int, ...]
    room: int
    excluded: frozenset[int] = frozenset()
    excluded_mass: float = 0.0
    rows: dict[tuple[int, ...], _Row] = field(default_factory=dict)
    laws: dict[int, float] = field(default_factory=dict)
    certain: int | None = None


class SlrsProposer:
    """Drafts by text, verified by rejection sampling with the law of the text.

    Parameters
    ----------
    target, drafter, requests, lookahead, max_draft_tokens, stats
        As of `ProposerFactory`. The drafter must have a `vocab_map` whose vocabularies can encode. Of the lookahead
        only the lengths count, in drafter tokens: a stop that depends on a drawn token would have to enter psi.
    max_pieces : int
        Most draws that are joined to one target token, at least 1. Up to C(L - 1, k - 1) ways of k pieces write a text
        of L bytes, and each costs a drafter evaluation.
    max_token_bytes : int
        Longest text that draws are joined to.
    num_branches : int
        Ways evaluated in one call for each request; that many more caches of it are kept.
    bridge : TextBridge, optional

    Attributes
    ----------
    num_laws, num_ways, num_tries : int
        How often psi was needed, the ways in all of them, and residual tries: the method's cost.

    Raises
    ------
    ValueError   no drafter, or one without a `vocab_map` that can encode; a bound below 1
    """

    name = "slrs"

    def __init__(
        self,
        target: Target,
        drafter: Drafter | None,
        requests: Sequence[Request],
        lookahead: Lookahead,
        max_draft_tokens: int,
        stats: DecodingStats,
        *,
        max_pieces: int = 3,
        max_token_bytes: int = 16,
        num_branches: int = 4,
        bridge: TextBridge | None = None,
    ) -> None:
        if drafter is None:
            raise ValueError(f"{self.name}: drafter must be a model, got None")
        for name, value in (
            ("max_pieces", max_pieces),
            ("max_token_bytes", max_token_bytes),
            ("num_branches", num_branches),
        ):
            if value < 1:
                raise ValueError(f"{self.name}: {name} must be at least 1, got {value}")
        self.bridge = bridge_of(drafter, self.name) if bridge is None else bridge
        self.tables = tables_of(self.bridge, max_token_bytes)
        self._target, self._stats, self._max_pieces = target, stats, max_pieces
        longest = max((request.max_new_tokens for request in requests), default=0)
        prompts = [request.prompt for request in requests]
        self._contexts = TextContexts(drafter, self.bridge, prompts, longest, max_draft_tokens)
        length = max((len(prompt) for prompt in prompts), default=0) + longest + max_draft_tokens
        self._branches = _Branches(drafter, len(requests), num_branches, length, stats)
        self._starts: dict[int, list[_Start]] = {}
        self.num_laws = self.num_ways = self.num_tries = 0

    def begin(self, requests: Sequence[Request]) -> None:
        """Nothing is fed before a draft is wanted."""

    # -- drafting ------------------------------------------------------------------------------------------------------

    def propose(self, requests: Sequence[Request], lengths: Sequence[int]) -> Draft:
        """Draw up to `lengths` drafter tokens for each request and read them as target tokens."""
        draws: list[list[int]] = [[] for _ in requests]
        rows: list[list[_Row]] = [[] for _ in requests]
        allowed = None
        drafting = [
            i
            for i, request in enumerate(requests)
            # An unfinished character is left to the target: known before anything is drawn.
            if lengths[i] > 0 and self._contexts.begin(request.index) and not self._contexts.held(request.index)
        ]
        depth = 0
        while drafting:
            active = [requests[i] for i in drafting]
            with self._stats.timed("seconds_drafter"):
                logits = self._contexts.next_logits([request.index for request in active])
                self._stats.drafter_calls += 1
            if allowed is None:
                allowed = self.tables.allowed.to(logits.device)
            with self._stats.timed("seconds_ops"):
                uniforms = [uniform(request.seed, request.position, _DRAW_STREAM + depth) for request in active]
                sample = ops.draft_sample(
                    logits,
                    allowed,
                    **sampling_arguments([request.draft_sampling for request in active], logits.device),
                    uniform_samples=torch.tensor(uniforms, dtype=torch.float64, device=logits.device),
                )
            proceeding = []
            for row, (i, draft_id) in enumerate(zip(drafting, sample.draft_token_ids.tolist(), strict=True)):
                if draft_id < 0:  # The law is empty here, for every continuation of these draws.
                    continue
                rows[i].append(_Row.of(logits[row], sample.stats[row]))
                draws[i].append(draft_id)
                self._contexts.draft(requests[i].index, draft_id)
                if depth + 1 < lengths[i] and self.bridge.drafter.token_bytes[draft_id] is not None:
                    proceeding.append(i)
            drafting = proceeding
            depth += 1
        token_ids = []
        for request, drawn, known, length in zip(requests, draws, rows, lengths, strict=True):
            ids, starts = self._read(request, drawn, known, length)
            # A round emits one token more than it was proposed.
            room = request.max_new_tokens - len(request.tokens) - 1
            token_ids.append(ids[:room])
            self._starts[request.index] = starts[:room]
        return Draft(token_ids, verifier=self._verify)

    def _read(
        self, request: Request, draws: Sequence[int], rows: Sequence[_Row], length: int
    ) -> tuple[list[int], list[_Start]]:
        """Read draws as target tokens; with each, where it began."""
        token_ids: list[int] = []
        starts: list[_Start] = []
        first = 0
        excluded: tuple[frozenset[int], float] = (frozenset(), 0.0)
        while first < len(draws):
            start = _Start(request, tuple(draws[:first]), length - first, *excluded)
            excluded = (frozenset(), 0.0)
            ids, count, text = self._read_one(draws, first, length)
            for offset in range(min(count + 1, len(rows) - first)):
                start.rows[tuple(draws[first : first + offset])] = rows[first + offset]
            token_ids.append(ids[0])
            starts.append(start)
            for token_id in ids[1:]:
                token_ids.append(token_id)
                starts.append(_Start(request, start.drafted, 1, certain=token_id))
            ended_by_draw = text is not None and count < min(length - first, self._max_pieces)
            if text is not None and ended_by_draw and first + count < len(draws):
                joining = self.tables.joining(text)
                excluded = (frozenset(joining), sum(rows[first + count].probs(joining)))
            first += count
        return token_ids, starts

    def _read_one(self, draws: Sequence[int], first: int, length: int) -> tuple[list[int], int, bytes | None]:
        """Read one candidate: its tokens, how many draws it takes, and its text if draws could have joined it."""
        draft_id = draws[first]
        text = self.bridge.drafter.token_bytes[draft_id]
        if text is None:
            return [int(self.bridge.vocab_map.draft_to_target_ids[draft_id])], 1, None
        several = self.tables.several(draft_id)
        if several is not None:
            return several, 1, None
        count = 1
        while count < min(length - first, self._max_pieces, len(draws) - first):
            following = draws[first + count]
            if not self.tables.joins(text, following):
                break
            text += self.bridge.drafter.token_bytes[following] or b""
            count += 1
        token_id = self.tables.single(text)
        assert token_id is not None
        return [token_id], count, text

    # -- the law of a candidate ----------------------------------------------------------------------------------------

    def laws(self, asked: Sequence[tuple[_Start, int]]) -> list[float]:
        """Return psi of target ids, each where its candidate begins."""
        new = [(start, token_id) for start, token_id in asked if token_id not in start.laws]
        for start, token_id in new:
            if start.certain is not None:
                start.laws[token_id] = float(token_id == start.certain)
        new = [(start, token_id) for start, token_id in new if start.certain is None]
        ways = [self._ways(start, token_id) for start, token_id in new]
        self._know_rows(
            [
                (start, way, self._joins_at(start, token_id, way))
                for (start, token_id), found in zip(new, ways, strict=True)
                for way in found
            ]
        )
        for (start, token_id), found in zip(new, ways, strict=True):
            self.num_laws += 1
            self.num_ways += len(found)
            start.laws[token_id] = self._law(start, token_id, found)
        return [start.laws[token_id] for start, token_id in asked]

    def _ways(self, start: _Start, token_id: int) -> list[tuple[int, ...]]:
        """Return the ways to draw a target token with joins, of those whose first draw is possible at all."""
        token = self.bridge.target.token_bytes[token_id]
        # Of ids with the same bytes only the one that text is encoded as is ever a candidate.
        if token is None or self.tables.single(token) != token_id:
            return []
        ways = self.tables.ways(token, min(start.room, self._max_pieces))
        probs = start.rows[()].probs([way[0] for way in ways])
        return [way for way, prob in zip(ways, probs, strict=True) if prob > 0.0 and way[0] not in start.excluded]

    def _joins_at(self, start: _Start, token_id: int, way: tuple[int, ...]) -> list[int]:
        """Return E at the end of a way, empty where nothing more could be joined."""
        if len(way) >= min(start.room, self._max_pieces):
            return []
        return self.tables.joining(self.bridge.target.token_bytes[token_id] or b"")

    def _law(self, start: _Start, token_id: int, ways: Sequence[tuple[int, ...]]) -> float:
        row = start.rows[()]
        total = 0.0
        for way in ways:
            prob = row.prob(way[0])
            for count in range(1, len(way)):
                prob *= start.rows[way[:count]].prob(way[count])
                if prob == 0.0:
                    break
            joining = self._joins_at(start, token_id, way)
            if joining and prob > 0.0:
                prob *= max(0.0, 1.0 - sum(start.rows[way].probs(joining)))
            total += prob
        others = [*self.tables.first_in.get(token_id, ()), *self.tables.special_ids.get(token_id, ())]
        total += sum(row.probs([draft_id for draft_id in others if draft_id not in start.excluded]))
        return total / max(_MIN_MASS, 1.0 - start.excluded_mass)

    def _know_rows(self, wanted: Sequence[tuple[_Start, tuple[int, ...], list[int]]]) -> None:
        """Evaluate the drafter after the beginnings of ways, as far as their rows are not known yet."""
        jobs: list[tuple[_Start, tuple[int, ...]]] = []
        for start, way, joining in wanted:
            end = way if joining else way[:-1]
            if any(end[:count] not in start.rows for count in range(1, len(end) + 1)):
                jobs.append((start, end))
        if not jobs:
            return
        # A way that is the beginning of another is evaluated with it.
        ends = {(id(start), end) for start, end in jobs}
        inner = {(owner, end[:count]) for owner, end in ends for count in range(1, len(end))}
        unique = {(id(start), end): (start, end) for start, end in jobs if (id(start), end) not in inner}
        jobs = list(unique.values())
        allowed = self.tables.allowed
        for (start, end), logits in zip(
            jobs,
            self._branches.rows(
                [
                    (start.request.index, [*self._contexts.tokens(start.request.index), *start.drafted], end)
                    for start, end in jobs
                ]
            ),
            strict=True,
        ):
            stats = ops.row_stats(
                logits,
                **sampling_arguments([start.request.draft_sampling]),
                draft_to_target_ids=allowed.to(logits.device),
            )
            for count in range(1, len(end) + 1):
                start.rows.setdefault(end[:count], _Row.of(logits[count - 1], stats[count - 1]))

    # -- verifying -----------------------------------------------------------------------------------------------------

    def _verify(self, requests: Sequence[Request], draft: Draft, target_logits: Tensor) -> ops.RejectionSample:
        """Verify a draft with psi; see `Draft.verifier`."""
        counts = draft.counts
        rows = [torch.split(part, 1) for part in torch.split(target_logits, [count + 1 for count in counts])]
        emitted: list[list[int]] = [[] for _ in requests]
        status = [0] * len(requests)
        reached = list(range(len(requests)))
        depth = 0
        while reached:
            candidates = [i for i in reached if depth < counts[i]]
            laws = self.laws([(self._starts[requests[i].index][depth], draft.token_ids[i][depth]) for i in candidates])
            law_of = dict(zip(candidates, laws, strict=True))
            proceeding = []
            for i in reached:
                request, logits = requests[i], rows[i][depth]
                arguments = sampling_arguments([request.sampling])
                row = _Row.of(logits[0], ops.row_stats(logits, **arguments)[0])
                position = request.position + depth
                if i in law_of and row.is_valid:
                    token_id = draft.token_ids[i][depth]
                    if uniform(request.seed, position, Stream.ACCEPT) * law_of[i] < row.prob(token_id):
                        emitted[i].append(token_id)
                        proceeding.append(i)
                        continue
                    start = self._starts[request.index][depth]
                    token_id, status[i] = self._residual(start, request, position, logits, row)
                else:
                    token_id, status[i] = _draw(logits, request, uniform(request.seed, position, Stream.RESAMPLE))
                emitted[i].append(token_id)
            reached = proceeding
            depth += 1
        output = torch.full((len(requests), max(counts, default=0) + 1), -1, dtype=torch.int32)
        for i, ids in enumerate(emitted):
            output[i, : len(ids)] = torch.tensor(ids, dtype=torch.int32)
        return ops.RejectionSample(
            output,
            torch.tensor([len(ids) - 1 for ids in emitted], dtype=torch.int32),
            torch.tensor(status, dtype=torch.int32),
        )

    def _residual(self, start: _Start, request: Request, position: int, logits: Tensor, row: _Row) -> tuple[int, int]:
        """Draw from norm((target - psi)+); from the target where that is empty."""
        envelope = row.law()
        known = set(start.laws)
        for token_id, psi in start.laws.items():
            envelope[token_id] = max(0.0, float(envelope[token_id]) - psi)
        for attempt in itertools.count():
            cumulative = envelope.cumsum(0)
            goal = uniform(request.seed, position, _TRY_STREAM + 2 * attempt) * float(cumulative[-1])
            token_id = int(torch.searchsorted(cumulative, goal, right=True))
            if token_id == len(envelope):  # nothing is left
                break
            self.num_tries += 1
            prob = float(envelope[token_id])
            if token_id in known:
                return token_id, 0
            known.add(token_id)
            envelope[token_id] = max(0.0, prob - self.laws([(start, token_id)])[0])
            keep = uniform(request.seed, position, _TRY_STREAM + 2 * attempt + 1)
            if keep * prob < float(envelope[token_id]):
                return token_id, 0
        drawn, _ = _draw(logits, request, uniform(request.seed, position, Stream.RESAMPLE))
        return drawn, int(ops.Status.RESIDUAL_EMPTY)

    def commit(self, request: int, num_accepted_tokens: int, emitted: Sequence[int]) -> None:
        """Take the emitted text over into the drafter's context."""
        self._starts.pop(request, None)
        self._contexts.commit(request, emitted)

    def drop(self, request: int) -> None:
        """Let go of the drafter's sequences."""
        self._starts.pop(request, None)
        self._contexts.drop(request)
        self._branches.drop(request)


class _Branches:
    """Several copies of each request's drafter sequence, to look at several continuations in one call."""

    def __init__(
        self, drafter: Drafter, num_requests: int, num_branches: int, max_length: int, stats: DecodingStats
    ) -> None:
        self._num_branches, self._stats = num_branches, stats
        limit = drafter.max_length
        self._sequences = drafter.open(
            num_requests * num_branches, max_length if limit is None else min(max_length, limit)
        )
        self._fed: list[list[int]] = [[] for _ in range(num_requests * num_branches)]

    def rows(self, jobs: Sequence[tuple[int, Sequence[int], tuple[int, ...]]]) -> list[Tensor]:
        """Return the drafter's rows after each token of the ways.

        Parameters
        ----------
        jobs : sequence of (request, context, way)
            The context in drafter ids, and at least one more.

        Returns
        -------
        list of float [len(way), Vd]
        """
        results: list[Tensor | None] = [None] * len(jobs)
        waiting = list(range(len(jobs)))
        while waiting:
            # Branches have to be fed in ascending order; each request has its own.
            taken: dict[int, int] = {}
            later = []
            used: dict[int, int] = {}
            for job in waiting:
                request = jobs[job][0]
                count = used.get(request, 0)
                if count == self._num_branches:
                    later.append(job)
                    continue
                used[request] = count + 1
                taken[request * self._num_branches + count] = job
            branches = sorted(taken)
            feeds, num_rows = [], []
            for branch in branches:
                _, context, way = jobs[taken[branch]]
                kept = common_prefix_length(self._fed[branch], context)
                if kept < len(self._fed[branch]):
                    self._sequences.truncate(branch, kept)
                feeds.append([*context[kept:], *way])
                num_rows.append(len(way))
                self._fed[branch] = [*context, *way]
            before = self._stats.seconds_drafter
            with self._stats.timed("seconds_drafter"):
                logits = self._sequences.feed(branches, feeds, num_rows)
                self._stats.drafter_calls += 1
            # Rows are wanted during verification, which the loop counts as time in ops: not twice.
            self._stats.seconds_ops -= self._stats.seconds_drafter - before
            for branch, part in zip(branches, torch.split(logits, num_rows), strict=True):
                results[taken[branch]] = part
            waiting = later
        return [part for part in results if part is not None]

    def drop(self, request: int) -> None:
        """Forget a finished request."""
        for branch in range(request * self._num_branches, (request + 1) * self._num_branches):
            self._sequences.drop(branch)


def _draw(logits: Tensor, request: Request, value: float) -> tuple[int, int]:
    """Draw from the target's law of a row with a uniform; with the row's status."""
    device = logits.device
    drawn = ops.rejection_sample(
        logits,
        torch.zeros(0, dtype=torch.int32, device=device),
        torch.zeros(2, dtype=torch.int32, device=device),
        0,
        **sampling_arguments([request.sampling]),
        uniform_samples=torch.tensor([[0.0, value]], dtype=torch.float64, device=device),
    )
    return int(drawn.output_token_ids[0, 0]), int(drawn.status[0])
