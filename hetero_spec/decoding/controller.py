# SPDX-License-Identifier: Apache-2.0
"""Which method to draft with, and how far: the decisions of method "auto".

From running measurements the controller keeps

* the time of a look of the target (with verification) as a function of the number of tokens it is shown;
* each drafter's time per draft token, and per token of context that it has to catch up with;
* at each depth, how often a draft token is kept given that the one before it was.

A round with a draft of at most k tokens takes time(1 + expected length) + drafting and emits 1 + sum of products of the
shares; the choice is the method and the k with the least time per token, or no draft. Three rules bound what can be
lost:

* the ledger: every round books what plain decoding would have taken for its tokens against what it took, plus one
  percent. Drafting needs a balance that is not negative; gains count up to a cap, so that old ones do not pay for a
  drafter that has become useless;
* the purse: trying something other than the best choice costs expected time, which is paid from another one percent. (A
  drafter that is behind has to catch up; where that costs more per token, it is not tried again before the next text.)
* caution: times are medians of the latest ones, so that a hiccup decides nothing. When they all move, what was not
  measured since moves with them.

What the controller learns must not tell it anything about random numbers that are still to be used: a draft token
behind a rejected one was drawn with the number of a position that is drawn for again. So a round is taken into account
only once its requests have passed every position it drafted for; see `AutoProposer`.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median_low

PLAIN = "none"
# Methods whose drafts are a function of the text alone. Only behind these may another method be asked in the same
# round: that one of the others proposed nothing may depend on random numbers which the next would use again.
DETERMINISTIC = ("ngram",)

_LEDGER_SHARE = 0.01
_PURSE_SHARE = 0.01
# In plain steps: what may be lost before anything has been gained, and how far gains count.
_FIRST_CREDIT = 1.0
_MOST_CREDIT = 20.0
_MOST_PURSE = 5.0
# A draft must promise this much, since estimates err.
_LEAST_GAIN = 0.01
_ROUNDS_BETWEEN_TRIALS = 4
# A method's drafts that may be paid from what the others have gained.
_FIRST_TRIES = 12
# Tokens over which catching up is thought to pay, at most.
_HORIZON = 128
# Share of a plain step that each token more in a look costs, until it has been measured.
_FIRST_SLOPE = 0.05
# Share of a plain step that a token of a prompt costs, likewise.
_FIRST_READING = 0.1
# Share of a plain step that a draft token costs, likewise, where nothing is known of the drafter.
_FIRST_RATIO = {"ngram": 0.005}
_DEFAULT_RATIO = 0.25
_FIRST_SHARE = 0.6
# Times: how many count, how old (in rounds) they may be if there are others, how many must agree that something has
# moved, by how much, and how far the supposition that other things moved with it may go.
_WINDOW = 25
_LEAST_TIMES = 2
_MOST_AGE = 256
_NUM_MOVED = 5
_SHIFT = 1.25
_MOST_SUPPOSED = 4.0
# Shares: what an observation makes of the weight of those before it (in the slow and in the quick average), what a
# round without one does down to a least weight, the weight of what was supposed before any, and how many standard
# deviations apart the averages must be to say that the share has changed.
_SLOW, _QUICK = 0.995, 0.95
_FADING = 0.998
_LEAST_WEIGHT = 4.0
_PRIOR_WEIGHT = 2.0
_UNLIKELY = 3.0
# Lengths that are priced, and how far beyond the depths that have been seen.
_MOST_TOKENS = 16
_LENGTHENING = 2
# Context tokens that a drafter is behind in ordinary rounds.
_ORDINARY_PENDING = 4


@dataclass(frozen=True)
class Situation:
    """What a decision is about.

    Attributes
    ----------
    num_requests : int
        Active requests.
    max_length : int
        No draft may be longer.
    remaining : int
        Most tokens that a request may still emit.
    key : hashable
        Sampling parameters; acceptance is kept apart for each.
    pending : mapping
        Of each drafting method, how many tokens of context its drafter has yet to see.
    """

    num_requests: int
    max_length: int
    remaining: int
    key: Hashable
    pending: Mapping[str, int]


@dataclass(frozen=True)
class Choice:
    """A method and the largest draft length.

    Attributes
    ----------
    method : str
    length : int
    trial_cost : float
        Of a choice made to learn something: the seconds taken out of the purse for it.
    best : float
        Then, the seconds per token of what would have been chosen.
    """

    method: str
    length: int
    trial_cost: float = 0.0
    best: float = 0.0


@dataclass
class Round:
    """What a round was and what came of it.

    Attributes
    ----------
    choice : Choice
        What was done; a method that had nothing to propose is not named here.
    num_requests : int
    key : hashable
    limits, counts, accepted : sequence of int
        Of each request that went on: the longest its draft could have been, how long it was, how much was kept.
    pending : int
        Tokens of context that the drafter caught up with.
    prompt_tokens : int
        Tokens of the longest prompt, if this was the round in which the target read it; else 0.
    seconds_draft, seconds_rest : float
        Drafting, and everything after it.
    """

    choice: Choice
    num_requests: int
    key: Hashable
    limits: Sequence[int]
    counts: Sequence[int]
    accepted: Sequence[int]
    pending: int
    prompt_tokens: int
    seconds_draft: float
    seconds_rest: float


class Controller:
    """Chooses, and learns from what came of it. It outlives a batch: what a decoder has learnt is of use to the next.

    Parameters
    ----------
    methods : sequence of str
        What may be chosen besides plain decoding.
    cost_ratios : mapping, optional
        A method's cost of a draft token in plain steps of the target, as far as it is known beforehand (the ratio of
        the models' sizes).
    clock : callable
        Seconds; for measurements and for nothing else.
    """

    def __init__(
        self,
        methods: Sequence[str],
        cost_ratios: Mapping[str, float] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.methods = tuple(methods)
        self.clock = clock
        self._ratios = {**_FIRST_RATIO, **(cost_ratios or {})}
        self._looks = _Looks()
        self._steps: dict[tuple[str, int], _Times] = {}
        self._catching_up: dict[str, _Times] = {}
        # Seconds and prompt tokens of the latest rounds in which the target read one.
        self._read: deque[tuple[float, int]] = deque(maxlen=_WINDOW)
        self._shares: dict[tuple[str, Hashable], _Depths] = {}
        self._tries: dict[tuple[str, Hashable], int] = {}
        self._last_used: dict[str, int] = {}
        self._round = 0
        self._last_trial = 0
        self._balance: float | None = None
        self._purse = 0.0
        # Longer looks have moved; whether plain ones have, has to be seen.
        self._must_look_plainly = False

    def plan(self, situation: Situation) -> list[Choice]:
        """Return what to try, in this order, until one of them proposes something; empty or PLAIN is no draft."""
        self._round += 1
        size = situation.num_requests
        curve = self._looks.curve(size)
        if curve is None or situation.max_length < 1 or self._must_look_plainly:
            return []
        plain = curve.times[0]
        if self._balance is None:
            self._balance = _FIRST_CREDIT * plain
        lengths = {method: self._offers(method, situation, curve) for method in self.methods}
        offers = sorted(
            (min(of_method, key=lambda offer: offer.per_token) for of_method in lengths.values()),
            key=lambda offer: offer.per_token,
        )
        plain_per_token = plain / size
        chosen: list[_Offer] = []
        if self._balance >= 0.0:
            for offer in offers:
                if offer.per_token > plain_per_token * (1.0 - _LEAST_GAIN):
                    break
                chosen.append(offer)
                if offer.choice.method not in DETERMINISTIC:
                    break
        best = min([plain_per_token, *(offer.per_token for offer in chosen)])
        trial = self._trial(size, situation.key, plain, offers, chosen, lengths, best)
        if trial is not None:
            self._last_trial = self._round
            self._last_used[trial.label] = self._round
            if trial.choice.method == PLAIN:
                return [trial.choice]
            # A deterministic trial that proposes nothing has cost nothing: go on with what is best.
            rest = chosen if trial.choice.method in DETERMINISTIC else []
            return [trial.choice, *(o.choice for o in rest if o.choice.method != trial.choice.method)]
        self._last_used[chosen[-1].choice.method if chosen else PLAIN] = self._round
        return [offer.choice for offer in chosen]

    def refund(self, choice: Choice) -> None:
        """Take back a trial that did not take place."""
        self._purse += choice.trial_cost

    def observe(self, outcome: Round) -> None:
        """Learn from a round."""
        method, size = outcome.choice.method, outcome.num_requests
        longest = max(outcome.counts, default=0)
        before = self._looks.curve(size)
        if outcome.prompt_tokens:
            self._read.append((outcome.seconds_rest, outcome.prompt_tokens))
        else:
            shift = self._looks.add(size, longest + 1, outcome.seconds_rest, self._round)
            if shift is not None:
                self._follow(shift, method)
                self._must_look_plainly = longest > 0
            elif longest == 0:
                self._must_look_plainly = False
        if method != PLAIN:
            self._learn_drafting(outcome, longest, None if before is None else before.times[0])
        curve = self._looks.curve(size)
        if curve is None or not outcome.accepted:
            return
        plain = curve.times[0]
        tokens = sum(outcome.accepted) / len(outcome.accepted) + 1.0
        # Both sides are booked at the prices they usually have: a hiccup is nobody's fault. Catching up is not usual.
        seconds = plain if outcome.prompt_tokens else curve.at(longest + 1.0)
        if method != PLAIN:
            usual = max(longest, 1) * self._step_time(method, size, plain)
            is_usual = outcome.pending <= 2 * _ORDINARY_PENDING
            seconds += usual if is_usual else max(outcome.seconds_draft, usual)
        if outcome.choice.trial_cost:
            # The purse pays what it was, not what it was thought to be.
            self._purse += outcome.choice.trial_cost - max(0.0, seconds - tokens * size * outcome.choice.best)
        gain = tokens * plain - seconds + _LEDGER_SHARE * seconds
        balance = _FIRST_CREDIT * plain if self._balance is None else self._balance
        self._balance = min(balance + gain, _MOST_CREDIT * plain)
        self._purse = min(self._purse + _PURSE_SHARE * seconds, _MOST_PURSE * plain)

    def _offers(self, method: str, situation: Situation, curve: _Curve) -> list[_Offer]:
        """Price every length of a method."""
        size, plain = situation.num_requests, curve.times[0]
        shares = self._shares.get((method, situation.key)) or _Depths()
        step = self._step_time(method, size, plain)
        extra = self._catch_up_time(method, max(0, situation.pending[method] - _ORDINARY_PENDING), plain)
        horizon = size * max(1, min(situation.remaining, _HORIZON))
        offers: list[_Offer] = []
        tokens = reached = kept = 1.0
        length = 0.0
        # One step beyond what is known at a time: what is supposed may be wrong.
        for share, drafted in shares.up_to(min(situation.max_length, _MOST_TOKENS, len(shares.kept) + _LENGTHENING)):
            kept *= share
            reached *= drafted
            tokens += kept
            length += reached
            seconds = curve.at(1.0 + length) + step * max(1.0, length)
            per_token = seconds / (size * tokens) + extra / horizon
            offers.append(_Offer(Choice(method, len(offers) + 1), per_token, seconds + extra, size * tokens, method))
        return offers

    def _trial(
        self,
        size: int,
        key: Hashable,
        plain: float,
        offers: Sequence[_Offer],
        chosen: Sequence[_Offer],
        lengths: Mapping[str, Sequence[_Offer]],
        best: float,
    ) -> _Offer | None:
        """Return what to try out of turn, or None: what was used longest ago, if the purse can pay for it."""
        if self._round - self._last_trial < _ROUNDS_BETWEEN_TRIALS:
            return None
        names = {offer.choice.method for offer in chosen}
        candidates = [offer for offer in offers if offer.choice.method not in names]
        if chosen:
            candidates.append(_Offer(Choice(PLAIN, 0), plain / size, plain, float(size), PLAIN))
            method, length = chosen[-1].choice.method, chosen[-1].choice.length
            candidates += [replace(longer, label=f"longer {method}") for longer in lengths[method][length : length + 1]]
        assert self._balance is not None
        for offer in sorted(candidates, key=lambda offer: self._last_used.get(offer.label, -1)):
            cost = max(0.0, offer.seconds - offer.tokens * best)
            loss = max(0.0, offer.seconds - offer.tokens * plain / size)
            is_new = offer.choice.method != PLAIN and self._tries.get((offer.choice.method, key), 0) < _FIRST_TRIES
            if is_new and cost <= self._balance - _FIRST_CREDIT * plain:
                # A newcomer is paid from what the others have gained: later, its drafter would be further behind.
                return offer
            if cost <= self._purse and (offer.choice.method == PLAIN or loss <= self._balance):
                self._purse -= cost
                return replace(offer, choice=replace(offer.choice, trial_cost=cost, best=best))
        return None

    def _learn_drafting(self, outcome: Round, longest: int, plain: float | None) -> None:
        method = outcome.choice.method
        if longest or method not in DETERMINISTIC:
            shares = self._shares.setdefault((method, outcome.key), _Depths())
            shares.add(outcome.limits, outcome.counts, outcome.accepted, self._round)
            self._tries[method, outcome.key] = self._tries.get((method, outcome.key), 0) + 1
        steps = max(longest, 1)
        extra = max(0, outcome.pending - _ORDINARY_PENDING)
        times = self._steps.setdefault((method, outcome.num_requests), _Times())
        if extra <= _ORDINARY_PENDING:
            times.add(outcome.seconds_draft / steps, self._round)
            return
        relative = self._reading_time(plain) / plain if plain else _FIRST_READING
        known = times.estimate
        if known is None:
            # One time for two unknowns: the drafter is taken to read as quickly, in steps of its own, as the target.
            known = outcome.seconds_draft / (steps + extra * relative)
            times.add(known, self._round)
        reading_time = max(0.0, outcome.seconds_draft - steps * known) / extra
        self._catching_up.setdefault(method, _Times()).add(reading_time, self._round)

    def _step_time(self, method: str, size: int, plain: float) -> float:
        sizes = [known for name, known in self._steps if name == method]
        if sizes:
            nearest = min(sizes, key=lambda known: abs(known - size))
            estimate = self._steps[method, nearest].estimate
            if estimate is not None:
                return estimate
        return self._ratios.get(method, _DEFAULT_RATIO) * plain

    def _catch_up_time(self, method: str, num_tokens: int, plain: float) -> float:
        if not num_tokens or method in DETERMINISTIC:
            return 0.0
        known = self._catching_up.get(method)
        if known is not None and known.estimate is not None:
            return num_tokens * known.estimate
        own = self._step_time(method, 1, plain) / plain if plain else 0.0
        return num_tokens * own * self._reading_time(plain)

    def _reading_time(self, plain: float) -> float:
        """Seconds that the target takes for one more token of a prompt."""
        if not self._read:
            return _FIRST_READING * plain
        return median_low([max(0.0, seconds - plain) / num_tokens for seconds, num_tokens in self._read])

    def _follow(self, shift: float, method: str) -> None:
        """The machine has become slower or quicker: so have the drafters that are not being measured."""
        for (name, _), times in self._steps.items():
            if name != method:
                times.scale(shift)
        if self._balance is not None:
            # What was booked while the old times were believed in was booked wrongly.
            self._balance = max(self._balance * shift, 0.0)
        self._purse *= shift


@dataclass(frozen=True)
class _Offer:
    """A choice and what it is expected to take and to give."""

    choice: Choice
    per_token: float
    seconds: float
    tokens: float
    label: str


class _Times:
    """The latest times of one thing."""

    def __init__(self) -> None:
        self._latest: deque[tuple[int, float]] = deque(maxlen=_WINDOW)
        self._is_supposed = False
        self.estimate: float | None = None

    @property
    def num_measured(self) -> int:
        return len(self._latest)

    def add(self, seconds: float, now: int) -> float | None:
        """Add a time; return by how much the last few say that it has moved, if they all do."""
        shift = None
        if self._is_supposed:  # Now it is known.
            self._latest.clear()
            self._is_supposed = False
        self._latest.append((now, seconds))
        while len(self._latest) > _LEAST_TIMES and self._latest[0][0] < now - _MOST_AGE:
            self._latest.popleft()
        times = [time for _, time in self._latest]
        if len(times) >= 2 * _NUM_MOVED:
            before, last = median_low(times[:-_NUM_MOVED]), times[-_NUM_MOVED:]
            if before > 0.0 and (min(last) > before * _SHIFT or max(last) * _SHIFT < before):
                shift = median_low(last) / before
                while len(self._latest) > _NUM_MOVED:
                    self._latest.popleft()
                times = last
        self.estimate = median_low(times)
        return shift

    def scale(self, factor: float) -> None:
        """Suppose that it has moved."""
        if self.estimate is not None:
            measured = median_low([seconds for _, seconds in self._latest])
            self._is_supposed = True
            supposed = self.estimate * factor
            self.estimate = min(max(supposed, measured / _MOST_SUPPOSED), measured * _MOST_SUPPOSED)


class _Looks:
    """Time of a look of the target over so many tokens a request, for so many requests."""

    def __init__(self) -> None:
        self._times: dict[int, dict[int, _Times]] = {}

    def add(self, size: int, width: int, seconds: float, now: int) -> float | None:
        """Add a time; return by how much everything seems to have moved."""
        shift = self._times.setdefault(size, {}).setdefault(width, _Times()).add(seconds, now)
        if shift is not None:
            for other_size, by_width in self._times.items():
                for other_width, times in by_width.items():
                    if (other_size, other_width) != (size, width):
                        times.scale(shift)
        return shift

    def curve(self, size: int) -> _Curve | None:
        """Return the time of a look as a function of its width; None before the first plain ones."""
        usable = [known for known, by_width in self._times.items() if 1 in by_width and by_width[1].num_measured >= 2]
        if not usable:
            return None
        by_width = self._times[min(usable, key=lambda known: abs(known - size))]
        base = by_width[1].estimate
        assert base is not None
        curve = _Curve([1], [base], _FIRST_SLOPE * base)
        for width in sorted(by_width):
            estimate = by_width[width].estimate
            if width == 1 or estimate is None:
                continue
            if by_width[width].num_measured == 1:
                # The first time of a width may be that of getting ready for it.
                supposed = curve.at(width)
                estimate = min(estimate, (estimate + supposed) / 2.0)
            curve.widths.append(width)
            curve.times.append(estimate)
        curve.times = _rising(curve.times, [by_width[width].num_measured for width in curve.widths])
        return curve


@dataclass
class _Curve:
    """Points joined by lines; beyond the last it goes on as before it, or with `slope` after a single one."""

    widths: list[int]
    times: list[float]
    slope: float

    def at(self, width: float) -> float:
        if len(self.widths) == 1:
            return self.times[0] + self.slope * (width - self.widths[0])
        right = min(max(bisect_left(self.widths, width), 1), len(self.widths) - 1)
        left = right - 1
        slope = (self.times[right] - self.times[left]) / (self.widths[right] - self.widths[left])
        return self.times[left] + slope * (width - self.widths[left])


def _rising(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Return the nearest values that never fall: neighbours in the wrong order share their mean."""
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(values, weights, strict=True):
        block = (value, float(weight), 1)
        while blocks and blocks[-1][0] > block[0]:
            mean, before, count = blocks.pop()
            total = before + block[1]
            block = ((mean * before + block[0] * block[1]) / total, total, count + block[2])
        blocks.append(block)
    return [value for value, _, count in blocks for _ in range(count)]


