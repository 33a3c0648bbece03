# SPDX-License-Identifier: Apache-2.0
import math

import pytest
import torch

from hetero_spec import ops, reference
from tests.tools.compare import assert_stats_match
from tests.tools.inputs import (
    DTYPES,
    MAP_KINDS,
    PARAMETER_SETS,
    SMALL_VOCAB_SIZES,
    make_logits,
    make_map,
    make_parameters,
)

INF, NAN = math.inf, math.nan


def row(*values, dtype=torch.float32):
    return torch.tensor([values], dtype=dtype)


def four(logits, **keywords):
    return ops.row_stats(logits, **keywords)[0].tolist()


@pytest.mark.parametrize("parameters", PARAMETER_SETS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("vocab_size", [*SMALL_VOCAB_SIZES, 32000])
def test_stats_equal_the_reference(vocab_size, dtype, parameters):
    rows = 8 if vocab_size < 32000 else 2
    logits = make_logits(rows, vocab_size, seed=vocab_size, dtype=dtype)
    keywords = make_parameters(parameters, rows)
    assert_stats_match(ops.row_stats(logits, **keywords), logits, keywords)


@pytest.mark.parametrize(("vocab_size", "dtype"), [(128256, torch.bfloat16), (151936, torch.float32)], ids=str)
def test_stats_equal_the_reference_for_a_large_vocabulary(vocab_size, dtype):
    logits = make_logits(2, vocab_size, seed=1, dtype=dtype)
    for parameters in ("plain", "top_p", "all"):
        keywords = make_parameters(parameters, 2)
        assert_stats_match(ops.row_stats(logits, **keywords), logits, keywords)


@pytest.mark.parametrize("parameters", ["plain", "top_k", "all", "per_request"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", MAP_KINDS)
def test_masked_stats_equal_the_reference(kind, dtype, parameters):
    draft_to_target, _ = make_map(kind, 1003, seed=2)
    logits = make_logits(8, len(draft_to_target), seed=3, dtype=dtype)
    logits[:, draft_to_target < 0] += 5.0
    keywords = make_parameters(parameters, 8)
    stats = ops.row_stats(logits, draft_to_target_ids=draft_to_target, **keywords)
    assert_stats_match(stats, logits, keywords, draft_to_target)


def test_plain_row_by_hand():
    assert four(row(0.0, 0.0)) == [0.0, 1.0, pytest.approx(math.log(2.0)), -INF]
    assert four(row(5.0, 5.0, 5.0, 5.0), temperature=0.5) == [5.0, 2.0, pytest.approx(math.log(4.0)), -INF]


@pytest.mark.parametrize(
    ("top_k", "cutoff"), [(0, -INF), (-5, -INF), (1, 4.0), (2, 3.0), (3, 3.0), (4, 1.0), (5, -INF), (1 << 30, -INF)]
)
def test_top_k_keeps_ties_and_is_off_outside_its_range(top_k, cutoff):
    stats = four(row(1.0, 3.0, 4.0, 3.0, -2.0), top_k=top_k)
    assert stats[3] == cutoff


@pytest.mark.parametrize(
    ("top_p", "cutoff"), [(1.0, -INF), (0.85, 0.0), (0.75, 1.0), (0.45, 1.0), (0.35, 2.0), (1e-9, 2.0)]
)
def test_top_p_keeps_ties(top_p, cutoff):
    # Laws 4 : 2 : 2 : 1 : 1 in units of ln 2, which the temperature turns into.
    assert four(row(2.0, 1.0, 1.0, 0.0, 0.0), temperature=1 / math.log(2.0), top_p=top_p)[3] == cutoff


def test_top_p_is_of_what_top_k_left_and_min_p_of_the_largest():
    logits = row(2.0, 1.0, 1.0, 0.0, 0.0)
    keywords = {"temperature": 1 / math.log(2.0)}
    assert four(logits, top_p=0.45, **keywords)[3] == 1.0
    assert four(logits, top_p=0.45, top_k=3, **keywords)[3] == 2.0  # .45 of .8 is below .4
    assert four(logits, min_p=0.3, **keywords)[3] == pytest.approx(2.0 + math.log2(0.3))
    assert four(logits, min_p=0.3, top_k=1, **keywords)[3] == 2.0
    assert four(logits, min_p=1.0, **keywords)[3] == 2.0


@pytest.mark.parametrize("temperature", [0.0, 1e-40])
def test_greedy_row_holds_the_lowest_of_the_largest_ids(temperature):
    assert four(row(-INF, 7.0, 3.0, 7.0), temperature=temperature, top_k=3, top_p=0.1) == [7.0, INF, 1.0, 7.0]
    wide = torch.zeros(1, 20_000)
    wide[0, [9_001, 15_000]] = 1.0
    assert four(wide, temperature=temperature) == [1.0, INF, 9001.0, 1.0]


def test_greedy_row_of_a_masked_law_ignores_unmapped_ids():
    ids = torch.tensor([-1, 5, 0], dtype=torch.int32)
    assert four(row(9.0, 1.0, 2.0), temperature=0.0, draft_to_target_ids=ids) == [2.0, INF, 2.0, 2.0]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("bad", [NAN, INF])
@pytest.mark.parametrize("place", [0, 3, 4099])
def test_a_row_with_nan_or_positive_infinity_is_all_nan(place, bad, temperature, dtype):
    logits = torch.zeros(3, 4100, dtype=dtype)
    logits[1, place] = bad
    for keywords in ({}, {"top_k": 5}, {"top_p": 0.5}, {"min_p": 0.5}):
        stats = ops.row_stats(logits, temperature=temperature, **keywords)
        assert stats[1].isnan().all()
        assert not stats[[0, 2]].isnan().any()


def test_nan_outside_the_map_does_not_matter():
    ids = torch.tensor([-1, 5, 0], dtype=torch.int32)
    assert four(row(NAN, 1.0, 1.0), draft_to_target_ids=ids) == [1.0, 1.0, pytest.approx(math.log(2.0)), -INF]


@pytest.mark.parametrize("keywords", [{}, {"top_k": 2}, {"top_p": 0.5}, {"min_p": 0.1}])
def test_an_empty_row_is_marked(keywords):
    assert four(torch.full((1, 4100), -INF), **keywords) == [-INF, 1.0, -INF, INF]
    nothing = torch.full((3,), -1, dtype=torch.int32)
    assert four(row(1.0, 2.0, 3.0), draft_to_target_ids=nothing, **keywords) == [-INF, 1.0, -INF, INF]


@pytest.mark.parametrize(
    "bad",
    [
        {"temperature": -1.0},
        {"temperature": NAN},
        {"temperature": INF},
        {"top_p": 0.0},
        {"top_p": NAN},
        {"min_p": 1.5},
        {"min_p": NAN},
    ],
)
def test_a_bad_parameter_in_a_tensor_makes_its_row_nan_and_no_other(bad):
    ((name, value),) = bad.items()
    logits = make_logits(3, 17, seed=4)
    stats = ops.row_stats(logits, **{name: torch.tensor([0.9, value, 0.9])})
    assert stats[1].isnan().all()
    assert torch.equal(stats[[0, 2]], ops.row_stats(logits[[0, 2]], **{name: torch.tensor([0.9, 0.9])}))


@pytest.mark.parametrize("temperature", [1e-6, 1e-3])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_small_temperatures_do_not_overflow(dtype, temperature):
    stats = four(row(30.0, 20.0, -60000.0, dtype=dtype), temperature=temperature)
    assert stats == [30.0, pytest.approx(1 / temperature), 0.0, -INF]


def test_adjacent_values_at_the_top_p_boundary_terminate():
    upper = torch.nextafter(torch.tensor(1.0), torch.tensor(2.0)).item()
    assert four(row(1.0, upper), top_p=0.4)[3] == upper
    assert four(row(1.0, upper), top_p=0.75)[3] == 1.0


def test_scalars_and_tensors_of_the_same_value_agree_bit_for_bit():
    logits = make_logits(4, 1003, seed=5)
    scalars = {"temperature": 0.75, "top_k": 30, "top_p": 0.875, "min_p": 0.0625}
    tensors = {
        name: torch.full((4,), value, dtype=torch.int32 if name == "top_k" else torch.float32)
        for name, value in scalars.items()
    }
    assert torch.equal(ops.row_stats(logits, **scalars), ops.row_stats(logits, **tensors))
    for name in scalars:  # and each is read at all
        rest = {key: value for key, value in scalars.items() if key != name}
        assert not torch.equal(ops.row_stats(logits, **{name: scalars[name]}), ops.row_stats(logits)), rest


def test_reference_and_op_take_the_same_arguments():
    logits = make_logits(2, 17, seed=6)
    keywords = {"temperature": 0.5, "top_k": 4}
    torch.testing.assert_close(ops.row_stats(logits, **keywords).double(), reference.row_stats(logits, **keywords))


@pytest.mark.parametrize(
    ("error", "match", "logits", "keywords"),
    [
        (ValueError, "row_stats: logits must be", torch.zeros(3), {}),
        (ValueError, "row_stats: logits must be", torch.zeros(3, 4).t(), {}),
        (ValueError, "row_stats: logits must be", torch.zeros(3, 0), {}),
        (TypeError, "row_stats: logits must be", torch.zeros(3, 4, dtype=torch.float64), {}),
        (TypeError, "row_stats: logits must be", torch.zeros(3, 4, dtype=torch.int32), {}),
        (ValueError, "row_stats: temperature must be", torch.zeros(3, 4), {"temperature": -1.0}),
        (ValueError, "row_stats: temperature must be", torch.zeros(3, 4), {"temperature": NAN}),
        (ValueError, "row_stats: top_p must be", torch.zeros(3, 4), {"top_p": 0.0}),
        (ValueError, "row_stats: top_p must be", torch.zeros(3, 4), {"top_p": NAN}),
        (ValueError, "row_stats: min_p must be", torch.zeros(3, 4), {"min_p": -0.1}),
        (ValueError, "row_stats: min_p must be", torch.zeros(3, 4), {"min_p": 1.1}),
        (ValueError, "row_stats: min_p must be", torch.zeros(3, 4), {"min_p": NAN}),
        (ValueError, "row_stats: temperature must be", torch.zeros(3, 4), {"temperature": torch.ones(2)}),
        (TypeError, "row_stats: temperature must be", torch.zeros(3, 4), {"temperature": torch.ones(3).double()}),
        (TypeError, "row_stats: top_k must be", torch.zeros(3, 4), {"top_k": torch.ones(3)}),
        (ValueError, "row_stats: top_p must be", torch.zeros(3, 4), {"top_p": torch.ones(3, 1)}),
        (
            ValueError,
            "row_stats: draft_to_target_ids must be",
            torch.zeros(3, 4),
            {"draft_to_target_ids": torch.zeros(5, dtype=torch.int32)},
        ),
        (
            TypeError,
            "row_stats: draft_to_target_ids must be",
            torch.zeros(3, 4),
            {"draft_to_target_ids": torch.zeros(4, dtype=torch.int64)},
        ),
    ],
)
def test_bad_arguments_are_named(error, match, logits, keywords):
    with pytest.raises(error, match=match):
        ops.row_stats(logits, **keywords)
