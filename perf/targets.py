# SPDX-License-Identifier: Apache-2.0
"""What `rejection_sample` should reach at B = 8, K = 4, V = 151,936, and whether a run shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Target:
    """A bound on the ratio of two ways in the cases that it is about."""

    text: str
    applies: Callable[[dict[str, Any]], bool]
    numerator: str
    denominator: str
    bound: float
    at_most: bool

    def holds(self, ratio: float) -> bool:
        return ratio <= self.bound if self.at_most else ratio >= self.bound


def _headline(acceptance: float, top_p: float | None) -> Callable[[dict[str, Any]], bool]:
    def applies(case: dict[str, Any]) -> bool:
        shape = (case["op"], case["vocab_size"], case["batch_size"], case["num_drafts"])
        usual = (case["rule"], case["mapped"], case["logits"], case.get("kernel")) == ("token", False, "peaked", None)
        same = case["acceptance"] == acceptance and case["top_p"] == top_p
        return shape == ("rejection_sample", 151_936, 8, 4) and usual and same

    return applies


def _with_kernel(op: str, kernel: str) -> Callable[[dict[str, Any]], bool]:
    def applies(case: dict[str, Any]) -> bool:
        shape = (case["op"], case["vocab_size"], case["batch_size"], case["num_drafts"])
        return shape == (op, 151_936, 8, 4) and case.get("kernel") == kernel

    return applies


_FULL, _HALF, _TOP_P = _headline(1.0, None), _headline(0.5, None), _headline(1.0, 0.9)
_OF_KERNELS = ("ours", "without_kernel")
TARGETS = (
    Target("at most 1.3 x one pass", _FULL, "ours", "limit_library", 1.3, True),
    Target("at least 15 x faster than eager", _FULL, "eager_softmax", "ours", 15, False),
    Target("at least 2.5 x faster than compiled", _FULL, "compiled_softmax", "ours", 2.5, False),
    Target("at least 2.5 x faster than compiled log-sum-exp", _FULL, "compiled_logsumexp", "ours", 2.5, False),
    Target("accepting half: at least 5 x faster than compiled", _HALF, "compiled_softmax", "ours", 5, False),
    Target("accepting half: at least 5 x compiled log-sum-exp", _HALF, "compiled_logsumexp", "ours", 5, False),
    Target("top-p: at most 3 x one pass", _TOP_P, "ours", "limit_library", 3, True),
    *(
        Target(
            f"{op}, {kernel} kernel: at most {bound} x the call without",
            _with_kernel(op, kernel),
            *_OF_KERNELS,
            bound,
            True,
        )
        for op, bound in (("rejection_sample", 1.15), ("draft_sample", 1.1))
        for kernel in ("mix", "sparse")
    ),
)


def ratio(record: dict[str, Any], numerator: str, denominator: str, statistic: str = "median_us") -> float | None:
    """Ratio of two ways of a record, None where one was not measured."""
    ways = record["ways"]
    if numerator not in ways or denominator not in ways:
        return None
    return float(ways[numerator][statistic] / ways[denominator][statistic])


def judge(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One verdict per target and case that it applies to."""
    verdicts = []
    for target in TARGETS:
        for record in records:
            if not target.applies(record["case"]):
                continue
            # With one thread the processor's time is known, which what else runs disturbs least.
            clock = "cpu_" if "cpu_min_us" in record["ways"]["ours"] else ""
            median = ratio(record, target.numerator, target.denominator, f"{clock}median_us")
            least = ratio(record, target.numerator, target.denominator, f"{clock}min_us")
            if median is None or least is None:
                continue
            verdicts.append(
                {
                    "target": target.text,
                    "case": record["case"]["label"],
                    "bound": target.bound,
                    "ratio_of_medians": round(median, 3),
                    "ratio_of_minima": round(least, 3),
                    "reached": target.holds(median),
                    "reached_by_minima": target.holds(least),
                }
            )
    return verdicts
