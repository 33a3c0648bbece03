# SPDX-License-Identifier: Apache-2.0
"""What is measured, most telling cases first: where time runs out, the last ones are left."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

OURS = "ours"  # among the ways of doing a job

VOCAB_SIZES = (32_000, 128_256, 151_936, 262_144)
BATCH_SIZES = (1, 8, 32, 128, 512)
NUM_DRAFTS = (4, 7)
TEMPERATURES = (1.0, 0.7)
HEADLINE_VOCAB_SIZE, HEADLINE_BATCH_SIZE, HEADLINE_NUM_DRAFTS = 151_936, 32, 4


@dataclass(frozen=True)
class Case:
    """One call of an op on bfloat16 logits."""

    op: str
    batch_size: int
    num_drafts: int
    vocab_size: int
    temperature: float = 1.0
    top_p: float | None = None
    acceptance: float = 0.7  # of one position; 1 = the drafter's law is the target's

    @property
    def label(self) -> str:
        """The case in short words."""
        words = [self.op, f"B={self.batch_size}"]
        if self.op == "rejection_sample":
            words.append(f"K={self.num_drafts}")
        words += [f"V={self.vocab_size:,}", f"T={self.temperature:g}"]
        if self.top_p is not None:
            words.append(f"top-p={self.top_p:g}")
        if self.op == "rejection_sample":
            words.append("all accepted" if self.acceptance == 1.0 else f"acceptance {self.acceptance:g}")
        return " ".join(words)

    @property
    def is_headline(self) -> bool:
        """Whether the targets are about it."""
        shape = (self.batch_size, self.num_drafts, self.vocab_size)
        headline = (HEADLINE_BATCH_SIZE, HEADLINE_NUM_DRAFTS, HEADLINE_VOCAB_SIZE)
        return self.op == "rejection_sample" and shape == headline and self.top_p is None


def _shaped(op: str, shapes: object, **settings: object) -> list[Case]:
    return [Case(op, batch, drafts, vocab, **settings) for batch, drafts, vocab in shapes]  # type: ignore


def full() -> list[Case]:
    """The headline, its axes, the other ops, then every combination."""
    op = "rejection_sample"
    headline = [
        Case(op, HEADLINE_BATCH_SIZE, HEADLINE_NUM_DRAFTS, HEADLINE_VOCAB_SIZE, temperature, top_p, acceptance)
        for top_p in (None, 0.9)
        for temperature, acceptance in product(TEMPERATURES, (1.0, 0.7))
    ]
    axes = [Case(op, batch, HEADLINE_NUM_DRAFTS, HEADLINE_VOCAB_SIZE) for batch in BATCH_SIZES]
    axes += [Case(op, HEADLINE_BATCH_SIZE, HEADLINE_NUM_DRAFTS, vocab) for vocab in VOCAB_SIZES]
    others = [
        Case(other, batch, 0, HEADLINE_VOCAB_SIZE, temperature, top_p)
        for other in ("draft_sample", "row_stats")
        for temperature, top_p in ((1.0, None), (0.7, None), (1.0, 0.9))
        for batch in BATCH_SIZES
    ]
    rest = [
        Case(op, batch, drafts, vocab, temperature, top_p)
        for top_p, temperature, drafts, vocab, batch in product(
            (None, 0.9), TEMPERATURES, NUM_DRAFTS, VOCAB_SIZES, BATCH_SIZES
        )
    ]
    return list(dict.fromkeys([*headline, *axes, *others, *rest]))


def smoke() -> list[Case]:
    """Tiny: shows that everything runs, measures nothing worth keeping."""
    return [
        Case("rejection_sample", 3, 4, 1003, acceptance=1.0),
        Case("rejection_sample", 2, 2, 1003, 0.7),
        Case("rejection_sample", 2, 2, 1003, 0.7, 0.9),
        Case("draft_sample", 2, 0, 1003, 0.7),
        Case("row_stats", 2, 0, 1003, 1.0, 0.9),
    ]
