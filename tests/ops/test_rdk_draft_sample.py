# SPDX-License-Identifier: Apache-2.0
"""draft_sample with an RDK kernel."""

import math

import pytest
import torch

from hetero_spec import ops, reference
from hetero_spec.ops import RdkFactors, RdkTensors
from hetero_spec.reference import philox
from tests.tools import chi_square
from tests.tools.inputs import DTYPES, MAP_KINDS, generator, inverse_map, make_logits, make_map, make_parameters
from tests.tools.kernels import KINDS, Kernel, identities, is_constant, make_kernel, sparse_rows, with_prior
from tests.tools.law import log_probs


def ids(*values):
    return torch.tensor(values, dtype=torch.int32)


def thirds(*values):
    return torch.tensor(values, dtype=torch.float64).reshape(-1, 3)


def assert_draft_matches(logits, draft_to_target, kernel, keywords, uniforms, **randomness):
    """Ids equal to the reference's (no uniform here lies near a boundary), numbers by their tolerance."""
    target_to_draft = inverse_map(draft_to_target, kernel.vocab_size)
    arguments = (logits, draft_to_target)
    draft = ops.draft_sample(
        *arguments,
        **keywords,
        kernel=kernel,
        target_to_draft_ids=target_to_draft,
        **(randomness or {"uniform_samples": uniforms}),
    )
    expected = reference.draft_sample(*arguments, **keywords, kernel=kernel, uniform_samples=uniforms)
    assert draft.target_token_ids.tolist() == expected.target_token_ids.tolist()
    assert draft.draft_token_ids.tolist() == expected.draft_token_ids.tolist()
    # The weights of a low-rank kernel are differences: their error is one of the largest term.
    is_low_rank = draft.leaked_mass.dim() == 2
    torch.testing.assert_close(draft.probs.double(), expected.probs, rtol=2e-5, atol=1e-7 if is_low_rank else 1e-9)
    torch.testing.assert_close(draft.leaked_mass.double(), expected.leaked_mass, rtol=2e-5, atol=1e-7)
    assert draft.probs.dtype == draft.leaked_mass.dtype == torch.float32
    return draft


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("vocab_size", [2, 17, 300])
def test_draft_equals_the_reference(vocab_size, dtype, kind):
    kernel = make_kernel(kind, vocab_size, seed=vocab_size)
    draft_to_target, _ = make_map("partial", vocab_size, seed=vocab_size)
    logits = make_logits(12, vocab_size, seed=vocab_size, dtype=dtype)
    uniforms = torch.rand(12, 3, generator=generator(vocab_size), dtype=torch.float64)
    assert_draft_matches(logits, draft_to_target, kernel, {}, uniforms)


@pytest.mark.parametrize("kind", ["general", "low_rank"])
@pytest.mark.parametrize("parameters", ["all", "greedy", "per_request"])
@pytest.mark.parametrize("map_kind", MAP_KINDS)
def test_draft_equals_the_reference_for_every_map_and_parameter(map_kind, parameters, kind):
    kernel = make_kernel(kind, 100, seed=1)
    draft_to_target, _ = make_map(map_kind, 100, seed=2)
    logits = make_logits(16, len(draft_to_target), seed=3)
    uniforms = torch.rand(16, 3, generator=generator(4), dtype=torch.float64)
    draft = assert_draft_matches(logits, draft_to_target, kernel, make_parameters(parameters, 16), uniforms)
    if map_kind == "narrower":
        assert (draft.draft_token_ids == -1).any() and (draft.target_token_ids >= 0).all()


@pytest.mark.parametrize(
    ("vocab_size", "num_factors", "rows"), [(4500, 4, 5), (9000, 67, 2), (33_000, 3, 1), (300, 257, 20)]
)
def test_low_rank_over_many_chunks_and_factors(vocab_size, num_factors, rows):
    kernel = make_kernel("low_rank", vocab_size, seed=8, num_factors=num_factors)
    draft_to_target, _ = make_map("partial", vocab_size, seed=9)
    logits = make_logits(rows, vocab_size, seed=10, dtype=torch.bfloat16)
    uniforms = torch.rand(rows, 3, generator=generator(11), dtype=torch.float64)
    uniforms[0] = torch.tensor([0.5, 0.1, 0.9])  # drawn again
    assert_draft_matches(logits, draft_to_target, kernel, {}, uniforms)


