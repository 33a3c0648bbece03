# SPDX-License-Identifier: Apache-2.0
import math

import pytest
import torch

from hetero_spec import ops, reference
from tests.tools.compare import assert_probs_match
from tests.tools.inputs import DTYPES, MAP_KINDS, SMALL_VOCAB_SIZES, make_logits, make_map, make_parameters
from tests.tools.law import log_probs


def ids(*values):
    return torch.tensor(values, dtype=torch.int32)


@pytest.mark.parametrize("parameters", ["plain", "all", "per_request"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("vocab_size", [*SMALL_VOCAB_SIZES, 32000])
def test_probs_equal_the_reference(vocab_size, dtype, parameters):
    rows = 8 if vocab_size < 32000 else 2
    kind = MAP_KINDS[vocab_size % len(MAP_KINDS)]
    draft_to_target, _ = make_map(kind, vocab_size, seed=vocab_size)
    logits = make_logits(rows, len(draft_to_target), seed=vocab_size, dtype=dtype)
    arguments = (logits, draft_to_target, vocab_size)
    keywords = make_parameters(parameters, rows)
    assert_probs_match(ops.remap_probs(*arguments, **keywords), reference.remap_probs(*arguments, **keywords), dtype)


@pytest.mark.parametrize("kind", MAP_KINDS)
def test_probs_equal_the_reference_for_every_kind_of_map(kind):
    draft_to_target, _ = make_map(kind, 1003, seed=1)
    logits = make_logits(4, len(draft_to_target), seed=2)
    arguments = (logits, draft_to_target, 1003)
    assert_probs_match(ops.remap_probs(*arguments), reference.remap_probs(*arguments), torch.float32)


def test_probs_equal_the_reference_for_a_large_vocabulary():
    draft_to_target, _ = make_map("partial", 151936, seed=3)
    arguments = (make_logits(2, 151936, seed=4, dtype=torch.bfloat16), draft_to_target, 151936)
    assert_probs_match(ops.remap_probs(*arguments), reference.remap_probs(*arguments), torch.bfloat16)


def test_shared_tokens_are_renormalised_by_hand():
    # Drafter a .5, b .2, x .3 against a target a, b, c, d: x has no counterpart.
    probs = ops.remap_probs(log_probs([[0.5, 0.2, 0.3]]), ids(0, 1, -1), 4)
    assert probs.tolist() == [[pytest.approx(5 / 7), pytest.approx(2 / 7), 0.0, 0.0]]


def test_truncation_comes_after_the_mask():
    probs = ops.remap_probs(log_probs([[0.1, 0.3, 0.6]]), ids(3, 1, -1), 4, top_k=1)
    assert probs.tolist() == [[0.0, 1.0, 0.0, 0.0]]


def test_a_row_without_a_shared_token_is_zero_and_a_nan_row_is_nan():
    logits = torch.tensor([[-math.inf, 1.0], [math.nan, 1.0], [0.0, 1.0]])
    probs = ops.remap_probs(logits, ids(0, -1), 2)
    assert probs[0].tolist() == [0.0, 0.0]
    assert probs[1].isnan().all()
    assert probs[2].tolist() == [1.0, 0.0]


def test_rows_have_total_one():
    draft_to_target, _ = make_map("partial", 4097, seed=5)
    probs = ops.remap_probs(make_logits(4, 4097, seed=6), draft_to_target, 4097, temperature=1.3)
    torch.testing.assert_close(probs.double().sum(-1), torch.ones(4, dtype=torch.float64), rtol=0.0, atol=1e-5)


@pytest.mark.parametrize(
    ("error", "match", "arguments", "keywords"),
    [
        (ValueError, "remap_probs: draft_logits must be", (torch.zeros(3), ids(0, 1, 2), 3), {}),
        (TypeError, "remap_probs: draft_logits must be", (torch.zeros(1, 3).double(), ids(0, 1, 2), 3), {}),
        (ValueError, "remap_probs: draft_logits must be", (torch.zeros(3, 2).t(), ids(0, 1, 2), 3), {}),
        (ValueError, "remap_probs: draft_to_target_ids must be", (torch.zeros(1, 3), ids(0, 1), 3), {}),
        (TypeError, "remap_probs: draft_to_target_ids must be", (torch.zeros(1, 3), torch.zeros(3), 3), {}),
        (ValueError, "remap_probs: target_vocab_size must be", (torch.zeros(1, 3), ids(0, 1, 2), 0), {}),
        (ValueError, "remap_probs: top_p must be", (torch.zeros(1, 3), ids(0, 1, 2), 3), {"top_p": -0.5}),
    ],
)
def test_bad_arguments_are_named(error, match, arguments, keywords):
    with pytest.raises(error, match=match):
        ops.remap_probs(*arguments, **keywords)
