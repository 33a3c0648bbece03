# SPDX-License-Identifier: Apache-2.0
"""row_stats.cu, run on the CPU, against the float64 reference."""

from __future__ import annotations

import math

import pytest
import torch

from tests.tools.compare import assert_stats_match
from tests.tools.inputs import (
    DTYPES,
    MAP_KINDS,
    PARAMETER_SETS,
    SMALL_VOCAB_SIZES,
    make_logits,
    make_map,
    make_parameters,
    with_layout,
)

from . import device_ops

INF, NAN = math.inf, math.nan
pytestmark = pytest.mark.usefixtures("any_schedule")


def row(*values: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor([values], dtype=dtype)


def four(logits: torch.Tensor, **keywords: object) -> list[float]:
    return device_ops.row_stats(logits, **keywords)[0].tolist()


@pytest.mark.parametrize("parameters", PARAMETER_SETS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("vocab_size", SMALL_VOCAB_SIZES)
def test_stats_equal_the_reference(vocab_size: int, dtype: torch.dtype, parameters: str) -> None:
    rows = 8 if parameters == "per_request" else 2
    logits = make_logits(rows, vocab_size, seed=vocab_size, dtype=dtype)
    keywords = make_parameters(parameters, rows)
    assert_stats_match(device_ops.row_stats(logits, **keywords), logits, keywords)


@pytest.mark.parametrize(
    ("vocab_size", "dtype", "parameters"),
    [
        (151936, torch.bfloat16, "plain"),
        (151936, torch.bfloat16, "top_p"),
        (128256, torch.float16, "all"),
        (128256, torch.float32, "top_p"),
        (262144, torch.float16, "greedy"),
        (32000, torch.float32, "top_k"),
    ],
    ids=str,
)
def test_stats_equal_the_reference_for_a_large_vocabulary(vocab_size: int, dtype: torch.dtype, parameters: str) -> None:
    logits = make_logits(1, vocab_size, seed=1, dtype=dtype)
    keywords = make_parameters(parameters, 1)
    assert_stats_match(device_ops.row_stats(logits, **keywords), logits, keywords)


@pytest.mark.parametrize("parameters", ["plain", "top_k", "per_request"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", MAP_KINDS)
def test_masked_stats_equal_the_reference(kind: str, dtype: torch.dtype, parameters: str) -> None:
    draft_to_target, _ = make_map(kind, 1003, seed=2)
    logits = make_logits(8, len(draft_to_target), seed=3, dtype=dtype)
    logits[:, draft_to_target < 0] += 5.0
    keywords = make_parameters(parameters, 8)
    stats = device_ops.row_stats(logits, draft_to_target_ids=draft_to_target, **keywords)
    assert_stats_match(stats, logits, keywords, draft_to_target)


@pytest.mark.parametrize("misalignment", range(8))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_bits_do_not_depend_on_where_a_row_starts(dtype: torch.dtype, misalignment: int) -> None:
    logits = make_logits(3, 4700, seed=5, dtype=dtype)
    moved = with_layout(logits, row_padding=misalignment % 3, misalignment=misalignment)
    # Hot: one logit that is read twice or not at all shows in the sum, wherever it lies.
    for keywords in ({"temperature": 100.0}, {"temperature": 0.7, "top_p": 0.9}):
        assert torch.equal(device_ops.row_stats(moved, **keywords), device_ops.row_stats(logits, **keywords))


def test_bits_do_not_depend_on_the_batch() -> None:
    logits = make_logits(6, 9000, seed=6, dtype=torch.bfloat16)
    keywords = make_parameters("per_request", 6)
    together = device_ops.row_stats(logits, **keywords)
    for index in (0, 3, 5):
        alone = {
            name: value[index : index + 1] if isinstance(value, torch.Tensor) else value
            for name, value in keywords.items()
        }
        assert torch.equal(device_ops.row_stats(logits[index : index + 1].clone(), **alone)[0], together[index])


@pytest.mark.parametrize(
    ("top_k", "cutoff"), [(0, -INF), (-5, -INF), (1, 4.0), (2, 3.0), (3, 3.0), (4, 1.0), (5, -INF), (1 << 30, -INF)]
)
def test_top_k_keeps_ties_and_is_off_outside_its_range(top_k: int, cutoff: float) -> None:
    assert four(row(1.0, 3.0, 4.0, 3.0, -2.0), top_k=top_k)[3] == cutoff


@pytest.mark.parametrize(
    ("top_p", "cutoff"), [(1.0, -INF), (0.85, 0.0), (0.75, 1.0), (0.45, 1.0), (0.35, 2.0), (1e-9, 2.0), (1e-30, 2.0)]
)
def test_top_p_keeps_ties(top_p: float, cutoff: float) -> None:
    assert four(row(2.0, 1.0, 1.0, 0.0, 0.0), temperature=1 / math.log(2.0), top_p=top_p)[3] == cutoff


def test_top_p_is_of_what_top_k_left_and_min_p_of_the_largest() -> None:
    logits = row(2.0, 1.0, 1.0, 0.0, 0.0)
    keywords = {"temperature": 1 / math.log(2.0)}
    assert four(logits, top_p=0.45, top_k=3, **keywords)[3] == 2.0  # .45 of .8 is below .4
    assert four(logits, min_p=0.3, **keywords)[3] == pytest.approx(2.0 + math.log2(0.3))
    assert four(logits, min_p=0.3, top_k=1, **keywords)[3] == 2.0
    assert four(logits, min_p=1.0, **keywords)[3] == 2.0


@pytest.mark.parametrize(("top_k", "top_p"), [(3000, None), (None, 0.5), (4000, 0.9), (1, None)])
def test_many_equal_logits_do_not_fit_into_shared_memory_and_need_not(top_k: int | None, top_p: float | None) -> None:
    keywords = {"top_k": top_k, "top_p": top_p}
    flat = torch.zeros(1, 5000)
    assert_stats_match(device_ops.row_stats(flat, **keywords), flat, keywords)
    nearly = torch.linspace(1.0, 1.00001, 5000)[torch.randperm(5000)][None]  # one bin, about 80 values
    assert_stats_match(device_ops.row_stats(nearly, **keywords), nearly, keywords)
    spread = torch.linspace(1.0, 2.0, 5000)[torch.randperm(5000)][None].clone()
    spread[0, 17] = 3000.0  # the rest lies in the last bin
    keywords = {"temperature": 1000.0, **keywords}
    assert_stats_match(device_ops.row_stats(spread, **keywords), spread, keywords)


def test_top_k_far_below_the_maximum_is_found() -> None:
    logits = torch.full((1, 6000), -1e30)
    logits[0, ::7] = torch.linspace(-1000.0, -900.0, len(logits[0, ::7]))
    logits[0, 4321] = 5.0
    keywords = {"top_k": 200, "temperature": 50.0}
    assert_stats_match(device_ops.row_stats(logits, **keywords), logits, keywords)


@pytest.mark.parametrize("temperature", [0.0, 1e-40])
def test_greedy_row_holds_the_lowest_of_the_largest_ids(temperature: float) -> None:
    assert four(row(-INF, 7.0, 3.0, 7.0), temperature=temperature, top_k=3, top_p=0.1) == [7.0, INF, 1.0, 7.0]
    wide = torch.zeros(1, 20_000)
    wide[0, [9_001, 15_000]] = 1.0
    assert four(wide, temperature=temperature) == [1.0, INF, 9001.0, 1.0]


def test_greedy_row_of_a_masked_law_ignores_unmapped_ids() -> None:
    ids = torch.tensor([-1, 5, 0], dtype=torch.int32)
    assert four(row(9.0, 1.0, 2.0), temperature=0.0, draft_to_target_ids=ids) == [2.0, INF, 2.0, 2.0]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("temperature", [0.0, 0.5])
@pytest.mark.parametrize("bad", [NAN, INF])
@pytest.mark.parametrize("place", [0, 4099])
def test_a_row_with_nan_or_positive_infinity_is_all_nan(
    place: int, bad: float, temperature: float, dtype: torch.dtype
) -> None:
    logits = torch.zeros(3, 4100, dtype=dtype)
    logits[1, place] = bad
    for keywords in ({}, {"top_k": 5, "top_p": 0.5}):
        stats = device_ops.row_stats(logits, temperature=temperature, **keywords)
        assert stats[1].isnan().all()
        assert not stats[[0, 2]].isnan().any()


def test_nan_outside_the_map_does_not_matter() -> None:
    ids = torch.tensor([-1, 5, 0], dtype=torch.int32)
    assert four(row(NAN, 1.0, 1.0), draft_to_target_ids=ids) == [1.0, 1.0, pytest.approx(math.log(2.0)), -INF]


@pytest.mark.parametrize("keywords", [{}, {"top_k": 2}, {"top_p": 0.5}, {"min_p": 0.1}])
def test_an_empty_row_is_marked(keywords: dict[str, float]) -> None:
    assert four(torch.full((1, 4100), -INF), **keywords) == [-INF, 1.0, -INF, INF]
    nothing = torch.full((3,), -1, dtype=torch.int32)
    assert four(row(1.0, 2.0, 3.0), draft_to_target_ids=nothing, **keywords) == [-INF, 1.0, -INF, INF]


@pytest.mark.parametrize(
    "bad", [{"temperature": -1.0}, {"temperature": NAN}, {"top_p": 0.0}, {"top_p": NAN}, {"min_p": 1.5}, {"min_p": NAN}]
)
def test_a_bad_parameter_in_a_tensor_makes_its_row_nan_and_no_other(bad: dict[str, float]) -> None:
    ((name, value),) = bad.items()
    logits = make_logits(3, 17, seed=4)
    stats = device_ops.row_stats(logits, **{name: torch.tensor([0.9, value, 0.9])})
    assert stats[1].isnan().all()
    assert torch.equal(stats[[0, 2]], device_ops.row_stats(logits[[0, 2]], **{name: torch.tensor([0.9, 0.9])}))


@pytest.mark.parametrize("temperature", [1e-38, 1e-6, 1e-3])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_small_temperatures_do_not_overflow(dtype: torch.dtype, temperature: float) -> None:
    stats = four(row(30.0, 20.0, -60000.0, dtype=dtype), temperature=temperature)
    assert stats == [30.0, pytest.approx(1 / temperature), 0.0, -INF]


def test_adjacent_values_at_the_top_p_boundary_terminate() -> None:
    upper = torch.nextafter(torch.tensor(1.0), torch.tensor(2.0)).item()
    assert four(row(1.0, upper), top_p=0.4)[3] == upper
    assert four(row(1.0, upper), top_p=0.75)[3] == 1.0


def test_no_rows_need_no_launch() -> None:
    before = device_ops.module().launch_count()
    assert device_ops.row_stats(torch.zeros(0, 17)).shape == (0, 4)
    assert device_ops.module().launch_count() == before
