# SPDX-License-Identifier: Apache-2.0
"""What method "auto" has measured: times of looks and of drafting, and how often draft tokens are kept.

What outlives a text has a `state` of plain JSON values, from which it can be made again.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Any

# Times: how many count, how old (in rounds) they may be if there are others, how many must agree that something has
# moved, by how much, and how far the supposition that other things moved with it may go.
_WINDOW = 25
_LEAST_TIMES = 2
_MOST_AGE = 256
_NUM_MOVED = 5
_SHIFT = 1.25
_MOST_SUPPOSED = 4.0
# What a look at several tokens takes more than one at a single token, in plain steps, until it has been measured: once,
# and for each token; how many looks each supposition is worth, and how many of its own a width needs before they count
# as much as what all widths say together. A first look at so many tokens is not believed to take more than so much more
# than was thought.
_FIRST_JUMP, _FIRST_SLOPE = 0.1, 0.05
_JUMP_WEIGHT, _SLOPE_WEIGHT = 1.0, 30.0
_MOST_LOOKS = 8
_POOLED_WEIGHT = 2.0
_MOST_SURPRISE = 0.5
# Shares: what an observation makes of the weight of those before it (in the slow and in the quick average), what a
# round without one does down to a least weight, and how many standard deviations apart the averages must be to say that
# the share has changed.
_SLOW, _QUICK = 0.995, 0.95
_FADING = 0.998
_LEAST_WEIGHT = 4.0
_UNLIKELY = 3.0
# Over texts: observations that one text counts for at most, how many those of other texts are worth in a new one, what
# a text makes of the weight of those before it, and the weight of what was supposed before any.
_MOST_OF_TEXT = 12.0
_OTHERS_WEIGHT = 4.0
_FORGETTING = 0.9
_PRIOR_WEIGHT = 2.0
# Of a state that is taken back: no number in it is larger, and what sums that grow and fade may differ by.
_LARGEST = 1e15
_ROUNDING = 1e-6


def checked_number(value: Any, least: float = 0.0) -> float:
    """Return a number of a state.

    Raises
    ------
    ValueError   it is none, not finite or too small
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= _LARGEST:
        raise ValueError(f"a number of at least {least:g} must stand in the place of {value!r}")
    return float(value)


def checked_count(value: Any, least: int = 0) -> int:
    """Return a whole number of a state; raises ValueError as `checked_number` does."""
    if not isinstance(value, int):
        raise ValueError(f"a whole number must stand in the place of {value!r}")
    return int(checked_number(value, least))


class Times:
    """The latest times of one thing.

    Attributes
    ----------
    estimate : float or None
        Their median, or what it is supposed to have become; None before the first.
    """

    def __init__(self, state: Any = None) -> None:
        self._latest: deque[tuple[int, float]] = deque(maxlen=_WINDOW)
        self._is_supposed = False
        self.estimate: float | None = None
        if state is not None:
            self._is_supposed = bool(state[0])
            self._latest.extend((checked_count(now), checked_number(seconds)) for now, seconds in state[2])
            if self._latest:
                self.estimate = checked_number(state[1])

    @property
    def num_measured(self) -> int:
        """How many times count."""
        return len(self._latest)

    def state(self) -> list[Any]:
        """Return all of it as JSON values."""
        return [self._is_supposed, self.estimate, [list(pair) for pair in self._latest]]

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