@pytest.mark.parametrize("kind", ["general", "low_rank"])
def test_seeds_and_positions_give_the_uniforms_of_three_streams(kind):
    seeds, positions = torch.tensor([0, 7, -1, 2**40] * 4), torch.arange(16) * 5
    streams = (philox.Stream.PROPOSE, philox.Stream.LEAK, philox.Stream.REDRAW)
    uniforms = thirds(
        *([philox.uniform(int(s), int(t), stream) for stream in streams] for s, t in zip(seeds, positions, strict=True))
    )
    draft_to_target, _ = make_map("permuted", 100, seed=5)
    kernel = make_kernel(kind, 100, seed=6)
    logits = make_logits(16, 100, seed=7)
    drawn = assert_draft_matches(logits, draft_to_target, kernel, {}, uniforms, seeds=seeds, positions=positions)
    plain = ops.draft_sample(logits, draft_to_target, seeds=seeds, positions=positions)
    assert not torch.equal(drawn.target_token_ids, plain.target_token_ids)


def test_draws_by_hand():
    # Id 0 keeps .5, leaks .25 to the prior (ids 1 and 3) and spreads .25 to ids 2 and 0.
    rows = sparse_rows([{2: 0.5, 0: 0.5}, {}, {}, {}])
    prior = torch.tensor([0.0, 0.5, 0.0, 0.5])
    share = torch.tensor([0.25, 0.0, 0.0, 0.0])
    kernel = Kernel(4, with_prior(prior, leak=share, spread=share, **rows))
    logits = log_probs([[1.0, 0.0, 0.0, 0.0]]).expand(8, 4)
    end = 1 - 2**-53
    uniforms = thirds(
        [0.9, 0.0, 0.0], [0.9, 0.24, 0.49], [0.9, 0.24, 0.51], [0.9, 0.0, end],
        [0.9, 0.26, 0.0], [0.9, 0.49, 0.51], [0.9, 0.26, end], [0.9, 0.51, 0.0],
    )  # fmt: skip
    draft = ops.draft_sample(logits, kernel=kernel, uniform_samples=uniforms)
    assert draft.target_token_ids.tolist() == [1, 1, 3, 3, 2, 0, 0, 0]
    assert draft.draft_token_ids.tolist() == draft.target_token_ids.tolist()
    # draft(0) = .5 + .25 * .5, draft(1) = draft(3) = .25 * .5 = draft(2)
    expected = {0: 0.625, 1: 0.125, 2: 0.125, 3: 0.125}
    assert draft.probs.tolist() == pytest.approx([expected[token] for token in draft.target_token_ids.tolist()])
    assert draft.leaked_mass.tolist() == pytest.approx([0.25] * 8)
    assert draft.max_prob.tolist() == [1.0] * 8  # of the row law


def test_low_rank_draws_by_hand():
    # U = (1, -1, 0): the coefficient is .5 - .25 = .25; weights 1 + 8 * .25 * U = (3, -1 -> 0, 1), together 4.
    kernel = Kernel(3, RdkFactors(torch.tensor([[1.0], [-1.0], [0.0]]), scale=8.0, lam=0.5))
    logits = log_probs([[0.5, 0.25, 0.25]]).expand(6, 3)
    end = 1 - 2**-53
    uniforms = thirds(
        [0.6, 0.51, 0.0], [0.6, 0.49, 0.0], [0.6, 0.49, 0.74], [0.6, 0.49, 0.76], [0.6, 0.49, end], [0.1, 0.5, 0.9]
    )  # fmt: skip
    draft = ops.draft_sample(logits, kernel=kernel, uniform_samples=uniforms)
    assert draft.target_token_ids.tolist() == [1, 0, 0, 2, 2, 0]
    assert draft.draft_token_ids.tolist() == draft.target_token_ids.tolist()
    expected = [0.25 + 0.375, 0.125, 0.125 + 0.125]
    assert draft.probs.tolist() == pytest.approx([expected[token] for token in draft.target_token_ids.tolist()])
    assert draft.leaked_mass.flatten().tolist() == pytest.approx([0.25, 4.0] * 6)
    assert draft.max_prob.tolist() == pytest.approx([0.5] * 6)  # of the row law


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2**-53, 1.0, -1.0, math.nan, math.inf])
def test_low_rank_ids_of_weight_zero_are_never_drawn_and_no_uniform_leaves_the_vocabulary(uniform):
    factors = torch.tensor([[-1.0], [1.0], [-1.0], [2.0], [-1.0]])
    logits = log_probs([[0.0, 0.0, 0.0, 1.0, 0.0]])
    kernel = Kernel(5, RdkFactors(factors, scale=1.0, lam=1.0))  # weights (0, 3, 0, 5, 0)
    uniforms = torch.full((1, 3), uniform, dtype=torch.float64)
    drawn = int(ops.draft_sample(logits, kernel=kernel, uniform_samples=uniforms).target_token_ids)
    assert drawn in ({1, 3} if 0.0 <= uniform < 1.0 else {0, 1, 2, 3, 4})


