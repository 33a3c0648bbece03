# SPDX-License-Identifier: Apache-2.0
"""Which kernel a pair should use at given sampling parameters, found and checked on documents of its own.

The documents of a text are dealt out three ways: kernels are fitted on the first part, one of them is chosen on the
second, and its gain over token-level intersection is measured on the third, which has had no say in anything. Where
the 95 % interval of that gain does not lie above zero, the calibrated kernel is the identity and says why.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hetero_spec.rdk.fit import Rows, find_candidates, fit_rows, source_mass, start_rows
from hetero_spec.rdk.priors import Priors, gather_priors
from hetero_spec.rdk.records import RecordsError
from hetero_spec.rdk.views import Pair, Setting, Views, iter_laws, make_views

if TYPE_CHECKING:
    from hetero_spec.rdk.sparse import SparseKernel

Redistribute = Callable[[Tensor], Tensor]

_SHARES = (1.0, 0.75, 0.5, 0.25)
_LAMBDAS = (0.1, 0.05, 0.02, 0.01)
_PRIOR_POSITIONS = 16_384
_CHECK_POSITIONS = 8192


@dataclass(frozen=True)
class Estimate:
    """A mean over positions with half the width of its 95 % interval; positions of a document are not independent.

    Attributes
    ----------
    mean, half_width : float
        half_width is infinite for a single document.
    num_positions, num_documents : int
    """

    mean: float
    half_width: float
    num_positions: int
    num_documents: int

    @property
    def is_gain(self) -> bool:
        """Whether the whole interval lies above zero."""
        return self.mean - self.half_width > 0.0

    def as_dict(self) -> dict[str, float | None]:
        """For JSON."""
        return {
            "mean": self.mean,
            "half_width_95": self.half_width if math.isfinite(self.half_width) else None,
            "num_positions": self.num_positions,
            "num_documents": self.num_documents,
        }

    def __str__(self) -> str:
        """As in a sentence."""
        return f"{self.mean:+.4f} ± {self.half_width:.4f}"


def estimate(values: Tensor, document_ids: Tensor) -> Estimate:
    """Mean of values [N], with an interval by documents (cluster-robust standard error, Student's t for few documents).

    Raises
    ------
    RecordsError   no values
    """
    if len(values) == 0:
        raise RecordsError("estimate: values must hold a position, got none")
    wide = values.double()
    mean = wide.mean()
    _, place = torch.unique(document_ids, return_inverse=True)
    count = int(place.max()) + 1
    if count < 2:
        return Estimate(float(mean), math.inf, len(wide), count)
    sums = torch.zeros(count, dtype=torch.float64).index_add_(0, place, wide - mean)
    error = (sums.square().sum() * count / (count - 1)).sqrt() / len(wide)
    return Estimate(float(mean), _quantile(count - 1) * float(error), len(wide), count)


def _quantile(freedom: int) -> float:
    """Two-sided 95 % quantile of Student's t; exact for 1 and 2 degrees of freedom, within 1 % from 3 on."""
    if freedom <= 2:
        return (12.7062, 4.30265)[freedom - 1]
    z = 1.959964
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def deal_documents(document_ids: Tensor, shares: Sequence[float], seed: int = 0) -> list[Tensor]:
    """Deal documents out in random order; return the positions (int64) of each part, at least a document each.

    Raises
    ------
    RecordsError   fewer documents than parts
    """
    documents = torch.unique(document_ids)
    if len(documents) < len(shares):
        raise RecordsError(
            f"deal_documents: the text must give at least {len(shares)} documents, got {len(documents)}: give more text"
        )
    order = documents[torch.randperm(len(documents), generator=torch.Generator().manual_seed(seed))]
    parts, first, reached = [], 0, 0.0
    for index, share in enumerate(shares):
        reached += share
        left_over = len(shares) - 1 - index
        last = len(documents) - left_over if left_over == 0 else round(reached / sum(shares) * len(documents))
        last = min(max(last, first + 1), len(documents) - left_over)
        parts.append(torch.isin(document_ids, order[first:last]).nonzero()[:, 0])
        first = last
    return parts


def acceptances(
    pair: Pair,
    target_states: Tensor,
    draft_states: Tensor,
    setting: Setting,
    kernels: Mapping[str, Redistribute],
    on_positions: Callable[[int], None] | None = None,
) -> dict[str, Tensor]:
    """Exact acceptance sum_t min(p(t), q~(t)) at every position, over whole laws.

    Parameters
    ----------
    pair : Pair
    target_states, draft_states : float [N, hidden]
    setting : Setting
    kernels : mapping
        Each from q' over the pair's tokens [rows, K] to q~ [rows, V].

    Returns
    -------
    dict of float32 [N]: one entry per kernel, and
        "tli" (token-level intersection), "inside" (target mass on the drafter's tokens)
    """
    names = ("tli", "inside", *kernels)
    parts: dict[str, list[Tensor]] = {name: [] for name in names}
    for target_laws, draft_laws in iter_laws(pair, target_states, draft_states, setting):
        inside = target_laws[:, pair.kept_target_ids]
        parts["tli"].append(torch.minimum(inside, draft_laws).sum(1))
        parts["inside"].append(inside.sum(1))
        for name, redistribute in kernels.items():
            parts[name].append(torch.minimum(target_laws, redistribute(draft_laws)).sum(1))
        if on_positions is not None:
            on_positions(len(target_laws))
    return {name: torch.cat(part) for name, part in parts.items()}


def mix_rows(pair: Pair, prior: Tensor, lam: float) -> Rows:
    """A mix with a prior [V] as rows: every token gives the share lam to it."""
    count = len(pair.kept_target_ids)
    return Rows(
        pair.kept_target_ids,
        torch.full((count,), 1.0 - lam),
        torch.full((count,), lam),
        torch.zeros(count, 0),
        torch.zeros(count, 0, dtype=torch.int64),
        prior,
    )


def outside_prior(law: Tensor, pair: Pair) -> Tensor:
    """A law [V] restricted to the target tokens that the drafter lacks; the law itself where it lacks none."""
    outside = law.clone()
    outside[pair.kept_target_ids] = 0.0
    total = outside.sum()
    return outside / total if float(total) > 0.0 else law / law.sum()


def fit_pair(
    views: Views,
    pair: Pair,
    prior: Tensor,
    *,
    max_per_source: int = 64,
    num_epochs: int = 3,
    seed: int = 0,
    on_positions: Callable[[int], None] | None = None,
) -> Rows:
    """Candidates and a fit of their weights; see `fit`. `prior` [V] is what every row may give to beside them."""
    candidates = find_candidates(views, pair.kept_target_ids, max_per_source)
    rows = start_rows(pair.kept_target_ids, candidates, prior)
    return fit_rows(rows, views, num_epochs=num_epochs, seed=seed, on_positions=on_positions)


@dataclass
class Calibration:
    """A kernel and what is known about it.

    Attributes
    ----------
    kernel : SparseKernel
        The identity where nothing was gained. Its `calibration` holds the report.
    report : dict
        JSON values: setting, target mass inside, acceptance of token-level intersection and of the kernel, gain with
        interval, what was tried on the choosing part, and "fallback": why it is the identity, or None.
    priors : Priors
    """

    kernel: SparseKernel
    report: dict[str, Any]
    priors: Priors


def calibrate(
    pair: Pair,
    target_states: Tensor,
    draft_states: Tensor,
    document_ids: Tensor,
    setting: Setting,
    *,
    max_per_source: int = 64,
    max_entries: int | None = None,
    num_epochs: int = 3,
    seed: int = 0,
    target_sha256: str | None = None,
    drafter_sha256: str | None = None,
    on_stage: Callable[[str, int], None] | None = None,
    on_positions: Callable[[int], None] | None = None,
) -> Calibration:
    """Fit, choose and check a kernel for one pair and one setting.

    Parameters
    ----------
    pair : Pair
    target_states, draft_states : float [N, hidden]
    document_ids : int [N]
        At least 3 documents; the interval is worth something from a few dozen on.
    setting : Setting
    max_per_source : int
        Candidates of a row.
    max_entries : int, optional
        Of the kernel in all, the ones that move most: verification looks at each of them. Default: a quarter of V,
        which leaves nearly all of the gain where much is missing; see docs/rdk.md.
    num_epochs : int
    seed : int
        Of the dealing of documents and the order of positions.
    on_stage, on_positions : callable, optional
        Hear (what is begun, how many positions it is about), and positions done.

    Raises
    ------
    RecordsError   too few documents, or states that are NaN
    """
    for name, states in (("target_states", target_states), ("draft_states", draft_states)):
        if not bool(states.isfinite().all()):
            raise RecordsError(f"calibrate: {name} must be finite, got NaN or infinity")
    parts = deal_documents(document_ids, (0.7, 0.15, 0.15), seed)
    fitted, chosen, checked = parts[0], *(_spread(part, _CHECK_POSITIONS) for part in parts[1:])
    tell = on_stage or (lambda what, count: None)

    sample = _spread(fitted, _PRIOR_POSITIONS)
    tell("priors", len(sample))
    priors = gather_priors(pair.target_weight, target_states[sample], setting, on_positions)
    prior = outside_prior(priors.root_mean, pair)
    tell("laws", len(fitted))
    (views,) = make_views(
        [pair], target_states[fitted], draft_states[fitted], document_ids[fitted], setting, on_positions=on_positions
    )
    tell("fit", num_epochs * len(fitted))
    rows = fit_pair(
        views,
        pair,
        prior,
        max_per_source=max_per_source,
        num_epochs=num_epochs,
        seed=seed,
        on_positions=on_positions,
    )
    rows = rows.trimmed(
        pair.vocab_size // 4 if max_entries is None else max_entries, source_mass(views, pair.kept_target_ids)
    )

    tried: dict[str, Rows] = {f"fitted, share {share:g}": rows.blended(share) for share in _SHARES}
    tried |= {f"mix, lambda {lam:g}": mix_rows(pair, prior, lam) for lam in _LAMBDAS}

    def gains(part: Tensor, some: Mapping[str, Rows]) -> tuple[dict[str, Tensor], dict[str, Estimate]]:
        found = acceptances(
            pair,
            target_states[part],
            draft_states[part],
            setting,
            {name: each.redistributor() for name, each in some.items()},
            on_positions,
        )
        return found, {name: estimate(found[name] - found["tli"], document_ids[part]) for name in some}

    tell("choice", len(chosen))
    _, on_chosen = gains(chosen, tried)
    best = max(on_chosen, key=lambda name: on_chosen[name].mean)
    tell("check", len(checked))
    found, on_checked = gains(checked, {best: tried[best]})
    gain, inside, tli = on_checked[best], found["inside"], found["tli"]
    fallback = None
    if on_chosen[best].mean <= 0.0:
        fallback = "calibration found no kernel that accepts more than token-level intersection on held-out text"
    elif not gain.is_gain:
        fallback = (
            f"calibration found no sure gain over token-level intersection on held-out text ({gain} with {best}; "
            "the 95 % interval reaches zero)"
        )
    kernel = (tried[best] if fallback is None else tried[best].blended(0.0)).to_kernel(target_sha256=target_sha256)
    report: dict[str, Any] = {
        "method": best if fallback is None else "token-level intersection",
        "fallback": fallback,
        "temperature": setting.temperature,
        "top_p": setting.top_p,
        "num_kept_tokens": len(pair.kept_target_ids),
        # Of the target ids as int64: a kernel serves the kept set that it was fitted to.
        "kept_ids_sha256": hashlib.sha256(pair.kept_target_ids.numpy().tobytes()).hexdigest(),
        "num_fitted_positions": len(fitted),
        "target_mass_inside": estimate(inside, document_ids[checked]).as_dict(),
        "acceptance_tli": estimate(tli, document_ids[checked]).as_dict(),
        "acceptance_best": estimate(found[best], document_ids[checked]).as_dict(),
        "best": best,
        "gain_of_best": gain.as_dict(),
        "gains_on_choosing_part": {name: each.as_dict() for name, each in on_chosen.items()},
        "num_entries": int(kernel.column_ids.numel()) if kernel.column_ids is not None else 0,
        "max_per_source": max_per_source,
        "num_epochs": num_epochs,
        "seed": seed,
    }
    kernel.drafter_sha256 = drafter_sha256
    kernel.calibration = report
    return Calibration(kernel, report, priors)


def _spread(positions: Tensor, at_most: int) -> Tensor:
    """Every n-th of the positions, so that no more than `at_most` are left."""
    return positions[:: max(1, math.ceil(len(positions) / at_most))]


def frequent_shared_ids(
    target_states: Tensor,
    target_weight: Tensor,
    draft_to_target_ids: Tensor | None,
    share: float,
    always: Sequence[int] = (),
) -> Tensor:
    """Target ids of the shared tokens that the target says most often, int64, rising.

    Parameters
    ----------
    target_states : float [N, hidden]
        Frequency is expected frequency, the mean of the target's laws at temperature 1: smoother than counts.
    target_weight : float [V, hidden]
    draft_to_target_ids : int [Vd] or None
        None: all of the target's.
    share : float
        Of the shared tokens, in (0, 1]; at least one is kept.
    always : sequence of int
        Target ids kept in any case where they are shared: those that end a text.
    """
    mean = gather_priors(target_weight, target_states[_spread(torch.arange(len(target_states)), _PRIOR_POSITIONS)]).mean
    size = len(target_weight)
    shared = torch.arange(size) if draft_to_target_ids is None else draft_to_target_ids[draft_to_target_ids >= 0].long()
    order = mean[shared].double()
    for token_id in always:
        order[shared == token_id] = 2.0
    count = max(1, round(share * len(shared)))
    return shared[order.topk(count).indices].sort().values
