# SPDX-License-Identifier: Apache-2.0
import math

import pytest
import torch

from hetero_spec import ops, reference
from hetero_spec.ops import Status
from hetero_spec.reference import output_law, philox
from hetero_spec.reference.rejection_sample import rejection_sample_verdicts
from tests.tools import chi_square, laws
from tests.tools.compare import assert_verdicts_match
from tests.tools.inputs import (
    DTYPES,
    MAP_KINDS,
    PARAMETER_SETS,
    SMALL_VOCAB_SIZES,
    generator,
    make_cu,
    make_lengths,
    make_verification,
)
from tests.tools.law import law_by_cells, log_probs

INF, NAN = math.inf, math.nan
RULES = ["token", "block"]
ONE = torch.zeros(1, 3)


def ids(*values):
    return torch.tensor(values, dtype=torch.int32)


def pairs(*values):
    return torch.tensor(values, dtype=torch.float64).reshape(-1, 2)


def assert_matches_reference(case, rule, **changes):
    keywords = {**case.keywords, **changes, "rule": rule}
    out = ops.rejection_sample(*case.positional, **keywords)
    assert_verdicts_match(out, rejection_sample_verdicts, case.positional, keywords)
    return out


def run(target, draft_ids, lengths, uniforms, *, most=None, **keywords):
    """Outputs, accepted counts and statuses as lists."""
    most = max([*lengths, 0]) if most is None else most
    out = ops.rejection_sample(target, draft_ids, make_cu(lengths), most, uniform_samples=uniforms, **keywords)
    return out.output_token_ids.tolist(), out.num_accepted_tokens.tolist(), out.status.tolist()


