# SPDX-License-Identifier: Apache-2.0
"""Bytes that the kernels ask of memory, counted, against the least that each op needs: numbers that need no machine.

    python -m tests.simt.traffic_report [--write]    # also perf/results/simt-traffic.md and .json

What memory moves is counted in sectors of 32 bytes, once for each instruction of a warp: 32 lanes that read one number
read one sector. test_traffic_of_ops.py holds every case to its limits.

Floors of a verification of B requests with K drafts each, in rows of V logits: `plain`, B (K + 1), is one read of every
target row; `tight`, B (K + 1) + 2 B, adds for each request the target row and the draft row of a rejection; `least` is
what the uniforms of the case need: the rows up to where each request stops, and those two where it was rejected.
"""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from hetero_spec.files import write_whole
from tests.tools.inputs import make_cu, make_logits, make_map, with_layout

from . import device_ops

VOCAB_SIZE, BATCH_SIZE, DRAFTS, ITEM = 151936, 4, 4, 2
ROW = VOCAB_SIZE * ITEM
PLAIN = BATCH_SIZE * (DRAFTS + 1) * ROW
TIGHT = PLAIN + 2 * BATCH_SIZE * ROW
OUTPUT = Path(__file__).resolve().parents[2] / "perf" / "results" / "simt-traffic"

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Case:
    """One call of an op: what it needs at least, and how far above that it may be."""

    op: str
    setting: str
    make: Callable[[], Arguments]
    least: int  # bytes
    most: float  # loads / least
    stores: float = 0.005  # stores / loads, at most
    wide: float = 0.95  # share of the loaded bytes that comes by 16-byte accesses, at least
    accepted: int | None = None  # of each request, in a verification
    row: int = ROW  # bytes

    @property
    def name(self) -> str:
        return f"{self.op}, {self.setting}"


class Counted(NamedTuple):
    """What one call asked of memory, and what it returned."""

    traffic: dict[str, Any]
    out: Any

    @property
    def loaded(self) -> int:
        """Bytes in sectors, each as often as it was asked for."""
        return 32 * int(self.traffic["load_sectors"])

    @property
    def distinct(self) -> int:
        """Bytes in sectors, each once: what has to come from memory where the cache keeps the rest."""
        return 32 * int(self.traffic["unique_load_sectors"])

    @property
    def wide_share(self) -> float:
        return float(self.traffic["wide_load_bytes"] / self.traffic["load_bytes"])

    @property
    def store_share(self) -> float:
        return float(self.traffic["store_bytes"] / self.traffic["load_bytes"])

    @property
    def conflicts(self) -> float:
        """Passes over shared memory for each access of a warp; 1 = no bank conflict."""
        return self.traffic["shared_wavefronts"] / max(1, self.traffic["shared_requests"])


def count(case: Case) -> Counted:
    """Run a case on the counting build."""
    positional, keywords = case.make()
    device = device_ops.module("traffic")
    device.configure(order="forward")
    device.take_traffic()
    out = getattr(device_ops, case.op)(*positional, **keywords, flavour="traffic")
    return Counted(device.take_traffic(), out)


# ---- verification


@cache
def _target() -> torch.Tensor:
    target = make_logits(BATCH_SIZE * (DRAFTS + 1), VOCAB_SIZE, seed=3, dtype=torch.bfloat16)
    target[target == -torch.inf] = -9.0
    return target


def verification(
    accepted: int, *, mapped: bool = False, has_stats: bool = True, rule: str = "token", **parameters: Any
) -> Arguments:
    """A batch whose requests keep exactly `accepted` tokens: the drafter's law is the target's, uniforms decide."""
    target = _target()
    rows = [request * (DRAFTS + 1) + position for request in range(BATCH_SIZE) for position in range(DRAFTS)]
    draft = target[rows].clone()
    token_ids = draft.argmax(-1).to(torch.int32)
    if accepted < DRAFTS:
        for request in range(BATCH_SIZE):
            at = request * DRAFTS + accepted
            draft[at, token_ids[at]] += 4.0  # the drafter is surer than the target
    uniforms = torch.full((len(target), 2), 1 - 2**-53, dtype=torch.float64)
    uniforms[:, 1] = 0.5
    keywords = {"uniform_samples": uniforms, "rule": rule, **parameters}
    if mapped:
        draft_to_target, keywords["target_to_draft_ids"] = make_map("permuted", VOCAB_SIZE, seed=6)
        draft = draft[:, draft_to_target.long()].contiguous()
    keywords["draft_logits"] = draft
    if has_stats:
        keywords["draft_stats"] = device_ops.row_stats(draft, **parameters)
    return (target, token_ids, make_cu([DRAFTS] * BATCH_SIZE), DRAFTS), keywords


