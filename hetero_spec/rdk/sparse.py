# SPDX-License-Identifier: Apache-2.0
"""`SparseKernel`: a few neighbours for each token, and the ways to find them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from hetero_spec.rdk import checks
from hetero_spec.rdk.checks import fail, finite, in_range
from hetero_spec.rdk.csr import offsets_of, row_ids
from hetero_spec.rdk.kernels import MixtureKernel, constant_of


class SparseKernel(MixtureKernel):
    """Each token gives a share of its mass to a few neighbours of its own, and optionally one to a common prior.

    Parameters
    ----------
    row_offsets : int [V + 1]
        Row i of S has the entries [row_offsets[i], row_offsets[i + 1]).
    column_ids : int [nnz]
        Target ids, rising within a row.
    weights : float [nnz]
        S: not negative, total 1 in each row.
    spread : float or float [V]
        b, the share that goes to the neighbours. Taken as 0 where a row is empty.
    leak, prior : optional
        a (float or float [V]) and r (float [V], total 1), as in `MixKernel`. a + b must be at most 1.
    target_sha256 : str, optional

    Attributes
    ----------
    clamped_mass : float
        For `from_topk` and `from_lists`: share of the affinities' absolute sum that was negative and left out.

    Raises
    ------
    ValueError   ids out of range or not rising, a row whose total isn't 1, NaN, a + b above 1, widths that disagree
    """

    kind = "sparse"

    def __init__(
        self,
        row_offsets: Tensor,
        column_ids: Tensor,
        weights: Tensor,
        spread: float | Tensor,
        *,
        leak: float | Tensor | None = None,
        prior: Tensor | None = None,
        target_sha256: str | None = None,
    ) -> None:
        what = type(self).__name__
        offsets, columns, own_weights = _checked_rows(what, row_offsets, column_ids, weights)
        size = len(offsets) - 1
        own_spread = checks.share(what, "spread", spread, size)
        own_spread[offsets.diff() == 0] = 0.0
        if (leak is None) != (prior is None):
            fail(ValueError, what, "leak and prior", "given together", "only one of them")
        own_leak = None if leak is None else checks.share(what, "leak", leak, size)
        if own_leak is not None:
            over = own_leak.double() + own_spread.double()
            worst = int(over.argmax())
            if float(over[worst]) > 1.0 + 1e-6:
                fail(ValueError, what, "leak + spread", "at most 1", f"{float(over[worst]):g} at id {worst}")
            own_spread = torch.minimum(own_spread, 1.0 - own_leak)  # their rounding
        super().__init__(
            size,
            leak=own_leak,
            prior=None if prior is None else checks.law(what, "prior", prior, size),
            spread=own_spread,
            rows=(offsets, columns, own_weights),
            constant_leak=0.0 if own_leak is None else constant_of(own_leak),
            target_sha256=target_sha256,
        )

    @classmethod
    def from_topk(
        cls, indices: Tensor, values: Tensor, spread: float | Tensor, *, tau: float | None = None, **keywords: Any
    ) -> SparseKernel:
        """Make it from the k nearest target tokens of each source token.

        Parameters
        ----------
        indices : int [V, k]
            Target ids, -1 = none.
        values : float [V, k]
            Affinities. Without tau a row's weights are in proportion to them and negative ones are left out.
        spread : float or float [V]
        tau : float, optional
            Weights are softmax(values / tau) over the row's tokens instead.
        **keywords
            leak, prior, target_sha256.
        """
        what = f"{cls.__name__}.from_topk"
        ids = checks.as_tensor(what, "indices", indices, torch.int64)
        affinities = checks.as_tensor(what, "values", values, torch.float64)
        if ids.dim() != 2 or ids.shape[0] < 1:
            fail(ValueError, what, "indices", "of shape [V, k]", f"shape {list(ids.shape)}")
        if affinities.shape != ids.shape:
            fail(ValueError, what, "values", f"of shape {list(ids.shape)}", f"shape {list(affinities.shape)}")
        given = ids != -1
        rows = torch.arange(len(ids))[:, None].expand_as(ids)[given]
        return cls._from_affinities(what, rows, ids[given], affinities[given], len(ids), spread, tau, keywords)

    @classmethod
    def from_lists(
        cls,
        neighbours: Mapping[int, Sequence[tuple[int, float]]],
        vocab_size: int,
        spread: float | Tensor,
        *,
        tau: float | None = None,
        **keywords: Any,
    ) -> SparseKernel:
        """Make it from lists: source id to its (target id, affinity) pairs; else as `from_topk`."""
        what = f"{cls.__name__}.from_lists"
        triples = [(source, target, value) for source, pairs in neighbours.items() for target, value in pairs]
        rows = torch.tensor([triple[0] for triple in triples], dtype=torch.int64)
        columns = torch.tensor([triple[1] for triple in triples], dtype=torch.int64)
        values = torch.tensor([triple[2] for triple in triples], dtype=torch.float64)
        return cls._from_affinities(what, rows, columns, values, vocab_size, spread, tau, keywords)

    @classmethod
    def from_counts(
        cls,
        source_ids: Tensor,
        target_ids: Tensor,
        counts: Tensor,
        vocab_size: int,
        spread: float | Tensor,
        *,
        max_per_source: int | None = None,
        least_count: float = 0.0,
        **keywords: Any,
    ) -> SparseKernel:
        """Make it from co-occurring mass: row i in proportion to sum over positions of draft mass on i, target on t.

        Parameters
        ----------
        source_ids, target_ids : int [m]
            Pairs, in any order; equal ones are added up. A pair (i, i) says that i should keep mass.
        counts : float [m]
            Mass or number of co-occurrences, not negative.
        vocab_size : int
        spread : float or float [V]
        max_per_source : int, optional
            Keep only the largest so many of a row (ties: the lowest ids).
        least_count : float
            Leave out pairs whose sum is below it: rare pairs are mostly noise.
        **keywords
            leak, prior, target_sha256.
        """
        what = f"{cls.__name__}.from_counts"
        sources = checks.as_tensor(what, "source_ids", source_ids, torch.int64)
        targets = checks.as_tensor(what, "target_ids", target_ids, torch.int64)
        mass = checks.as_tensor(what, "counts", counts, torch.float64)
        if len(mass):
            checks.non_negative(what, "counts", finite(what, "counts", mass))
        sources, targets, mass = _added_up(what, sources, targets, mass, vocab_size)
        keep = (mass > 0.0) & (mass >= least_count)
        if max_per_source is not None:
            if max_per_source < 1:
                fail(ValueError, what, "max_per_source", "at least 1", max_per_source)
            keep &= _rank_in_row(sources, mass, vocab_size) < max_per_source
        return cls._from_affinities(what, sources[keep], targets[keep], mass[keep], vocab_size, spread, None, keywords)

    @classmethod
    def from_spelling(
        cls,
        target_tokens: Sequence[bytes | None],
        target_to_draft_ids: Tensor,
        spread: float | Tensor,
        *,
        prior: Tensor | None = None,
        longest_only: bool = False,
        max_per_source: int | None = None,
        **keywords: Any,
    ) -> SparseKernel:
        """Make it from spelling: a shared token gives mass to the longer tokens that start with its bytes.

        Only tokens that the drafter lacks receive: a drafter that wants to say one of them drafts its first piece.

        Parameters
        ----------
        target_tokens : list of bytes or None
            `VocabMap.target_tokens`.
        target_to_draft_ids : int [V]
            -1 where the drafter has no such token.
        spread : float or float [V]
        prior : float [V], optional
            Weights of the receivers relative to each other, the target's mean law for one; None: all equal. Needs no
            total of 1. (Not the prior of a leak, which this form doesn't take.)
        longest_only : bool
            Each token receives only from the longest shared prefix of it, not from all of them.
        max_per_source : int, optional
            Keep only the heaviest receivers of a row.
        **keywords
            target_sha256.
        """
        what = f"{cls.__name__}.from_spelling"
        size = len(target_tokens)
        shared = checks.as_tensor(what, "target_to_draft_ids", target_to_draft_ids, torch.int64)
        if tuple(shared.shape) != (size,):
            fail(ValueError, what, "target_to_draft_ids", f"of shape [{size}]", f"shape {list(shared.shape)}")
        mass = torch.ones(size, dtype=torch.float64)
        if prior is not None:
            mass = checks.non_negative(what, "prior", checks.vector(what, "prior", prior, size))
        is_shared = (shared >= 0).tolist()
        id_of_bytes = {token: i for i, token in enumerate(target_tokens) if token is not None and is_shared[i]}
        pairs: list[tuple[int, int]] = []
        for target, token in enumerate(target_tokens):
            if token is None or is_shared[target]:
                continue
            prefixes = (id_of_bytes.get(token[:length]) for length in range(len(token) - 1, 0, -1))
            found = [source for source in prefixes if source is not None]
            pairs += [(source, target) for source in (found[:1] if longest_only else found)]
        own = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2)
        return cls.from_counts(
            own[:, 0], own[:, 1], mass[own[:, 1]], size, spread, max_per_source=max_per_source, **keywords
        )

    @classmethod
    def _from_affinities(
        cls,
        what: str,
        rows: Tensor,
        columns: Tensor,
        values: Tensor,
        vocab_size: int,
        spread: float | Tensor,
        tau: float | None,
        keywords: dict[str, Any],
    ) -> SparseKernel:
        """Weights from affinities in triples; equal pairs are an error unless they were added up before."""
        if not 1 <= vocab_size <= checks.MAX_VOCAB_SIZE:
            fail(ValueError, what, "vocab_size", f"in [1, {checks.MAX_VOCAB_SIZE}]", vocab_size)
        finite(what, "values", values)
        for name, ids in (("source ids", rows), ("target ids", columns)):
            in_range(what, name, ids, vocab_size)
        clamped = 0.0
        if tau is not None:
            scaled = values / checks.temperature(what, tau)
            largest = torch.full((vocab_size,), -math.inf, dtype=torch.float64).scatter_reduce_(0, rows, scaled, "amax")
            values = (scaled - largest[rows]).exp()
        elif len(values):
            negative = values < 0.0
            total = float(values.abs().sum())
            clamped = -float(values[negative].sum()) / total if total > 0.0 else 0.0
            keep = values > 0.0
            rows, columns, values = rows[keep], columns[keep], values[keep]
        order = torch.argsort(rows * vocab_size + columns, stable=True)
        rows, columns, values = rows[order], columns[order], values[order]
        totals = torch.zeros(vocab_size, dtype=torch.float64).index_add_(0, rows, values)
        counts = torch.bincount(rows, minlength=vocab_size)
        kernel = cls(offsets_of(counts), columns, values / totals[rows], spread, **keywords)
        kernel.clamped_mass = clamped
        return kernel


def _added_up(
    what: str, sources: Tensor, targets: Tensor, mass: Tensor, vocab_size: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Triples in row order with equal pairs added up."""
    if not (sources.shape == targets.shape == mass.shape and mass.dim() == 1):
        shapes = f"shapes {list(sources.shape)}, {list(targets.shape)}, {list(mass.shape)}"
        fail(ValueError, what, "source_ids, target_ids and counts", "of one shape [m]", shapes)
    in_range(what, "source_ids", sources, vocab_size)
    in_range(what, "target_ids", targets, vocab_size)
    pairs, place = torch.unique(sources * vocab_size + targets, return_inverse=True)
    sums = torch.zeros(len(pairs), dtype=torch.float64).index_add_(0, place, mass)
    return pairs // vocab_size, pairs % vocab_size, sums


def _rank_in_row(rows: Tensor, values: Tensor, vocab_size: int) -> Tensor:
    """Place of each entry among its row's values, 0 for the largest; `rows` is sorted, ties go to the first entry."""
    by_value = torch.argsort(values, descending=True, stable=True)
    order = by_value[torch.argsort(rows[by_value], stable=True)]
    first = offsets_of(torch.bincount(rows, minlength=vocab_size)).long()
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order)) - first[rows[order]]
    return rank