# -- against the reference, with the same uniforms


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("parameters", ["plain", "all", "per_request"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("vocab_size", SMALL_VOCAB_SIZES)
def test_output_equals_reference(vocab_size, dtype, parameters, rule):
    case = make_verification(vocab_size=vocab_size, seed=vocab_size, dtype=dtype, parameters=parameters)
    assert_matches_reference(case, rule)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("parameters", PARAMETER_SETS)
def test_output_equals_reference_for_every_parameter(parameters, rule):
    for seed in range(3):
        case = make_verification(vocab_size=257, seed=seed, batch_size=8, parameters=parameters, map_kind="partial")
        assert_matches_reference(case, rule)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", MAP_KINDS)
def test_output_equals_reference_for_every_kind_of_map(kind, dtype, rule):
    for seed, vocab_size in ((1, 17), (2, 1003)):
        case = make_verification(vocab_size=vocab_size, seed=seed, dtype=dtype, parameters="per_request", map_kind=kind)
        assert_matches_reference(case, rule)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("max_draft_tokens", range(8))
def test_output_equals_reference_for_every_draft_length(max_draft_tokens, rule):
    for seed in range(3):
        case = make_verification(vocab_size=17, seed=seed, batch_size=10, max_draft_tokens=max_draft_tokens, noise=0.3)
        assert_matches_reference(case, rule)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("parameters", ["plain", "per_request"])
@pytest.mark.parametrize("vocab_size", [3, 1003])
def test_output_equals_reference_for_one_hot_drafts(vocab_size, parameters, rule):
    for seed in range(4):
        case = make_verification(vocab_size=vocab_size, seed=seed, parameters=parameters, one_hot=True)
        assert_matches_reference(case, rule)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("vocab_size", "dtype"),
    [(32000, torch.float32), (32000, torch.bfloat16), (128256, torch.bfloat16), (151936, torch.float16)],
    ids=str,
)
def test_output_equals_reference_for_a_large_vocabulary(vocab_size, dtype, rule):
    parameters = "plain" if vocab_size == 151936 else "all"
    case = make_verification(
        vocab_size=vocab_size,
        seed=1,
        batch_size=2,
        max_draft_tokens=2,
        dtype=dtype,
        parameters=parameters,
        map_kind="partial",
    )
    assert_matches_reference(case, rule)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("parameters", ["plain", "all", "per_request"])
@pytest.mark.parametrize("kind", [None, "partial"])
def test_saved_draft_stats_give_the_same_output_as_none(kind, parameters, rule):
    case = make_verification(vocab_size=1003, seed=3, parameters=parameters, map_kind=kind, batch_size=8)
    owners = [request for request, length in enumerate(case.lengths) for _ in range(length)]
    per_draft = {
        name: value[owners] if isinstance(value, torch.Tensor) else value
        for name, value in case.keywords.items()
        if name in ("temperature", "top_k", "top_p", "min_p")
    }
    draft_logits = case.keywords["draft_logits"]
    draft_to_target = None
    if kind:
        draft_to_target = torch.full((draft_logits.shape[1],), -1, dtype=torch.int32)
        for token_id, draft_id in enumerate(case.keywords["target_to_draft_ids"].tolist()):
            if draft_id >= 0:
                draft_to_target[draft_id] = token_id
    stats = ops.row_stats(draft_logits, draft_to_target_ids=draft_to_target, **per_draft)
    saved = assert_matches_reference(case, rule, draft_stats=stats)
    for one, other in zip(saved, ops.rejection_sample(*case.positional, **case.keywords, rule=rule), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("rule", RULES)
def test_saved_draft_stats_may_come_from_other_parameters_than_the_targets(rule):
    for seed in range(4):
        case = make_verification(vocab_size=257, seed=seed, noise=0.4)
        stats = ops.row_stats(case.keywords["draft_logits"], temperature=1.7)
        saved = assert_matches_reference(case, rule, draft_stats=stats)
        if any(not torch.equal(a, b) for a, b in zip(saved, assert_matches_reference(case, rule), strict=True)):
            return
    pytest.fail("saved stats made no difference in any batch")


@pytest.mark.parametrize("rule", RULES)
def test_seeds_and_positions_give_the_uniforms_of_philox(rule):
    case = make_verification(vocab_size=1003, seed=5, batch_size=5, parameters="hot")
    seeds = torch.tensor([0, -1, 12345678901234, 3, 2**63 - 1])
    positions = torch.tensor([0, 7, 2**32 - 1, 2**40, 9])
    uniforms = [
        [philox.uniform(int(seeds[b]), int(positions[b]) + j, stream) for stream in (1, 2)]
        for b, length in enumerate(case.lengths)
        for j in range(length + 1)
    ]
    keywords = {**case.keywords, "uniform_samples": pairs(*uniforms), "rule": rule}
    seeded = {key: value for key, value in keywords.items() if key != "uniform_samples"}
    out = ops.rejection_sample(*case.positional, **seeded, seeds=seeds, positions=positions)
    assert_verdicts_match(out, rejection_sample_verdicts, case.positional, keywords)
    given = ops.rejection_sample(*case.positional, **keywords)
    assert all(torch.equal(one, other) for one, other in zip(out, given, strict=True))


# -- by hand

# The drafter's law is [.5, .5]; targets: both even, then all on id 1, then all on id 0.
TARGETS = log_probs([[0.5, 0.5], [0.0, 1.0], [1.0, 0.0]])
EVEN = log_probs([[0.5, 0.5]] * 2)


@pytest.mark.parametrize(
    ("drafts", "expected", "accepted"),
    [
        ([0, 1], [0, 1, 0], 2),  # both kept, then the bonus
        ([1, 1], [1, 1, 0], 2),
        ([0, 0], [0, 1, -1], 1),  # the second has target probability 0
    ],
)
def test_ids_by_hand(drafts, expected, accepted):
    for uniform in (0.0, 0.5, 1 - 2**-53):
        out = run(TARGETS, ids(*drafts), [2], pairs(*[[uniform, uniform]] * 3), draft_logits=EVEN)
        assert out == ([expected], [accepted], [0])


def test_first_draft_rejected_by_hand():
    target, draft = log_probs([[0.1, 0.5, 0.4]] * 2), log_probs([[0.6, 0.3, 0.1]])
    # Threshold .1 / .6; the residual is [0, .2, .3].
    for accept, resample, expected in ((0.16, 0.9, [0, 2]), (0.17, 0.39, [1, -1]), (0.17, 0.41, [2, -1])):
        out = run(target, ids(0), [1], pairs([accept, resample], [0.0, 0.9]), draft_logits=draft)
        assert out == ([expected], [1 if accept < 1 / 6 else 0], [0])


def test_ragged_batch_by_hand():
    target = torch.cat([TARGETS, TARGETS[1:2], TARGETS[:2]])
    uniforms = torch.zeros(6, 2, dtype=torch.float64)
    out = run(target, ids(0, 1, 0), [2, 0, 1], uniforms, draft_logits=log_probs([[0.5, 0.5]] * 3))
    assert out == ([[0, 1, 0], [1, -1, -1], [0, 1, -1]], [2, 0, 1], [0, 0, 0])


def test_one_hot_draft_by_hand():
    target = log_probs([[0.3, 0.5, 0.2], [0.0, 0.0, 1.0]])
    assert run(target, ids(0), [1], pairs([0.29, 0.0], [0, 0])) == ([[0, 2]], [1], [0])
    # Rejected: the target's law without the draft, .5 : .2.
    assert run(target, ids(0), [1], pairs([0.31, 0.71], [0, 0])) == ([[1, -1]], [0], [0])
    assert run(target, ids(0), [1], pairs([0.31, 0.72], [0, 0])) == ([[2, -1]], [0], [0])


def test_block_rule_by_hand():
    # Ratios 1/2 and 2 : prefix 1, .5, 1. One token is kept with S / (S + .5), S = (.5 * 2/3 - 1/3)+ + ... = 0.
    target, draft = log_probs([[1 / 3, 2 / 3]] * 3), log_probs([[2 / 3, 1 / 3]] * 2)
    # Drafts 0, 1: P1 = .5, P2 = 1, so both are always kept, though the token rule drops the first with u >= .5.
    kept = run(target, ids(0, 1), [2], pairs([0.9, 0], [0.99, 0], [0, 0.5]), draft_logits=draft, rule="block")
    assert kept == ([[0, 1, 1]], [2], [0])
    dropped = run(target, ids(0, 1), [2], pairs([0.9, 0], [0.99, 0], [0, 0.5]), draft_logits=draft)
    assert dropped == ([[1, -1, -1]], [0], [0])
    # Drafts 1, 0: P1 = 1, h1 = S1 / S1 = 1 so the first is always kept; P2 = .5 = h2.
    for uniform, expected in ((0.49, [1, 0, 0]), (0.51, [1, 1, -1])):
        out = run(target, ids(1, 0), [2], pairs([0.99, 0], [uniform, 0], [0, 0]), draft_logits=draft, rule="block")
        assert out[0] == [expected]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2**-53])
