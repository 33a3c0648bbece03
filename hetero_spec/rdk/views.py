# SPDX-License-Identifier: Apache-2.0
"""From recorded hidden states to laws: whole ones in batches, or the heaviest entries of many positions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

ROWS_AT_ONCE = 128
NUM_TARGETS = 192
NUM_SOURCES = 48
_LEAST = 1e-30


@dataclass(frozen=True)
class Setting:
    """Sampling parameters, of both models alike.

    Attributes
    ----------
    temperature : float, above 0
    top_p : float, in (0, 1]
    """

    temperature: float = 1.0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        """Check both."""
        if not (math.isfinite(self.temperature) and self.temperature > 0.0):
            raise ValueError(
                f"Setting: temperature must be above 0, got {self.temperature} "
                "(at 0 both laws are certain, and nothing is gained by moving mass)"
            )
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"Setting: top_p must be in (0, 1], got {self.top_p}")

    def laws(self, logits: Tensor) -> Tensor:
        """Laws float32 [rows, V] of rows of logits; may overwrite them."""
        if self.temperature != 1.0:
            logits = logits / self.temperature
        probs = logits.softmax(-1)
        return probs if self.top_p >= 1.0 else truncate(probs, self.top_p)


def truncate(probs: Tensor, top_p: float) -> Tensor:
    """Keep the likeliest tokens that together reach `top_p`, ties with the last one included, and renormalise."""
    for num_sorted in (256, 8192, probs.shape[1]):
        top = probs.topk(min(num_sorted, probs.shape[1]), dim=-1).values
        before = top.cumsum(-1) - top
        if num_sorted >= probs.shape[1] or bool((top.sum(-1) >= top_p).all()):
            break
    last = (before < top_p).sum(-1, keepdim=True) - 1
    kept = probs * (probs >= top.gather(1, last.clamp_min(0)))
    return kept / kept.sum(-1, keepdim=True).clamp_min(_LEAST)


@dataclass
class Pair:
    """Two output layers and which of the drafter's columns count, as rows of a drafter over the target's vocabulary.

    Attributes
    ----------
    target_weight : Tensor
        [V, hidden], the target's output layer.
    draft_weight : Tensor
        [K, hidden]: rows of the drafter's output layer of its kept, shared tokens only (a pruned head).
    kept_target_ids : int64 [K]
        Target id of each, rising.
    """

    target_weight: Tensor
    draft_weight: Tensor
    kept_target_ids: Tensor

    def __post_init__(self) -> None:
        """Check shapes, and that ids rise: a law over them is then in vocabulary order."""
        ids = self.kept_target_ids
        if len(ids) == 0 or len(ids) != len(self.draft_weight):
            raise ValueError(
                f"Pair: kept_target_ids must be as many as rows of draft_weight, got {len(ids)} and "
                f"{len(self.draft_weight)}"
            )
        if bool((ids.diff() <= 0).any()) or int(ids[0]) < 0 or int(ids[-1]) >= len(self.target_weight):
            raise ValueError(f"Pair: kept_target_ids must rise within [0, {len(self.target_weight)})")

    @property
    def vocab_size(self) -> int:
        """V."""
        return len(self.target_weight)

    @classmethod
    def of(
        cls,
        target_weight: Tensor,
        draft_weight: Tensor,
        draft_to_target_ids: Tensor | None,
        keep: Tensor | None = None,
    ) -> Pair:
        """Make it from whole output layers, the map between them (None: same ids), and a set of target ids to keep."""
        to_target = torch.arange(len(draft_weight)) if draft_to_target_ids is None else draft_to_target_ids.long()
        wanted = to_target >= 0
        if keep is not None:
            is_kept = torch.zeros(len(target_weight), dtype=torch.bool)
            is_kept[keep] = True
            wanted &= is_kept[to_target.clamp_min(0)]
        columns = wanted.nonzero()[:, 0]
        columns = columns[to_target[columns].argsort()]
        if len(columns) == 0:
            raise ValueError("Pair: keep must share a token with the drafter, got none")
        return cls(target_weight, draft_weight[columns], to_target[columns])

    def target_laws(self, states: Tensor, setting: Setting) -> Tensor:
        """Target's laws, float32 [rows, V]."""
        return setting.laws(product(states, self.target_weight))

    def draft_laws(self, states: Tensor, setting: Setting) -> Tensor:
        """Drafter's laws over its kept tokens, float32 [rows, K]: q' of token-level intersection."""
        return setting.laws(product(states, self.draft_weight))