class _Share:
    """A share that may change: a slow average, and a quick one that replaces it when the two cannot both be right."""

    def __init__(self, now: int) -> None:
        self._slow, self._quick = _Average(_SLOW), _Average(_QUICK)
        self._last = now

    def add(self, is_kept: bool, now: int) -> None:
        # What was seen long ago is worth a few observations, so that a few new ones can overrule it.
        for average in (self._slow, self._quick):
            average.fade(now - self._last)
            average.add(is_kept)
        self._last = now
        share = self._slow.mean(0.5, 1.0)
        if abs(self._quick.mean(share, 1.0) - share) > _UNLIKELY * math.sqrt(share * (1.0 - share) / self._quick.total):
            self._slow.kept, self._slow.total = self._quick.kept, self._quick.total

    def mean(self, prior: float) -> float:
        return self._slow.mean(prior, _PRIOR_WEIGHT)


@dataclass
class _Average:
    """An average in which each observation counts `memory` times as much as the one after it."""

    memory: float
    kept: float = 0.0
    total: float = 0.0

    def fade(self, rounds: int) -> None:
        faded = max(_FADING**rounds, min(1.0, _LEAST_WEIGHT / max(self.total, 1e-9)))
        self.kept *= faded
        self.total *= faded

    def add(self, is_kept: bool) -> None:
        self.kept = self.kept * self.memory + is_kept
        self.total = self.total * self.memory + 1.0

    def mean(self, prior: float, weight: float) -> float:
        return (self.kept + weight * prior) / (self.total + weight)