def test_draft_of_the_targets_own_law_is_always_kept(uniform, rule):
    case = make_verification(vocab_size=1003, seed=6, one_hot=True)
    rows = [token + request for request, length in enumerate(case.lengths) for token in range(length)]
    rows = []
    for request, (begin, end) in enumerate(
        zip(case.cu_num_draft_tokens[:-1], case.cu_num_draft_tokens[1:], strict=True)
    ):
        rows += range(int(begin) + request, int(end) + request)
    draft_ids = case.target_logits[rows].argmax(-1).to(torch.int32)
    out = ops.rejection_sample(
        case.target_logits,
        draft_ids,
        case.cu_num_draft_tokens,
        case.max_draft_tokens,
        draft_logits=case.target_logits[rows],
        uniform_samples=torch.full_like(case.keywords["uniform_samples"], uniform),
        rule=rule,
    )
    assert out.num_accepted_tokens.tolist() == case.lengths
    assert out.status.tolist() == [0] * len(case.lengths)


@pytest.mark.parametrize("rule", RULES)
def test_greedy_rows_keep_exactly_their_largest_ids(rule):
    target = torch.tensor([[0.0, 3.0, 3.0], [5.0, 1.0, 2.0], [0.0, 0.0, 1.0]])
    for uniform in (0.0, 1 - 2**-53):
        uniforms = torch.full((3, 2), uniform, dtype=torch.float64)
        assert run(target, ids(1, 0), [2], uniforms, temperature=0.0, rule=rule)[0] == [[1, 0, 2]]
        assert run(target, ids(2, 0), [2], uniforms, temperature=0.0, rule=rule)[0] == [[1, -1, -1]]
        assert run(target, ids(1, 2), [2], uniforms, temperature=0.0, rule=rule)[0] == [[1, 0, -1]]


# -- edges