def product(states: Tensor, weight: Tensor) -> Tensor:
    """Logits float32 [rows, width] of hidden states, multiplied in the dtype of the output layer."""
    return F.linear(states.to(weight.dtype), weight).float()


@dataclass
class Views:
    """The heaviest entries of both laws at N positions; all that a fit looks at.

    Attributes
    ----------
    source_ids, source_probs : int32, float32 [N, s]
        q', by target id.
    target_ids, target_probs : int32, float32 [N, m]
        p.
    document_ids : int32 [N]
    vocab_size : int
    """

    source_ids: Tensor
    source_probs: Tensor
    target_ids: Tensor
    target_probs: Tensor
    document_ids: Tensor
    vocab_size: int

    def __len__(self) -> int:
        """Number of positions."""
        return len(self.document_ids)

    def at(self, setting: Setting) -> Views:
        """The same positions under other sampling parameters, from views made at temperature 1.

        The entries beyond the recorded ones are taken to have no mass: below temperature 1 they have next to none, and
        truncation to top_p drops them wherever the recorded ones reach it.
        """

        def changed(probs: Tensor) -> Tensor:
            if setting.temperature == 1.0:
                # The mass beyond the entries stays: it is what the recorded law lacks to 1.
                return probs if setting.top_p >= 1.0 else truncate(probs, setting.top_p)
            sharp = (probs.double() ** (1.0 / setting.temperature)).float()
            sharp /= sharp.sum(-1, keepdim=True).clamp_min(_LEAST)
            return sharp if setting.top_p >= 1.0 else truncate(sharp, setting.top_p)

        return replace(self, source_probs=changed(self.source_probs), target_probs=changed(self.target_probs))

    def __getitem__(self, at: Tensor | slice) -> Views:
        """The views at some positions."""
        return Views(
            self.source_ids[at],
            self.source_probs[at],
            self.target_ids[at],
            self.target_probs[at],
            self.document_ids[at],
            self.vocab_size,
        )


def make_views(
    pairs: Sequence[Pair],
    target_states: Tensor,
    draft_states: Tensor,
    document_ids: Tensor,
    setting: Setting,
    *,
    num_sources: int = NUM_SOURCES,
    num_targets: int = NUM_TARGETS,
    on_positions: Callable[[int], None] | None = None,
) -> list[Views]:
    """Views of the same positions for several kept sets of one pair of models (the target's side is made once)."""
    count, size = len(document_ids), pairs[0].vocab_size
    width = min(num_targets, size)
    target_ids = torch.empty(count, width, dtype=torch.int32)
    target_probs = torch.empty(count, width)
    sides = []
    for pair in pairs:
        own = min(num_sources, len(pair.kept_target_ids))
        sides.append((torch.empty(count, own, dtype=torch.int32), torch.empty(count, own)))
    for start in range(0, count, ROWS_AT_ONCE):
        part = slice(start, min(count, start + ROWS_AT_ONCE))
        laws = pairs[0].target_laws(target_states[part], setting)
        target_probs[part], ids = laws.topk(width, dim=-1)
        target_ids[part] = ids.int()
        for pair, (source_ids, source_probs) in zip(pairs, sides, strict=True):
            own_laws = pair.draft_laws(draft_states[part], setting)
            source_probs[part], columns = own_laws.topk(source_ids.shape[1], dim=-1)
            source_ids[part] = pair.kept_target_ids[columns].int()
        if on_positions is not None:
            on_positions(part.stop - part.start)
    return [Views(*side, target_ids, target_probs, document_ids, size) for side in sides]


def iter_laws(
    pair: Pair, target_states: Tensor, draft_states: Tensor, setting: Setting
) -> Iterator[tuple[Tensor, Tensor]]:
    """Whole laws (p [rows, V], q' [rows, K]) batch by batch."""
    for start in range(0, len(target_states), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        yield pair.target_laws(target_states[part], setting), pair.draft_laws(draft_states[part], setting)
