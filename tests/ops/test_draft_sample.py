# SPDX-License-Identifier: Apache-2.0
import math

import pytest
import torch

from hetero_spec import ops, reference
from hetero_spec.reference import inverse_cdf, philox
from hetero_spec.reference.row_law import logits_of, parameters_of, probs_of_row, stats_of_row
from tests.tools import chi_square
from tests.tools.compare import EPSILON, assert_probs_match, assert_stats_match
from tests.tools.inputs import (
    DTYPES,
    MAP_KINDS,
    PARAMETER_SETS,
    SMALL_VOCAB_SIZES,
    generator,
    make_logits,
    make_map,
    make_parameters,
)
from tests.tools.law import log_probs


def ids(*values):
    return torch.tensor(values, dtype=torch.int32)


def assert_draft_matches(logits, draft_to_target, keywords, uniforms, **randomness):
    """Compare with the reference: ids up to EPSILON, numbers by their tolerance."""
    draft = ops.draft_sample(logits, draft_to_target, **keywords, **(randomness or {"uniform_samples": uniforms}))
    expected = reference.draft_sample(logits, draft_to_target, **keywords, uniform_samples=uniforms)
    assert draft.target_token_ids.dtype == draft.draft_token_ids.dtype == torch.int32
    assert_stats_match(draft.stats, logits, keywords, draft_to_target)
    assert_probs_match(draft.max_prob, expected.max_prob, logits.dtype)
    torch.testing.assert_close(draft.entropy.double(), expected.entropy, rtol=2e-5, atol=2e-5)
    allowed = (draft_to_target >= 0).numpy()
    names = ("temperature", "top_k", "top_p", "min_p")
    for row, draft_id in enumerate(draft.draft_token_ids.tolist()):
        assert draft.target_token_ids[row] == (draft_to_target[draft_id] if draft_id >= 0 else -1)
        values = logits_of(logits, row)
        stats = stats_of_row(values, parameters_of(row, *(keywords.get(name) for name in names)), allowed)
        law = probs_of_row(values, stats, allowed)
        if draft_id != expected.draft_token_ids[row]:
            assert draft_id in inverse_cdf.ids_near(law, float(uniforms[row]), EPSILON)
        if draft_id >= 0:
            assert float(draft.probs[row]) == pytest.approx(law[draft_id], rel=2e-5)


