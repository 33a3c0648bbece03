# SPDX-License-Identifier: Apache-2.0
"""Bytes of a case: the floors of the op, and what our kernels ask for by the counts of the SIMT build."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from perf.gpu.grid import Case

ITEM = 2  # bytes of a bfloat16
_COUNTS = Path(__file__).resolve().parent.parent / "results" / "simt-traffic.json"


def plain_floor(case: Case) -> int:
    """Every target row once."""
    return case.batch_size * (case.num_drafts + 1) * case.vocab_size * ITEM


def tight_floor(case: Case) -> int:
    """And for each request the target row and the draft row of a rejection once more."""
    return plain_floor(case) + 2 * case.batch_size * case.vocab_size * ITEM


def needed(case: Case, num_accepted: list[int]) -> int:
    """The rows up to where each request stops, and those two rows of the requests that were rejected."""
    if case.op != "rejection_sample":
        return case.batch_size * case.vocab_size * ITEM
    rows = sum(accepted + 1 + 2 * (accepted < case.num_drafts) for accepted in num_accepted)
    return rows * case.vocab_size * ITEM


@cache
def _reads(op: str, top_p: bool) -> tuple[float, float, float]:
    """(a row, a rejection, a bonus): row reads that our kernels ask for, by the counts at V = 151,936."""
    counts = json.loads(_COUNTS.read_text())
    drafts, row = counts["num_drafts"], counts["batch_size"] * counts["vocab_size"] * ITEM
    loads = {(case["op"], case["setting"]): case["loads_bytes"] / row for case in counts["cases"]}
    setting = "top-p 0.9" if top_p else "T = 1"
    if op != "rejection_sample":
        return loads[op, setting], 0.0, 0.0
    a_row = loads["row_stats", setting]
    rejection = loads[op, f"{setting}, 0 of {drafts} accepted"] - a_row
    bonus = loads[op, f"{setting}, {drafts} of {drafts} accepted"] - (drafts + 1) * a_row
    return a_row, rejection, bonus


def counted(case: Case, num_accepted: list[int]) -> int:
    """Bytes that our kernels load, from the counts at V = 151,936 and where each request stopped."""
    a_row, rejection, bonus = _reads(case.op, case.top_p is not None)
    if case.op != "rejection_sample":
        rows = case.batch_size * a_row
    else:
        rows = sum(
            a_row * (accepted + 1) + (rejection if accepted < case.num_drafts else bonus) for accepted in num_accepted
        )
    return round(rows * case.vocab_size * ITEM)
