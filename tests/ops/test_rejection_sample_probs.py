# SPDX-License-Identifier: Apache-2.0
import math

import pytest
import torch

from hetero_spec import ops
from hetero_spec.ops import Status
from hetero_spec.reference import output_law, philox
from hetero_spec.reference.rejection_sample_probs import rejection_sample_probs_verdicts
from tests.tools import laws
from tests.tools.compare import assert_verdicts_match
from tests.tools.inputs import SMALL_VOCAB_SIZES, make_cu, make_verification, with_layout
from tests.tools.law import law_by_cells

RULES = ["token", "block"]


def ids(*values):
    return torch.tensor(values, dtype=torch.int32)


def pairs(*values):
    return torch.tensor(values, dtype=torch.float64).reshape(-1, 2)


def make_case(vocab_size, seed, *, one_hot=False, **keywords):
    """(positional arguments, uniforms) with the laws of a case from logits."""
    case = make_verification(vocab_size=vocab_size, seed=seed, **keywords)
    target = case.target_logits.softmax(-1)
    draft = None if one_hot else case.keywords["draft_logits"].softmax(-1)
    return (target, draft, *case.positional[1:]), case.keywords["uniform_samples"]


def run(target, draft, draft_ids, lengths, uniforms, **keywords):
    out = ops.rejection_sample_probs(
        torch.tensor(target),
        None if draft is None else torch.tensor(draft),
        draft_ids,
        make_cu(lengths),
        max([*lengths, 0]),
        uniform_samples=uniforms,
        **keywords,
    )
    return out.output_token_ids.tolist(), out.num_accepted_tokens.tolist(), out.status.tolist()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("one_hot", [False, True])
@pytest.mark.parametrize("vocab_size", [*SMALL_VOCAB_SIZES, 32000])
def test_output_equals_reference(vocab_size, one_hot, rule):
    batch_size = 8 if vocab_size < 32000 else 2
    for seed in range(2):
        arguments, uniforms = make_case(vocab_size, seed, one_hot=one_hot, batch_size=batch_size)
        keywords = {"uniform_samples": uniforms, "rule": rule}
        out = ops.rejection_sample_probs(*arguments, **keywords)
        assert_verdicts_match(out, rejection_sample_probs_verdicts, arguments, keywords)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("max_draft_tokens", [0, 1, 4, 7])
def test_output_equals_reference_for_every_draft_length(max_draft_tokens, rule):
    arguments, uniforms = make_case(17, 3, batch_size=12, max_draft_tokens=max_draft_tokens, noise=0.3)
    keywords = {"uniform_samples": uniforms, "rule": rule}
    out = ops.rejection_sample_probs(*arguments, **keywords)
    assert_verdicts_match(out, rejection_sample_probs_verdicts, arguments, keywords)


@pytest.mark.parametrize("rule", RULES)
def test_rows_may_have_any_stride_and_start(rule):
    arguments, uniforms = make_case(1003, 4)
    keywords = {"uniform_samples": uniforms, "rule": rule}
    expected = ops.rejection_sample_probs(*arguments, **keywords)
    for misalignment in (1, 3):
        layout = {"row_padding": 5, "misalignment": misalignment}
        target, draft, *rest = arguments
        out = ops.rejection_sample_probs(with_layout(target, **layout), with_layout(draft, **layout), *rest, **keywords)
        assert all(torch.equal(one, other) for one, other in zip(out, expected, strict=True))


@pytest.mark.parametrize("rule", RULES)
def test_seeds_and_positions_give_the_uniforms_of_philox(rule):
    arguments, _ = make_case(1003, 5, batch_size=3)
    seeds, positions = torch.tensor([3, -4, 2**50]), torch.tensor([2**32 - 2, 0, 6])
    uniforms = [
        [philox.uniform(int(seeds[b]), int(positions[b]) + j, stream) for stream in (1, 2)]
        for b, length in enumerate(torch.diff(arguments[3]).tolist())
        for j in range(length + 1)
    ]
    out = ops.rejection_sample_probs(*arguments, seeds=seeds, positions=positions, rule=rule)
    given = ops.rejection_sample_probs(*arguments, uniform_samples=pairs(*uniforms), rule=rule)
    assert all(torch.equal(one, other) for one, other in zip(out, given, strict=True))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("case", laws.CASES, ids=lambda case: case.name)