def _checked_rows(what: str, row_offsets: Any, column_ids: Any, weights: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Check a CSR matrix; return it as int32, int32, float32 with each row's total 1 to rounding."""
    offsets = checks.as_tensor(what, "row_offsets", row_offsets, torch.int64)
    columns = checks.as_tensor(what, "column_ids", column_ids, torch.int64)
    values = checks.as_tensor(what, "weights", weights, torch.float64)
    if offsets.dim() != 1 or not 2 <= len(offsets) <= checks.MAX_VOCAB_SIZE + 1:
        fail(ValueError, what, "row_offsets", "of shape [V + 1]", f"shape {list(offsets.shape)}")
    size, entries = len(offsets) - 1, int(offsets[-1])
    if int(offsets[0]) != 0 or bool((offsets.diff() < 0).any()) or entries >= 2**31:
        fail(ValueError, what, "row_offsets", "rising from 0 to below 2**31", f"{int(offsets[0])}..{entries}")
    for name, tensor in (("column_ids", columns), ("weights", values)):
        if tuple(tensor.shape) != (entries,):
            fail(ValueError, what, name, f"of shape [{entries}]", f"shape {list(tensor.shape)}")
    in_range(what, "column_ids", columns, size)
    rows = row_ids(offsets)
    falling = (columns.diff() <= 0) & (rows.diff() == 0)
    if bool(falling.any()):
        where = int(falling.nonzero()[0, 0])
        pair = f"{int(columns[where])}, {int(columns[where + 1])} in row {int(rows[where])}"
        fail(ValueError, what, "column_ids", "rising within a row, each id once", pair)
    if entries:
        finite(what, "weights", values)
        least = int(values.argmin())
        if float(values[least]) < 0.0:
            fail(
                ValueError,
                what,
                "weights",
                "0 or more everywhere",
                f"{float(values[least]):g} in row {int(rows[least])}",
            )
    totals = torch.zeros(size, dtype=torch.float64).index_add_(0, rows, values)
    wrong = ((totals - 1.0).abs() > checks.SUM_TOLERANCE) & (offsets.diff() > 0)
    if bool(wrong.any()):
        where = int(wrong.nonzero()[0, 0])
        fail(ValueError, what, "weights", "of total 1 in each row", f"total {float(totals[where]):.6g} in row {where}")
    return offsets.to(torch.int32), columns.to(torch.int32), checks.normalized(values, totals[rows])
