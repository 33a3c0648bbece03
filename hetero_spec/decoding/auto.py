# SPDX-License-Identifier: Apache-2.0
"""Method "auto": a proposer that asks another one each round, or none, as its controller decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hetero_spec.decoding.controller import NGRAM, NO_DRAFT, PLAIN, Choice, Controller, Round, Situation, Text
from hetero_spec.decoding.lookahead import Lookahead
from hetero_spec.decoding.ngram import NgramProposer
from hetero_spec.decoding.proposers import Draft, Proposer, ProposerFactory, no_draft
from hetero_spec.decoding.protocols import Drafter, Target
from hetero_spec.decoding.request import Request
from hetero_spec.decoding.sampling import Sampling
from hetero_spec.decoding.stats import DecodingStats

# Tokens of a proposal of n-grams that are compared with what comes.
_MOST_WATCHED = 8


@dataclass(eq=False)
class _Open:
    """A round in progress, or one whose drafted positions have not all been passed."""

    choice: Choice
    key: str
    text: Text
    requests: list[Request]
    limits: list[int]
    counts: list[int]
    ends: list[int]
    pending: int
    prompt_tokens: int
    seconds_draft: float
    drafted_at: float
    seconds_rest: float | None = None
    accepted: dict[int, int] = field(default_factory=dict)

    def is_settled(self, dropped: set[int]) -> bool:
        """Whether no position that it drafted for will be drawn for again."""
        return all(
            request.index in dropped or request.position >= end
            for request, end in zip(self.requests, self.ends, strict=True)
        )

    def outcome(self) -> Round:
        """Return what the controller may know of it; a request whose target broke down counts for nothing."""
        known = [i for i, request in enumerate(self.requests) if request.index in self.accepted]
        return Round(
            self.choice,
            len(self.requests),
            self.key,
            self.text,
            [self.limits[i] for i in known],
            [self.counts[i] for i in known],
            [self.accepted[self.requests[i].index] for i in known],
            self.pending,
            self.prompt_tokens,
            self.seconds_draft,
            self.seconds_rest or 0.0,
        )


@dataclass(eq=False)
class _Watched:
    """What n-grams had to propose after so many emitted tokens, how sure they were, and how much of it has come."""

    start: int
    proposed: list[int]
    confidence: float
    key: str
    num_kept: int = 0


class AutoProposer:
    """Drafts with whatever pays, or not at all.

    A method's own proposer is made when it is first wanted, and told then what it has missed; until then, and in every
    round without a draft, it costs nothing. N-grams, which take some tens of microseconds a request, are looked up in
    every round: how sure they are is known before anything is decided, and what they would have been worth, once the
    text goes on.

    Parameters
    ----------
    target, drafter, requests, lookahead, max_draft_tokens, stats
        As of `ProposerFactory`.
    controller : Controller
        Decides; its methods must be among those of `factories`.
    factories : mapping
        What makes each method's proposer.
    """

    name = "auto"

    def __init__(
        self,
        target: Target,
        drafter: Drafter | None,
        requests: Sequence[Request],
        lookahead: Lookahead,
        max_draft_tokens: int,
        stats: DecodingStats,
        *,
        controller: Controller,
        factories: Mapping[str, ProposerFactory],
    ) -> None:
        self._controller, self._stats = controller, stats
        self._requests = list(requests)
        self._makers: dict[str, Callable[[], Proposer]] = {
            method: lambda make=make: make(target, drafter, requests, lookahead, max_draft_tokens, stats)  # type: ignore[misc]
            for method, make in factories.items()
        }
        self._proposers: dict[str, Proposer] = {}
        # Of each method, how much of each request's text its drafter has seen.
        self._seen: dict[str, dict[int, int]] = {method: {} for method in factories}
        self._dropped: set[int] = set()
        # The round that is drafted for, the one whose verdict is being told, and those that wait for their numbers.
        self._open: _Open | None = None
        self._asked: _Open | None = None
        self._unsettled: list[_Open] = []
        self._text = Text()
        # Rounds in which the controller need not be asked, and how many of them there have been.
        self._rest = self._num_rested = 0
        # Of each request, what n-grams had to propose and has been right so far.
        self._watched: dict[int, list[_Watched]] = {request.index: [] for request in self._requests}

    def begin(self, requests: Sequence[Request]) -> None:
        """Nothing is made before it is wanted."""

    def propose(self, requests: Sequence[Request], lengths: Sequence[int]) -> Draft:
        """Ask the controller, then the proposer it names."""
        confidences = self._confidences(requests)
        if self._num_rested < self._rest and not any(confidences):
            self._num_rested += 1
            self._open = self._asked = None
            self._stats.rounds_by_method[PLAIN] = self._stats.rounds_by_method.get(PLAIN, 0) + 1
            return no_draft(len(requests))
        self._settle()
        first = requests[0].sampling
        key = _key_of(first) if all(request.sampling == first for request in requests) else ""
        self._watch_from_here(requests, confidences, key)
        pending = {method: self._pending(method, requests) for method in self._makers}
        choice = self._controller.plan(
            Situation(
                len(requests),
                max(lengths, default=0),
                max(request.max_new_tokens - len(request.tokens) for request in requests),
                key,
                pending,
                confidences,
                self._text,
            )
        )
        self._rest = choice.rest
        draft, limits = no_draft(len(requests)), [0] * len(requests)
        start = self._controller.clock()
        if choice.method != PLAIN:
            limits = [min(length, choice.length) for length in lengths]
            draft = self._proposer(choice.method).propose(requests, limits)
            for request, limit in zip(requests, limits, strict=True):
                if limit:
                    self._seen[choice.method][request.index] = request.position
        drafted_at = self._controller.clock()
        # A text of so many drafter tokens can be more in the target's.
        longest = [max(pair) for pair in zip(limits, draft.counts, strict=True)]
        self._open = _Open(
            choice,
            key,
            self._text,
            list(requests),
            longest,
            draft.counts,
            [request.position + _num_drawn(request, count) for request, count in zip(requests, longest, strict=True)],
            pending.get(choice.method, 0),
            max((len(request.prompt) for request in requests if not request.tokens), default=0),
            drafted_at - start,
            drafted_at,
        )
        used = NO_DRAFT.method if choice.method == NGRAM and not any(draft.counts) else choice.method
        self._stats.rounds_by_method[used] = self._stats.rounds_by_method.get(used, 0) + 1
        return draft

    def observe(self, request: int, num_draft_tokens: int, num_accepted_tokens: int) -> None:
        """Note how a draft fared; the first such note ends the round's time."""
        if self._open is not None:
            self._open.seconds_rest = self._controller.clock() - self._open.drafted_at
            self._unsettled.append(self._open)
            self._asked, self._open = self._open, None
        if self._asked is not None:
            self._asked.accepted[request] = num_accepted_tokens

    def commit(self, request: int, num_accepted_tokens: int, emitted: Sequence[int]) -> None:
        """Pass on what was emitted: as a verdict to the one who drafted, token by token to the others."""
        asked = self._asked.choice.method if self._asked is not None else None
        for method, proposer in self._proposers.items():
            if method == asked:
                proposer.commit(request, num_accepted_tokens, emitted)
            else:
                for token_id in emitted:
                    proposer.commit(request, 0, [token_id])

    def drop(self, request: int) -> None:
        """Forget a finished request."""
        self._dropped.add(request)
        finished = next(each for each in self._requests if each.index == request)
        self._watch(finished)
        if finished.finish_reason != "error":  # of a target that broke down: no text
            self._controller.end(len(finished.tokens))
        for proposer in self._proposers.values():
            proposer.drop(request)
        if len(self._dropped) == len(self._requests):
            self._settle()

    def _proposer(self, method: str) -> Proposer:
        """Return a method's proposer, made and brought up to date if this is the first time."""
        if method not in self._proposers:
            proposer = self._makers[method]()
            proposer.begin(self._requests)
            for request in self._requests:
                if request.index in self._dropped:
                    proposer.drop(request.index)
                else:
                    for token_id in request.tokens:
                        proposer.commit(request.index, 0, [token_id])
            self._proposers[method] = proposer
        return self._proposers[method]

    def _confidences(self, requests: Sequence[Request]) -> list[float]:
        """Return of each request how sure n-grams are of what they have to propose; tell how the earlier ones fared."""
        proposer = self._ngrams()
        if proposer is None:
            return [0.0] * len(requests)
        for request in requests:
            self._watch(request)
        return proposer.confidences(requests)

    def _ngrams(self) -> NgramProposer | None:
        proposer = self._proposer(NGRAM) if NGRAM in self._makers else None
        return proposer if isinstance(proposer, NgramProposer) else None

    def _watch_from_here(self, requests: Sequence[Request], confidences: Sequence[float], key: str) -> None:
        """Note what n-grams have to propose now."""
        proposer = self._ngrams()
        for request, confidence in zip(requests, confidences, strict=True):
            if proposer is not None and confidence:
                proposed = proposer.peek(request, _MOST_WATCHED)
                self._watched[request.index].append(_Watched(len(request.tokens), proposed, confidence, key))

    def _watch(self, request: Request) -> None:
        """Tell the controller which of the tokens that n-grams had to propose have come since."""
        going_on = []
        for watched in self._watched[request.index]:
            for token_id in request.tokens[watched.start + watched.num_kept :]:
                is_kept = token_id == watched.proposed[watched.num_kept]
                self._controller.watch(self._text, watched.key, watched.confidence, watched.num_kept, is_kept)
                watched.num_kept += 1
                if not is_kept or watched.num_kept == len(watched.proposed):
                    break
            else:
                going_on.append(watched)
        self._watched[request.index] = going_on

    def _pending(self, method: str, requests: Sequence[Request]) -> int:
        seen = self._seen[method]
        return max(request.position - seen.get(request.index, 0) for request in requests)

    def _settle(self) -> None:
        """Let the controller know of the rounds whose random numbers have all been used."""
        self._open = None  # a round in which nothing was passed on: every request failed
        if self._num_rested:
            self._controller.rested(self._text, self._num_rested)
            self._num_rested = 0
        settled = [past for past in self._unsettled if past.is_settled(self._dropped)]
        self._unsettled = [past for past in self._unsettled if past not in settled]
        for past in settled:
            self._controller.observe(past.outcome())


def _num_drawn(request: Request, length: int) -> int:
    """Return for how many positions a round may have drawn numbers that will be drawn again; none if all is greedy."""
    return 0 if request.sampling.temperature == request.draft_sampling.temperature == 0.0 else length


def _key_of(sampling: Sampling) -> str:
    """Return sampling parameters as the controller keeps them apart."""
    return f"{sampling.temperature:g} {sampling.top_k} {sampling.top_p:g} {sampling.min_p:g}"
