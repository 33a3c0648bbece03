# SPDX-License-Identifier: Apache-2.0
"""Which method to draft with, and how far: the decisions of method "auto".

From running measurements the controller keeps

* the time of a look of the target (with verification) as a function of the number of tokens it is shown;
* each drafter's time per draft token, and per token of context that it has to catch up with;
* at each depth, how often a draft token is kept given that the one before it was: over all texts, and in the text at
  hand, which begins with what the others have shown. N-grams are told apart by how sure they are, and watched at every
  place where they have something to propose: whether it would have been kept is seen when the text gets there, and
  costs nothing.

A round with a draft of at most k tokens takes time(1 + expected length) + drafting and emits 1 + sum of products of the
shares; the choice is the method and the k with the least time per token, what it has to catch up with spread over the
tokens that are likely to come, or no draft. Three rules bound what can be lost:

* the ledger: every round of a text books what plain decoding would have taken for its tokens against what it took. A
  draft that is rejected may not bring the text's losses above .7 % of the tokens that it is likely to have, unless
  drafting promises three times as much even if the text should be a good deal unkinder than it has seemed so far. An
  n-gram that is not all but sure waits until one of the text has been watched;
* the purse: trying something other than the best choice costs expected time, which is paid from three quarters of a
  percent of all time, and for what is new from the text's gains. Drafting that would pay if the text at hand were a
  little kinder than the others is tried first, at the text's beginning, where there is little to catch up with and most
  to gain;
* caution: times are medians of the latest ones, so that a hiccup decides nothing. When they all move, what was not
  measured since moves with them.

A controller belongs to a pair of models and a machine, not to a text: the more texts it has served, the better its
guess at the beginning of the next. `Controller.state` is all that it knows, as JSON values.

What the controller learns must not tell it anything about random numbers that are still to be used: a draft token
behind a rejected one was drawn with the number of a position that is drawn for again. So a round is taken into account
only once its requests have passed every position that its draft drew numbers for; see `AutoProposer`. N-grams, their
confidence and how they would have fared are functions of the text that has been emitted.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median_low
from typing import Any

from hetero_spec.decoding.estimates import Curve, Looks, Pool, TextShares, Times, checked_count, checked_number

PLAIN = "none"
NGRAM = "ngram"
STATE_VERSION = 2

# Of the tokens that a text is likely to have: what may be lost on it, in plain steps; and at most so much more than the
# same share of those that it has.
_SHARE_AT_RISK = 0.007
_MOST_AT_RISK = 1.5
# How many times what is put at stake beyond that a draft must promise, to be made all the same.
_PROMISE = 3.0
# Of all time: what may be spent on trials; in plain steps, what there is at first and at most.
_PURSE_SHARE = 0.0075
_FIRST_PURSE = 0.3
_MOST_PURSE = 5.0
# In plain steps: how far a text's gains count, so that old ones do not pay for a drafter that has become useless.
_MOST_CREDIT = 20.0
# A draft must promise this much, since estimates err.
_LEAST_GAIN = 0.01
# Rounds between trials of what does not look promising, and of the same thing.
_ROUNDS_BETWEEN_TRIALS = 4
_ROUNDS_BETWEEN_TRIES = 16
# A method's drafts that may be paid from what a text has gained.
_FIRST_TRIES = 8
# Standard deviations by which a text may be thought kinder than the others are, and unkinder where more is put at stake
# than may be lost.
_OPTIMISM = 1.0
_CAUTION = 2.5
# Drafts in other texts that count when it is said how far this one may differ from them.
_MOST_OF_OTHERS = 4.0
# Confidence of n-grams that are drafted before it has been seen in the text at hand how they fare.
_SURE = 0.9
# Tokens over which catching up is thought to pay, at most.
_HORIZON = 128
# Share of a plain step that a token of a prompt costs, until it has been measured.
_FIRST_READING = 0.1
# Share of a plain step that a draft token costs, likewise, where nothing is known of the drafter.
_FIRST_RATIO = {NGRAM: 0.005}
_DEFAULT_RATIO = 0.25
# Share of draft tokens that are kept, likewise. Of n-grams by their confidence: its least, the first token, all others.
_FIRST_SHARE = 0.5
_CLASSES = ((0.9, 0.95, 0.9), (0.75, 0.82, 0.8), (0.6, 0.67, 0.75), (0.45, 0.52, 0.7), (0.0, 0.3, 0.6))
# Lengths that are priced, and how far beyond the depths that have been seen.
_MOST_TOKENS = 16
_LENGTHENING = 3
# Context tokens that a drafter is behind in ordinary rounds.
_ORDINARY_PENDING = 4
# Where drafting does not pay, rounds in which that is not thought over again (thinking takes time, too), and how many
# tokens of a text come first.
_REST = 3
_AWAKE = 8.0
# Sampling parameters of which it is remembered how drafts fare.
_MOST_KEYS = 64
# Lengths of texts that are remembered.
_NUM_LENGTHS = 15
_NUM_READ = 25


@dataclass(eq=False)
class Text:
    """What is known of one text in progress, or of all texts of a batch together.

    Attributes
    ----------
    saved : float
        Plain steps that have been saved so far; negative: lost.
    num_tokens : float
        Tokens emitted so far, on average over its requests.
    """

    saved: float = 0.0
    num_tokens: float = 0.0
    shares: dict[tuple[str, int, str], TextShares] = field(default_factory=dict)


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
    key : str
        Sampling parameters; acceptance is kept apart for each.
    pending : mapping
        Of each drafting method, how many tokens of context its drafter has yet to see.
    confidences : sequence of float
        Of each request, how probable n-grams hold the first token that they have to propose; 0: they have none.
    text : Text
        What is known of the text or texts.
    """

    num_requests: int
    max_length: int
    remaining: int
    key: str
    pending: Mapping[str, int]
    confidences: Sequence[float]
    text: Text


