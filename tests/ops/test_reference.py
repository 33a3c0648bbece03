# SPDX-License-Identifier: Apache-2.0
"""The references against known answers, hand-worked cases and exact enumeration: nothing compiled is needed here."""

import math

import numpy as np
import pytest
import torch

from hetero_spec import reference
from hetero_spec.reference import inverse_cdf, output_law, philox
from hetero_spec.reference.row_law import Parameters, probs_of_row, stats_of_row
from hetero_spec.reference.verification import Status
from tests.tools import chi_square, laws
from tests.tools.inputs import make_cu, make_verification
from tests.tools.law import law_by_cells, log_probs


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_known_answers_of_its_authors(counter, key, expected):
    assert philox.philox4x32(counter, key) == expected


def test_uniform_uses_all_words_of_seed_position_and_stream():
    base = philox.uniform(1, 2, 0)
    assert base == philox.uniform(1, 2, 0)
    others = [(1 + 2**40, 2, 0), (1, 2 + 2**40, 0), (1, 2, 1), (2, 2, 0), (1, 3, 0), (-1, 2, 0)]
    assert len({base, *(philox.uniform(*other) for other in others)}) == 7
    assert philox.uniform(0, 0, 0) == float(0x6627E8D5E169C58D >> 11) / 2**53


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        (Parameters(1.0, 0, 1.0, 0.0), [0.4, 0.2, 0.2, 0.1, 0.1]),
        (Parameters(1.0, 1, 1.0, 0.0), [1.0, 0, 0, 0, 0]),
        (Parameters(1.0, 2, 1.0, 0.0), [0.5, 0.25, 0.25, 0, 0]),  # the tie at the second place is kept
        (Parameters(1.0, 0, 0.5, 0.0), [0.5, 0.25, 0.25, 0, 0]),
        (Parameters(1.0, 0, 0.39, 0.0), [1.0, 0, 0, 0, 0]),
        (Parameters(1.0, 0, 0.81, 0.0), [0.4, 0.2, 0.2, 0.1, 0.1]),
        (Parameters(1.0, 3, 0.45, 0.0), [1.0, 0, 0, 0, 0]),  # top-p of what top-k left: .45 * .8 < .4
        (Parameters(1.0, 0, 1.0, 0.3), [0.5, 0.25, 0.25, 0, 0]),  # .1 is below .3 of .4
        (Parameters(1.0, 0, 1.0, 1.0), [1.0, 0, 0, 0, 0]),
        (Parameters(0.0, 0, 1.0, 0.0), [1.0, 0, 0, 0, 0]),
        (Parameters(0.5, 0, 1.0, 0.0), [16 / 26, 4 / 26, 4 / 26, 1 / 26, 1 / 26]),
    ],
)
def test_row_law_of_five_tokens_by_hand(parameters, expected):
    logits = np.log(np.array([4.0, 2.0, 2.0, 1.0, 1.0])).astype(np.float32).astype(np.float64)
    law = probs_of_row(logits, stats_of_row(logits, parameters))
    np.testing.assert_allclose(law, expected, rtol=1e-7)


def test_row_law_of_special_rows():
    nan, inf = math.nan, math.inf
    plain = Parameters(1.0, 0, 1.0, 0.0)
    for bad in ([0.0, nan], [0.0, inf]):
        assert stats_of_row(np.array(bad), plain).is_invalid
        assert not stats_of_row(np.array(bad), plain, np.array([True, False])).is_invalid
    assert stats_of_row(np.array([-inf, -inf]), plain) == (-inf, 1.0, -inf, inf)
    assert stats_of_row(np.array([1.0, 3.0, 3.0]), plain._replace(temperature=0.0)) == (3.0, inf, 1.0, 3.0)
    assert stats_of_row(np.array([1.0, 3.0, 3.0]), plain._replace(temperature=1e-40)) == (3.0, inf, 1.0, 3.0)
    for bad_value in (
        {"temperature": -1.0},
        {"temperature": nan},
        {"temperature": inf},
        {"top_p": 0.0},
        {"min_p": 1.5},
        {"min_p": nan},
    ):
        assert stats_of_row(np.array([0.0, 1.0]), plain._replace(**bad_value)).is_invalid


def test_inverse_cdf_skips_ids_without_weight_and_ends_inside_the_support():
    weights = np.array([0.0, 2.0, 0.0, 1.0, 1.0, 0.0])
    assert [inverse_cdf.sample(weights, u) for u in (0.0, 0.49, 0.5, 0.74, 0.75, 1 - 2**-53)] == [1, 1, 3, 3, 4, 4]
    assert inverse_cdf.sample(np.array([1e-300, 3.0, 0.0]), 1.0) == 1
    assert inverse_cdf.ids_near(weights, 0.5, 1e-6) == {1, 3}
    assert inverse_cdf.ids_near(weights, 0.6, 1e-6) == {3}


@pytest.mark.parametrize("rule", ["token", "block"])
@pytest.mark.parametrize("case", laws.CASES, ids=lambda case: case.name)
def test_output_law_is_the_targets_law_by_enumeration(case, rule):
    law = output_law.output_law(case.target, case.draft, case.num_draft_tokens, rule)
    assert math.isclose(sum(law.values()), 1.0, abs_tol=1e-12)
    laws.assert_target_law(law, case.target, case.num_draft_tokens + 1, 1e-12)


