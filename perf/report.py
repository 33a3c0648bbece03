# SPDX-License-Identifier: Apache-2.0
"""Results as Markdown tables: times, ratios, bandwidth, memory, targets."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from perf.targets import ratio

# Column title, way: how many times slower than ours it is.
RIVALS = (
    ("eager", "eager_softmax"),
    ("eager lse", "eager_logsumexp"),
    ("compiled", "compiled_softmax"),
    ("compiled lse", "compiled_logsumexp"),
    ("compiled lse, kept", "compiled_logsumexp_kept"),
    ("transformers", "transformers"),
)


def _both(record: dict[str, Any], numerator: str, denominator: str) -> str:
    median = ratio(record, numerator, denominator)
    least = ratio(record, numerator, denominator, "min_us")
    return "" if median is None or least is None else f"{_short(median)} ({_short(least)})"


def _short(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def _bandwidth(record: dict[str, Any], way: str, key: str) -> float:
    return float(record["facts"][key] / record["ways"][way]["median_us"] / 1e3)


def _table(header: list[str], rows: list[list[str]]) -> list[str]:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def ratio_tables(records: list[dict[str, Any]]) -> list[str]:
    """One table per op. A cell is the ratio of medians, in brackets that of minima."""
    lines: list[str] = []
    records = [record for record in records if "limit_library" in record["ways"]]
    for op, group in groupby(records, key=lambda record: record["case"]["op"]):
        of_op = list(group)
        rivals = [(title, way) for title, way in RIVALS if any(way in record["ways"] for record in of_op)]
        header = ["case", "ours, ms (p20 to p80)", "GB/s", "limit GB/s", "ours / limit", "ours / fast limit"]
        rows = []
        for record in of_op:
            ours = record["ways"]["ours"]
            rows.append(
                [
                    record["case"]["label"],
                    f"{ours['median_us'] / 1e3:.2f} ({ours['p20_us'] / 1e3:.2f} to {ours['p80_us'] / 1e3:.2f})",
                    f"{_bandwidth(record, 'ours', 'bytes_needed'):.1f}",
                    f"{_bandwidth(record, 'limit_library', 'limit_bytes'):.1f}",
                    _both(record, "ours", "limit_library"),
                    _both(record, "ours", "limit_polynomial"),
                    *(_both(record, way, "ours") for _, way in rivals),
                ]
            )
        lines += [f"### {op}", "", *_table(header + [f"{title} / ours" for title, _ in rivals], rows), ""]
    return lines


def cpu_table(records: list[dict[str, Any]]) -> list[str]:
    """Processor time with one thread: what a busy machine disturbs least."""
    rows = []
    for record in records:
        ways = record["ways"]
        if "cpu_min_us" not in ways["ours"] or "limit_library" not in ways:
            continue
        row = [f"{record['case']['op']} {record['case']['label']}", f"{ways['ours']['cpu_median_us'] / 1e3:.2f}"]
        for numerator, denominator in (
            ("ours", "limit_library"),
            ("ours", "limit_polynomial"),
            ("eager_softmax", "ours"),
            ("compiled_softmax", "ours"),
            ("compiled_logsumexp", "ours"),
            ("compiled_logsumexp_kept", "ours"),
        ):
            median = ratio(record, numerator, denominator, "cpu_median_us")
            least = ratio(record, numerator, denominator, "cpu_min_us")
            row.append("" if median is None or least is None else f"{_short(median)} ({_short(least)})")
        rows.append(row)
    if not rows:
        return []
    header = ["case", "ours, ms", "ours / limit", "ours / fast limit", "eager / ours", "compiled / ours"]
    header += ["compiled lse / ours", "compiled lse, kept / ours"]
    return ["### Processor time, one thread", "", *_table(header, rows), ""]


def kernel_table(records: list[dict[str, Any]]) -> list[str]:
    """A call with an RDK kernel against the same call without it, and the op against the dense matrix."""
    rows = []
    for record in records:
        if record["case"]["kernel"] is None:
            continue
        clock = "cpu_" if "cpu_min_us" in record["ways"]["ours"] else ""
        row = [f"{record['case']['op']} {record['case']['label']}"]
        row.append(f"{record['ways']['ours'][f'{clock}median_us'] / 1e3:.2f}")
        for numerator, denominator in (
            ("ours", "without_kernel"),
            ("materialised", "ours"),
            ("eager_composed", "ours"),
            ("eager_dense", "ours"),
        ):
            median = ratio(record, numerator, denominator, f"{clock}median_us")
            least = ratio(record, numerator, denominator, f"{clock}min_us")
            row.append("" if median is None or least is None else f"{_short(median)} ({_short(least)})")
        accepted = [record["facts"].get(key) for key in ("mean_accepted_with_kernel", "mean_accepted")]
        row.append("" if None in accepted else f"{accepted[0]} / {accepted[1]}")
        rows.append(row)
    if not rows:
        return []
    header = ["case", "ours, ms", "with / without kernel", "materialised / ours", "composed / ours", "dense / ours"]
    header.append("accepted with / without")
    return ["### RDK kernels", "", *_table(header, rows), ""]


def target_table(verdicts: list[dict[str, Any]]) -> list[str]:
    """Every target with its number."""
    rows = [
        [
            verdict["target"],
            verdict["case"],
            f"{verdict['ratio_of_medians']:.2f} ({verdict['ratio_of_minima']:.2f})",
            "yes" if verdict["reached"] else "only by minima" if verdict["reached_by_minima"] else "no",
        ]
        for verdict in verdicts
    ]
    return ["### Targets", "", *_table(["target", "case", "ratio", "reached"], rows), ""] if rows else []


def memory_table(entries: list[dict[str, Any]]) -> list[str]:
    """Bytes that one call allocates beyond its inputs."""
    if not entries:
        return []
    rows = [
        [
            entry["label"],
            entry["way"],
            f"{entry['peak_bytes'] / 1024:,.1f}",
            f"{entry['largest_bytes'] / 1024:,.1f}",
            f"{entry['row_bytes'] / 1024:,.1f}",
        ]
        for entry in entries
    ]
    header = ["rejection_sample", "way", "peak, KiB", "largest allocation, KiB", "one row of logits, KiB"]
    return ["### Memory beyond the inputs", "", *_table(header, rows), ""]


def markdown(results: dict[str, Any]) -> str:
    """The whole report."""
    machine = results["machine"]
    threads = machine["torch_threads"]
    lines = [
        f"{machine['cpu']} (family/model {machine['cpu_family_model']}), {machine['cores']} cores, {machine['isa']}, "
        f"caches {', '.join(f'{key} {value}' for key, value in machine['caches'].items())}; torch {machine['torch']}, "
        f"transformers {machine['transformers']}; {threads} threads unless said otherwise; commit "
        f"{machine['commit'][:12]}{' with changed sources' if machine['changed_sources'] else ''}; {machine['date']}; "
        f"load average {machine['load_average'][0]} before, {results['load_average_after'][0]} after.",
        "",
        *target_table(results["targets"]),
        *ratio_tables(results["records"]),
        *kernel_table(results["records"]),
        *cpu_table(results["records"]),
        *memory_table(results["memory"]),
    ]
    return "\n".join(lines).rstrip() + "\n"