@pytest.mark.parametrize("factor", [math.nan, math.inf, -1e30])
def test_a_low_rank_kernel_that_makes_no_law_proposes_nothing_or_what_is_there(factor):
    """Factors are the kernel's business: where they are broken, ids stay in range."""
    kernel = Kernel(3, RdkFactors(torch.full((3, 2), factor), scale=1e30, lam=0.5))
    uniforms = torch.rand(20, 3, generator=generator(40), dtype=torch.float64)
    draft = ops.draft_sample(torch.zeros(20, 3), kernel=kernel, uniform_samples=uniforms)
    assert set(draft.target_token_ids.tolist()) <= {-1, 0, 1, 2}
    assert (draft.target_token_ids == draft.draft_token_ids).all()
    assert not draft.probs[draft.target_token_ids < 0].any()


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2**-53, 1.0, -1.0, math.nan, math.inf])
def test_ids_of_prior_zero_are_never_drawn_and_no_uniform_leaves_the_vocabulary(uniform):
    prior = torch.tensor([0.0, 0.5, 0.0, 0.5, 0.0])
    for leak, allowed in ((1.0, {1, 3}), (0.5, {0, 1, 2, 3, 4})):
        kernel = Kernel(5, with_prior(prior, constant_leak=leak))
        uniforms = torch.full((1, 3), uniform, dtype=torch.float64)
        drawn = int(ops.draft_sample(torch.zeros(1, 5), kernel=kernel, uniform_samples=uniforms).target_token_ids)
        if not 0.0 <= uniform < 1.0:
            allowed = {0, 1, 2, 3, 4}
        assert drawn in allowed


@pytest.mark.parametrize("kind", KINDS)
def test_draws_follow_the_redistributed_law_and_not_the_drafters(kind):
    trials, size = 60_000, 12
    kernel = make_kernel(kind, size, seed=21)
    draft_to_target, target_to_draft = make_map("narrower", size, seed=22)
    logits = make_logits(1, len(draft_to_target), seed=23)
    draft = ops.draft_sample(
        logits.expand(trials, -1),
        draft_to_target,
        kernel=kernel,
        target_to_draft_ids=target_to_draft,
        seeds=torch.full((trials,), 24),
        positions=torch.arange(trials),
    )
    counts = torch.bincount(draft.target_token_ids, minlength=size).tolist()
    drafters = ops.remap_probs(logits, draft_to_target, size)
    law = reference.rdk_redistribute(drafters, kernel)[0]
    assert not chi_square.departs(counts, law.tolist())
    assert chi_square.departs(counts, drafters[0].double().tolist())
    nearly = law.clone()
    nearly[law.argmax()] -= 0.02
    nearly[law.argmin()] += 0.02
    assert chi_square.departs(counts, nearly.tolist())
    torch.testing.assert_close(draft.probs.double(), law[draft.target_token_ids.long()], rtol=2e-5, atol=0)


@pytest.mark.parametrize("name", list(identities(5)))
@pytest.mark.parametrize("parameters", ["plain", "per_request"])
def test_a_kernel_that_moves_nothing_draws_the_same_with_the_same_bits(parameters, name):
    draft_to_target, target_to_draft = make_map("partial", 4700, seed=31)
    arguments = (make_logits(8, 4700, seed=32), draft_to_target)
    keywords = {**make_parameters(parameters, 8), "seeds": torch.arange(8), "positions": torch.arange(8)}
    plain = ops.draft_sample(*arguments, **keywords)
    kernel = identities(4700)[name]
    drawn = ops.draft_sample(*arguments, **keywords, kernel=kernel, target_to_draft_ids=target_to_draft)
    assert all(torch.equal(one, other) for one, other in zip(plain[:-1], drawn[:-1], strict=True))
    assert len(drawn.leaked_mass) == 8 and not drawn.leaked_mass.any()