@pytest.mark.parametrize("rule", RULES)
def test_minus_one_and_the_limit_end_a_draft(rule):
    target = log_probs([[0.5, 0.5]] * 6)
    uniforms = torch.zeros(6, 2, dtype=torch.float64)
    assert run(target, ids(1, 0, -1, 1, 1), [5], uniforms, rule=rule) == ([[1, 0, 0, -1, -1, -1]], [2], [0])
    assert run(target, ids(1, 0, 1, 1, 1), [5], uniforms, most=3, rule=rule) == ([[1, 0, 1, 0]], [3], [0])
    assert run(target, ids(-1, 0, 1, 1, 1), [5], uniforms, rule=rule) == ([[0, -1, -1, -1, -1, -1]], [0], [0])


@pytest.mark.parametrize("rule", RULES)
def test_bonus_after_a_shortened_draft_is_drawn_from_the_row_it_stops_at(rule):
    target = log_probs([[1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0]])
    uniforms = torch.full((3, 2), 0.5, dtype=torch.float64)
    assert run(target, ids(0, -1), [2], uniforms, rule=rule)[0] == [[0, 1, -1]]
    assert run(target, ids(0, 1), [2], uniforms, most=1, rule=rule)[0] == [[0, 1]]


@pytest.mark.parametrize("rule", RULES)
def test_empty_batch_and_empty_drafts(rule):
    nothing = torch.zeros(0, dtype=torch.int32)
    out = ops.rejection_sample(
        torch.zeros(0, 5), nothing, make_cu([]), 3, uniform_samples=torch.zeros(0, 2).double(), rule=rule
    )
    assert [tuple(tensor.shape) for tensor in out] == [(0, 4), (0,), (0,)]
    assert run(log_probs([[0, 1.0], [1.0, 0]]), nothing, [0, 0], pairs([0, 0], [0, 0]), rule=rule) == (
        [[1], [0]],
        [0, 0],
        [0, 0],
    )
    draft = torch.zeros(0, 2)
    assert run(log_probs([[0, 1.0]]), nothing, [0], pairs([0, 0]), rule=rule, draft_logits=draft, most=2)[0] == [
        [1, -1, -1]
    ]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("bad", [NAN, INF])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nan_row_is_flagged_and_gives_the_largest_number(temperature, bad, rule):
    target = torch.tensor([[0.0, bad, 2.0, 2.0], [0.0, 0.0, 0.0, 0.0], [0.0, 9.0, 0.0, 0.0]])
    expected = 1 if bad == INF else 2
    out = run(target, ids(2), [1, 0], pairs([0, 0], [0, 0], [0, 0]), temperature=temperature, rule=rule)
    assert out[0] == [[expected, -1], [0 if temperature else 1, -1]]
    assert out[1:] == ([0, 0], [Status.TARGET_NAN, 0])


def test_all_nan_row_gives_id_zero():
    out = run(torch.full((1, 5000), NAN), ids(), [0], pairs([0, 0.9]))
    assert out == ([[0]], [0], [Status.TARGET_NAN])


def test_nan_row_after_accepted_tokens_keeps_them_and_rows_after_a_stop_are_not_read():
    target = torch.cat([log_probs([[0.5, 0.5]]), torch.tensor([[NAN, 1.0]]), torch.full((1, 2), NAN)])
    assert run(target, ids(0, 0), [2], pairs([0, 0], [0, 0], [0, 0])) == ([[0, 1, -1]], [1], [Status.TARGET_NAN])
    assert run(target, ids(0, 0), [2], pairs([0.6, 0], [0, 0], [0, 0])) == ([[1, -1, -1]], [0], [0])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("bad", [NAN, -INF])
def test_a_broken_row_leaves_the_tokens_before_it_as_they_are(bad, rule):
    # Threshold 1/3 for the draft 1, and the residual is all on id 0; the row after it is no law.
    target = torch.cat([log_probs([[0.75, 0.25]]), torch.full((1, 2), bad)])
    flag = Status.TARGET_NAN if math.isnan(bad) else Status.TARGET_EMPTY
    draft = log_probs([[0.25, 0.75]])
    kept = run(target, ids(1), [1], pairs([0.33, 0.5], [0, 0]), draft_logits=draft, rule=rule)
    assert kept == ([[1, 0]], [1], [flag])
    dropped = run(target, ids(1), [1], pairs([0.34, 0.5], [0, 0]), draft_logits=draft, rule=rule)
    # The block rule has read the broken row by then, the token rule has not.
    assert dropped == ([[0, -1]], [0], [flag if rule == "block" else 0])


