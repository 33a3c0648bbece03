# SPDX-License-Identifier: Apache-2.0
"""rejection_sample and acceptance_overlap with an RDK kernel."""

import math

import pytest
import torch

from hetero_spec import ops, reference
from hetero_spec.ops import RdkTensors, Status
from hetero_spec.reference import output_law
from hetero_spec.reference.rdk_redistribute import redistribute
from hetero_spec.reference.rejection_sample import draft_law_over_target_ids, rejection_sample_verdicts
from hetero_spec.reference.row_law import logits_of, parameters_of
from tests.tools import chi_square, laws
from tests.tools.compare import assert_verdicts_match
from tests.tools.inputs import (
    MAP_KINDS,
    generator,
    make_cu,
    make_logits,
    make_map,
    make_parameters,
    make_verification,
)
from tests.tools.kernels import KINDS, Kernel, identities, make_kernel, sparse_rows, with_prior
from tests.tools.law import law_by_cells, log_probs

RULES = ["token", "block"]


def ids(*values):
    return torch.tensor(values, dtype=torch.int32)


def redrawn(case, kernel, *, seed):
    """The case with drafts of the redistributed law (most of them), so that both answers of every test occur."""
    names = ("temperature", "top_k", "top_p", "min_p")
    mapping = case.keywords.get("target_to_draft_ids")
    gen = generator(seed)
    token = 0
    for request, length in enumerate(case.lengths):
        for _ in range(length):
            law = draft_law_over_target_ids(
                logits_of(case.keywords["draft_logits"], token),
                None,
                parameters_of(request, *(case.keywords.get(name) for name in names)),
                None if mapping is None else mapping.tolist(),
                case.target_logits.shape[1],
                kernel,
            )
            uniform = float(torch.rand(1, generator=gen, dtype=torch.float64))
            if token % 7 and law.sum() > 0.0:
                case.draft_token_ids[token] = reference.inverse_cdf.sample(law, uniform)
            token += 1
    return case


def assert_matches_reference(case, kernel, rule, **changes):
    keywords = {**case.keywords, **changes, "kernel": kernel, "rule": rule}
    out = ops.rejection_sample(*case.positional, **keywords)
    keywords.pop("draft_leaked_mass", None)
    assert_verdicts_match(out, rejection_sample_verdicts, case.positional, keywords)
    return out


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("vocab_size", "dtype"), [(3, torch.float32), (17, torch.bfloat16), (300, torch.float16)], ids=str
)
def test_output_equals_reference(vocab_size, dtype, kind, rule):
    kernel = make_kernel(kind, vocab_size, seed=vocab_size)
    accepted = 0
    for seed in range(2):
        case = make_verification(vocab_size=vocab_size, seed=seed, dtype=dtype, map_kind="partial", batch_size=8)
        out = assert_matches_reference(redrawn(case, kernel, seed=seed), kernel, rule)
        accepted += int(out.num_accepted_tokens.sum())
    assert accepted > 0


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", ["general", "low_rank"])
@pytest.mark.parametrize("parameters", ["all", "greedy", "per_request"])
@pytest.mark.parametrize("map_kind", [None, *MAP_KINDS])
def test_output_equals_reference_for_every_map_and_parameter(map_kind, parameters, kind, rule):
    kernel = make_kernel(kind, 100, seed=1)
    case = make_verification(vocab_size=100, seed=2, parameters=parameters, map_kind=map_kind, batch_size=8)
    assert_matches_reference(redrawn(case, kernel, seed=3), kernel, rule)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", ["mix", "diagonal", "general", "low_rank"])
def test_output_equals_reference_for_many_chunks(kind, rule):
    size = 4500
    kernel = make_kernel(kind, size, seed=4)
    case = make_verification(vocab_size=size, seed=5, map_kind="partial", batch_size=3)
    assert_matches_reference(case, kernel, rule)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("map_kind", [None, "partial"])