def test_output_law_is_the_targets_law_exactly(case, rule):
    law = law_by_cells(
        ops.rejection_sample_probs, case.target, case.draft, case.num_draft_tokens, rule, from_logits=False
    )
    laws.assert_target_law(law, case.target, case.num_draft_tokens + 1, 1e-6)
    exact = output_law.output_law(case.target, case.draft, case.num_draft_tokens, rule)
    laws.assert_same_law(law, exact, 1e-6)


def test_recovered_id_by_hand():
    target, draft = [[0.1, 0.5, 0.4]] * 2, [[0.6, 0.3, 0.1]]
    assert run(target, draft, ids(0), [1], pairs([0.16, 0], [0, 0.99])) == ([[0, 2]], [1], [0])
    assert run(target, draft, ids(0), [1], pairs([0.17, 0.39], [0, 0])) == ([[1, -1]], [0], [0])
    assert run(target, draft, ids(0), [1], pairs([0.17, 0.41], [0, 0])) == ([[2, -1]], [0], [0])
    assert run(target, None, ids(0), [1], pairs([0.11, 0.55], [0, 0])) == ([[1, -1]], [0], [0])


@pytest.mark.parametrize("rule", RULES)
def test_statuses(rule):
    nan = math.nan
    even = [0.25, 0.5, 0.25]
    uniforms = pairs([0, 0.8], [0, 0])
    assert run([[0.1, nan, 0.3], even], None, ids(0), [1], uniforms, rule=rule) == ([[2, -1]], [0], [Status.TARGET_NAN])
    assert run([[0.0] * 3, even], None, ids(0), [1], uniforms, rule=rule) == ([[0, -1]], [0], [Status.TARGET_EMPTY])
    assert run([even] * 2, None, ids(3), [1], uniforms, rule=rule) == ([[2, -1]], [0], [Status.DRAFT_OUT_OF_RANGE])
    zero = run([even] * 2, [[0.0, 0.5, 0.5]], ids(0), [1], uniforms, rule=rule)
    assert zero[1:] == ([0], [Status.DRAFT_ZERO])


def test_empty_residual_falls_back_to_the_target():
    # Not normalised, so that a rejection leaves nothing.
    out = run([[0.25, 0.25]] * 2, [[0.5, 0.5]], ids(0), [1], pairs([0.6, 0.6], [0, 0]))
    assert out == ([[1, -1]], [0], [Status.RESIDUAL_EMPTY])


def test_empty_batch():
    nothing = torch.zeros(0, 3)
    out = ops.rejection_sample_probs(nothing, nothing, ids(), ids(0), 2, uniform_samples=pairs())
    assert [tuple(tensor.shape) for tensor in out] == [(0, 3), (0,), (0,)]


_GOOD = {
    "target_probs": torch.full((3, 4), 0.25),
    "draft_probs": torch.full((2, 4), 0.25),
    "draft_token_ids": ids(0, 1),
    "cu_num_draft_tokens": ids(0, 2),
    "max_draft_tokens": 2,
    "uniform_samples": torch.zeros(3, 2, dtype=torch.float64),
}


@pytest.mark.parametrize(
    ("error", "name", "changes"),
    [
        (ValueError, "target_probs", {"target_probs": torch.zeros(4, 4)}),
        (ValueError, "target_probs", {"target_probs": torch.zeros(4, 3).t()}),
        (TypeError, "target_probs", {"target_probs": torch.zeros(3, 4).double()}),
        (ValueError, "draft_probs", {"draft_probs": torch.zeros(2, 3)}),
        (ValueError, "draft_probs", {"draft_probs": torch.zeros(3, 4)}),
        (TypeError, "draft_probs", {"draft_probs": torch.zeros(2, 4).double()}),
        (TypeError, "draft_token_ids", {"draft_token_ids": torch.zeros(2)}),
        (TypeError, "cu_num_draft_tokens", {"cu_num_draft_tokens": torch.tensor([0, 2])}),
        (ValueError, "max_draft_tokens", {"max_draft_tokens": -1}),
        (ValueError, "uniform_samples", {"uniform_samples": torch.zeros(2, 2, dtype=torch.float64)}),
        (ValueError, "(seeds|uniform_samples)", {"uniform_samples": None}),
        (ValueError, "rule", {"rule": "tree"}),
    ],
)
def test_bad_arguments_are_named(error, name, changes):
    with pytest.raises(error, match=f"rejection_sample_probs: .*{name}.* must be"):
        ops.rejection_sample_probs(**{**_GOOD, **changes})


def test_good_arguments_of_the_error_tests_are_good():
    assert ops.rejection_sample_probs(**_GOOD).status.tolist() == [0]