class Looks:
    """Time of a look of the target over so many tokens a request, for so many requests."""

    def __init__(self, state: Any = None) -> None:
        self._times: dict[int, dict[int, Times]] = {}
        # Of each number of requests, since the last time was added.
        self._curves: dict[int, Curve | None] = {}
        if state is not None:
            for size, widths in state:
                self._times[checked_count(size, 1)] = {checked_count(width, 1): Times(times) for width, times in widths}

    def state(self) -> list[Any]:
        """Return all of it as JSON values."""
        return [
            [size, [[width, times.state()] for width, times in widths.items()]] for size, widths in self._times.items()
        ]

    def add(self, size: int, width: int, seconds: float, now: int) -> float | None:
        """Add a time; return by how much everything seems to have moved."""
        self._curves.clear()
        shift = self._times.setdefault(size, {}).setdefault(width, Times()).add(seconds, now)
        if shift is not None:
            for other_size, by_width in self._times.items():
                for other_width, times in by_width.items():
                    if (other_size, other_width) != (size, width):
                        times.scale(shift)
        return shift

    def curve(self, size: int) -> Curve | None:
        """Return the time of a look as a function of its width; None before the first plain ones."""
        if size not in self._curves:
            self._curves[size] = self._make_curve(size)
        return self._curves[size]

    def _make_curve(self, size: int) -> Curve | None:
        usable = [known for known, by_width in self._times.items() if 1 in by_width and by_width[1].num_measured >= 2]
        if not usable:
            return None
        by_width = self._times[min(usable, key=lambda known: abs(known - size))]
        base = by_width[1].estimate
        assert base is not None
        if base <= 0.0:
            return Curve([1], [base], 0.0)
        # Of each width above 1: what it takes more than a plain look, in plain looks, and how many say so.
        known = []
        for width, times in by_width.items():
            if width > 1 and times.estimate is not None:
                known.append((width, times.estimate / base - 1.0, min(times.num_measured, _MOST_LOOKS)))
        known = _believed(known)
        jump, slope = _fit(known)
        widths, values, weights = [1], [1.0], [float(_MOST_LOOKS)]
        for width, more, count in sorted(known):
            widths.append(width)
            pooled = jump + slope * (width - 1)
            values.append(1.0 + (count * more + _POOLED_WEIGHT * pooled) / (count + _POOLED_WEIGHT))
            weights.append(float(count))
        if 2 not in widths:  # where the jump is
            widths.insert(1, 2)
            values.insert(1, 1.0 + jump + slope)
            weights.insert(1, _POOLED_WEIGHT)
        return Curve(widths, [base * value for value in _rising(values, weights)], slope * base)


def _believed(known: Sequence[tuple[int, float, int]]) -> list[tuple[int, float, int]]:
    """Bound what widths take of which there was but one look by what the others say."""
    jump, slope = _fit([point for point in known if point[2] > 1])
    return [
        (width, more if count > 1 else min(more, jump + slope * (width - 1) + _MOST_SURPRISE), count)
        for width, more, count in known
    ]


def _fit(points: Sequence[tuple[int, float, int]]) -> tuple[float, float]:
    """Fit jump + slope * (width - 1) to what widths above 1 take more than a plain look; neither is below 0.

    Least squares, each width with its number of looks, held to what is supposed beforehand.
    """
    total = sum(count for *_, count in points) + _JUMP_WEIGHT
    first = sum(count * (width - 1) for width, _, count in points)
    second = sum(count * (width - 1) ** 2 for width, _, count in points) + _SLOPE_WEIGHT
    values = sum(count * more for _, more, count in points) + _JUMP_WEIGHT * _FIRST_JUMP
    products = sum(count * more * (width - 1) for width, more, count in points) + _SLOPE_WEIGHT * _FIRST_SLOPE
    slope = (total * products - first * values) / (total * second - first**2)
    if slope < 0.0:
        return max(0.0, values / total), 0.0
    jump = (values - first * slope) / total
    return (jump, slope) if jump >= 0.0 else (0.0, products / second)


@dataclass
class Curve:
    """Points joined by lines; beyond the last it goes on with `slope`.

    Attributes
    ----------
    widths : list of int
        Tokens a request, from 1 upwards.
    times : list of float
        Seconds.
    slope : float
        Seconds per token.
    """

    widths: list[int]
    times: list[float]
    slope: float

    def at(self, width: float) -> float:
        """Return the seconds of a look over so many tokens."""
        if width >= self.widths[-1]:
            return self.times[-1] + self.slope * (width - self.widths[-1])
        right = max(bisect_left(self.widths, width), 1)
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


@dataclass
class _Average:
    """An average in which each observation counts `memory` times as much as the one after it."""

    memory: float
    kept: float = 0.0
    total: float = 0.0

    def fade(self, rounds: int) -> None:
        faded = max(_FADING ** max(0, rounds), min(1.0, _LEAST_WEIGHT / max(self.total, 1e-9)))
        self.kept *= faded
        self.total *= faded

    def add(self, is_kept: bool) -> None:
        self.kept = self.kept * self.memory + is_kept
        self.total = self.total * self.memory + 1.0

    def mean(self, prior: float, weight: float) -> float:
        return (self.kept + weight * prior) / (self.total + weight)


