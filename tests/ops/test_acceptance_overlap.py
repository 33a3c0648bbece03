# SPDX-License-Identifier: Apache-2.0
import math

import pytest
import torch

from hetero_spec import ops, reference
from tests.tools.inputs import DTYPES, MAP_KINDS, SMALL_VOCAB_SIZES, generator, make_logits, make_map, make_parameters
from tests.tools.law import log_probs

PARAMETER_NAMES = ("temperature", "top_k", "top_p", "min_p")


def ids(*values):
    return torch.tensor(values, dtype=torch.int32)


def assert_overlap_matches(target, draft, keywords):
    overlap = ops.acceptance_overlap(target, draft, **keywords)
    assert overlap.dtype == torch.float32
    expected = reference.acceptance_overlap(target, draft, **keywords)
    # Where top-p ends within rounding of the boundary between two logits, op and reference may keep another number of
    # ids (test_row_stats.py bounds that); such a row has another law.
    parameters = {name: value for name, value in keywords.items() if name in PARAMETER_NAMES}
    same_law = torch.ones(len(target), dtype=torch.bool)
    for logits in (target, draft):
        if "target_to_draft_ids" not in keywords:
            cutoffs = [stats(logits, **parameters)[:, 3] for stats in (ops.row_stats, reference.row_stats)]
            same_law &= torch.isclose(cutoffs[0].double(), cutoffs[1], rtol=1e-6, atol=1e-6, equal_nan=True)
    assert same_law.double().mean() > 0.7
    torch.testing.assert_close(overlap.double()[same_law], expected[same_law], rtol=2e-5, atol=1e-7, equal_nan=True)


@pytest.mark.parametrize("parameters", ["plain", "all", "per_request"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("vocab_size", [*SMALL_VOCAB_SIZES, 32000])
def test_overlap_equals_the_reference(vocab_size, dtype, parameters):
    rows = 8 if vocab_size < 32000 else 2
    target = make_logits(rows, vocab_size, seed=vocab_size, dtype=dtype)
    draft = (target.float() + torch.randn(target.shape, generator=generator(1))).to(dtype)
    assert_overlap_matches(target, draft, make_parameters(parameters, rows))


@pytest.mark.parametrize("kind", MAP_KINDS)
def test_overlap_equals_the_reference_for_every_kind_of_map(kind):
    draft_to_target, target_to_draft = make_map(kind, 1003, seed=1)
    target = make_logits(4, 1003, seed=2)
    draft = target[:, draft_to_target.clamp(min=0).long()].masked_fill(draft_to_target < 0, 7.0)
    assert_overlap_matches(target, draft, {"target_to_draft_ids": target_to_draft})
    stats = ops.row_stats(draft, temperature=1.5, draft_to_target_ids=draft_to_target)
    assert_overlap_matches(target, draft, {"target_to_draft_ids": target_to_draft, "draft_stats": stats})


def test_overlap_by_hand():
    target, draft = log_probs([[0.6, 0.2, 0.1, 0.1]]), log_probs([[0.7, 0.2, 0.05, 0.05]])
    assert ops.acceptance_overlap(target, draft).tolist() == pytest.approx([0.9])
    assert ops.acceptance_overlap(target, target).tolist() == pytest.approx([1.0])
    assert ops.acceptance_overlap(target, draft, temperature=0.0).tolist() == [1.0]


def test_rows_without_a_law():
    plain = torch.zeros(3, 2)
    special = torch.tensor([[math.nan, 0.0], [-math.inf, -math.inf], [0.0, 0.0]])
    for overlap in (ops.acceptance_overlap(plain, special), ops.acceptance_overlap(special, plain)):
        assert overlap[:2].isnan().all()
        assert overlap[2] == 1.0


@pytest.mark.parametrize(
    ("error", "name", "target", "draft", "keywords"),
    [
        (ValueError, "target_logits", torch.zeros(3), torch.zeros(1, 3), {}),
        (TypeError, "target_logits", torch.zeros(1, 3).double(), torch.zeros(1, 3), {}),
        (ValueError, "draft_logits", torch.zeros(2, 3), torch.zeros(1, 3), {}),
        (ValueError, "draft_logits", torch.zeros(1, 3), torch.zeros(1, 2), {}),
        (ValueError, "target_to_draft_ids", torch.zeros(1, 3), torch.zeros(1, 2), {"target_to_draft_ids": ids(0, 1)}),
        (ValueError, "temperature", torch.zeros(1, 3), torch.zeros(1, 3), {"temperature": -1.0}),
    ],
)
def test_bad_arguments_are_named(error, name, target, draft, keywords):
    with pytest.raises(error, match=f"acceptance_overlap: {name} must be"):
        ops.acceptance_overlap(target, draft, **keywords)