def least_of_verification(accepted: int) -> int:
    return BATCH_SIZE * (accepted + 1 + 2 * (accepted < DRAFTS)) * ROW


def _verification(setting: str, accepted: int, most: float, **options: Any) -> Case:
    limits = {key: options.pop(key) for key in ("least", "wide", "stores") if key in options}
    return Case(
        "rejection_sample",
        f"{setting}, {accepted} of {DRAFTS} accepted",
        lambda: verification(accepted, **options),
        limits.pop("least", least_of_verification(accepted)),
        most,
        **limits,
        accepted=accepted,
    )


def _verifications() -> list[Case]:
    cases = [
        _verification(f"T = {temperature:g}", accepted, 1.05, temperature=temperature)
        for temperature in (1.0, 0.7)
        for accepted in range(DRAFTS + 1)
    ]
    target_rows = [BATCH_SIZE * (accepted + 1) * ROW for accepted in range(DRAFTS + 1)]
    return cases + [
        # A truncated row takes three reads for its law and the masses of its chunks. A rejected one is read once more
        # and its draft row once.
        _verification("top-p 0.9", 0, 5.15, least=target_rows[0], top_p=0.9),
        _verification("top-p 0.9", DRAFTS, 3.06, least=target_rows[DRAFTS], top_p=0.9),
        # The laws of the draft rows are made by the op: every draft row once.
        _verification(
            "T = 1, no draft_stats", DRAFTS, 1.03, least=(2 * DRAFTS + 1) * BATCH_SIZE * ROW, has_stats=False
        ),
        # The residual of every draft token: its target row again and its draft row.
        _verification(
            "T = 1, block rule", DRAFTS, 1.04, least=(3 * DRAFTS + 1) * BATCH_SIZE * ROW, wide=0.9, rule="block"
        ),
        # Through a map in random order each logit of the draft row is a sector of its own; the cache has most of them.
        _verification("T = 1, map in random order", 0, 11.8, wide=0.0, mapped=True),
        _verification("T = 1, map in random order", DRAFTS, 1.05, mapped=True),
    ]


def _probs(accepted: int) -> Arguments:
    (target, *rest), keywords = verification(accepted, has_stats=False)
    draft = keywords["draft_logits"].float().softmax(-1)
    return (target.float().softmax(-1), draft, *rest), {"uniform_samples": keywords["uniform_samples"]}


def _verifications_of_probs() -> list[Case]:
    return [
        Case(
            "rejection_sample_probs",
            f"{accepted} of {DRAFTS} accepted",
            lambda accepted=accepted: _probs(accepted),  # type: ignore[misc]
            2 * least_of_verification(accepted),
            1.05,
            accepted=accepted,
            row=2 * ROW,  # float32
        )
        for accepted in (0, 2, DRAFTS)
    ]


# ---- the other ops


def _rows(seed: int = 4) -> torch.Tensor:
    return make_logits(BATCH_SIZE, VOCAB_SIZE, seed=seed, dtype=torch.bfloat16)


def _draft_sample(*, mapped: bool = False, **parameters: Any) -> Arguments:
    uniforms = torch.tensor([0.1, 0.4, 0.7, 0.99], dtype=torch.float64)
    ids = make_map("partial", VOCAB_SIZE, seed=1)[0] if mapped else None
    return (_rows(), ids), {"uniform_samples": uniforms, **parameters}


def _row_stats(*, misalignment: int = 0, **parameters: Any) -> Arguments:
    logits = with_layout(_rows(), row_padding=5, misalignment=misalignment) if misalignment else _rows()
    return (logits,), parameters


def _remap_probs() -> Arguments:
    return (_rows()[:1], make_map("partial", VOCAB_SIZE, seed=1)[0], VOCAB_SIZE), {}


