# SPDX-License-Identifier: Apache-2.0
"""Fits a redistributing kernel to records: the kernel that accepts most on the text, checked on text it has not seen.

Acceptance is sum_t min(p(t), q~(t)) with q~ = M^T q', and for fixed laws p and q' it is a concave function of the
row-stochastic matrix M: a minimum of linear functions. So M is fitted to acceptance itself, by exponentiated gradient
steps on each row. The subgradient has a plain meaning: divided by the mass of source i, the entry of target t is how
often (weighed by q'(i)) t still has less draft law than target law. Mass moves to where it is short. Every row holds
its own token, a few candidates from conditional affinity, and optionally a prior over the whole vocabulary.

What is fitted is blended back towards the identity (token-level intersection) by a share that is chosen on other
documents; where no share has a gain whose interval lies above zero there, the result is the identity, and says so.

Source
------
The family of kernels: Timor et al. 2025, arXiv 2506.03206. Fitting them to acceptance, and the steps, are ours;
exponentiated gradient: Kivinen and Warmuth 1997.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hetero_spec.rdk.views import ROWS_AT_ONCE, Views

if TYPE_CHECKING:
    from hetero_spec.rdk.sparse import SparseKernel

_LEAST = 1e-30
# Candidates are counted among so many sources and targets of a position, and above so small a value.
_PAIR_SOURCES, _PAIR_TARGETS = 24, 48
_LEAST_AFFINITY = 1e-4
_PAIR_ROWS = 4096
_MAX_PAIRS = 30_000_000
# Expected count of a source at which it starts with half of what a much seen one would.
_EVIDENCE = 10.0


@dataclass
class Rows:
    """A kernel in the making, with rows for the tokens that the drafter has.

    Row i is keep_i delta_i + leak_i prior + sum_j weights_ij delta_{columns_ij}, each of total 1.

    Attributes
    ----------
    source_ids : int64 [K]
    keep : float32 [K]
    leak : float32 [K]
    weights : float32 [K, k]
    columns : int64 [K, k]
        Target ids; padded with the row's own id at weight 0.
    prior : float32 [V]
    """

    source_ids: Tensor
    keep: Tensor
    leak: Tensor
    weights: Tensor
    columns: Tensor
    prior: Tensor

    def blended(self, share: float) -> Rows:
        """Return share times this plus (1 - share) times the identity."""
        return replace(self, keep=1.0 - share + share * self.keep, leak=share * self.leak, weights=share * self.weights)

    def trimmed(self, max_entries: int, mass: Tensor) -> Rows:
        """Return the rows with only the entries that move most; what the others moved goes back to the row's token.

        Parameters
        ----------
        max_entries : int
            How many entries stay, over all rows: the cost of verifying with the kernel.
        mass : float [K]
            Expected count of each source, see `source_mass`.
        """
        moved = (self.weights * mass[:, None]).reshape(-1)
        if int((moved > 0.0).sum()) <= max_entries:
            return self
        least = moved.topk(max_entries).values[-1] if max_entries > 0 else math.inf
        weights = torch.where(moved.reshape(self.weights.shape) >= least, self.weights, 0.0)
        return replace(self, keep=self.keep + (self.weights - weights).sum(1), weights=weights)

    def redistributor(self) -> Callable[[Tensor], Tensor]:
        """Return the function from laws over the sources [rows, K] to q~ [rows, V]."""
        used = (self.weights > 0.0).nonzero()
        matrix = torch.sparse_coo_tensor(
            torch.stack([self.columns[used[:, 0], used[:, 1]], used[:, 0]]),
            self.weights[used[:, 0], used[:, 1]],
            (len(self.prior), len(self.source_ids)),
            check_invariants=False,
        ).coalesce()
        has_leak = bool(self.leak.any())

        def redistribute(draft_laws: Tensor) -> Tensor:
            result: Tensor = torch.sparse.mm(matrix, draft_laws.T.contiguous()).T.contiguous()
            if has_leak:
                result.addr_(draft_laws @ self.leak, self.prior)
            result.index_add_(1, self.source_ids, draft_laws * self.keep)
            return result

        return redistribute

    def to_kernel(self, *, least_weight: float = 1e-4, target_sha256: str | None = None) -> SparseKernel:
        """Return the kernel that the ops take; weights below `least_weight` of a row go back to its own token."""
        from hetero_spec.rdk.sparse import SparseKernel

        size = len(self.prior)
        weights = torch.where(self.weights >= least_weight, self.weights, 0.0).double()
        spread = weights.sum(1)
        leak = torch.where(self.leak >= least_weight, self.leak, 0.0)
        sources, place = (weights > 0.0).nonzero(as_tuple=True)
        pairs = self.source_ids[sources] * size + self.columns[sources, place]
        order = pairs.argsort()
        counts = torch.bincount(self.source_ids[sources], minlength=size)
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
        values = (weights / spread.clamp_min(_LEAST)[:, None])[sources, place]
        full_spread, full_leak = torch.zeros(size), torch.zeros(size)
        full_spread[self.source_ids] = spread.float()
        full_leak[self.source_ids] = leak
        has_leak = bool(full_leak.any())
        return SparseKernel(
            offsets,
            (pairs % size)[order],
            values[order],
            full_spread,
            leak=full_leak if has_leak else None,
            prior=self.prior if has_leak else None,
            target_sha256=target_sha256,
        )


def source_mass(views: Views, source_ids: Tensor) -> Tensor:
    """Expected count of each source [K] over the views: the sum of q'(i)."""
    total = torch.zeros(views.vocab_size)
    total.index_add_(0, views.source_ids.reshape(-1).long(), views.source_probs.reshape(-1))
    return total[source_ids]


