# SPDX-License-Identifier: Apache-2.0
"""PNG plots of a run: ratios of the headline cases, and time against V, B and K."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from perf.report import RIVALS
from perf.scaling import AXES
from perf.targets import ratio

_NAMES = {"vocab_size": "vocabulary V", "batch_size": "requests B", "num_drafts": "drafts per request K"}
_COLOURS = {"ours": "#1b6ca8", "limit_library": "#777777", "limit_polynomial": "#bbbbbb"}
_LABELS = {
    "ours": "rejection_sample",
    "limit_library": "one pass (libm exp)",
    "limit_polynomial": "one pass (short exp)",
}


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def _save(plt: Any, figure: Any, path: Path) -> None:
    unfinished = path.with_name(f".{path.name}")
    figure.savefig(unfinished, dpi=130, format="png")
    plt.close(figure)
    os.replace(unfinished, path)


def plot_scaling(points: list[dict[str, Any]], path: Path) -> None:
    """Median time on each axis, with the 20th to 80th percentile as a band, and a line through the origin's row."""
    plt = _pyplot()
    figure, axes = plt.subplots(1, len(AXES), figsize=(12, 3.8), layout="constrained")
    one_thread = "cpu_median_us" in points[0]["ways"]["ours"]
    for axis, name in zip(axes, AXES, strict=True):
        for way, colour in _COLOURS.items():
            of_axis = [(point["value"], point["ways"][way]) for point in points if point["axis"] == name]
            values = [value for value, _ in of_axis]
            # One thread: processor time, whose spread is small even where the machine is busy.
            middle = "cpu_median_us" if one_thread else "median_us"
            axis.plot(values, [times[middle] / 1e3 for _, times in of_axis], "o-", color=colour, label=_LABELS[way])
            if not one_thread:
                low, high = ([times[key] / 1e3 for _, times in of_axis] for key in ("p20_us", "p80_us"))
                axis.fill_between(values, low, high, color=colour, alpha=0.2, linewidth=0)
        axis.set_xlabel(_NAMES[name])
        axis.set_xlim(left=0)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
        if name == "vocab_size":
            axis.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:.0f}k")
    axes[0].set_ylabel("processor time per call, ms" if one_thread else "time per call, ms")
    axes[0].legend(frameon=False)
    figure.suptitle("rejection_sample, every draft accepted, bfloat16; fixed: V = 151,936, B = 8, K = 4")
    _save(plt, figure, path)


def plot_ratios(records: list[dict[str, Any]], path: Path) -> None:
    """How many times slower than ours each other way is, in the cases where torch.compile was measured."""
    plt = _pyplot()
    chosen = [
        record
        for record in records
        if record["case"]["op"] == "rejection_sample" and "compiled_softmax" in record["ways"]
    ]
    if not chosen:
        return
    series = [("limit", "limit_library"), *RIVALS]
    figure, axis = plt.subplots(figsize=(11, 0.85 * len(chosen) + 1.6), layout="constrained")
    height = 0.8 / len(series)
    colours = plt.get_cmap("tab10").colors
    for idx, (title, way) in enumerate(series):
        clocks = ["cpu_median_us" if "cpu_median_us" in record["ways"]["ours"] else "median_us" for record in chosen]
        ratios = [ratio(record, way, "ours", clock) for record, clock in zip(chosen, clocks, strict=True)]
        places = [row + (idx - len(series) / 2 + 0.5) * height for row in range(len(chosen))]
        shown = [(place, value) for place, value in zip(places, ratios, strict=True) if value is not None]
        axis.barh(
            [place for place, _ in shown],
            [value for _, value in shown],
            height,
            label="one pass over all rows" if title == "limit" else title,
            color="#999999" if title == "limit" else colours[idx],
        )
        for place, value in shown:
            axis.text(value * 1.03, place, f"{value:.2g}" if value < 10 else f"{value:.0f}", va="center", fontsize=7)
    axis.axvline(1.0, color="black", linewidth=1)
    axis.set_xscale("log")
    axis.set_yticks(range(len(chosen)), [record["case"]["label"] for record in chosen], fontsize=8)
    axis.set_ylim(len(chosen) - 0.4, -0.6)
    axis.set_xlabel("time / time of rejection_sample (medians; with one thread, processor time)")
    axis.legend(frameon=False, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4)
    axis.margins(x=0.1)
    _save(plt, figure, path)