@pytest.mark.parametrize("rule", ["token", "block"])
@pytest.mark.parametrize("case", laws.SMALL_CASES, ids=lambda case: case.name)
def test_reference_sampler_has_the_enumerated_output_law(case, rule):
    exact = output_law.output_law(case.target, case.draft, case.num_draft_tokens, rule)
    for from_logits, sampler in ((True, reference.rejection_sample), (False, reference.rejection_sample_probs)):
        law = law_by_cells(sampler, case.target, case.draft, case.num_draft_tokens, rule, from_logits=from_logits)
        laws.assert_same_law(law, exact, 1e-6)


def test_output_law_notices_drafts_from_another_law_than_declared():
    case = laws.SMALL_CASES[0]
    law = law_by_cells(
        lambda target, ids, cu, most, *, draft_logits, **keywords: reference.rejection_sample(
            target, ids, cu, most, draft_logits=draft_logits.flip(1), **keywords
        ),
        case.target,
        case.draft,
        case.num_draft_tokens,
        "token",
        from_logits=True,
    )
    with pytest.raises(AssertionError):
        laws.assert_target_law(law, case.target, case.num_draft_tokens + 1, 1e-3)


def test_block_rule_accepts_eleven_ninths_and_token_rule_ten_ninths():
    target, draft = laws.constant([1 / 3, 2 / 3]), laws.constant([2 / 3, 1 / 3])
    means = {
        rule: output_law.expected_accepted(output_law.output_law(target, draft, 2, rule)) for rule in ("token", "block")
    }
    assert means == pytest.approx({"token": 10 / 9, "block": 11 / 9}, rel=1e-12)


@pytest.mark.parametrize("case", laws.CASES, ids=lambda case: case.name)
def test_block_rule_never_accepts_fewer_tokens(case):
    token, block = (
        output_law.expected_accepted(output_law.output_law(case.target, case.draft, case.num_draft_tokens, rule))
        for rule in ("token", "block")
    )
    assert block >= token - 1e-12


def test_block_rule_gains_nothing_for_one_hot_drafts():
    target, draft = laws.constant([0.2, 0.5, 0.3]), laws.constant([0.0, 1.0, 0.0])
    token, block = (output_law.output_law(target, draft, 2, rule) for rule in ("token", "block"))
    assert output_law.expected_accepted(block) == pytest.approx(output_law.expected_accepted(token), rel=1e-12)


def test_verification_by_hand():
    # Target rows .5 .5 | .25 .75 | 0 1; the drafter proposes 0 (probability .8), then 1 (.6).
    target = log_probs([[0.5, 0.5], [0.25, 0.75], [0.0, 1.0]])
    draft = log_probs([[0.8, 0.2], [0.4, 0.6]])
    ids = torch.tensor([0, 1], dtype=torch.int32)

    def outcome(*uniforms):
        out = reference.rejection_sample(
            target, ids, make_cu([2]), 2, draft_logits=draft, uniform_samples=torch.tensor(uniforms).double()
        )
        return out.output_token_ids[0].tolist(), int(out.num_accepted_tokens[0]), int(out.status[0])

    assert outcome((0.62, 0.0), (0.99, 0.0), (0.0, 0.3)) == ([0, 1, 1], 2, 0)  # .62 < .5 / .8
    assert outcome((0.63, 0.0), (0.0, 0.0), (0.0, 0.0)) == ([1, -1, -1], 0, 0)  # the residual is all on id 1


def test_statuses_of_the_reference():
    nan, inf = math.nan, math.inf
    rows = torch.tensor([[nan, 1.0, 2.0], [-inf, -inf, -inf], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0]])
    uniforms = torch.full((4, 2), 0.5, dtype=torch.float64)
    out = reference.rejection_sample(
        rows, torch.tensor([7], dtype=torch.int32), make_cu([0, 0, 1]), 1, uniform_samples=uniforms
    )
    assert out.output_token_ids.tolist() == [[2, -1], [0, -1], [1, -1]]
    assert out.status.tolist() == [Status.TARGET_NAN, Status.TARGET_EMPTY, Status.DRAFT_OUT_OF_RANGE]


def test_inputs_of_the_op_tests_give_every_number_of_accepted_tokens():
    seen = set()
    for seed in range(8):
        case = make_verification(vocab_size=17, seed=seed)
        seen |= set(reference.rejection_sample(*case.positional, **case.keywords).num_accepted_tokens.tolist())
    assert seen == {0, 1, 2, 3}


def test_chi_square_passes_its_own_law_and_fails_another():
    law = np.array([0.5, 0.3, 0.2])
    counts = np.random.default_rng(1).multinomial(100_000, law)
    assert not chi_square.departs(counts, law)
    assert chi_square.departs(counts, [0.48, 0.32, 0.2])
    assert chi_square.departs([10, 0, 1], [0.5, 0.5, 0.0])
    low, high = chi_square.hits_limits(100_000, 1e-3)
    assert 35 < low < 100 < high < 180
