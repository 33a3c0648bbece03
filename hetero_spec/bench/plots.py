# SPDX-License-Identifier: Apache-2.0
"""PNG plots of a run: speed against plain decoding, and tokens per target call by kind of prompt."""

from __future__ import annotations

import io
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hetero_spec.bench.report import Record, cells_of_kind, measured
from hetero_spec.files import write_whole

FILES = ("speedup.png", "efficiency.png")


def write_plots(records: Sequence[Record], folder: Path) -> None:
    """Write both plots into a folder; nothing where no cell was measured.

    Raises
    ------
    ImportError   matplotlib is not installed
    """
    cells = measured(records)
    if not cells:
        return
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    places = list(dict.fromkeys((cell["target"], cell["drafter"], cell["temperature"]) for cell in cells))
    kinds = list(dict.fromkeys(cell["kind"] for cell in cells))
    names = list(dict.fromkeys(name for cell in cells for name in cell["runs"]))
    colours = {kind: plt.get_cmap("tab10")(number) for number, kind in enumerate(kinds)}
    for path, draw in zip(FILES, (_draw_speedups, _draw_efficiency), strict=True):
        size = (5.2 * len(places) + 1.5, 0.36 * len(names) + 1.8)
        figure, axes = plt.subplots(1, len(places), figsize=size, layout="constrained", squeeze=False, sharey=True)
        for axis, place in zip(axes[0], places, strict=True):
            draw(axis, cells, place, names, colours)
            axis.set_title(f"{place[0]} <- {place[1]}, temperature {place[2]:g}", fontsize=9)
            axis.set_yticks(range(len(names)), names, fontsize=8)
            axis.set_ylim(len(names) - 0.5, -0.5)
            axis.grid(axis="x", alpha=0.3)
        axes[0][-1].legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
        image = io.BytesIO()
        figure.savefig(image, dpi=130, format="png", metadata={"Software": None})
        plt.close(figure)
        write_whole(folder / path, image.getvalue())


def _draw_speedups(
    axis: Any, cells: Sequence[Record], place: tuple[str, str, float], names: Sequence[str], colours: dict[str, Any]
) -> None:
    """A dot per cell, a stroke at their median; beyond the line at 1 drafting pays."""
    for row, name in enumerate(names):
        every = []
        for kind, colour in colours.items():
            speedups = [cell["timing"]["speedup"] for cell in cells_of_kind(cells, (*place, name), kind)]
            axis.plot(
                speedups, [row] * len(speedups), "o", color=colour, ms=4, alpha=0.7, label=kind if not row else None
            )
            every += speedups
        if every:
            axis.plot([statistics.median(every)] * 2, [row - 0.3, row + 0.3], color="black", linewidth=2)
    axis.axvline(1.0, color="black", linewidth=0.8, linestyle="--")
    axis.set_xlabel("tokens per second / those of plain decoding beside it")


def _draw_efficiency(
    axis: Any, cells: Sequence[Record], place: tuple[str, str, float], names: Sequence[str], colours: dict[str, Any]
) -> None:
    """A bar per kind of prompt."""
    height = 0.8 / len(colours)
    for number, (kind, colour) in enumerate(colours.items()):
        values = []
        for name in names:
            figures = cells_of_kind(cells, (*place, name), kind)
            calls = sum(figure["target_calls"] for figure in figures)
            values.append(sum(figure["tokens"] for figure in figures) / calls if calls else 0.0)
        rows = [row + (number - len(colours) / 2 + 0.5) * height for row in range(len(names))]
        axis.barh(rows, values, height, color=colour, label=kind)
    axis.set_xlim(left=1.0)
    axis.set_xlabel("tokens per target call")
