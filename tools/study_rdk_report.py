# SPDX-License-Identifier: Apache-2.0
"""Tables and plots of `study_rdk.py`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hetero_spec.rdk.calibration import Estimate


def pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def save_figure(figure: Any, path: Path) -> None:
    unfinished = path.with_name(f".{path.name}")
    figure.savefig(unfinished, dpi=130, format="png")
    pyplot().close(figure)
    os.replace(unfinished, path)


def as_json(value: Any) -> Any:
    if isinstance(value, Estimate):
        return value.as_dict()
    if isinstance(value, dict):
        return {key: as_json(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(each) for each in value]
    return value


def number(found: Estimate) -> str:
    return f"{found.mean:.3f}"


def gain_of(found: Estimate) -> str:
    if found.mean == found.half_width == 0.0:
        return "TLI"  # no share helped on the other half of the documents
    text = f"{found.mean:+.4f} ± {found.half_width:.4f}"
    return f"**{text}**" if found.is_gain else text


def kept_of(entry: dict[str, Any]) -> str:
    share = float(entry["case"].split("-")[1])
    count = f"{entry['num_kept']:,}"
    return f"{count} (all)" if share == 1.0 else f"{count} ({100 * share:g} %)"


def main_table(found: Sequence[dict[str, Any]], setting: str) -> str:
    """One line per drafter: what there is to gain, and what the calibrated kernel gains."""
    lines = [
        "| pair | kept tokens | target mass inside I | outside | zero padding | TLI | gain of the fitted kernel "
        "| share |",
        "|---" * 8 + "|",
    ]
    for entry in found:
        if entry["setting"] != setting:
            continue
        share, gain = entry["calibrated"]
        best = gain_of(entry["families"]["fitted sparse"][1])
        what = gain_of(gain) if share != "0" else f"0: falls back to TLI (best share: {best})"
        tli = f"{number(entry['tli'])} ± {entry['tli'].half_width:.3f}"
        cells = (entry["pair"], kept_of(entry), number(entry["inside"]), f"{1 - entry['inside'].mean:.3f}")
        cells += (number(entry["zero padding"]), tli, what, share)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


KINDS = (
    "mix, mean law",
    "mix, mean law outside I",
    "mix, root-mean law outside I",
    "first-order diagonal",
    "low rank (64 laws)",
    "spelling",
    "covariance affinity",
    "conditional affinity, not fitted",
    "fitted sparse, V/4 entries",
    "fitted sparse",
)


def kernels_table(found: Sequence[dict[str, Any]]) -> str:
    """All kernels at T = 1, the share chosen on the other half of the documents."""
    columns = [entry for entry in found if entry["setting"] == "T=1" and "spelling" in entry["judged"]]
    lines = [
        "| kernel | " + " | ".join(f"{entry['pair']}, {kept_of(entry)}" for entry in columns) + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    for kind in KINDS:
        cells = [gain_of(entry["judged"][kind][1]) if kind in entry["judged"] else "" for entry in columns]
        lines.append(f"| {kind} | " + " | ".join(cells) + " |")
    lines.append("| fitted, gated by entropy | " + " | ".join(gain_of(entry["gated"]) for entry in columns) + " |")
    heads = [gain_of(entry["head"]) if "head" in entry else "" for entry in columns]
    lines.append("| anchor: head on the hidden state | " + " | ".join(heads) + " |")
    aside = [gain_of(entry["on missing tokens"]) if "on missing tokens" in entry else "" for entry in columns]
    lines.append("| of fitted sparse at share 1: accepted on missing tokens | " + " | ".join(aside) + " |")
    oracle = [f"{1 - entry['inside'].mean:.4f}" for entry in columns]
    lines.append("| oracle: target mass outside I | " + " | ".join(oracle) + " |")
    return "\n".join(lines)


def cost_table(found: Sequence[dict[str, Any]]) -> str:
    """What a kernel and the anchor cost."""
    lines = [
        "| pair, kept tokens | entries of S | size of the kernel, MB | fit, s of processor "
        "| head: multiplications a row |",
        "|---|---|---|---|---|",
    ]
    for entry in found:
        if entry["setting"] != "T=1":
            continue
        entries = int(entry["cost"]["fitted sparse"].split()[1])
        notes = entry.get("head_notes")
        head = f"{int(notes['rank']) * int(notes['missing']):,}" if notes else ""
        lines.append(
            f"| {entry['pair']}, {kept_of(entry)} | {entries:,} | {entries * 8 / 1e6:.2f} | "
            f"{entry['fit_cpu_seconds']:.0f} | {head} |"
        )
    return "\n".join(lines)


def speed_table(points: Sequence[dict[str, Any]]) -> str:
    names = list(points[0]["cpu_us"])
    lines = ["| V | entries of S | " + " | ".join(names) + " |", "|---" * (len(names) + 2) + "|"]
    for point in points:
        cells = [f"{point['cpu_us'][name]:,.0f}" if name in point["cpu_us"] else "" for name in names]
        lines.append(f"| {point['vocab_size']:,} | {point['nnz']:,} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def plot_gains(found: Sequence[dict[str, Any]], settings: Sequence[str], path: Path) -> None:
    """Gain over TLI against the kept share, per pair and setting."""
    figure, axes = pyplot().subplots(1, len(settings), figsize=(12, 3.8), layout="constrained", sharey=True)
    for axis, setting in zip(axes, settings, strict=True):
        for pair, colour in (("smollm2 <- smollm2", "#1b6ca8"), ("gemma3-270m <- smollm2", "#c4472d")):
            entries = [e for e in found if e["pair"] == pair and e["setting"] == setting]
            entries.sort(key=lambda e: float(e["case"].split("-")[1]))
            shares = [100 * float(e["case"].split("-")[1]) for e in entries]
            gains = [e["calibrated"][1] for e in entries]
            means, widths = [g.mean for g in gains], [g.half_width for g in gains]
            axis.errorbar(shares, means, widths, fmt="o-", color=colour, capsize=3, label=pair)
        axis.axhline(0, color="#777777", linewidth=0.8)
        axis.set_xscale("log")
        axis.set_title(setting)
        axis.set_xlabel("kept tokens, % of the shared ones")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("acceptance gained over TLI (95 %)")
    axes[0].legend()
    save_figure(figure, path)


def plot_kernels(found: Sequence[dict[str, Any]], path: Path) -> None:
    """All kernels at 1 % kept and T = 1."""
    entries = [e for e in found if e["setting"] == "T=1" and e["case"].endswith("-0.01")]
    figure, axes = pyplot().subplots(1, max(1, len(entries)), figsize=(12, 3.8), layout="constrained", sharey=True)
    for axis, entry in zip(axes if len(entries) > 1 else [axes], entries, strict=True):
        rows = [(kind, entry["judged"][kind][1]) for kind in KINDS if kind in entry["judged"]]
        rows.append(("fitted, gated by entropy", entry["gated"]))
        if "head" in entry:
            rows.append(("anchor: head on the hidden state", entry["head"]))
        names, gains = [name for name, _ in rows], [gain for _, gain in rows]
        axis.barh(names, [g.mean for g in gains], xerr=[g.half_width for g in gains], color="#1b6ca8", capsize=2)
        axis.axvline(0, color="#777777", linewidth=0.8)
        axis.invert_yaxis()
        axis.set_title(f"{entry['pair']}, 1 % kept\nmass outside I {1 - entry['inside'].mean:.2f}", fontsize=9)
        axis.set_xlabel("acceptance gained over TLI (95 %)")
        axis.grid(alpha=0.3, axis="x")
    save_figure(figure, path)


def plot_speed(points: Sequence[dict[str, Any]], path: Path) -> None:
    figure, axis = pyplot().subplots(figsize=(6.5, 4.2), layout="constrained")
    for name in points[0]["cpu_us"]:
        own = [(p["vocab_size"], p["cpu_us"][name] / 1e3) for p in points if name in p["cpu_us"]]
        axis.plot([x for x, _ in own], [y for _, y in own], "o--" if "TLI" in name else "o-", label=name, markersize=4)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xlabel("vocabulary V")
    axis.set_ylabel("processor time per call, ms (one thread)")
    axis.grid(alpha=0.3, which="both")
    axis.legend(fontsize=8)
    save_figure(figure, path)