def test_mass_that_sparse_rows_carry_between_chunks_is_drawn_at_its_rate(map_kind, rule):
    """Every token of the drafter's spreads all it has to a token of another chunk, where the residual then lacks it."""
    size, shift = 9000, 4500
    rows = sparse_rows([{(source + shift) % size: 1.0} for source in range(size)])
    kernel = Kernel(size, RdkTensors(spread=torch.full((size,), 0.9), **rows)).indexed()
    case = make_verification(vocab_size=size, seed=32, map_kind=map_kind, batch_size=4, noise=3.0)
    out = assert_matches_reference(case, kernel, rule)
    assert (out.num_accepted_tokens < 4).any()
    keywords = {**case.keywords, "rule": rule}
    assert not torch.equal(out.output_token_ids, ops.rejection_sample(*case.positional, **keywords).output_token_ids)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", ["sparse", "general"])
@pytest.mark.parametrize("map_kind", [None, "narrower"])
def test_the_index_of_the_sparse_rows_changes_no_bit(map_kind, kind, rule):
    kernel = make_kernel(kind, 9000, seed=33)
    case = make_verification(vocab_size=9000, seed=34, map_kind=map_kind, batch_size=6, noise=3.0)
    keywords = {**case.keywords, "rule": rule}
    bare = ops.rejection_sample(*case.positional, **keywords, kernel=kernel)
    indexed = ops.rejection_sample(*case.positional, **keywords, kernel=kernel.indexed())
    assert all(torch.equal(one, other) for one, other in zip(bare, indexed, strict=True))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("parameters", ["plain", "all"])
def test_what_draft_sample_saved_gives_the_same_output(parameters, kind, rule):
    kernel = make_kernel(kind, 300, seed=6)
    draft_to_target, target_to_draft = make_map("partial", 300, seed=7)
    keywords = make_parameters(parameters, 1)
    target, logits = make_logits(18, 300, seed=8), make_logits(12, 300, seed=9)
    draft = ops.draft_sample(
        logits, draft_to_target, **keywords, kernel=kernel, seeds=torch.arange(12), positions=torch.arange(12)
    )
    arguments = (target, draft.target_token_ids, make_cu([2] * 6), 2)
    keywords |= {"draft_logits": logits, "target_to_draft_ids": target_to_draft, "kernel": kernel, "rule": rule}
    keywords |= {"seeds": torch.arange(6), "positions": torch.arange(6)}
    saved = ops.rejection_sample(*arguments, **keywords, draft_stats=draft.stats, draft_leaked_mass=draft.leaked_mass)
    assert all(torch.equal(a, b) for a, b in zip(saved, ops.rejection_sample(*arguments, **keywords), strict=True))
    assert not (saved.status & ~Status.RESIDUAL_EMPTY).any()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", ["per_token_mix", "low_rank"])
def test_what_is_handed_over_is_what_is_tested_with(kind, rule):
    """Another number in its place bends the verdicts: nobody sums again what was saved."""
    kernel = make_kernel(kind, 40, seed=6)
    target, logits = make_logits(3 * 40, 40, seed=8), make_logits(2 * 40, 40, seed=9)
    keys = {"seeds": torch.arange(80), "positions": torch.arange(80)}
    draft = ops.draft_sample(logits, kernel=kernel, **keys)
    arguments = (target, draft.target_token_ids, make_cu([2] * 40), 2)
    keywords = {"draft_logits": logits, "kernel": kernel, "rule": rule}
    keywords |= {"seeds": torch.arange(40), "positions": torch.arange(40)}
    saved = ops.rejection_sample(*arguments, **keywords, draft_leaked_mass=draft.leaked_mass)
    other = ops.rejection_sample(*arguments, **keywords, draft_leaked_mass=3.0 * draft.leaked_mass)
    assert not torch.equal(saved.output_token_ids, other.output_token_ids)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("vocab_size", "num_factors", "batch_size"), [(300, 257, 8), (9000, 67, 1), (33_000, 3, 1)])
def test_low_rank_kernels_of_many_chunks_and_factors(vocab_size, num_factors, batch_size, rule):
    kernel = make_kernel("low_rank", vocab_size, seed=41, num_factors=num_factors)
    case = make_verification(
        vocab_size=vocab_size, seed=42, map_kind="narrower", batch_size=batch_size, max_draft_tokens=2
    )
    assert_matches_reference(redrawn(case, kernel, seed=43), kernel, rule)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("factor", [math.nan, math.inf, -1e30])
