# SPDX-License-Identifier: Apache-2.0
"""What a run's cells say together: one row per pair, temperature and contestant."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from hetero_spec.bench.suite import Contestant

Record = dict[str, Any]
HEADER = (
    *("pair", "T", "contestant", "acceptance", "tokens per target call", "tokens/s", "speed-up", "least", "most"),
    *("cells", "identical"),
)


def summary_of(records: Sequence[Record]) -> list[Record]:
    """Return a row per pair, temperature and contestant, in the order in which they were measured.

    Acceptance and tokens per target call are of all cells' counts together; speed-up is the median over cells of each
    cell's own median, with the least and the greatest cell beside it.
    """
    groups: dict[tuple[str, str, float, str], list[Record]] = {}
    plain: dict[tuple[str, str, float], list[Record]] = {}
    for record in measured(records):
        place = (record["target"], record["drafter"], record["temperature"])
        plain.setdefault(place, []).append(record["plain"])
        for name, figures in record["runs"].items():
            groups.setdefault((*place, name), []).append(figures)
    rows = []
    seen = set()
    for (target, drafter, temperature, name), cells in groups.items():
        place = (target, drafter, temperature)
        if place not in seen:
            seen.add(place)
            rows.append(_row(place, "plain", plain[place]))
        rows.append(_row(place, name, cells))
    return rows


def measured(records: Sequence[Record]) -> list[Record]:
    """Return the cells that could be measured."""
    return [record for record in records if "skipped" not in record]


def _row(place: tuple[str, str, float], name: str, cells: Sequence[Record]) -> Record:
    totals = {key: sum(cell[key] for cell in cells) for key in ("tokens", "target_calls", "proposed", "accepted")}
    speedups = [cell["timing"]["speedup"] for cell in cells if "speedup" in cell["timing"]]
    identical = [cell["identical"] for cell in cells if "identical" in cell]
    return {
        "target": place[0],
        "drafter": place[1],
        "temperature": place[2],
        "contestant": name,
        "cells": len(cells),
        "acceptance_rate": totals["accepted"] / totals["proposed"] if totals["proposed"] else None,
        "block_efficiency": totals["tokens"] / totals["target_calls"] if totals["target_calls"] else None,
        "tokens_per_second": statistics.median(cell["timing"]["tokens_per_second"] for cell in cells),
        "speedup": statistics.median(speedups) if speedups else None,
        "least_speedup": min(speedups) if speedups else None,
        "greatest_speedup": max(speedups) if speedups else None,
        "identical": sum(identical) if identical else None,
        "identical_of": len(identical),
    }


def hindsight_of(records: Sequence[Record]) -> Record | None:
    """Compare the automatic choice with the best fixed one of each cell, known only afterwards.

    Returns
    -------
    dict or None
        least_against_plain: the worst cell's speed-up; against_best_fixed: geometric mean over cells of its speed over
        that of the cell's best fixed contestant (plain decoding among them). None where "auto" was not measured.
    """
    least, logarithms = math.inf, []
    for record in measured(records):
        runs = record["runs"]
        automatic = [figures for name, figures in runs.items() if name.partition(":")[0] == "auto"]
        if not automatic:
            continue
        auto = automatic[0]["timing"]["speedup"]
        fixed = [figures["timing"]["speedup"] for name, figures in runs.items() if _is_fixed(name)]
        least = min(least, auto)
        if auto > 0.0:
            logarithms.append(math.log(auto / max([1.0, *fixed])))
    if not logarithms:
        return None
    return {
        "cells": len(logarithms),
        "least_against_plain": least,
        "against_best_fixed": math.exp(statistics.fmean(logarithms)),
    }


def _is_fixed(name: str) -> bool:
    method, _, lookahead = name.partition(":")
    return Contestant(method, int(lookahead) if lookahead.isdecimal() else lookahead or None).is_fixed


def texts_of(row: Record) -> tuple[str, ...]:
    """Return a row as the tables show it, in the order of HEADER."""
    identical = "" if row["identical"] is None else f"{row['identical']} of {row['identical_of']}"
    return (
        f"{row['target']} <- {row['drafter']}",
        f"{row['temperature']:g}",
        row["contestant"],
        _number(row["acceptance_rate"], 3),
        _number(row["block_efficiency"], 2),
        _number(row["tokens_per_second"], 1),
        *(_number(row[name], 2) for name in ("speedup", "least_speedup", "greatest_speedup")),
        str(row["cells"]),
        identical,
    )


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def notes_of(records: Sequence[Record], left_out: Sequence[str]) -> list[str]:
    """Return what a reader must know besides the table, a sentence each."""
    notes = [f"Left out: {reason}" for reason in left_out]
    notes += [f"Skipped: {record['key']} ({record['skipped']})" for record in records if "skipped" in record]
    different = [
        f"{record['key']}, {name}"
        for record in measured(records)
        for name, figures in record["runs"].items()
        if figures.get("identical") is False
    ]
    if different:
        notes.append(
            f"Texts that should be plain decoding's own and are not (a pass over several tokens rounds otherwise than "
            f"one over a single token, and close calls tip): {'; '.join(different)}"
        )
    hindsight = hindsight_of(records)
    if hindsight is not None:
        notes.append(
            f"Auto: at least {hindsight['least_against_plain']:.2f}x plain decoding in each of {hindsight['cells']} "
            f"cells; {hindsight['against_best_fixed']:.3f}x the best fixed choice in hindsight (geometric mean)."
        )
    return notes


def markdown(records: Sequence[Record], left_out: Sequence[str]) -> str:
    """The table and the notes as a Markdown file."""
    lines = [f"| {' | '.join(HEADER)} |", "|" + " --- |" * len(HEADER)]
    lines += [f"| {' | '.join(texts_of(row))} |" for row in summary_of(records)]
    kinds = list(dict.fromkeys(record["kind"] for record in measured(records)))
    lines += ["", "Median speed-up (tokens per target call) by kind of prompt:", ""]
    lines += [f"| pair | T | contestant | {' | '.join(kinds)} |", "|" + " --- |" * (len(kinds) + 3)]
    for row in summary_of(records):
        if row["contestant"] == "plain":
            continue
        place = (row["target"], row["drafter"], row["temperature"], row["contestant"])
        texts = texts_of(row)[:3] + tuple(_of_kind(records, place, kind) for kind in kinds)
        lines.append(f"| {' | '.join(texts)} |")
    lines += ["", *(f"* {note}" for note in notes_of(records, left_out))]
    return "\n".join(lines).rstrip() + "\n"


def cells_of_kind(records: Sequence[Record], place: tuple[str, str, float, str], kind: str) -> list[Record]:
    """Return one contestant's figures on one kind of prompt."""
    target, drafter, temperature, name = place
    return [
        record["runs"][name]
        for record in measured(records)
        if name in record["runs"]
        and (record["target"], record["drafter"], record["temperature"], record["kind"])
        == (target, drafter, temperature, kind)
    ]


def _of_kind(records: Sequence[Record], place: tuple[str, str, float, str], kind: str) -> str:
    cells = cells_of_kind(records, place, kind)
    if not cells:
        return ""
    speedup = statistics.median(cell["timing"]["speedup"] for cell in cells)
    calls = sum(cell["target_calls"] for cell in cells)
    return f"{speedup:.2f} ({sum(cell['tokens'] for cell in cells) / max(calls, 1):.2f})"