@dataclass
class Candidates:
    """What each source could give, and to whom.

    Attributes
    ----------
    columns : int64 [K, k]
        Target ids, the most affine first, padded with the row's own id.
    affinities : float32 [K, k]
        0 where padded.
    mass : float32 [K]
        Expected count of the source over the views, sum of q'(i).
    wasted : float32 [K]
        Share of it that token-level intersection cannot use, sum of (q'(i) - p(i))+ over mass.
    """

    columns: Tensor
    affinities: Tensor
    mass: Tensor
    wasted: Tensor


def find_candidates(views: Views, kept_target_ids: Tensor, max_per_source: int) -> Candidates:
    """Targets that a source should give to, by conditional affinity.

    The affinity of source i and target t is sum over positions of q'(i) sqrt((p(t) - q'(t))+): target mass that the
    drafter is short of while it spends on i. The root favours targets that are short at many positions: one position
    can use no more of a row than it is short of.
    """
    size, num_rows = views.vocab_size, len(kept_target_ids)
    row_of = _rows_of(kept_target_ids, size)
    total, excess = torch.zeros(num_rows), torch.zeros(num_rows)
    pairs, sums = torch.empty(0, dtype=torch.int64), torch.empty(0)
    for start in range(0, len(views), _PAIR_ROWS):
        some = views[slice(start, start + _PAIR_ROWS)]
        shortage, own_excess = _differences(some)
        at = row_of[some.source_ids.long()]
        total.index_add_(0, at.reshape(-1), some.source_probs.reshape(-1))
        excess.index_add_(0, at.reshape(-1), own_excess.reshape(-1))
        top, place = shortage.topk(min(_PAIR_TARGETS, shortage.shape[1]), dim=-1)
        targets = some.target_ids.long().gather(1, place)
        value = some.source_probs[:, :_PAIR_SOURCES, None] * top.sqrt()[:, None, :]
        chosen = value > _LEAST_AFFINITY
        pairs = torch.cat([pairs, (at[:, :_PAIR_SOURCES, None] * size + targets[:, None, :])[chosen]])
        sums = torch.cat([sums, value[chosen]])
        if len(pairs) > _MAX_PAIRS or start + _PAIR_ROWS >= len(views):
            pairs, place = torch.unique(pairs, return_inverse=True)
            sums = torch.zeros(len(pairs)).index_add_(0, place, sums)
    columns, affinities = _heaviest(pairs // size, pairs % size, sums, kept_target_ids, max_per_source)
    return Candidates(columns, affinities, total, excess / total.clamp_min(_LEAST))


def _heaviest(
    rows: Tensor, targets: Tensor, sums: Tensor, kept_target_ids: Tensor, max_per_source: int
) -> tuple[Tensor, Tensor]:
    """The first entries of each row by weight, as tables [K, max_per_source]; a row's own token is left out."""
    other = kept_target_ids[rows] != targets
    rows, targets, sums = rows[other], targets[other], sums[other]
    order = sums.argsort(descending=True, stable=True)
    order = order[rows[order].argsort(stable=True)]
    rows, targets, sums = rows[order], targets[order], sums[order]
    counts = torch.bincount(rows, minlength=len(kept_target_ids))
    place = torch.arange(len(rows)) - (counts.cumsum(0) - counts)[rows]
    chosen = place < max_per_source
    columns = kept_target_ids[:, None].repeat(1, max_per_source)
    affinities = torch.zeros(len(kept_target_ids), max_per_source)
    columns[rows[chosen], place[chosen]] = targets[chosen]
    affinities[rows[chosen], place[chosen]] = sums[chosen]
    return columns, affinities


def start_rows(
    kept_target_ids: Tensor, candidates: Candidates, prior: Tensor, *, boldness: float = 0.2, prior_share: float = 0.2
) -> Rows:
    """Rows near the identity: a part of what is wasted goes to the candidates, by affinity squared, and to the prior.

    A source that was hardly seen gives hardly anything, and the fit leaves it there.
    """
    heavy = candidates.affinities.double().square()
    totals = heavy.sum(1)
    evidence = candidates.mass.double() / (candidates.mass.double() + _EVIDENCE)
    moved = boldness * candidates.wasted.double().clamp(0.0, 1.0) * evidence
    spread = torch.where(totals > 0.0, moved * (1.0 - prior_share), 0.0)
    weights = heavy * (spread / totals.clamp_min(_LEAST))[:, None]
    leak = moved * prior_share
    keep = 1.0 - leak - spread
    return Rows(kept_target_ids, keep.float(), leak.float(), weights.float(), candidates.columns, prior)


def fit_rows(
    rows: Rows,
    views: Views,
    *,
    num_epochs: int = 3,
    positions_per_step: int = 2048,
    rate: float = 2.0,
    caution: float = 2.0,
    seed: int = 0,
    on_positions: Callable[[int], None] | None = None,
) -> Rows:
    """Exponentiated-gradient steps towards more acceptance on the views; returns the best rows that were met.

    Parameters
    ----------
    rows : Rows
        Where to begin.
    views : Views
    num_epochs : int
    positions_per_step : int
    rate : float
        Length of the first step, in logarithms of a weight; it falls off as one over the number of epochs done.
    caution : float
        Expected mass of a source in a step below which its step is shortened: rare tokens stay near where they began.
    seed : int
        Of the order of positions.

    Notes
    -----
    The acceptance looked at is of the recorded entries; what lies beyond them counts as nothing gained, so that mass
    sent there is not rewarded. The result's acceptance on the views is at least that of the identity and of the start.
    """
    generator = torch.Generator().manual_seed(seed)
    workspace = _Workspace(rows, views)
    probe = torch.randperm(len(views), generator=generator)[: min(len(views), 8192)]
    identity = rows.blended(0.0)
    candidates = [identity, rows]
    steps_per_epoch = max(1, math.ceil(len(views) / positions_per_step))
    average: list[Tensor] | None = None
    step = 0
    for epoch in range(num_epochs):
        order = torch.randperm(len(views), generator=generator)
        for chosen in torch.split(order, positions_per_step):
            gradient = _Gradient.zeros(rows)
            for some in torch.split(chosen, ROWS_AT_ONCE):
                workspace.accepted(rows, some, gradient)
            mass = gradient.mass[:, None]
            length = rate / (1.0 + 2.0 * step / steps_per_epoch)
            scale = length / (mass + caution)
            keep_step = scale[:, 0] * gradient.keep
            leak_step = scale[:, 0] * gradient.leak
            weight_step = scale * gradient.weights
            keep, leak = rows.keep * keep_step.exp(), rows.leak * leak_step.exp()
            weights = rows.weights * weight_step.exp()
            total = keep + leak + weights.sum(1)
            rows = replace(rows, keep=keep / total, leak=leak / total, weights=weights / total[:, None])
            step += 1
            if epoch + 1 == num_epochs:
                # The mean of the last epoch's rows: steps on a piecewise linear function never settle by themselves.
                if average is None:
                    average = [torch.zeros_like(tensor, dtype=torch.float64) for tensor in (keep, leak, weights)]
                for tensor, part in zip(average, (rows.keep, rows.leak, rows.weights), strict=True):
                    tensor += part
            if on_positions is not None:
                on_positions(len(chosen))
        candidates.append(rows)
    if average is not None:
        keep, leak, weights = (tensor / steps_per_epoch for tensor in average)
        candidates.append(replace(rows, keep=keep.float(), leak=leak.float(), weights=weights.float()))
    accepted = [float(view_acceptance(candidate, views[probe]).double().mean()) for candidate in candidates]
    return candidates[max(range(len(candidates)), key=accepted.__getitem__)]


def view_acceptance(rows: Rows, views: Views) -> Tensor:
    """Acceptance at each position, float32 [N], counted over the recorded entries only."""
    workspace = _Workspace(rows, views)
    parts = [workspace.accepted(rows, part) for part in torch.split(torch.arange(len(views)), ROWS_AT_ONCE)]
    return torch.cat(parts) if parts else torch.empty(0)


@dataclass
class _Gradient:
    """Sums over positions of q'(i) where the receiving token is short; `mass` is the sum of q'(i) itself."""

    keep: Tensor
    leak: Tensor
    weights: Tensor
    mass: Tensor

    @classmethod
    def zeros(cls, rows: Rows) -> _Gradient:
        return cls(
            torch.zeros_like(rows.keep),
            torch.zeros_like(rows.leak),
            torch.zeros_like(rows.weights),
            torch.zeros_like(rows.keep),
        )


class _Workspace:
    """Both laws of a batch, laid out over the whole vocabulary so that entries find each other.

    The two buffers are all zeros between calls; each call clears what it wrote, so that no call costs a pass over V.
    """

    def __init__(self, rows: Rows, views: Views) -> None:
        self.views = views
        self.row_of = _rows_of(rows.source_ids, views.vocab_size)
        count = min(ROWS_AT_ONCE, max(1, len(views)))
        self.draft_law = torch.zeros(count * views.vocab_size)
        self.target_law = torch.zeros(count * views.vocab_size)

    def accepted(self, rows: Rows, chosen: Tensor, gradient: _Gradient | None = None) -> Tensor:
        """Acceptance [chosen] at up to ROWS_AT_ONCE positions; adds to the gradient if there is one."""
        some = self.views[chosen]
        base = (torch.arange(len(chosen)) * self.views.vocab_size)[:, None]
        at, mass = self.row_of[some.source_ids.long()], some.source_probs
        target_ids = some.target_ids.long()
        own_place, target_place = base + some.source_ids, base + target_ids
        columns = rows.columns[at]
        edge_place = base[:, :, None] + columns
        self.draft_law.index_add_(0, own_place.reshape(-1), (mass * rows.keep[at]).reshape(-1))
        self.draft_law.index_add_(0, edge_place.reshape(-1), (mass[:, :, None] * rows.weights[at]).reshape(-1))
        # What comes by way of the prior is added where it is looked at: it would fill the whole buffer.
        leaked = (mass * rows.leak[at]).sum(1, keepdim=True)
        draft_probs = self.draft_law[target_place] + leaked * rows.prior[target_ids]
        if gradient is not None:
            self.target_law[target_place.reshape(-1)] = some.target_probs.reshape(-1)
            flat = at.reshape(-1)
            own_short = self.draft_law[own_place] + leaked * rows.prior[some.source_ids] < self.target_law[own_place]
            edge_short = self.draft_law[edge_place] + leaked[:, :, None] * rows.prior[columns]
            edge_short = edge_short < self.target_law[edge_place]
            prior_short = ((draft_probs < some.target_probs) * rows.prior[target_ids]).sum(1, keepdim=True)
            gradient.mass.index_add_(0, flat, mass.reshape(-1))
            gradient.keep.index_add_(0, flat, (mass * own_short).reshape(-1))
            gradient.leak.index_add_(0, flat, (mass * prior_short).reshape(-1))
            gradient.weights.index_add_(0, flat, (mass[:, :, None] * edge_short).reshape(len(flat), -1))
            self.target_law[target_place.reshape(-1)] = 0.0
        self.draft_law[own_place.reshape(-1)] = 0.0
        self.draft_law[edge_place.reshape(-1)] = 0.0
        return torch.minimum(some.target_probs, draft_probs).sum(1)


def _differences(views: Views) -> tuple[Tensor, Tensor]:
    """(p - q')+ at the recorded targets [N, m], and (q' - p)+ at the recorded sources [N, s]."""
    shortage, excess = torch.empty_like(views.target_probs), torch.empty_like(views.source_probs)
    for start in range(0, len(views), ROWS_AT_ONCE):
        some = views[slice(start, start + ROWS_AT_ONCE)]
        part = slice(start, start + len(some))
        sources, targets = some.source_ids.long(), some.target_ids.long()
        law = torch.zeros(len(some), views.vocab_size)
        law.scatter_(1, sources, some.source_probs)
        shortage[part] = (some.target_probs - law.gather(1, targets)).clamp_min(0.0)
        law.scatter_(1, sources, 0.0)
        law.scatter_(1, targets, some.target_probs)
        excess[part] = (some.source_probs - law.gather(1, sources)).clamp_min(0.0)
    return shortage, excess


def _rows_of(source_ids: Tensor, vocab_size: int) -> Tensor:
    row_of = torch.zeros(vocab_size, dtype=torch.int64)
    row_of[source_ids] = torch.arange(len(source_ids))
    return row_of