@dataclass(frozen=True)
class Choice:
    """A method and the largest draft length.

    Attributes
    ----------
    method : str
    length : int
    stake : float
        What is lost, in plain steps, if nothing of the draft is kept; booked as lost until it is known better.
    trial_cost : float
        Of a choice made to learn something: the plain steps taken out of the purse for it.
    best : float
        Then, the plain steps per token of what would have been chosen.
    rest : int
        Without a draft: rounds after this one in which there is no need to ask, unless n-grams have something to
        propose then; see `Controller.rested`.
    """

    method: str
    length: int
    stake: float = 0.0
    trial_cost: float = 0.0
    best: float = 0.0
    rest: int = 0


NO_DRAFT = Choice(PLAIN, 0)


@dataclass
class Round:
    """What a round was and what came of it.

    Attributes
    ----------
    choice : Choice
        What was done.
    num_requests : int
    key : str
    text : Text
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
    key: str
    text: Text
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
        self._forget()

    def _forget(self) -> None:
        self._looks = Looks()
        self._steps: dict[tuple[str, int], Times] = {}
        self._catching_up: dict[str, Times] = {}
        # Seconds and prompt tokens of the latest rounds in which the target read one.
        self._read: deque[tuple[float, int]] = deque(maxlen=_NUM_READ)
        # Of each method, class of match and sampling.
        self._pools: dict[tuple[str, int, str], Pool] = {}
        self._last_used: dict[str, int] = {}
        self._round = 0
        self._last_trial = 0
        # In plain steps.
        self._purse = _FIRST_PURSE
        self._lengths: deque[float] = deque(maxlen=_NUM_LENGTHS)
        # Longer looks have moved; whether plain ones have, has to be seen.
        self._must_look_plainly = False

    def state(self) -> dict[str, Any]:
        """Return everything learnt so far, as JSON values.

        What is known of texts in progress alone is not among it; what they have taught about texts in general is.
        """
        return {
            "version": STATE_VERSION,
            "methods": list(self.methods),
            "looks": self._looks.state(),
            "steps": [[*key, times.state()] for key, times in self._steps.items()],
            "catching_up": [[method, times.state()] for method, times in self._catching_up.items()],
            "read": [list(pair) for pair in self._read],
            "pools": [[*key, pool.state()] for key, pool in self._pools.items()],
            "last_used": dict(self._last_used),
            "round": self._round,
            "last_trial": self._last_trial,
            "purse": self._purse,
            "lengths": list(self._lengths),
            "must_look_plainly": self._must_look_plainly,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Know what another controller knew, and nothing else.

        Parameters
        ----------
        state : mapping
            What `state` returned, possibly by way of JSON. Methods that this one may not choose are of no account.

        Raises
        ------
        ValueError   a state of another version, or no state
        """
        version = state.get("version")
        if version != STATE_VERSION:
            raise ValueError(f"Controller: state must be of version {STATE_VERSION}, got {version!r}")
        self._forget()
        try:
            self._looks = Looks(state["looks"])
            self._steps = {(method, checked_count(size, 1)): Times(times) for method, size, times in state["steps"]}
            self._catching_up = {method: Times(times) for method, times in state["catching_up"]}
            self._read.extend((checked_number(seconds), checked_count(tokens, 1)) for seconds, tokens in state["read"])
            self._pools = {(method, checked_count(kind), key): Pool(sums) for method, kind, key, sums in state["pools"]}
            self._last_used = {str(label): checked_count(at) for label, at in state["last_used"].items()}
            self._round, self._last_trial = checked_count(state["round"]), checked_count(state["last_trial"])
            self._purse = checked_number(state["purse"], -_MOST_PURSE)
            self._lengths.extend(checked_number(length) for length in state["lengths"])
            self._must_look_plainly = bool(state["must_look_plainly"])
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            self._forget()
            raise ValueError(f"Controller: state must be what a controller's state returned, got {error!r}") from error

    def plan(self, situation: Situation) -> Choice:
        """Return what to do."""
        self._round += 1
        size = situation.num_requests
        curve = self._looks.curve(size)
        if curve is None or curve.times[0] <= 0.0 or situation.max_length < 1 or self._must_look_plainly:
            self._last_used[PLAIN] = self._round
            return NO_DRAFT
        plain = curve.times[0]
        left = self._tokens_left(situation)
        lengths = {method: self._offers(method, situation, curve, left) for method in self.methods}
        chosen = _NOTHING
        best = plain / size
        for offer in (offer for offers in lengths.values() for offer in offers):
            pays = offer.per_token < min(best, plain / size * (1.0 - _LEAST_GAIN))
            if pays and self._may(offer, situation, plain, left):
                chosen, best = offer, offer.per_token
        trial = self._trial(situation, plain, left, chosen, lengths, best)
        if trial is not None:
            if not trial.is_hopeful:
                self._last_trial = self._round
            chosen = trial
        self._last_used[chosen.label] = self._round
        if chosen.choice.method == PLAIN:
            is_resting = chosen is _NOTHING and situation.text.num_tokens >= _AWAKE
            return replace(NO_DRAFT, rest=_REST) if is_resting else chosen.choice
        stake = max(0.0, chosen.seconds - plain) / plain
        situation.text.saved -= stake
        return replace(chosen.choice, stake=stake)

    def observe(self, outcome: Round) -> None:
        """Learn from a round."""
        method, size = outcome.choice.method, outcome.num_requests
        longest = max(outcome.counts, default=0)
        if method == NGRAM and not longest:
            method = PLAIN  # what was meant was not done
        outcome.text.saved += outcome.choice.stake
        before = self._looks.curve(size) if method != PLAIN else None
        if outcome.prompt_tokens:
            self._read.append((outcome.seconds_rest, outcome.prompt_tokens))
        else:
            shift = self._looks.add(size, longest + 1, outcome.seconds_rest, self._round)
            if shift is not None:
                self._follow(shift, method)
                # What was booked while the old times were believed in was booked wrongly.
                outcome.text.saved = max(outcome.text.saved, 0.0)
                self._must_look_plainly = longest > 0
            elif longest == 0:
                self._must_look_plainly = False
        if method != PLAIN:
            self._learn_drafting(outcome, longest, None if before is None else before.times[0])
        if not outcome.accepted:
            return
        tokens = sum(outcome.accepted) / len(outcome.accepted) + 1.0
        outcome.text.num_tokens += tokens
        curve = self._looks.curve(size)
        if curve is None or curve.times[0] <= 0.0:
            return
        plain = curve.times[0]
        # Both sides are booked at the prices they usually have: a hiccup is nobody's fault. Catching up is not usual.
        seconds = plain if outcome.prompt_tokens else curve.at(longest + 1.0)
        if method != PLAIN:
            usual = max(longest, 1) * self._step_time(method, size, plain)
            is_usual = outcome.pending <= 2 * _ORDINARY_PENDING
            seconds += usual if is_usual else max(outcome.seconds_draft, usual)
        steps = seconds / plain
        if outcome.choice.trial_cost:
            # The purse pays what it was, not what it was thought to be.
            self._purse += outcome.choice.trial_cost - max(0.0, steps - tokens * size * outcome.choice.best)
            self._purse = max(self._purse, -_MOST_PURSE)
        outcome.text.saved = min(outcome.text.saved + tokens - steps, _MOST_CREDIT)
        self._purse = min(self._purse + _PURSE_SHARE * steps, _MOST_PURSE)

    def rested(self, text: Text, num_rounds: int) -> None:
        """Count rounds without a draft in which it was not asked."""
        self._round += num_rounds
        text.num_tokens += num_rounds
        self._purse = min(self._purse + _PURSE_SHARE * num_rounds, _MOST_PURSE)

    def watch(self, text: Text, key: str, confidence: float, depth: int, is_kept: bool) -> None:
        """Learn what would have become of a token that n-grams had to propose, whether or not it was drafted.

        Parameters
        ----------
        text, key
            As in `Situation`.
        confidence : float
            As in `Situation`, when the token was looked up.
        depth : int
            Its place in what they had to propose; all before it would have been kept.
        is_kept : bool
        """
        place = (NGRAM, _class_of(confidence), key)
        self._text_shares(text, place).add_kept(depth, is_kept, self._round)

    def end(self, num_tokens: float) -> None:
        """Note how many tokens a text has come to."""
        self._lengths.append(float(num_tokens))

    def _tokens_left(self, situation: Situation) -> float:
        """Return how many tokens the text will probably have yet, rather few than many."""
        known = sorted(self._lengths)
        usual = known[len(known) // 4] if known else math.inf
        so_far = situation.text.num_tokens
        return max(1.0, min(situation.remaining, max(usual - so_far, so_far / 2.0)))

    def _may(self, offer: _Offer, situation: Situation, plain: float, left: float) -> bool:
        """Whether what a draft puts at stake can be lost."""
        text = situation.text
        if offer.choice.method == NGRAM and max(situation.confidences) < _SURE and not _has_been_watched(text):
            return False
        room = _SHARE_AT_RISK * text.num_tokens + min(_SHARE_AT_RISK * left, _MOST_AT_RISK) + text.saved
        lacking = (offer.seconds - plain) / plain - room
        if lacking <= 0.0:
            return True
        promised = (1.0 - offer.feared * situation.num_requests / plain) * min(left, _HORIZON)
        return promised >= _PROMISE * lacking

    def _offers(self, method: str, situation: Situation, curve: Curve, left: float) -> list[_Offer]:
        """Price every length of a method; nothing where it has nothing to propose."""
        size, plain = situation.num_requests, curve.times[0]
        kinds = [_class_of(each) for each in situation.confidences if each] if method == NGRAM else [0] * size
        if not kinds:
            return []
        laws = [(kinds.count(kind), self._law(method, kind, situation)) for kind in sorted(set(kinds))]
        step = self._step_time(method, size, plain)
        extra = self._catch_up_time(method, max(0, situation.pending[method] - _ORDINARY_PENDING), plain)
        horizon = size * min(left, _HORIZON)
        offers: list[_Offer] = []
        tokens = hopeful = fearful = float(size)
        reached = 1.0
        length = 0.0
        products = [1.0] * len(laws)
        for depth in range(min(len(law.kept) for _, law in laws)):
            for place, (count, law) in enumerate(laws):
                products[place] *= law.kept[depth]
                tokens += count * products[place]
                hopeful += count * products[place] * law.optimism
                fearful += count * products[place] * law.caution
            reached *= max(law.drafted[depth] for _, law in laws)
            length += reached
            seconds = curve.at(1.0 + length) + step * max(1.0, length)
            spread = extra / horizon
            choice = Choice(method, depth + 1)
            offers.append(
                _Offer(
                    choice,
                    method,
                    seconds / tokens + spread,
                    seconds / hopeful + spread,
                    seconds / fearful + spread,
                    seconds + extra,
                    tokens,
                )
            )
            if depth > 2 and offers[-1].per_token > offers[-2].per_token > offers[-3].per_token:
                break  # longer ones would only be worse
        return offers

    def _law(self, method: str, kind: int, situation: Situation) -> _Law:
        """Return what is expected of a method's drafts in this text."""
        place = (method, kind, situation.key)
        pool, own = self._pools.get(place, _NO_POOL), situation.text.shares.get(place)
        law = _Law([], [])
        supposed = pool.shares(*self._first_shares(method, kind, situation.key))
        # Few steps beyond what is known at a time: what is supposed may be wrong.
        for depth in range(min(situation.max_length, _MOST_TOKENS, len(pool.sums) + _LENGTHENING)):
            kept, drafted = next(supposed)
            weight = 0.0
            if own is not None and depth < len(own.depths):
                share, reach = own.depths[depth]
                kept, drafted, weight = share.mean(kept), reach.mean(drafted), share.counted[1]
            if depth == 0 and kept > 0.0:
                deviation = math.sqrt(kept * (1.0 - kept) / (min(pool.num_seen, _MOST_OF_OTHERS) + weight + 1.0))
                law.optimism = min(1.0, kept + _OPTIMISM * deviation) / kept
                law.caution = max(0.0, kept - _CAUTION * deviation) / kept
            law.kept.append(kept)
            law.drafted.append(drafted)
        return law

    def _first_shares(self, method: str, kind: int, key: str) -> tuple[float, float]:
        """Return the shares kept of first and later tokens that are supposed before any draft was made."""
        if method == NGRAM:
            return _CLASSES[kind][1:]
        # All models that draft are one and the same: what one method has shown goes for another.
        known = [
            (pool.num_seen, next(pool.shares(_FIRST_SHARE))[0])
            for (name, _, other), pool in self._pools.items()
            if name not in (NGRAM, method) and other == key and pool.num_seen
        ]
        total = sum(weight for weight, _ in known)
        first = sum(weight * share for weight, share in known) / total if total else _FIRST_SHARE
        return first, first

    def _trial(
        self,
        situation: Situation,
        plain: float,
        left: float,
        chosen: _Offer,
        lengths: Mapping[str, Sequence[_Offer]],
        best: float,
    ) -> _Offer | None:
        """Return what to try out of turn, if the purse can pay for it.

        First whatever would be best if this text were kinder than others, then what was used longest ago.
        """
        size = situation.num_requests
        hopes = [
            replace(offer, is_hopeful=True)
            for method, offers in lengths.items()
            if method != chosen.choice.method
            for offer in offers[:2]
            if offer.hoped < best * (1.0 - _LEAST_GAIN)
        ]
        candidates = sorted(hopes, key=lambda offer: offer.hoped)
        if self._round - self._last_trial >= _ROUNDS_BETWEEN_TRIALS:
            others = [
                offers[0]
                for method, offers in lengths.items()
                if offers and method != chosen.choice.method and self._is_due(method)
            ]
            if chosen is not _NOTHING:
                if self._is_due(PLAIN):
                    usual = plain / size
                    others.append(_Offer(NO_DRAFT, PLAIN, usual, usual, usual, plain, float(size)))
                method, length = chosen.choice.method, chosen.choice.length
                others += [replace(offer, label=f"longer {method}") for offer in lengths[method][length : length + 1]]
            candidates += sorted(others, key=lambda offer: self._last_used.get(offer.label, -1))
        for offer in candidates:
            cost = max(0.0, offer.seconds - offer.tokens * best) / plain
            if offer.choice.method != PLAIN and not self._may(offer, situation, plain, left):
                continue
            if offer.is_hopeful and self._is_new(offer.choice.method, situation.key) and cost <= situation.text.saved:
                # A newcomer is paid from what the others have gained: later, its drafter would be further behind.
                return offer
            if cost <= self._purse:
                self._purse -= cost
                return replace(offer, choice=replace(offer.choice, trial_cost=cost, best=best / plain))
        return None

    def _is_new(self, method: str, key: str) -> bool:
        pool = self._pools.get((method, 0, key))
        return method != NGRAM and (pool is None or pool.num_seen < _FIRST_TRIES)

    def _is_due(self, label: str) -> bool:
        return self._round - self._last_used.get(label, -_ROUNDS_BETWEEN_TRIES) >= _ROUNDS_BETWEEN_TRIES

    def _learn_drafting(self, outcome: Round, longest: int, plain: float | None) -> None:
        method = outcome.choice.method
        if method != NGRAM and outcome.accepted:  # n-grams are watched
            shares = self._text_shares(outcome.text, (method, 0, outcome.key))
            shares.add(outcome.limits, outcome.counts, outcome.accepted, self._round)
        steps = max(longest, 1)
        extra = max(0, outcome.pending - _ORDINARY_PENDING)
        times = self._steps.setdefault((method, outcome.num_requests), Times())
        if method == NGRAM or extra <= _ORDINARY_PENDING:
            times.add(outcome.seconds_draft / steps, self._round)
            return
        relative = self._reading_time(plain) / plain if plain else _FIRST_READING
        known = times.estimate
        if known is None:
            # One time for two unknowns: the drafter is taken to read as quickly, in steps of its own, as the target.
            known = outcome.seconds_draft / (steps + extra * relative)
            times.add(known, self._round)
        reading_time = max(0.0, outcome.seconds_draft - steps * known) / extra
        self._catching_up.setdefault(method, Times()).add(reading_time, self._round)

    def _text_shares(self, text: Text, place: tuple[str, int, str]) -> TextShares:
        if place not in text.shares:
            # The latest comes last.
            self._pools[place] = self._pools.pop(place) if place in self._pools else Pool()
            text.shares[place] = self._pools[place].open()
            keys = list(dict.fromkeys(key for *_, key in reversed(self._pools)))
            if len(keys) > _MOST_KEYS:
                self._pools = {other: pool for other, pool in self._pools.items() if other[2] != keys[-1]}
        return text.shares[place]

    def _step_time(self, method: str, size: int, plain: float) -> float:
        sizes = [known for name, known in self._steps if name == method]
        if sizes:
            nearest = min(sizes, key=lambda known: abs(known - size))
            estimate = self._steps[method, nearest].estimate
            if estimate is not None:
                return estimate
        return self._ratios.get(method, _DEFAULT_RATIO) * plain

    def _catch_up_time(self, method: str, num_tokens: int, plain: float) -> float:
        if not num_tokens or method == NGRAM:
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


@dataclass
class _Law:
    """What is expected of drafts: shares kept and drafted at each depth.

    How many times the first share might be what it is thought to be, if the text is a kind one (optimism) or an unkind
    one (caution).
    """

    kept: list[float]
    drafted: list[float]
    optimism: float = 1.0
    caution: float = 1.0


@dataclass(frozen=True)
class _Offer:
    """A choice and what it is expected to take and to give.

    Seconds per token are given thrice: as expected, if the text is a kind one, and if it is an unkind one.
    """

    choice: Choice
    label: str
    per_token: float
    hoped: float
    feared: float
    seconds: float
    tokens: float
    is_hopeful: bool = False


_NO_POOL = Pool()
_NOTHING = _Offer(NO_DRAFT, PLAIN, math.inf, math.inf, math.inf, 0.0, 1.0)


def _has_been_watched(text: Text) -> bool:
    return any(method == NGRAM for method, *_ in text.shares)


def _class_of(confidence: float) -> int:
    """Return the class of an n-gram's confidence: the greater, the lower."""
    return next(number for number, (least, *_) in enumerate(_CLASSES) if confidence >= least)


def size_ratio(drafter_size: float, target_size: float) -> float:
    """Return the cost of a drafter's step in steps of the target, as their sizes suggest; bounded to be of use."""
    ratio = drafter_size / target_size if target_size > 0 else math.inf
    return min(max(ratio, 0.01), 2.0)