@pytest.mark.parametrize("rule", RULES)
def test_empty_target_row_is_flagged_and_gives_id_zero(rule):
    target = torch.tensor([[-INF, -INF], [0.0, 0.0]])
    out = run(target, ids(1), [1], pairs([0, 0], [0, 0]), rule=rule)
    assert out == ([[0, -1]], [0], [Status.TARGET_EMPTY])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("bad", [3, 2**31 - 1, -2, -(2**31)])
def test_draft_out_of_range_is_rejected_flagged_and_redrawn_from_the_target(bad, rule):
    target = log_probs([[0.25, 0.5, 0.25]] * 3)
    out = run(target, ids(1, bad), [2], pairs([0, 0], [0, 0.8], [0, 0]), rule=rule)
    assert out == ([[1, 2, -1]], [1], [Status.DRAFT_OUT_OF_RANGE])


@pytest.mark.parametrize("rule", RULES)
def test_draft_of_probability_zero_is_rejected_and_flagged(rule):
    target, draft = log_probs([[0.5, 0.25, 0.25]] * 2), log_probs([[0.0, 0.5, 0.5]])
    out = run(target, ids(0), [1], pairs([0, 0.9], [0, 0]), draft_logits=draft, rule=rule)
    assert out[1:] == ([0], [Status.DRAFT_ZERO])
    # Outside the map: the same.
    out = run(
        target,
        ids(2),
        [1],
        pairs([0, 0], [0, 0]),
        draft_logits=log_probs([[0.5, 0.5]]),
        target_to_draft_ids=ids(0, 1, -1),
        rule=rule,
    )
    assert out[1:] == ([0], [Status.DRAFT_ZERO])


def test_recovered_id_after_a_draft_of_probability_zero_is_from_the_residual():
    target, draft = log_probs([[0.5, 0.25, 0.25]] * 2), log_probs([[0.0, 0.5, 0.5]])
    assert run(target, ids(0), [1], pairs([0, 0.99], [0, 0]), draft_logits=draft)[0] == [[0, -1]]


@pytest.mark.parametrize("rule", RULES)
def test_nan_draft_row_is_flagged_and_the_id_comes_from_the_target(rule):
    target, draft = log_probs([[0.25, 0.5, 0.25]] * 2), torch.tensor([[0.0, NAN, 0.0]])
    out = run(target, ids(0), [1], pairs([0, 0.8], [0, 0]), draft_logits=draft, rule=rule)
    assert out == ([[2, -1]], [0], [Status.DRAFT_ZERO])


def test_empty_residual_falls_back_to_the_target():
    # Both laws are all on id 1, the draft is 0: a broken contract, but the residual has no mass.
    target, draft = log_probs([[0.0, 1.0]] * 2), log_probs([[0.0, 1.0]])
    out = run(target, ids(0), [1], pairs([0, 0.5], [0, 0]), draft_logits=draft)
    assert out == ([[1, -1]], [0], [Status.DRAFT_ZERO | Status.RESIDUAL_EMPTY])


@pytest.mark.parametrize(
    "bad", [{"temperature": -1.0}, {"temperature": NAN}, {"top_p": 0.0}, {"min_p": 1.5}, {"min_p": NAN}]
)
@pytest.mark.parametrize("rule", RULES)
def test_bad_parameter_in_a_tensor_is_flagged_for_its_request_only(bad, rule):
    ((name, value),) = bad.items()
    target = torch.tensor([[0.0, 1.0, 0.0]] * 4)
    uniforms = torch.full((4, 2), 0.1, dtype=torch.float64)
    out = run(target, ids(0, 0), [1, 1], uniforms, rule=rule, **{name: torch.tensor([value, 0.9])})
    alone = run(target[2:], ids(0), [1], uniforms[2:], rule=rule, **{name: torch.tensor([0.9])})
    assert out[0][0] == [1, -1]
    assert out[1][0] == 0
    assert out[2][0] & Status.INVALID_PARAMETER
    assert ([out[0][1]], [out[1][1]], [out[2][1]]) == alone