class Share:
    """A share in one text, which may change: a slow average, and a quick one in its place once both cannot be right."""

    def __init__(self, now: int) -> None:
        self._slow, self._quick = _Average(_SLOW), _Average(_QUICK)
        self._last = now

    @property
    def counted(self) -> tuple[float, float]:
        """Observations that were kept, and all of them, as far as they still count."""
        return self._slow.kept, self._slow.total

    def add(self, is_kept: bool, now: int) -> None:
        """Add an observation."""
        # What was seen long ago is worth a few observations, so that a few new ones can overrule it.
        for average in (self._slow, self._quick):
            average.fade(now - self._last)
            average.add(is_kept)
        self._last = now
        share = self._slow.mean(0.5, 1.0)
        if abs(self._quick.mean(share, 1.0) - share) > _UNLIKELY * math.sqrt(share * (1.0 - share) / self._quick.total):
            self._slow.kept, self._slow.total = self._quick.kept, self._quick.total

    def mean(self, prior: float, weight: float = _OTHERS_WEIGHT) -> float:
        """Return the share, where `prior` is worth so many observations."""
        return self._slow.mean(prior, weight)


class Pool:
    """At each depth, what texts say together: how often a token was kept, and how often one was drafted at all.

    Every text counts for a dozen observations at most, so that the mean is over texts more than over tokens; texts of
    long ago count less.
    """

    def __init__(self, state: Any = None) -> None:
        # Of each depth: kept, total; drafted, total.
        self.sums: list[list[float]] = []
        for kept, total, drafted, rounds in state or []:
            sums = [checked_number(value) for value in (kept, total, drafted, rounds)]
            if sums[0] > sums[1] + _ROUNDING or sums[2] > sums[3] + _ROUNDING:
                raise ValueError(f"a part must not be more than the whole, got {sums}")
            self.sums.append(sums)

    def state(self) -> list[list[float]]:
        """Return all of it as JSON values."""
        return [list(sums) for sums in self.sums]

    def open(self) -> TextShares:
        """Return where one more text's observations go."""
        for sums in self.sums:
            for place, value in enumerate(sums):
                sums[place] = value * _FORGETTING
        return TextShares(self)

    def shares(self, first: float, rest: float | None = None) -> Iterator[tuple[float, float]]:
        """Yield share kept and share drafted of each depth; what is little known leans on the one before, or `rest`."""
        kept, drafted = first, 1.0
        for sums in self.sums:
            kept = min(1.0, (sums[0] + _PRIOR_WEIGHT * kept) / (sums[1] + _PRIOR_WEIGHT))
            drafted = min(1.0, (sums[2] + _PRIOR_WEIGHT * drafted) / (sums[3] + _PRIOR_WEIGHT))
            yield kept, drafted
            kept = kept if rest is None else rest
        while True:
            yield kept, drafted
            kept = kept if rest is None else rest

    @property
    def num_seen(self) -> float:
        """Drafts seen, as far as they count."""
        return self.sums[0][1] if self.sums else 0.0


class TextShares:
    """The observations of one text (of all requests of a batch), which are the pool's too."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        # Of each depth: share kept, share drafted.
        self.depths: list[tuple[Share, Share]] = []

    def add(self, limits: Sequence[int], counts: Sequence[int], accepted: Sequence[int], now: int) -> None:
        """Add a round: of each request how long its draft could have been, was, and how much was kept."""
        longest_limit = max(limits, default=0)
        self._reach(longest_limit, now)
        for limit, num_accepted in zip(limits, accepted, strict=True):
            for depth in range(min(limit, num_accepted + 1)):
                self._add(depth, 0, num_accepted > depth, now)
        # A batch's drafts run side by side: the longest is what takes time.
        longest = max(counts, default=0)
        for depth in range(min(longest_limit, longest + 1)):
            self._add(depth, 1, longest > depth, now)

    def add_kept(self, depth: int, is_kept: bool, now: int) -> None:
        """Add whether a token at this depth, those before it being kept, was kept or would have been."""
        self._reach(depth + 1, now)
        self._add(depth, 0, is_kept, now)

    def _reach(self, num_depths: int, now: int) -> None:
        while len(self.depths) < num_depths:
            self.depths.append((Share(now), Share(now)))
        while len(self._pool.sums) < num_depths:
            self._pool.sums.append([0.0] * 4)

    def _add(self, depth: int, what: int, is_kept: bool, now: int) -> None:
        share, sums = self.depths[depth][what], self._pool.sums[depth]
        before = _bounded(share)
        share.add(is_kept, now)
        for place, old, new in zip((2 * what, 2 * what + 1), before, _bounded(share), strict=True):
            sums[place] = max(0.0, sums[place] + new - old)


def _bounded(share: Share) -> tuple[float, float]:
    kept, total = share.counted
    part = min(1.0, _MOST_OF_TEXT / total) if total else 0.0
    return kept * part, total * part
