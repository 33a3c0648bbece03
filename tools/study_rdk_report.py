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
    return f"{entry['num_kept']:,} ({percent(entry['share'])})"


def percent(share: float) -> str:
    return "all" if share == 1.0 else f"{100 * share:.2g} %"


def short(value: float) -> str:
    """A share of one without the leading zero, as the sentences of the page have it."""
    return f"{value:.3f}".replace("0.", ".", 1)


NAMES = {
    "smollm2 <- smollm2": "SmolLM2 <- SmolLM2, cut",
    "smollm2 <- embedded": "SmolLM2 <- embedded drafter",
    "gemma3-270m <- smollm2": "Gemma 3 270M <- SmolLM2",
}


def short_table(found: Sequence[dict[str, Any]]) -> str:
    """One line per pair, one column per kept share: what the calibrated kernel gains at T = 1, and on what."""
    entries = [entry for entry in found if entry["setting"] == "T=1"]
    shares = sorted({entry["share"] for entry in entries})
    heads = [f"{percent(share)} kept" if share == shares[0] else percent(share) for share in shares]
    lines = ["| | " + " | ".join(heads) + " |", "|---" * (len(shares) + 1) + "|"]
    for pair in dict.fromkeys(entry["pair"] for entry in entries):
        by_share = {entry["share"]: entry for entry in entries if entry["pair"] == pair}
        cells = []
        for share in shares:
            if share not in by_share:
                cells.append("")
                continue
            chosen, gain = by_share[share]["calibrated"]
            on = short(by_share[share]["tli"].mean)
            if chosen == "0":
                cells.append(f"falls back to TLI ({on})")
            else:
                text = gain_of(gain).replace("0.", ".")
                cells.append(f"{text} on {on}")
        lines.append(f"| {NAMES[pair]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


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


def kernels_table(columns: Sequence[dict[str, Any]], heads: Sequence[str]) -> str:
    """All kernels, the share chosen on the other half of the documents; a line of what was not run is left out."""
    rows = [(kind, [gain_of(e["judged"][kind][1]) if kind in e["judged"] else "" for e in columns]) for kind in KINDS]
    rows.append(("fitted, gated by entropy", [gain_of(entry["gated"]) for entry in columns]))
    rows.append(("anchor: head on the hidden state", [gain_of(e["head"]) if "head" in e else "" for e in columns]))
    missing = [gain_of(e["on missing tokens"]) if "on missing tokens" in e else "" for e in columns]
    rows.append(("of fitted sparse at share 1: accepted on missing tokens", missing))
    rows.append(("oracle: target mass outside I", [f"{1 - entry['inside'].mean:.4f}" for entry in columns]))
    lines = ["| kernel | " + " | ".join(heads) + " |", "|---" * (len(columns) + 1) + "|"]
    lines += [f"| {name} | " + " | ".join(cells) + " |" for name, cells in rows if any(cells)]
    return "\n".join(lines)


def pruned_table(found: Sequence[dict[str, Any]]) -> str:
    """All kernels at T = 1 where a tenth of the tokens are kept, or fewer."""
    columns = [entry for entry in found if entry["setting"] == "T=1" and entry["share"] in (0.01, 0.1)]
    return kernels_table(columns, [f"{entry['pair']}, {kept_of(entry)}" for entry in columns])


def kernels_page(found: Sequence[dict[str, Any]], settings: Sequence[str]) -> str:
    """Everything that was compared, pair by pair and setting by setting."""
    lines = [
        "# All kernels, all pairs, all settings",
        "",
        "Acceptance gained over token-level intersection; [the study](../rdk.md) says what is compared, and on what.",
        '"TLI": no strength of that kernel helped on the other half of the documents. What is missing was not run.',
    ]
    for pair in dict.fromkeys(entry["pair"] for entry in found):
        for setting in settings:
            columns = [entry for entry in found if entry["pair"] == pair and entry["setting"] == setting]
            if columns:
                title = setting.replace("=", " = ")
                lines += ["", f"## {NAMES[pair]}, {title}", "", kernels_table(columns, [kept_of(e) for e in columns])]
    return "\n".join(lines) + "\n"


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


COLOURS = {"smollm2 <- smollm2": "#1b6ca8", "smollm2 <- embedded": "#3f8f4f", "gemma3-270m <- smollm2": "#c4472d"}


def plot_gains(found: Sequence[dict[str, Any]], settings: Sequence[str], path: Path) -> None:
    """Gain over TLI against the kept share, per pair and setting."""
    figure, axes = pyplot().subplots(1, len(settings), figsize=(12, 3.8), layout="constrained", sharey=True)
    for axis, setting in zip(axes, settings, strict=True):
        for pair, colour in COLOURS.items():
            entries = [e for e in found if e["pair"] == pair and e["setting"] == setting]
            entries.sort(key=lambda e: float(e["share"]))
            shares = [100 * e["share"] for e in entries]
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
    """All kernels of each pair's most pruned drafter at T = 1."""
    most_pruned: dict[str, dict[str, Any]] = {}
    for entry in sorted((e for e in found if e["setting"] == "T=1"), key=lambda e: float(e["share"])):
        most_pruned.setdefault(entry["pair"], entry)
    entries = [most_pruned[pair] for pair in NAMES if pair in most_pruned]
    size = {"figsize": (12, 3.8), "layout": "constrained"}
    figure, axes = pyplot().subplots(1, max(1, len(entries)), sharey=True, squeeze=False, **size)
    for axis, entry in zip(axes[0], entries, strict=False):
        rows = [(kind, entry["judged"][kind][1]) for kind in KINDS if kind in entry["judged"]]
        rows.append(("fitted, gated by entropy", entry["gated"]))
        if "head" in entry:
            rows.append(("anchor: head on the hidden state", entry["head"]))
        names, gains = [name for name, _ in rows], [gain for _, gain in rows]
        axis.barh(names, [g.mean for g in gains], xerr=[g.half_width for g in gains], color="#1b6ca8", capsize=2)
        axis.axvline(0, color="#777777", linewidth=0.8)
        axis.invert_yaxis()
        axis.set_title(
            f"{entry['pair']}, {percent(entry['share'])} kept\nmass outside I {1 - entry['inside'].mean:.2f}",
            fontsize=9,
        )
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