def test_raise_for_status_names_what_was_wrong():
    ops.raise_for_status(ids(0, 0))
    ops.raise_for_status(ids(0, Status.RESIDUAL_EMPTY))
    for status in (Status.TARGET_NAN, Status.TARGET_EMPTY, Status.DRAFT_OUT_OF_RANGE, Status.DRAFT_ZERO):
        with pytest.raises(Exception, match=status.name):
            ops.raise_for_status(ids(0, status))


def test_status_bits_are_those_of_the_reference():
    assert {bit.name: bit.value for bit in Status if bit} == {
        bit.name: bit.value for bit in reference.verification.Status
    }


# -- law


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("case", laws.CASES, ids=lambda case: case.name)
def test_output_law_is_the_targets_law_exactly(case, rule):
    law = law_by_cells(ops.rejection_sample, case.target, case.draft, case.num_draft_tokens, rule, from_logits=True)
    laws.assert_target_law(law, case.target, case.num_draft_tokens + 1, 1e-6)
    exact = output_law.output_law(case.target, case.draft, case.num_draft_tokens, rule)
    laws.assert_same_law(law, exact, 1e-6)


@pytest.mark.parametrize(("rule", "mean"), [("token", 10 / 9), ("block", 11 / 9)])
def test_mean_number_of_accepted_tokens_is_exact(rule, mean):
    law = law_by_cells(
        ops.rejection_sample, laws.constant([1 / 3, 2 / 3]), laws.constant([2 / 3, 1 / 3]), 2, rule, from_logits=True
    )
    assert output_law.expected_accepted(law) == pytest.approx(mean, abs=1e-6)


def sampled_counts(target, declared, proposed, rule, *, trials=200_000, drafts=2, seed=1):
    """Counts of the first token when drafts are drawn from `proposed` and declared as drawn from `declared`."""
    gen = generator(seed)
    draft_ids = torch.multinomial(torch.tensor(proposed), trials * drafts, replacement=True, generator=gen)
    out = ops.rejection_sample(
        log_probs([target]).expand(trials * (drafts + 1), -1),
        draft_ids.to(torch.int32),
        torch.arange(trials + 1, dtype=torch.int32) * drafts,
        drafts,
        draft_logits=log_probs([declared]).expand(trials * drafts, -1),
        seeds=torch.arange(trials),
        positions=torch.full((trials,), 5),
        rule=rule,
    )
    assert out.status.count_nonzero() == 0
    return torch.bincount(out.output_token_ids[:, 0], minlength=len(target)).tolist(), out


@pytest.mark.parametrize("rule", RULES)
def test_sampled_law_is_the_targets_and_a_wrongly_declared_drafter_is_caught(rule):
    target, draft, other = [0.1, 0.5, 0.4], [0.6, 0.3, 0.1], [0.5, 0.3, 0.2]
    counts, _ = sampled_counts(target, draft, draft, rule)
    assert not chi_square.departs(counts, target)
    wrong, _ = sampled_counts(target, draft, other, rule)
    assert chi_square.departs(wrong, target)


@pytest.mark.parametrize(("rule", "mean"), [("token", 10 / 9), ("block", 11 / 9)])
def test_sampled_mean_number_of_accepted_tokens(rule, mean):
    counts, out = sampled_counts([1 / 3, 2 / 3], [2 / 3, 1 / 3], [2 / 3, 1 / 3], rule)
    # Six standard errors of a variable in [0, 2]; the two means are 25 of these apart.
    assert out.num_accepted_tokens.double().mean().item() == pytest.approx(mean, abs=6 / math.sqrt(200_000))
    assert not chi_square.departs(counts, [1 / 3, 2 / 3])