def test_low_rank_factors_that_make_no_law_stay_in_bounds(factor, rule):
    kernel = make_kernel("low_rank", 4, seed=19).changed(factors=torch.full((4, 3), factor), scale=1e30)
    case = make_verification(vocab_size=4, seed=20, batch_size=8, noise=3.0)
    out = ops.rejection_sample(*case.positional, **case.keywords, kernel=kernel, rule=rule)
    assert int(out.output_token_ids.min()) >= -1 and int(out.output_token_ids.max()) < 4


@pytest.mark.parametrize("name", list(identities(5)))
@pytest.mark.parametrize("rule", RULES)
def test_a_kernel_that_moves_nothing_gives_the_same_bits(rule, name):
    for vocab_size, map_kind, dtype in ((4700, "partial", torch.bfloat16), (1003, None, torch.float32)):
        kernel = identities(vocab_size)[name]
        case = make_verification(
            vocab_size=vocab_size, seed=11, dtype=dtype, parameters="per_request", map_kind=map_kind, batch_size=8
        )
        plain = ops.rejection_sample(*case.positional, **case.keywords, rule=rule)
        moved = ops.rejection_sample(*case.positional, **case.keywords, kernel=kernel, rule=rule)
        assert all(torch.equal(one, other) for one, other in zip(plain, moved, strict=True))


# -- the probability that a draft is tested with is the one that draft_sample reported


def even_probability(size):
    """Float32 probability of an id under an even target law, as the op has it: a one-hot draft is kept below it."""
    low, high = 0.0, 1.0
    for _ in range(54):
        middle = (low + high) / 2
        uniforms = torch.tensor([[middle, 0.5]] * 2, dtype=torch.float64)
        out = ops.rejection_sample(torch.zeros(2, size), ids(0), ids(0, 1), 1, uniform_samples=uniforms)
        low, high = (middle, high) if out.num_accepted_tokens == 1 else (low, middle)
    return high


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("saved", [True, False])
def test_the_probability_that_is_tested_is_the_one_that_was_drawn_from_bit_for_bit(saved, kind):
    batch, size = 24, 40
    kernel = make_kernel(kind, size, seed=12)
    draft_to_target, target_to_draft = make_map("narrower", size, seed=13)
    logits = make_logits(batch, len(draft_to_target), seed=14)
    draft = ops.draft_sample(
        logits, draft_to_target, kernel=kernel, seeds=torch.arange(batch), positions=torch.arange(batch)
    )
    keywords = {"draft_logits": logits, "target_to_draft_ids": target_to_draft, "kernel": kernel}
    if saved:
        keywords |= {"draft_stats": draft.stats, "draft_leaked_mass": draft.leaked_mass}
    threshold = even_probability(size) / draft.probs.double()
    decided = threshold < 1.0  # elsewhere the target has more than the draft: always accepted
    assert decided.sum() > 10
    # A unit in the last place of a float32 moves the threshold by 6e-8 of itself.
    for factor, expected in ((1 - 1e-9, 1), (1 + 1e-9, 0)):
        uniforms = torch.full((2 * batch, 2), 0.5, dtype=torch.float64)
        uniforms[::2, 0] = threshold * factor
        cu = torch.arange(batch + 1, dtype=torch.int32)
        out = ops.rejection_sample(
            torch.zeros(2 * batch, size), draft.target_token_ids, cu, 1, uniform_samples=uniforms, **keywords
        )
        assert (out.num_accepted_tokens[decided] == expected).all()


