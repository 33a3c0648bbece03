# SPDX-License-Identifier: Apache-2.0
"""Fitting kernels on toy laws: acceptance only rises, mass goes where it is short, and whole laws agree with views."""

import dataclasses

import pytest
import torch

from hetero_spec.rdk import fit
from hetero_spec.rdk.calibration import acceptances, fit_pair, mix_rows, outside_prior
from hetero_spec.rdk.priors import gather_priors
from hetero_spec.rdk.views import Pair, Setting, Views, make_views, truncate

V, HIDDEN = 40, 6


def toy_pair(num_kept: int = 12, seed: int = 0) -> Pair:
    """A drafter that is its target with a cut output layer, the kept ids not a prefix."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(V, HIDDEN, generator=generator) * 1.5
    kept = torch.randperm(V, generator=generator)[:num_kept].sort().values
    return Pair.of(weight, weight, None, kept)


def toy_states(count: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(count, HIDDEN, generator=torch.Generator().manual_seed(seed))


def toy_views(pair: Pair, count: int, seed: int = 1, **keywords: int) -> Views:
    states = toy_states(count, seed)
    documents = torch.arange(count, dtype=torch.int32) // 10
    (views,) = make_views([pair], states, states, documents, Setting(), **keywords)
    return views


def dense(rows: fit.Rows, num_tokens: int = V) -> torch.Tensor:
    """M [K, V], entry by entry."""
    matrix = rows.leak[:, None] * rows.prior
    for row, source in enumerate(rows.source_ids.tolist()):
        matrix[row, source] += rows.keep[row]
        for column, weight in zip(rows.columns[row].tolist(), rows.weights[row].tolist(), strict=True):
            matrix[row, column] += weight
    return matrix


def start(views: Views, pair: Pair, width: int = 8) -> fit.Rows:
    prior = outside_prior(torch.full((V,), 1.0 / V), pair)
    return fit.start_rows(pair.kept_target_ids, fit.find_candidates(views, pair.kept_target_ids, width), prior)


def test_views_hold_the_heaviest_entries_of_both_laws() -> None:
    pair, states = toy_pair(), toy_states(7)
    views = toy_views(pair, 7, num_sources=5, num_targets=9)
    target = (states @ pair.target_weight.T).softmax(1)
    draft = (states @ pair.target_weight[pair.kept_target_ids].T).softmax(1)
    torch.testing.assert_close(views.target_probs, target.topk(9).values)
    torch.testing.assert_close(target.gather(1, views.target_ids.long()), views.target_probs)
    torch.testing.assert_close(views.source_probs, draft.topk(5).values)
    assert bool(torch.isin(views.source_ids, pair.kept_target_ids.int()).all())
    assert views.document_ids.tolist() == [0] * 7


@pytest.mark.parametrize("setting", [Setting(0.7), Setting(1.0, 0.8), Setting(0.5, 0.6)])
def test_views_at_another_setting_are_those_made_there(setting: Setting) -> None:
    pair, states = toy_pair(), toy_states(20)
    documents = torch.zeros(20, dtype=torch.int32)
    (expected,) = make_views([pair], states, states, documents, setting, num_targets=V)
    (at_one,) = make_views([pair], states, states, documents, Setting(), num_targets=V)
    changed = at_one.at(setting)
    assert not torch.allclose(changed.target_probs, at_one.target_probs)
    torch.testing.assert_close(changed.target_probs, expected.target_probs)
    torch.testing.assert_close(changed.source_probs, expected.source_probs)


def test_truncation_keeps_ties_and_the_token_that_reaches_top_p() -> None:
    probs = torch.tensor([[0.4, 0.2, 0.2, 0.1, 0.1], [1.0, 0.0, 0.0, 0.0, 0.0]])
    expected = torch.tensor([[0.5, 0.25, 0.25, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0]])
    torch.testing.assert_close(truncate(probs, 0.55), expected)


@pytest.mark.parametrize("top_p", [0.01, 0.5, 0.95])
def test_truncation_of_a_wide_flat_law_sorts_as_much_as_it_needs(top_p: float) -> None:
    probs = (0.3 * torch.randn(2, 10_000, generator=torch.Generator().manual_seed(3))).double().softmax(1)
    ordered, order = probs.sort(descending=True, stable=True)
    kept = ordered * (ordered.cumsum(1) - ordered < top_p)
    expected = torch.zeros_like(probs).scatter_(1, order, kept / kept.sum(1, keepdim=True))
    torch.testing.assert_close(truncate(probs, top_p), expected)


def test_fit_accepts_more_than_start_and_identity_on_views_and_on_other_text() -> None:
    pair = toy_pair()
    views = toy_views(pair, 1500)
    first = start(views, pair)
    identity = float(fit.view_acceptance(first.blended(0.0), views).mean())
    begun = float(fit.view_acceptance(first, views).mean())
    rows = fit.fit_rows(first, views, num_epochs=3, positions_per_step=200)
    fitted = float(fit.view_acceptance(rows, views).mean())
    assert fitted > max(identity, begun) + 0.02
    states = toy_states(400, seed=9)
    found = acceptances(pair, states, states, Setting(), {"fitted": rows.redistributor()})
    assert float((found["fitted"] - found["tli"]).mean()) > 0.02


def test_rows_stay_laws_through_the_fit() -> None:
    pair = toy_pair()
    views = toy_views(pair, 300)
    rows = fit.fit_rows(start(views, pair), views, num_epochs=2, positions_per_step=50)
    matrix = dense(rows)
    assert float(matrix.min()) >= 0.0
    torch.testing.assert_close(matrix.sum(1), torch.ones(len(matrix)))


def test_fit_never_lowers_acceptance_on_its_own_views() -> None:
    # The drafter has every token, and its law is the target's own: acceptance is 1 already, and any move loses.
    pair = toy_pair(num_kept=V)
    views = toy_views(pair, 200, num_sources=V, num_targets=V)
    identity = start(views, pair).blended(0.0)
    columns = (pair.kept_target_ids[:, None] + torch.arange(1, 4)) % V
    bad = dataclasses.replace(identity, keep=torch.full((V,), 0.4), weights=torch.full((V, 3), 0.2), columns=columns)
    assert float(fit.view_acceptance(bad, views).mean()) < 0.9
    rows = fit.fit_rows(bad, views, num_epochs=1, positions_per_step=100, rate=1e-3)
    assert float(fit.view_acceptance(rows, views).mean()) == pytest.approx(1.0)


def test_gradient_is_the_derivative_of_acceptance() -> None:
    pair = toy_pair()
    views = toy_views(pair, 60, num_sources=12, num_targets=V)
    rows = start(views, pair)
    gradient = fit._Gradient.zeros(rows)
    accepted = fit._Workspace(rows, views).accepted(rows, torch.arange(60), gradient)
    matrix = dense(rows).double().requires_grad_()
    target = torch.zeros(60, V, dtype=torch.float64).scatter_(1, views.target_ids.long(), views.target_probs.double())
    draft = torch.zeros(60, V, dtype=torch.float64).scatter_(1, views.source_ids.long(), views.source_probs.double())
    overlap = torch.minimum(target, draft[:, rows.source_ids] @ matrix).sum(1)
    overlap.sum().backward()
    torch.testing.assert_close(accepted.double(), overlap.detach(), rtol=1e-5, atol=1e-6)
    expected = matrix.grad
    assert expected is not None
    # torch gives a tie half of the derivative; there is none here, with real numbers on both sides.
    own = expected.gather(1, rows.source_ids[:, None])[:, 0]
    torch.testing.assert_close(gradient.keep.double(), own, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gradient.weights.double(), expected.gather(1, rows.columns), rtol=1e-4, atol=1e-5)
    to_prior = (expected * rows.prior.double()).sum(1)
    torch.testing.assert_close(gradient.leak.double(), to_prior, rtol=1e-4, atol=1e-5)


def test_workspace_is_clean_after_a_call() -> None:
    pair = toy_pair()
    views = toy_views(pair, 30)
    rows = start(views, pair)
    workspace = fit._Workspace(rows, views)
    first = workspace.accepted(rows, torch.arange(30), fit._Gradient.zeros(rows))
    assert not bool(workspace.draft_law.any())
    assert not bool(workspace.target_law.any())
    assert torch.equal(first, workspace.accepted(rows, torch.arange(30)))


def test_candidates_are_what_the_drafter_is_short_of() -> None:
    # One source token with all of the draft's mass; the target wants tokens 3 (often) and 1 (rarely) besides.
    views = Views(
        source_ids=torch.tensor([[0], [0], [0]], dtype=torch.int32),
        source_probs=torch.ones(3, 1),
        target_ids=torch.tensor([[0, 3], [3, 0], [0, 1]], dtype=torch.int32),
        target_probs=torch.tensor([[0.75, 0.25], [0.64, 0.36], [0.91, 0.09]]),
        document_ids=torch.zeros(3, dtype=torch.int32),
        vocab_size=5,
    )
    found = fit.find_candidates(views, torch.tensor([0, 2]), 3)
    assert found.columns.tolist() == [[3, 1, 0], [2, 2, 2]]
    torch.testing.assert_close(found.affinities, torch.tensor([[0.5 + 0.8, 0.3, 0.0], [0.0, 0.0, 0.0]]))
    torch.testing.assert_close(found.mass, torch.tensor([3.0, 0.0]))
    torch.testing.assert_close(found.wasted, torch.tensor([(0.25 + 0.64 + 0.09) / 3, 0.0]))


def test_trimmed_rows_keep_the_entries_that_move_most() -> None:
    rows = fit.Rows(
        source_ids=torch.tensor([0, 1]),
        keep=torch.tensor([0.5, 0.25]),
        leak=torch.tensor([0.125, 0.25]),
        weights=torch.tensor([[0.25, 0.125], [0.375, 0.125]]),
        columns=torch.tensor([[2, 3], [2, 4]]),
        prior=torch.full((5,), 0.2),
    )
    mass = torch.tensor([8.0, 1.0])  # moves 2 and 1, .375 and .125
    trimmed = rows.trimmed(2, mass)
    assert trimmed.weights.tolist() == [[0.25, 0.125], [0.0, 0.0]]
    assert trimmed.keep.tolist() == [0.5, 0.75]
    assert torch.equal(trimmed.leak, rows.leak)
    assert rows.trimmed(4, mass) is rows
    assert not bool(rows.trimmed(0, mass).weights.any())
    torch.testing.assert_close(dense(trimmed, 5).sum(1), torch.ones(2))


@pytest.mark.parametrize("with_prior", [True, False])
def test_kernel_for_the_ops_redistributes_as_the_rows_do(with_prior: bool) -> None:
    pair = toy_pair()
    views = toy_views(pair, 300)
    rows = fit.fit_rows(start(views, pair), views, num_epochs=1, positions_per_step=100)
    if not with_prior:
        rows = dataclasses.replace(rows, keep=rows.keep + rows.leak, leak=torch.zeros_like(rows.leak))
    kernel = rows.to_kernel(least_weight=0.0, target_sha256="ab")
    draft_laws = torch.rand(9, len(rows.source_ids), generator=torch.Generator().manual_seed(4)).softmax(1)
    wide = torch.zeros(9, V).index_copy_(1, rows.source_ids, draft_laws)
    expected = draft_laws @ dense(rows)
    torch.testing.assert_close(rows.redistributor()(draft_laws), expected)
    torch.testing.assert_close(kernel.redistribute(wide), expected)
    assert kernel.target_sha256 == "ab"
    assert (kernel.prior is not None) == with_prior


def test_identity_becomes_a_kernel_that_changes_no_bit() -> None:
    pair = toy_pair()
    rows = start(toy_views(pair, 50), pair).blended(0.0)
    draft_laws = torch.zeros(3, V)
    draft_laws[:, pair.kept_target_ids] = torch.rand(3, 12).softmax(1)
    assert torch.equal(rows.to_kernel().redistribute(draft_laws), draft_laws)


def test_a_mix_as_rows_is_a_mix() -> None:
    pair = toy_pair()
    prior = gather_priors(pair.target_weight, toy_states(20)).mean
    draft_laws = torch.rand(3, 12).softmax(1)
    wide = torch.zeros(3, V).index_copy_(1, pair.kept_target_ids, draft_laws)
    mixed = mix_rows(pair, prior, 0.25)
    torch.testing.assert_close(mixed.redistributor()(draft_laws), 0.75 * wide + 0.25 * prior)
    torch.testing.assert_close(mixed.to_kernel().redistribute(wide), 0.75 * wide + 0.25 * prior)


def test_a_start_gives_away_part_of_what_is_wasted() -> None:
    found = fit.Candidates(
        columns=torch.tensor([[3, 1], [2, 2]]),
        affinities=torch.tensor([[2.0, 1.0], [0.0, 0.0]]),
        mass=torch.tensor([10.0, 30.0]),  # seen: half and three quarters of full boldness
        wasted=torch.tensor([0.5, 0.4]),
    )
    rows = fit.start_rows(torch.tensor([0, 2]), found, torch.full((5,), 0.2), boldness=0.2, prior_share=0.2)
    # Row 0 moves .2 * .5 * .5 = .05, a fifth of it to the prior, the rest by affinity squared.
    torch.testing.assert_close(rows.leak, torch.tensor([0.01, 0.012]))
    torch.testing.assert_close(rows.weights, torch.tensor([[0.032, 0.008], [0.0, 0.0]]))
    torch.testing.assert_close(rows.keep, torch.tensor([0.95, 0.988]))
    torch.testing.assert_close(dense(rows, 5).sum(1), torch.ones(2))


def test_a_token_is_no_candidate_of_its_own() -> None:
    views = Views(
        source_ids=torch.tensor([[0, 2]], dtype=torch.int32),
        source_probs=torch.tensor([[0.5, 0.5]]),
        target_ids=torch.tensor([[0, 3]], dtype=torch.int32),
        target_probs=torch.tensor([[0.9, 0.1]]),
        document_ids=torch.zeros(1, dtype=torch.int32),
        vocab_size=5,
    )
    found = fit.find_candidates(views, torch.tensor([0, 2]), 3)
    assert found.columns.tolist() == [[3, 0, 0], [0, 3, 2]]
    large, little = 0.5 * 0.4**0.5, 0.5 * 0.1**0.5
    torch.testing.assert_close(found.affinities, torch.tensor([[little, 0.0, 0.0], [large, little, 0.0]]))


def test_candidates_do_not_depend_on_how_many_positions_are_counted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = toy_pair()
    views = toy_views(pair, 60)
    whole = fit.find_candidates(views, pair.kept_target_ids, 8)
    monkeypatch.setattr(fit, "_PAIR_ROWS", 7)
    monkeypatch.setattr(fit, "_MAX_PAIRS", 500)
    parts = fit.find_candidates(views, pair.kept_target_ids, 8)
    assert torch.equal(parts.columns, whole.columns)
    torch.testing.assert_close(parts.affinities, whole.affinities)
    torch.testing.assert_close(parts.mass, whole.mass)
    torch.testing.assert_close(parts.wasted, whole.wasted)


def test_mass_of_a_source_counts_every_entry() -> None:
    pair = toy_pair()
    views = toy_views(pair, 30, num_sources=12)
    expected = (toy_states(30) @ pair.draft_weight.T).softmax(1).sum(0)
    torch.testing.assert_close(fit.source_mass(views, pair.kept_target_ids), expected)


def met(rows: fit.Rows, views: Views, epochs: int, per_epoch: int, rate: float, caution: float) -> list[fit.Rows]:
    """The rows that a fit meets, by derivatives of the dense form; all positions must be the same."""
    one = views[:1]
    matrix_of = torch.nn.functional.one_hot(rows.source_ids, V).double()
    columns = torch.nn.functional.one_hot(rows.columns, V).double()
    target = torch.zeros(V, dtype=torch.float64)
    target[one.target_ids[0].long()] = one.target_probs[0].double()
    law = torch.zeros(V, dtype=torch.float64)
    law[one.source_ids[0].long()] = one.source_probs[0].double()
    own, count = law[rows.source_ids], len(views) // per_epoch
    parts = [part.double() for part in (rows.keep, rows.leak[:, None], rows.weights)]
    parts[0] = parts[0][:, None]
    found, after, step = [rows.blended(0.0), rows], [], 0

    def made(each: list[torch.Tensor]) -> fit.Rows:
        keep, leak, weights = (part.float() for part in each)
        return dataclasses.replace(rows, keep=keep[:, 0], leak=leak[:, 0], weights=weights)

    for _ in range(epochs):
        after = []
        for _ in range(per_epoch):
            parts = [part.detach().requires_grad_() for part in parts]
            keep, leak, weights = parts
            matrix = keep * matrix_of + leak * rows.prior.double() + (weights[:, :, None] * columns).sum(1)
            torch.minimum(target, own @ matrix)[one.target_ids[0].long()].sum().backward()
            length = rate / (1.0 + 2.0 * step / per_epoch)
            scale = (length / (own * count + caution))[:, None]
            with torch.no_grad():
                parts = [part * (scale * count * part.grad).exp() for part in parts]
                total = sum(part.sum(1, keepdim=True) for part in parts)
                parts = [part / total for part in parts]
            after.append(parts)
            step += 1
        found.append(made(parts))
    found.append(made([sum(each) / per_epoch for each in zip(*after, strict=True)]))
    return found


# Where the last step is best, and where the mean of the last epoch is: steps so long that they overshoot.
@pytest.mark.parametrize(
    ("epochs", "per_epoch", "rate", "caution", "best"), [(2, 1, 0.5, 2.0, -2), (1, 4, 20.0, 2.0, -1)]
)
def test_fit_takes_the_steps_that_it_says(epochs: int, per_epoch: int, rate: float, caution: float, best: int) -> None:
    pair = toy_pair()
    views = toy_views(pair, 1, num_sources=12, num_targets=20)[torch.zeros(8, dtype=torch.int64)]
    first = start(views, pair)
    expected = met(first, views, epochs, per_epoch, rate, caution)
    accepted = [float(fit.view_acceptance(each, views).mean()) for each in expected]
    assert accepted[best] == max(accepted) > max(accepted[:2]) + 1e-3
    heard: list[int] = []
    rows = fit.fit_rows(
        first,
        views,
        num_epochs=epochs,
        positions_per_step=len(views) // per_epoch,
        rate=rate,
        caution=caution,
        on_positions=heard.append,
    )
    for name in ("keep", "leak", "weights"):
        torch.testing.assert_close(getattr(rows, name), getattr(expected[best], name), rtol=1e-4, atol=1e-6)
    assert heard == [len(views) // per_epoch] * (epochs * per_epoch)


def test_order_of_positions_is_the_seeds() -> None:
    pair = toy_pair()
    views = toy_views(pair, 200)
    one, again, other = (
        fit.fit_rows(start(views, pair), views, num_epochs=1, positions_per_step=50, seed=seed) for seed in (0, 0, 1)
    )
    assert torch.equal(one.weights, again.weights)
    assert not torch.equal(one.weights, other.weights)


def test_small_weights_of_a_kernel_go_back_to_the_rows_token() -> None:
    rows = fit.Rows(
        source_ids=torch.tensor([0, 1]),
        keep=torch.tensor([0.6999, 0.99995]),
        leak=torch.tensor([0.00005, 0.0]),
        weights=torch.tensor([[0.3, 0.00005], [0.00005, 0.0]]),
        columns=torch.tensor([[2, 3], [4, 1]]),
        prior=torch.full((5,), 0.2),
    )
    kernel = rows.to_kernel()
    assert kernel.prior is None
    assert kernel.column_ids.tolist() == [2]
    laws = torch.eye(5)[:2]
    expected = torch.tensor([[0.7, 0.0, 0.3, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0, 0.0]])
    torch.testing.assert_close(kernel.redistribute(laws), expected)


def test_fit_of_a_pair_is_the_same_every_time() -> None:
    pair = toy_pair()
    views = toy_views(pair, 200)
    prior = outside_prior(torch.full((V,), 1.0 / V), pair)
    one, other = (fit_pair(views, pair, prior, max_per_source=6, num_epochs=1) for _ in range(2))
    assert torch.equal(one.weights, other.weights)
    assert torch.equal(one.keep, other.keep)


def test_pair_refuses_ids_that_do_not_rise_and_an_empty_intersection() -> None:
    weight = torch.zeros(5, 2)
    with pytest.raises(ValueError, match="must rise"):
        Pair(weight, weight[:2], torch.tensor([3, 1]))
    with pytest.raises(ValueError, match="must share a token"):
        Pair.of(weight, weight, torch.full((5,), -1), None)


@pytest.mark.parametrize(("temperature", "top_p"), [(0.0, 1.0), (float("nan"), 1.0), (1.0, 0.0), (1.0, 1.5)])
def test_settings_without_a_law_are_refused(temperature: float, top_p: float) -> None:
    with pytest.raises(ValueError, match="Setting: "):
        Setting(temperature, top_p)