@pytest.mark.parametrize("parameters", PARAMETER_SETS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("vocab_size", [*SMALL_VOCAB_SIZES, 32000])
def test_draft_equals_the_reference(vocab_size, dtype, parameters):
    rows = 8 if vocab_size < 32000 else 2
    draft_to_target, _ = make_map(MAP_KINDS[vocab_size % len(MAP_KINDS)], vocab_size, seed=vocab_size)
    logits = make_logits(rows, len(draft_to_target), seed=vocab_size, dtype=dtype)
    uniforms = torch.rand(rows, generator=generator(vocab_size), dtype=torch.float64)
    assert_draft_matches(logits, draft_to_target, make_parameters(parameters, rows), uniforms)


@pytest.mark.parametrize("kind", MAP_KINDS)
def test_draft_equals_the_reference_for_every_kind_of_map(kind):
    draft_to_target, _ = make_map(kind, 1003, seed=7)
    logits = make_logits(16, len(draft_to_target), seed=8)
    logits[:, draft_to_target < 0] += 6.0
    assert_draft_matches(logits, draft_to_target, {}, torch.rand(16, generator=generator(9), dtype=torch.float64))


@pytest.mark.parametrize(("vocab_size", "dtype"), [(128256, torch.float16), (151936, torch.bfloat16)], ids=str)
def test_draft_equals_the_reference_for_a_large_vocabulary(vocab_size, dtype):
    draft_to_target, _ = make_map("partial", vocab_size, seed=1)
    logits = make_logits(2, vocab_size, seed=2, dtype=dtype)
    uniforms = torch.tensor([0.3, 0.9999], dtype=torch.float64)
    assert_draft_matches(logits, draft_to_target, {"temperature": 1.2}, uniforms)


def test_seeds_and_positions_give_the_uniforms_of_philox():
    seeds = torch.tensor([0, 1, -1, 2**40 + 3, 2**63 - 1])
    positions = torch.tensor([0, 5, 2**33, 1, 7])
    uniforms = torch.tensor(
        [philox.uniform(int(s), int(t), philox.Stream.PROPOSE) for s, t in zip(seeds, positions, strict=True)],
        dtype=torch.float64,
    )
    draft_to_target, _ = make_map("permuted", 4097, seed=3)
    logits = make_logits(5, 4097, seed=4)
    assert_draft_matches(logits, draft_to_target, {"temperature": 2.0}, uniforms, seeds=seeds, positions=positions)


def test_draws_by_hand():
    logits = log_probs([[0.25, 0.5, 0.25]] * 6)
    uniforms = torch.tensor([0.0, 0.24, 0.26, 0.74, 0.76, 1 - 2**-53], dtype=torch.float64)
    draft = ops.draft_sample(logits, ids(5, 3, 4), uniform_samples=uniforms)
    assert draft.draft_token_ids.tolist() == [0, 0, 1, 1, 2, 2]
    assert draft.target_token_ids.tolist() == [5, 5, 3, 3, 4, 4]
    assert draft.probs.tolist() == pytest.approx([0.25, 0.25, 0.5, 0.5, 0.25, 0.25])
    assert draft.max_prob.tolist() == pytest.approx([0.5] * 6)
    assert draft.entropy.tolist() == pytest.approx([1.5 * math.log(2.0)] * 6)


def test_greedy_row_draws_its_largest_shared_token_for_every_uniform():
    logits = torch.tensor([[9.0, 1.0, 3.0, 3.0]] * 3)
    uniforms = torch.tensor([0.0, 0.5, 1 - 2**-53], dtype=torch.float64)
    draft = ops.draft_sample(logits, ids(-1, 1, 2, 3), temperature=0.0, uniform_samples=uniforms)
    assert draft.target_token_ids.tolist() == [2, 2, 2]
    assert draft.probs.tolist() == draft.max_prob.tolist() == [1.0] * 3
    assert draft.entropy.tolist() == [0.0] * 3


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rows_without_a_law_propose_nothing(temperature):
    logits = torch.tensor([[math.nan, 0.0], [-math.inf, 5.0], [0.0, 0.0]])
    uniforms = torch.full((3,), 0.5, dtype=torch.float64)
    draft = ops.draft_sample(logits, ids(1, -1), temperature=temperature, uniform_samples=uniforms)
    assert draft.target_token_ids.tolist() == [-1, -1, 1]
    assert draft.draft_token_ids.tolist() == [-1, -1, 0]
    assert draft.probs.tolist() == draft.max_prob.tolist() == [0.0, 0.0, 1.0]
    assert draft.entropy.tolist() == [0.0] * 3


def test_ids_of_probability_zero_are_never_drawn():
    logits = log_probs([[0.0, 0.5, 0.0, 0.5, 0.0]]).expand(1001, 5)
    uniforms = torch.linspace(0.0, 1 - 2**-53, 1001, dtype=torch.float64)
    draft = ops.draft_sample(logits.contiguous(), ids(0, 1, 2, 3, 4), uniform_samples=uniforms)
    assert set(draft.draft_token_ids.tolist()) == {1, 3}


def test_draws_follow_the_law_and_not_another():
    trials, law = 200_000, [0.4, 0.05, 0.3, 0.25]
    logits = log_probs([law]).expand(trials, 4)
    draft = ops.draft_sample(logits, ids(0, 1, 2, 3), seeds=torch.full((trials,), 17), positions=torch.arange(trials))
    counts = torch.bincount(draft.draft_token_ids, minlength=4).tolist()
    assert not chi_square.departs(counts, law)
    assert chi_square.departs(counts, [0.41, 0.05, 0.29, 0.25])


@pytest.mark.parametrize(
    ("error", "match", "arguments", "keywords"),
    [
        (ValueError, "draft_sample: draft_logits must be", (torch.zeros(3), ids(0, 1, 2)), {}),
        (TypeError, "draft_sample: draft_logits must be", (torch.zeros(1, 3).double(), ids(0, 1, 2)), {}),
        (ValueError, "draft_sample: draft_logits must be", (torch.zeros(3, 1).t().expand(1, 3)[:, ::2], ids(0, 1)), {}),
        (ValueError, "draft_sample: draft_to_target_ids must be", (torch.zeros(1, 3), ids(0, 1)), {}),
        (TypeError, "draft_sample: draft_to_target_ids must be", (torch.zeros(1, 3), torch.arange(3)), {}),
        (ValueError, "draft_sample: min_p must be", (torch.zeros(1, 3), ids(0, 1, 2)), {"min_p": 2.0}),
        (
            ValueError,
            "draft_sample: seeds must be",
            (torch.zeros(1, 3), ids(0, 1, 2)),
            {"seeds": torch.zeros(2, dtype=torch.int64), "positions": torch.zeros(1, dtype=torch.int64)},
        ),
        (
            TypeError,
            "draft_sample: positions must be",
            (torch.zeros(1, 3), ids(0, 1, 2)),
            {"seeds": torch.zeros(1, dtype=torch.int64), "positions": torch.zeros(1)},
        ),
        (
            ValueError,
            "draft_sample: uniform_samples must be",
            (torch.zeros(1, 3), ids(0, 1, 2)),
            {"uniform_samples": torch.zeros(2, dtype=torch.float64)},
        ),
        (
            TypeError,
            "draft_sample: uniform_samples must be",
            (torch.zeros(1, 3), ids(0, 1, 2)),
            {"uniform_samples": torch.zeros(1)},
        ),
    ],
)
def test_bad_arguments_are_named(error, match, arguments, keywords):
    if not keywords.keys() & {"seeds", "uniform_samples"}:
        keywords = {**keywords, "uniform_samples": torch.zeros(1, dtype=torch.float64)}
    with pytest.raises(error, match=match):
        ops.draft_sample(*arguments, **keywords)


@pytest.mark.parametrize("given", [{}, {"seeds": torch.zeros(1, dtype=torch.int64)}])
def test_randomness_must_be_given(given):
    with pytest.raises(ValueError, match="draft_sample: .*(seeds|uniform_samples).* must be"):
        ops.draft_sample(torch.zeros(1, 3), ids(0, 1, 2), **given)


def test_without_a_map_the_ids_are_the_targets():
    logits = make_logits(6, 1003, seed=11)
    uniforms = torch.rand(6, generator=generator(12), dtype=torch.float64)
    plain = ops.draft_sample(logits, uniform_samples=uniforms)
    mapped = ops.draft_sample(logits, torch.arange(1003, dtype=torch.int32), uniform_samples=uniforms)
    assert torch.equal(plain.target_token_ids, plain.draft_token_ids)
    assert plain.leaked_mass is mapped.leaked_mass is None  # without a kernel
    assert all(torch.equal(one, other) for one, other in zip(plain[:-1], mapped[:-1], strict=True))


def test_seeds_and_uniforms_together_are_refused():
    key = torch.zeros(1, dtype=torch.int64)
    with pytest.raises(ValueError, match="draft_sample: uniform_samples must be"):
        ops.draft_sample(
            torch.zeros(1, 3), seeds=key, positions=key, uniform_samples=torch.zeros(1, dtype=torch.float64)
        )