# -- law


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", KINDS)
def test_output_law_is_the_targets_law_exactly(kind, rule):
    for case in laws.SMALL_CASES:
        size = len(case.target(()))
        kernel = make_kernel(kind, size, seed=16)

        def draft_law(prefix, case=case, kernel=kernel):
            return redistribute(case.draft(prefix), kernel)

        def sampler(target, draft_ids, cu, most, kernel=kernel, **keywords):
            return ops.rejection_sample(target, draft_ids, cu, most, kernel=kernel, **keywords)

        arguments = (case.target, draft_law, case.num_draft_tokens, rule)
        law = law_by_cells(sampler, *arguments, from_logits=True, drafter_law=case.draft)
        laws.assert_target_law(law, case.target, case.num_draft_tokens + 1, 1e-6)
        laws.assert_same_law(law, output_law.output_law(*arguments), 1e-6)


def test_the_enumeration_meets_clamped_weights():
    """Of a low-rank kernel: what was negative is no probability, and is missing from none."""
    clamped = []
    for case in laws.SMALL_CASES:
        law = case.draft(())
        parts = make_kernel("low_rank", len(law), seed=16).parts
        factors = parts.factors.double().numpy()
        clamped.append(float((-(1.0 + parts.scale * (factors @ (factors.T @ law)))).clip(min=0).sum()))
    assert max(clamped) > 0.5


def test_a_kernel_that_is_not_declared_bends_the_law():
    """The negative control of the enumeration above: drafts of the kernel's law, tested as the drafter's own."""
    case = laws.CASES[1]
    kernel = make_kernel("mix", 3, seed=16)
    law = law_by_cells(
        ops.rejection_sample,
        case.target,
        lambda prefix: redistribute(case.draft(prefix), kernel),
        2,
        "token",
        from_logits=True,
        drafter_law=case.draft,
    )
    with pytest.raises(AssertionError):
        laws.assert_target_law(law, case.target, 3, 1e-3)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_proposal_and_its_verification_with_one_seed_and_position_keep_the_law(kind, rule):
    trials, target = 60_000, [0.1, 0.5, 0.3, 0.1]
    drafter = log_probs([[0.6, 0.4]]).expand(trials, -1)
    kernel = make_kernel(kind, 4, seed=17)
    draft_to_target, target_to_draft = ids(2, 0), ids(1, -1, 0, -1)
    keys = {"seeds": torch.full((trials,), 99), "positions": torch.arange(trials)}
    draft = ops.draft_sample(drafter, draft_to_target, kernel=kernel, target_to_draft_ids=target_to_draft, **keys)
    arguments = (
        log_probs([target]).expand(2 * trials, -1),
        draft.target_token_ids,
        torch.arange(trials + 1, dtype=torch.int32),
        1,
    )
    keywords = {"draft_logits": drafter, "target_to_draft_ids": target_to_draft, "rule": rule, **keys}
    out = ops.rejection_sample(
        *arguments, **keywords, kernel=kernel, draft_stats=draft.stats, draft_leaked_mass=draft.leaked_mass
    )
    assert not out.status.any()
    assert not chi_square.departs(torch.bincount(out.output_token_ids[:, 0], minlength=4).tolist(), target)
    if rule == "block":  # it draws from the target where the declared law has no such token: hardly a wrong law
        return
    undeclared = ops.rejection_sample(*arguments, **keywords)
    assert chi_square.departs(torch.bincount(undeclared.output_token_ids[:, 0], minlength=4).tolist(), target)


# -- by hand, and edges


def test_a_draft_outside_the_drafters_vocabulary_by_hand():
    # The drafter knows id 0 only; half of its mass goes to ids 1 and 2: draft = (.5, .25, .25).
    kernel = Kernel(3, with_prior(torch.tensor([0.0, 0.5, 0.5]), constant_leak=0.5))
    target = log_probs([[0.2, 0.125, 0.675]] * 2)
    keywords = {"draft_logits": torch.zeros(1, 1), "target_to_draft_ids": ids(0, -1, -1), "kernel": kernel}
    # Accepted below .125 / .25; the residual is (0, 0, .425).
    for accept, expected, accepted in ((0.49, [1, 2], 1), (0.51, [2, -1], 0)):
        uniforms = torch.tensor([[accept, 0.4], [0.0, 0.9]], dtype=torch.float64)
        out = ops.rejection_sample(target, ids(1), ids(0, 1), 1, uniform_samples=uniforms, **keywords)
        assert out.output_token_ids.tolist() == [expected] and out.num_accepted_tokens.tolist() == [accepted]
    # Without the kernel the same draft has probability 0.
    del keywords["kernel"]
    out = ops.rejection_sample(target, ids(1), ids(0, 1), 1, uniform_samples=uniforms, **keywords)
    assert out.status.tolist() == [Status.DRAFT_ZERO]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bad", [math.nan, -math.inf])