@pytest.mark.parametrize("kind", KINDS)
def test_without_the_inverse_map_it_is_made(kind):
    draft_to_target, target_to_draft = make_map("wider", 100, seed=33)
    kernel = make_kernel(kind, 100, seed=34)
    keywords = {"kernel": kernel, "seeds": torch.arange(8), "positions": torch.arange(8)}
    logits = make_logits(8, 150, seed=35)
    made = ops.draft_sample(logits, draft_to_target, **keywords)
    given = ops.draft_sample(logits, draft_to_target, **keywords, target_to_draft_ids=target_to_draft)
    assert all(torch.equal(one, other) for one, other in zip(made, given, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_rows_without_a_law_propose_nothing(kind):
    logits = torch.stack([torch.full((9,), math.nan), torch.full((9,), -math.inf), torch.zeros(9)])
    draft = ops.draft_sample(logits, kernel=make_kernel(kind, 9, seed=36), uniform_samples=torch.zeros(3, 3).double())
    assert draft.target_token_ids[:2].tolist() == draft.draft_token_ids[:2].tolist() == [-1, -1]
    assert draft.probs[:2].tolist() == [0.0, 0.0]
    assert draft.target_token_ids[2] >= 0
    assert not draft.leaked_mass[:2].any()


def test_a_constant_leak_is_what_leaks_and_another_is_summed():
    logits = make_logits(4, 300, seed=37)
    random = {"seeds": torch.arange(4), "positions": torch.arange(4)}
    for kind in ("mix", "diagonal"):
        kernel = make_kernel(kind, 300, seed=38)
        leaked = ops.draft_sample(logits, kernel=kernel, **random).leaked_mass
        leak = torch.tensor(kernel.parts.constant_leak) if is_constant(kernel) else kernel.parts.leak
        torch.testing.assert_close(leaked, (logits.softmax(-1) * leak).sum(-1), rtol=2e-5, atol=0)


def test_broken_kernels_stay_in_bounds():
    far = 2**31 - 1
    rows = sparse_rows([{1: 0.5, 2: 0.5}, {}, {}])
    kernel = Kernel(3, with_prior(torch.full((3,), math.nan), leak=torch.full((3,), 0.5), spread=torch.ones(3), **rows))
    broken = kernel.changed(row_offsets=ids(-far, far, -far, far), column_ids=ids(far, -9), source_ids=ids(-7, far))
    for changed in (kernel, broken, broken.changed(source_offsets=ids(-far, far, far, -far))):
        draft = ops.draft_sample(
            torch.zeros(50, 3),
            kernel=changed,
            uniform_samples=torch.rand(50, 3, generator=generator(39), dtype=torch.float64),
        )
        assert set(draft.target_token_ids.tolist()) <= {0, 1, 2}


class Changing:
    """A kernel whose tensors may be replaced between calls."""

    def __init__(self, parts: RdkTensors) -> None:
        self.vocab_size, self.parts = 4, parts

    def tensors(self, device):
        return self.parts


def test_a_kernel_that_hands_over_other_tensors_is_looked_at_again():
    first, second = (make_kernel("sparse", 4, seed=seed).tensors(torch.device("cpu")).indexed() for seed in (1, 2))
    assert first.spreading_ids is not None and not torch.equal(first.spread, second.spread)
    logits, uniforms = torch.randn(64, 4, generator=generator(3)), torch.rand(64, 3, generator=generator(4)).double()
    kernel = Changing(first)
    before = ops.draft_sample(logits, kernel=kernel, uniform_samples=uniforms)
    again = ops.draft_sample(logits, kernel=kernel, uniform_samples=uniforms)
    kernel.parts = second
    after = ops.draft_sample(logits, kernel=kernel, uniform_samples=uniforms)
    expected = ops.draft_sample(logits, kernel=Changing(second), uniform_samples=uniforms)
    assert torch.equal(before.probs, again.probs)
    assert torch.equal(after.probs, expected.probs) and not torch.equal(after.probs, before.probs)
    kernel.parts = second._replace(weights=second.weights.double())
    with pytest.raises(TypeError, match="draft_sample: kernel.weights must be torch.float32"):
        ops.draft_sample(logits, kernel=kernel, uniform_samples=uniforms)


@pytest.mark.parametrize(
    ("match", "keywords"),
    [
        ("kernel must be over the target's 3 ids, got 4 ids", {"kernel": make_kernel("mix", 4, seed=1)}),
        (
            "uniform_samples must be",
            {"kernel": make_kernel("mix", 3, seed=1), "uniform_samples": torch.zeros(1).double()},
        ),
        ("uniform_samples must be", {"uniform_samples": torch.zeros(1, 3).double()}),
        (
            "target_to_draft_ids must be given together with draft_to_target_ids",
            {"kernel": make_kernel("mix", 3, seed=1), "target_to_draft_ids": ids(0, 1, 2)},
        ),
        (
            "kernel must be over the target's 4 ids, got 3 ids",
            {
                "kernel": make_kernel("mix", 3, seed=1),
                "draft_to_target_ids": ids(0, 1, 2),
                "target_to_draft_ids": ids(0, 1, 2, -1),
            },
        ),
    ],
)
def test_bad_arguments_are_named(match, keywords):
    keywords = {"uniform_samples": torch.zeros(1, 3).double(), **keywords}
    with pytest.raises(ValueError, match=f"draft_sample: {match}"):
        ops.draft_sample(torch.zeros(1, 3), **keywords)