@pytest.mark.parametrize("rule", RULES)
def test_streams_of_a_row_are_independent_of_each_other_and_of_the_next_row(rule):
    trials = 200_000
    target = [0.25, 0.75]
    draft_ids = torch.zeros(trials, dtype=torch.int32)
    out = ops.rejection_sample(
        log_probs([target]).expand(2 * trials, -1),
        draft_ids,
        torch.arange(trials + 1, dtype=torch.int32),
        1,
        draft_logits=log_probs([[0.5, 0.5]]).expand(trials, -1),
        seeds=torch.arange(trials),
        positions=torch.zeros(trials, dtype=torch.int64),
        rule=rule,
    )
    first, second = out.output_token_ids.unbind(1)
    joint = torch.bincount(3 * first + second + 1, minlength=6).tolist()
    # The draft is always 0: kept half of the time, then the bonus; else 1 and nothing.
    assert not chi_square.departs(joint, [0.0, 0.125, 0.375, 0.5, 0.0, 0.0])


def test_a_proposal_and_its_verification_with_one_seed_and_position_keep_the_law():
    trials, target, draft = 300_000, [0.1, 0.5, 0.4], [0.6, 0.3, 0.1]
    seeds, positions = torch.full((trials,), 99), torch.arange(trials)
    identity = ids(0, 1, 2)
    logits = log_probs([draft]).expand(trials, -1)
    proposal = ops.draft_sample(logits, identity, seeds=seeds, positions=positions)
    out = ops.rejection_sample(
        log_probs([target]).expand(2 * trials, -1),
        proposal.target_token_ids,
        torch.arange(trials + 1, dtype=torch.int32),
        1,
        draft_logits=logits,
        draft_stats=proposal.stats,
        target_to_draft_ids=identity,
        seeds=seeds,
        positions=positions,
    )
    assert not chi_square.departs(torch.bincount(out.output_token_ids[:, 0], minlength=3).tolist(), target)
    assert out.num_accepted_tokens.double().mean().item() == pytest.approx(0.5, abs=6 * 0.5 / math.sqrt(trials))


# -- errors

_GOOD = {
    "target_logits": torch.zeros(3, 4),
    "draft_token_ids": ids(0, 1),
    "cu_num_draft_tokens": ids(0, 2),
    "max_draft_tokens": 2,
    "draft_logits": torch.zeros(2, 4),
    "uniform_samples": torch.zeros(3, 2, dtype=torch.float64),
}


@pytest.mark.parametrize(
    ("error", "name", "changes"),
    [
        (ValueError, "target_logits", {"target_logits": torch.zeros(12)}),
        (ValueError, "target_logits", {"target_logits": torch.zeros(4, 4)}),
        (ValueError, "target_logits", {"target_logits": torch.zeros(4, 3).t()}),
        (TypeError, "target_logits", {"target_logits": torch.zeros(3, 4).double()}),
        (ValueError, "draft_token_ids", {"draft_token_ids": ids(0, 1).reshape(1, 2)}),
        (TypeError, "draft_token_ids", {"draft_token_ids": torch.zeros(2)}),
        (TypeError, "draft_token_ids", {"draft_token_ids": torch.zeros(2, dtype=torch.int64)}),
        (ValueError, "draft_token_ids", {"draft_token_ids": ids(0, 9, 1, 9)[::2]}),
        (ValueError, "cu_num_draft_tokens", {"cu_num_draft_tokens": ids(0, 2).reshape(1, 2)}),
        (ValueError, "cu_num_draft_tokens", {"cu_num_draft_tokens": ids()}),
        (TypeError, "cu_num_draft_tokens", {"cu_num_draft_tokens": torch.tensor([0, 2])}),
        (ValueError, "max_draft_tokens", {"max_draft_tokens": -1}),
        (ValueError, "draft_logits", {"draft_logits": torch.zeros(3, 4)}),
        (ValueError, "draft_logits", {"draft_logits": torch.zeros(4, 2).t()}),
        (ValueError, "draft_logits", {"draft_logits": torch.zeros(2, 3)}),  # another width without a map
        (TypeError, "draft_logits", {"draft_logits": torch.zeros(2, 4).double()}),
        (ValueError, "draft_stats", {"draft_stats": torch.zeros(2, 3)}),
        (ValueError, "draft_stats", {"draft_stats": torch.zeros(3, 4)}),
        (TypeError, "draft_stats", {"draft_stats": torch.zeros(2, 4).double()}),
        (ValueError, "target_to_draft_ids", {"target_to_draft_ids": ids(0, 1, 2)}),
        (TypeError, "target_to_draft_ids", {"target_to_draft_ids": torch.arange(4)}),
        (ValueError, "temperature", {"temperature": -0.5}),
        (ValueError, "temperature", {"temperature": NAN}),
        (ValueError, "temperature", {"temperature": torch.ones(3)}),
        (TypeError, "top_k", {"top_k": torch.ones(1)}),
        (ValueError, "top_p", {"top_p": 0.0}),
        (ValueError, "min_p", {"min_p": 2.0}),
        (ValueError, "uniform_samples", {"uniform_samples": torch.zeros(3, dtype=torch.float64)}),
        (ValueError, "uniform_samples", {"uniform_samples": torch.zeros(2, 2, dtype=torch.float64)}),
        (TypeError, "uniform_samples", {"uniform_samples": torch.zeros(3, 2)}),
        (ValueError, "(seeds|uniform_samples)", {"uniform_samples": None}),
        (ValueError, "(seeds|positions)", {"uniform_samples": None, "seeds": torch.zeros(1, dtype=torch.int64)}),
        (
            ValueError,
            "seeds",
            {"uniform_samples": None, "seeds": torch.zeros(2).long(), "positions": torch.zeros(1).long()},
        ),
        (
            TypeError,
            "positions",
            {"uniform_samples": None, "seeds": torch.zeros(1).long(), "positions": torch.zeros(1)},
        ),
        (ValueError, "rule", {"rule": "chunk"}),
    ],
)
def test_bad_arguments_are_named(error, name, changes):
    with pytest.raises(error, match=f"rejection_sample: .*{name}.* must be"):
        ops.rejection_sample(**{**_GOOD, **changes})