def test_draft_rows_without_a_law_have_no_probability_to_redistribute(bad, kind, rule):
    draft = torch.full((1, 4), bad)
    uniforms = torch.tensor([[0.0, 0.99], [0.0, 0.99]], dtype=torch.float64)
    out = ops.rejection_sample(
        torch.zeros(2, 4),
        ids(1),
        ids(0, 1),
        1,
        draft_logits=draft,
        kernel=make_kernel(kind, 4, seed=18),
        uniform_samples=uniforms,
        rule=rule,
    )
    assert out.output_token_ids.tolist() == [[3, -1]]
    assert out.num_accepted_tokens.tolist() == [0]
    assert int(out.status) & Status.DRAFT_ZERO


@pytest.mark.parametrize("rule", RULES)
def test_broken_kernels_stay_in_bounds(rule):
    far = 2**31 - 1
    rows = sparse_rows([{1: 0.5, 2: 0.5}, {}, {}, {}])
    kernel = make_kernel("general", 4, seed=19).changed(spread=torch.ones(4), **rows)
    case = make_verification(vocab_size=4, seed=20, batch_size=8, noise=3.0)
    for changes in (
        {"column_ids": ids(far, -1), "source_ids": ids(-far, far)},
        {"row_offsets": ids(-far, far, -far, far, 3), "source_offsets": ids(far, -far, far, -far, far)},
        {"prior": torch.full((4,), math.nan)},
        {"spread": torch.full((4,), math.nan), "weights": torch.full((2,), math.inf)},
        {"spreading_ids": ids(far, -1, 0), "entry_target_ids": ids(-far, far), "entry_source_numbers": ids(far, -far)},
        {"spreading_ids": ids(3, 2, 0), "entry_target_ids": ids(3, 4), "entry_source_numbers": ids(2, 3)},
        {"spreading_ids": ids(), "entry_target_ids": ids(0, 0), "entry_source_numbers": ids(0, 0)},
    ):
        out = ops.rejection_sample(*case.positional, **case.keywords, kernel=kernel.changed(**changes), rule=rule)
        assert int(out.output_token_ids.min()) >= -1 and int(out.output_token_ids.max()) < 4


@pytest.mark.parametrize("rule", RULES)
def test_more_stops_at_once_than_scratch_is_held_for(rule):
    kernel = make_kernel("general", 50, seed=21)
    case = make_verification(vocab_size=50, seed=22, batch_size=40, noise=3.0)
    assert_matches_reference(redrawn(case, kernel, seed=23), kernel, rule)


_GOOD = {
    "target_logits": torch.zeros(3, 4),
    "draft_token_ids": ids(0, 1),
    "cu_num_draft_tokens": ids(0, 2),
    "max_draft_tokens": 2,
    "draft_logits": torch.zeros(2, 4),
    "kernel": make_kernel("general", 4, seed=24),
    "draft_leaked_mass": torch.zeros(2),
    "uniform_samples": torch.zeros(3, 2, dtype=torch.float64),
}