@dataclass
class _Depths:
    """At each depth: how often a token was kept, and how often one was drafted, if the one before it was."""

    kept: list[_Share] = field(default_factory=list)
    drafted: list[_Share] = field(default_factory=list)

    def add(self, limits: Sequence[int], counts: Sequence[int], accepted: Sequence[int], now: int) -> None:
        for _ in range(max(limits, default=0) - len(self.kept)):
            self.kept.append(_Share(now))
            self.drafted.append(_Share(now))
        for limit, num_accepted in zip(limits, accepted, strict=True):
            for depth in range(min(limit, num_accepted + 1)):
                self.kept[depth].add(num_accepted > depth, now)
        # A batch's drafts run side by side: the longest is what takes time.
        longest = max(counts, default=0)
        for depth in range(min(max(limits, default=0), longest + 1)):
            self.drafted[depth].add(longest > depth, now)

    def up_to(self, num_depths: int) -> Iterator[tuple[float, float]]:
        """Share kept and share drafted at each depth; what is not known is taken from the depth before."""
        kept, drafted = _FIRST_SHARE, 1.0
        for depth in range(num_depths):
            if depth < len(self.kept):
                kept = self.kept[depth].mean(kept)
                drafted = self.drafted[depth].mean(drafted)
            yield kept, drafted


def size_ratio(drafter_size: float, target_size: float) -> float:
    """Return the cost of a drafter's step in steps of the target, as their sizes suggest; bounded to be of use."""
    ratio = drafter_size / target_size if target_size > 0 else math.inf
    return min(max(ratio, 0.01), 2.0)
