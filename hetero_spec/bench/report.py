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


def aims_of(records: Sequence[Record]) -> list[Record]:
    """Compare the automatic choice with plain decoding and with the best fixed choices, known only afterwards.

    Returns
    -------
    list of dict
        One per pair and temperature where "auto" was measured. least_against_plain: the worst cell's speed-up, the
        median of its repeats; first_against_plain: the worst first repeat, before any text of that prompt had been
        decoded. speedup: geometric mean over cells. best_fixed: the one fixed contestant (plain decoding among them)
        with the greatest geometric mean, best_fixed_speedup; against_best_fixed: "auto" over it.
        against_best_of_each_cell: geometric mean of "auto" over the best fixed contestant of every cell. Of several
        noisy figures the greatest lies too high, so this one lies too low.
    """
    places: dict[tuple[str, str, float], list[Record]] = {}
    for record in measured(records):
        if any(_is_automatic(name) for name in record["runs"]):
            places.setdefault((record["target"], record["drafter"], record["temperature"]), []).append(record)
    return [_aims(place, cells) for place, cells in places.items()]


def _aims(place: tuple[str, str, float], cells: Sequence[Record]) -> Record:
    timings = [next(run["timing"] for name, run in cell["runs"].items() if _is_automatic(name)) for cell in cells]
    auto = [timing["speedup"] for timing in timings]
    fixed = {
        name: [cell["runs"][name]["timing"]["speedup"] for cell in cells]
        for name in cells[0]["runs"]
        if _is_fixed(name)
    }
    fixed["plain"] = [1.0] * len(cells)
    best = max(fixed, key=lambda name: _geometric_mean(fixed[name]))
    best_of_each = [max(speedups) for speedups in zip(*fixed.values(), strict=True)]
    return {
        "target": place[0],
        "drafter": place[1],
        "temperature": place[2],
        "cells": len(cells),
        "least_against_plain": min(auto),
        "first_against_plain": min(timing["speedups"][0] for timing in timings),
        "speedup": _geometric_mean(auto),
        "best_fixed": best,
        "best_fixed_speedup": _geometric_mean(fixed[best]),
        "against_best_fixed": _ratio(_geometric_mean(auto), _geometric_mean(fixed[best])),
        "against_best_of_each_cell": _ratio(_geometric_mean(auto), _geometric_mean(best_of_each)),
    }


def _geometric_mean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values))) if min(values) > 0.0 else 0.0


def _ratio(value: float, other: float) -> float:
    return value / other if other else 0.0


def _is_automatic(name: str) -> bool:
    return name.partition(":")[0] == "auto"


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
    aims = aims_of(records)
    for aim in aims:
        notes.append(
            f"Auto, {aim['target']} <- {aim['drafter']}, T {aim['temperature']:g}, {aim['cells']} cells: "
            f"{aim['speedup']:.3f}x plain decoding (geometric mean), at least {aim['least_against_plain']:.3f}x in "
            f"every cell ({aim['first_against_plain']:.3f}x in every first repeat); "
            f"{aim['against_best_fixed']:.3f} of the best fixed contestant for all cells, {aim['best_fixed']} "
            f"({aim['best_fixed_speedup']:.3f}x); {aim['against_best_of_each_cell']:.3f} of each cell's own best."
        )
    if aims:
        notes.append(
            "Auto's controller is kept over the cells of a pair and temperature and over their repeats, in the suite's "
            "order, and starts without any knowledge. A cell's own best is the greatest of several noisy figures and "
            "so lies too high."
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