def test_good_arguments_of_the_error_tests_are_good():
    assert ops.rejection_sample(**_GOOD).status.tolist() == [0]


def test_ragged_lengths_of_the_inputs_hold_the_maximum_and_zero():
    assert make_lengths(5, 3, seed=1)[:2] == [3, 0]


# -- what only the device can see must not leave its bounds


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("cu", [(0, 50), (0, -50), (-9, 2), (2, 0), (2**31 - 1, -(2**31))])
def test_broken_offsets_stay_in_bounds(cu, rule):
    out = ops.rejection_sample(
        torch.zeros(3, 4), ids(1, 2), ids(*cu), 3, uniform_samples=torch.full((3, 2), 0.3).double(), rule=rule
    )
    assert int(out.output_token_ids.min()) >= -1 and int(out.output_token_ids.max()) < 4
    assert 0 <= out.num_accepted_tokens.item() <= 3


@pytest.mark.parametrize("rule", RULES)
def test_map_entries_outside_the_drafters_vocabulary_are_not_shared(rule):
    arguments = (torch.zeros(2, 4), ids(1), make_cu([1]), 1)
    keywords = {"draft_logits": torch.zeros(1, 2), "uniform_samples": pairs([0.3, 0.9], [0.3, 0.9]), "rule": rule}
    out = ops.rejection_sample(*arguments, target_to_draft_ids=ids(0, 2**31 - 1, 1, -5), **keywords)
    assert out.num_accepted_tokens.tolist() == [0]
    assert out.status.tolist() == [Status.DRAFT_ZERO]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("uniform", [1.0, -1.0, NAN, INF])
def test_uniforms_outside_their_range_still_give_an_id_of_the_support(uniform, rule):
    target = log_probs([[0.0, 0.5, 0.5, 0.0]] * 2)
    out = run(target, ids(1), [1], pairs([uniform, uniform], [uniform, uniform]), rule=rule)
    assert set(out[0][0]) <= {1, 2, -1}


@pytest.mark.parametrize("stats", [(0.0, INF, 1e12, 0.0), (0.0, INF, NAN, 0.0), (0.0, INF, -3.0, 0.0)])
@pytest.mark.parametrize("rule", RULES)
def test_saved_stats_of_a_greedy_row_with_an_impossible_id_are_no_law(stats, rule):
    target = log_probs([[0.5, 0.5]] * 2)
    keywords = {"draft_logits": torch.zeros(1, 2), "draft_stats": torch.tensor([stats]), "rule": rule}
    out = run(target, ids(1), [1], pairs([0.3, 0.9], [0.3, 0.9]), **keywords)
    assert out == ([[1, -1]], [0], [Status.DRAFT_ZERO])
