# SPDX-License-Identifier: Apache-2.0
"""What is measured: every case by name, the quick selection and the full one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

VOCAB_SIZES = (32_000, 128_256, 151_936, 262_144)
BATCH_SIZES = (1, 8, 32)
DTYPES = ("float32", "bfloat16")
OPS = (
    "rejection_sample",
    "rejection_sample_probs",
    "draft_sample",
    "row_stats",
    "remap_probs",
    "acceptance_overlap",
    "rdk_redistribute",
)


@dataclass(frozen=True)
class Case:
    """One measurement: an op, its shape and what the data are like."""

    op: str
    dtype: str = "bfloat16"
    vocab_size: int = 151_936
    batch_size: int = 8
    num_drafts: int = 4
    temperature: float = 1.0
    top_p: float | None = None
    acceptance: float = 1.0  # of one position; only where there are drafts to accept
    rule: str = "token"
    mapped: bool = False  # the drafter has a vocabulary of its own
    logits: str = "peaked"  # "flat", or "smollm2" for a real model's
    cache: str = "cold"  # "warm": the logits have just been read
    threads: int = 0  # 0: torch's default
    kernel: str | None = None  # RDK: a kind of perf/kernels.py
    compiled: bool = False  # torch.compile is measured too (half a minute a shape)

    @property
    def label(self) -> str:
        """The case in short words; what has its default value is left out, except the shape."""
        words = [self.dtype, f"V={self.vocab_size:,}", f"B={self.batch_size}"]
        if self.op not in ("row_stats", "remap_probs", "draft_sample", "rdk_redistribute"):
            words.append(f"K={self.num_drafts}")
        words.append(f"T={self.temperature:g}")
        if self.top_p is not None:
            words.append(f"top_p={self.top_p:g}")
        if self.op.startswith("rejection"):
            words.append(f"accept={self.acceptance:g}")
        if self.rule != "token":
            words.append(f"rule={self.rule}")
        if self.mapped:
            words.append("mapped")
        if self.kernel:
            words.append(f"{self.kernel} kernel")
        if self.logits != "peaked":
            words.append(f"{self.logits} logits")
        if self.cache != "cold":
            words.append("warm cache")
        if self.threads:
            words.append(f"{self.threads} thread" + "s" * (self.threads > 1))
        return " ".join(words)


def headline() -> list[Case]:
    """The cases that the targets of perf/targets.py are about, with all threads and with one."""
    cases = [
        Case("rejection_sample", dtype, temperature=temperature, acceptance=acceptance, compiled=True)
        for dtype, acceptance, temperature in product(DTYPES, (1.0, 0.5), (1.0, 0.7))
    ]
    cases += [Case("rejection_sample", dtype, top_p=0.9, compiled=True) for dtype in DTYPES]
    return [replace(case, threads=threads) for threads in (0, 1) for case in cases]


def rdk() -> list[Case]:
    """Calls with an RDK kernel against the same calls without, and the materialised op against the dense matrix."""
    kinds = ("mix", "sparse", "diagonal")
    cases = [
        Case("rejection_sample", dtype, acceptance=acceptance, kernel=kernel, mapped=mapped)
        for dtype, mapped, acceptance, kernel in product(DTYPES, (False, True), (1.0, 0.5), kinds)
    ]
    cases += [Case("draft_sample", dtype, kernel=kernel, mapped=True) for dtype, kernel in product(DTYPES, kinds)]
    # Against the same law materialised: 64 factors.
    cases += [
        Case("rejection_sample", "float32", acceptance=acceptance, kernel="low_rank", mapped=True)
        for acceptance in (1.0, 0.5)
    ]
    cases += [Case("draft_sample", "float32", batch_size=batch, kernel="low_rank", mapped=True) for batch in (1, 8)]
    cases += [
        Case("rdk_redistribute", "float32", vocab_size, kernel=kernel)
        for vocab_size, kernel in product((1_024, 2_048, 4_096, 8_192, 32_768, 151_936), kinds)
    ]
    return [replace(case, threads=1) for case in cases]


def quick() -> list[Case]:
    """A few minutes: the headline cases, one axis at a time around them, and two or three of every other op."""
    base = Case("rejection_sample")
    verify = headline() + [
        *(replace(base, dtype=dtype, cache="warm") for dtype in DTYPES),
        replace(base, temperature=0.7, top_p=0.9, acceptance=0.5),
        replace(base, rule="block"),
        replace(base, rule="block", acceptance=0.5),
        replace(base, mapped=True, acceptance=0.5),
        replace(base, logits="flat"),
        replace(base, logits="flat", top_p=0.9),
        replace(base, logits="smollm2", dtype="float32", vocab_size=49_152, temperature=0.7, acceptance=0.5),
        replace(base, logits="smollm2", dtype="float32", vocab_size=49_152, top_p=0.9),
        *(replace(base, vocab_size=vocab_size) for vocab_size in VOCAB_SIZES if vocab_size != base.vocab_size),
        *(replace(base, batch_size=batch_size) for batch_size in BATCH_SIZES if batch_size != base.batch_size),
    ]
    others = [Case("rdk_redistribute", "float32", kernel="mix")]
    for op in OPS[1:-1]:
        mapped = op in ("draft_sample", "remap_probs")
        acceptance = 0.5 if op == "acceptance_overlap" else 1.0
        one = Case(op, mapped=mapped, acceptance=acceptance)
        others += [replace(one, dtype="float32", compiled=True)]
        if op == "rejection_sample_probs":
            others += [replace(one, dtype="float32", acceptance=0.5)]
            continue
        others += [replace(one, compiled=True), replace(one, temperature=0.7, top_p=0.9)]
    return verify + others


def full() -> list[Case]:
    """Everything: an hour or two."""
    cases = quick()
    for vocab_size, batch_size, dtype, temperature, top_p in product(
        VOCAB_SIZES, BATCH_SIZES, DTYPES, (1.0, 0.7), (None, 0.9)
    ):
        one = Case("", dtype, vocab_size, batch_size, temperature=temperature, top_p=top_p)
        compiled = batch_size == 8
        for acceptance in (1.0, 0.5):
            cases.append(replace(one, op="rejection_sample", acceptance=acceptance, compiled=compiled))
            if dtype == "float32" and temperature == 1.0 and top_p is None:
                cases.append(replace(one, op="rejection_sample_probs", acceptance=acceptance))
        for op in ("row_stats", "remap_probs", "draft_sample", "acceptance_overlap"):
            mapped = op in ("draft_sample", "remap_probs")
            cases.append(replace(one, op=op, mapped=mapped, acceptance=0.5 if op == "acceptance_overlap" else 1.0))
    shapes = {case.label + case.op: case for case in cases}  # a compiled case of the quick selection stays
    for case in cases:
        if case.compiled:
            shapes[case.label + case.op] = case
    threads = [replace(case, threads=1, compiled=False) for case in shapes.values() if not case.threads]
    return [*shapes.values(), *(case for case in threads if case.label + case.op not in shapes)]


def smoke() -> list[Case]:
    """Tiny: shows that the harness works, measures nothing worth keeping."""
    small = {"vocab_size": 1003, "batch_size": 2}
    return [
        Case("rejection_sample", "float32", acceptance=0.5, **small),
        Case("rejection_sample", temperature=0.7, top_p=0.9, mapped=True, acceptance=0.5, threads=1, **small),
        Case("rejection_sample", "float32", rule="block", **small),
        Case("rejection_sample_probs", "float32", acceptance=0.5, **small),
        Case("draft_sample", mapped=True, **small),
        Case("row_stats", top_p=0.9, **small),
        Case("remap_probs", "float32", mapped=True, **small),
        Case("rdk_redistribute", "float32", kernel="sparse", **small),
        Case("draft_sample", mapped=True, kernel="diagonal", **small),
        Case("acceptance_overlap", acceptance=0.5, **small),
    ]


SELECTIONS = {"quick": quick, "headline": headline, "full": full, "rdk": rdk, "smoke": smoke}