@pytest.mark.parametrize(
    ("error", "match", "changes"),
    [
        (ValueError, "kernel must be over the target's 4 ids", {"kernel": make_kernel("mix", 5, seed=1)}),
        (TypeError, "kernel must be an RDK kernel", {"kernel": "mix"}),
        (ValueError, "kernel must be given together with draft_logits", {"draft_logits": None}),
        (ValueError, "draft_leaked_mass must be given together with kernel", {"kernel": None}),
        (ValueError, "draft_leaked_mass must be", {"draft_leaked_mass": torch.zeros(3)}),
        (TypeError, "draft_leaked_mass must be", {"draft_leaked_mass": torch.zeros(2).double()}),
        (ValueError, "draft_leaked_mass must be of shape .2, 5.", {"kernel": make_kernel("low_rank", 4, seed=24)}),
        (
            ValueError,
            "draft_leaked_mass must be of shape .2, 5.",
            {"kernel": make_kernel("low_rank", 4, seed=24), "draft_leaked_mass": torch.zeros(2, 4)},
        ),
        (
            ValueError,
            "draft_leaked_mass must be contiguous",
            {"kernel": make_kernel("low_rank", 4, seed=24), "draft_leaked_mass": torch.zeros(5, 2).t()},
        ),
        (ValueError, "draft_leaked_mass must be of shape .2.", {"draft_leaked_mass": torch.zeros(2, 5)}),
        (
            ValueError,
            "kernel.factors must be of shape .4, any.",
            {"kernel": make_kernel("low_rank", 5, seed=24)._replace(vocab_size=4), "draft_leaked_mass": None},
        ),
    ],
)
def test_bad_arguments_are_named(error, match, changes):
    assert ops.rejection_sample(**_GOOD).status.tolist() == [0]
    with pytest.raises(error, match=f"rejection_sample: {match}"):
        ops.rejection_sample(**{**_GOOD, **changes})


# -- acceptance_overlap


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("vocab_size", "parameters"), [(2, "plain"), (17, "all"), (300, "per_request")])
def test_overlap_equals_the_reference(vocab_size, parameters, kind):
    kernel = make_kernel(kind, vocab_size, seed=25)
    draft_to_target, target_to_draft = make_map("partial", vocab_size, seed=26)
    target, draft = make_logits(20, vocab_size, seed=27), make_logits(20, vocab_size, seed=28)
    keywords = {**make_parameters(parameters, 20), "target_to_draft_ids": target_to_draft, "kernel": kernel}
    overlap = ops.acceptance_overlap(target, draft, **keywords)
    expected = reference.acceptance_overlap(target, draft, **keywords)
    if parameters == "plain":
        torch.testing.assert_close(overlap.double(), expected, rtol=2e-5, atol=1e-6)
    else:  # where top-p ends within rounding of a boundary, op and reference may keep another number of ids
        assert torch.isclose(overlap.double(), expected, rtol=2e-5, atol=1e-6).double().mean() > 0.7
    stats = ops.row_stats(draft, draft_to_target_ids=draft_to_target, **make_parameters(parameters, 20))
    again = ops.acceptance_overlap(target, draft, **keywords, draft_stats=stats)
    torch.testing.assert_close(again, overlap, rtol=0, atol=0)


@pytest.mark.parametrize("map_kind", [None, "partial"])
def test_overlap_with_sparse_rows_over_many_chunks(map_kind):
    kernel = make_kernel("general", 9000, seed=35).indexed()
    _, target_to_draft = make_map(map_kind, 9000, seed=36) if map_kind else (None, None)
    target, draft = make_logits(2, 9000, seed=37), make_logits(2, 9000, seed=38)
    keywords = {"target_to_draft_ids": target_to_draft, "kernel": kernel}
    overlap = ops.acceptance_overlap(target, draft, **keywords)
    expected = reference.acceptance_overlap(target, draft, **keywords)
    torch.testing.assert_close(overlap.double(), expected, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", list(identities(5)))
def test_overlap_with_a_kernel_that_moves_nothing_has_the_same_bits(name):
    target, draft = make_logits(3, 4700, seed=29), make_logits(3, 4700, seed=30)
    plain = ops.acceptance_overlap(target, draft)
    assert torch.equal(ops.acceptance_overlap(target, draft, kernel=identities(4700)[name]), plain)


@pytest.mark.parametrize("kind", KINDS)
def test_overlap_of_rows_without_a_law_is_nan(kind):
    draft = torch.stack([torch.full((4,), math.nan), torch.full((4,), -math.inf), torch.zeros(4)])
    overlap = ops.acceptance_overlap(torch.zeros(3, 4), draft, kernel=make_kernel(kind, 4, seed=31))
    assert overlap.isnan().tolist() == [True, True, False]