def _others() -> list[Case]:
    rows = BATCH_SIZE * ROW
    ids = VOCAB_SIZE * 4  # a map
    return [
        Case("draft_sample", "T = 1", _draft_sample, rows, 1.04),
        Case("draft_sample", "T = 0.7", lambda: _draft_sample(temperature=0.7), rows, 1.04),
        Case("draft_sample", "top-p 0.9", lambda: _draft_sample(top_p=0.9), rows, 3.08),
        # The map becomes a mask of one bit an id, which every row reads; a mask word comes to each lane alone.
        Case(
            "draft_sample",
            "T = 1, partial map",
            lambda: _draft_sample(mapped=True),
            rows + ids,
            1.1,
            wide=0.5,
            stores=0.02,
        ),
        Case("row_stats", "T = 1", _row_stats, rows, 1.01),
        Case("row_stats", "T = 1, rows not aligned", lambda: _row_stats(misalignment=3), rows, 1.12, wide=0.9),
        Case("row_stats", "top-k 50", lambda: _row_stats(top_k=50), rows, 3.04),
        Case("row_stats", "top-p 0.9", lambda: _row_stats(top_p=0.9), rows, 3.04),
        Case("acceptance_overlap", "T = 1", lambda: ((_rows(), _rows(5)), {}), 4 * rows, 1.02, stores=0.01),
        # One row. Writes it whole, in float32; reads each logit where the map says.
        Case("remap_probs", "T = 1, partial map, B = 1", _remap_probs, 2 * ROW + ids, 5.0, wide=0.0, stores=1.0),
    ]


CASES = [*_verifications(), *_others()]
if "rejection_sample_probs" in device_ops.OPS:
    CASES += _verifications_of_probs()


# ---- the table


def _row(case: Case, counted: Counted) -> dict[str, Any]:
    verification = case.accepted is not None
    return {
        "op": case.op,
        "setting": case.setting,
        "loads_bytes": counted.loaded,
        "least_bytes": case.least,
        "loads_over_least": round(counted.loaded / case.least, 4),
        "loads_over_plain": round(counted.loaded * ROW / (PLAIN * case.row), 4) if verification else None,
        "loads_over_tight": round(counted.loaded * ROW / (TIGHT * case.row), 4) if verification else None,
        "distinct_over_least": round(counted.distinct / case.least, 4),
        "wide_share": round(counted.wide_share, 4),
        "store_share": round(counted.store_share, 6),
        "shared_passes": round(counted.conflicts, 3),
        "traffic": counted.traffic,
    }


HEADER = (
    "op",
    "setting",
    "loads, MB",
    "/ least",
    "/ tight",
    "/ plain",
    "distinct / least",
    "by 16 bytes",
    "stores / loads",
)
HEADER = (*HEADER, "passes")


def _cells(row: dict[str, Any]) -> list[str]:
    def ratio(value: float | None) -> str:
        return "" if value is None else f"{value:.3f}"

    return [
        f"`{row['op']}`",
        row["setting"],
        f"{row['loads_bytes'] / 1e6:.2f}",
        ratio(row["loads_over_least"]),
        ratio(row["loads_over_tight"]),
        ratio(row["loads_over_plain"]),
        ratio(row["distinct_over_least"]),
        f"{row['wide_share']:.1%}",
        f"{row['store_share']:.2%}",
        f"{row['shared_passes']:.2f}",
    ]


def markdown(rows: list[dict[str, Any]]) -> str:
    """The table with what its columns mean."""
    what = (
        f"Counted by `make traffic` in the SIMT build, B = {BATCH_SIZE}, K = {DRAFTS}, V = {VOCAB_SIZE:,}, bfloat16 "
        "(probabilities: float32); the numbers depend on no machine. Loads of global memory in sectors of 32 bytes, "
        "once for each instruction of a warp. Least: what the op needs with these uniforms "
        "(tests/simt/traffic_report.py says how much of each). Tight: B (K + 1) + 2 B rows; plain: B (K + 1) rows. "
        "Distinct: each sector once, as a cache that keeps all would fetch. By 16 bytes: share of loaded bytes that "
        "comes by 16-byte accesses. Stores: bytes, against loaded bytes. Passes: of shared memory for each access of a "
        "warp; 1 = no bank conflict."
    )
    lines = [
        "# Bytes that the kernels ask of memory",
        "",
        *textwrap.wrap(what, 120),
        "",
        "| " + " | ".join(HEADER) + " |",
        "|---" * len(HEADER) + "|",
    ]
    return "\n".join([*lines, *("| " + " | ".join(_cells(row)) + " |" for row in rows)]) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Count every case and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"also {OUTPUT.name}.md and .json under perf/results")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows = [_row(case, count(case)) for case in CASES]
    text = markdown(rows)
    print(text, end="")
    if options.write:
        write_whole(OUTPUT.with_suffix(".md"), text)
        content = {"batch_size": BATCH_SIZE, "num_drafts": DRAFTS, "vocab_size": VOCAB_SIZE, "dtype": "bfloat16"}
        write_whole(OUTPUT.with_suffix(".json"), json.dumps({**content, "cases": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
