# SPDX-License-Identifier: Apache-2.0
"""The short table that ends a check, the verdicts on the targets, and the roofline plot.

python -m perf.gpu.report RESULTS.jsonl [--plot FILE.png] [--most ROWS]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from perf.gpu.grid import OURS
from perf.gpu.lines import Lines

MOST_OVER_COPY, LEAST_SPEED_UP = 1.3, 4.0


def best_peer(record: dict[str, Any]) -> tuple[str, float] | None:
    """The fastest other way, and how many times longer than ours it takes."""
    ours = record["ways"].get(OURS)
    others = {name: times["median_us"] for name, times in record["ways"].items() if name != OURS}
    if ours is None or not others:
        return None
    name = min(others, key=others.__getitem__)
    return name, others[name] / ours["median_us"]


def _cells(record: dict[str, Any]) -> list[str]:
    ours, peer = record["ways"].get(OURS), best_peer(record)
    if ours is None:
        return [record["case"]["label"], "not measured", "", "", "", ""]
    floor = record.get("over_floor_at_copy_speed")
    return [
        record["case"]["label"],
        f"{ours['median_us']:.1f} ({ours['p20_us']:.1f}-{ours['p80_us']:.1f})",
        f"{record['counted_bytes'] / 1e6:.1f}",
        f"{record['share_of_copy']:.0%}",
        "" if floor is None else f"{floor:.2f}",
        "" if peer is None else f"{peer[1]:.1f}x {peer[0]}",
    ]


def table(records: list[dict[str, Any]]) -> list[str]:
    """One line a case, columns aligned."""
    header = ["case", "us (p20-p80)", "counted MB", "of copy", "/ tight floor", "best peer"]
    rows = [header, *(_cells(record) for record in records)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def verdicts(records: list[dict[str, Any]]) -> list[str]:
    """The targets of the headline cases, each with its numbers."""
    lines = []
    for record in records:
        if not record["case"]["is_headline"] or OURS not in record["ways"]:
            continue
        ours = record["ways"][OURS]["median_us"]
        copy = record.get("copy_of_floor_us")
        if copy is not None:
            reached = "yes" if ours <= MOST_OVER_COPY * copy else "NO"
            lines.append(
                f"{reached}: {record['case']['label']}: {ours / copy:.2f} times a copy of the tight floor "
                f"(at most {MOST_OVER_COPY})"
            )
        peer = best_peer(record)
        if peer is not None:
            reached = "yes" if peer[1] >= LEAST_SPEED_UP else "NO"
            lines.append(
                f"{reached}: {record['case']['label']}: {peer[1]:.1f} times faster than {peer[0]}, the best peer "
                f"(at least {LEAST_SPEED_UP:g})"
            )
    return lines


def disagreements(records: list[dict[str, Any]], least: float = 0.97) -> list[str]:
    """Ways whose verdicts are not ours."""
    return [
        f"{record['case']['label']}: {name} agrees in {share:.1%} of the requests"
        for record in records
        for name, share in record["agreement"].items()
        if share < least and record["case"]["batch_size"] * (1.0 - share) > 2.0
    ]


def plot(records: list[dict[str, Any]], copy_gb_s: float, device: str, path: Path) -> None:
    """Roofline of ops that are bound by memory: useful bytes a second against useful bytes, under the copy's line."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(8, 5), layout="constrained")
    names = dict.fromkeys(name for record in records for name in record["ways"])
    for name in names:
        points = [
            (record["needed_bytes"], record["needed_bytes"] / record["ways"][name]["median_us"] / 1e3)
            for record in records
            if name in record["ways"]
        ]
        mark = "o" if name == OURS else "."
        axis.plot([x for x, _ in points], [y for _, y in points], mark, label=name, zorder=3 if name == OURS else 2)
    axis.axhline(copy_gb_s, color="black", linewidth=1, label=f"copy, {copy_gb_s:,.0f} GB/s read and written")
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("bytes that the case needs (target rows up to each stop, twice a row for a rejection)")
    axis.set_ylabel("those bytes / time, GB/s")
    axis.set_title(f"{device}: every case")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def main(arguments: list[str] | None = None) -> int:
    """Print what a file of results holds, the short table last; 1 where verdicts disagree."""
    parser = argparse.ArgumentParser(prog="python -m perf.gpu.report", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--plot", type=Path, help="PNG file to write")
    parser.add_argument("--most", type=int, default=36, help="rows of the table, the most telling first")
    options = parser.parse_args(arguments)
    lines = Lines(options.results).read()
    records = [line for line in lines if line["kind"] == "bench"]
    devices = [line for line in lines if line["kind"] == "device"]
    if not records or not devices:
        print("report: nothing was measured")
        return 1
    device = devices[-1]
    if options.plot is not None:
        try:
            plot(records, device["copy_gb_s"], device["name"], options.plot)
        except ImportError:
            print("report: no plot, matplotlib is not installed")
    skipped = {(name, why) for record in records for name, why in record["skipped"].items()}
    for name, why in sorted(skipped):
        print(f"not measured everywhere: {name} ({why})")
    differing = disagreements(records)
    for line in [*differing, *verdicts(records)]:
        print(line)
    print(f"{device['name']}, torch {device['torch']}; copy {device['copy_gb_s']:,.0f} GB/s read and written")
    print("\n".join(table(records[: options.most])))
    if len(records) > options.most:
        print(f"... and {len(records) - options.most} more in {options.results}")
    left = sum(line["cases_left"] for line in lines if line["kind"] == "bench_end")
    if left:
        print(f"{left} cases were left for lack of time")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
