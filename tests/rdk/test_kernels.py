# SPDX-License-Identifier: Apache-2.0
import doctest
import math
from importlib import import_module

import numpy as np
import pytest
import torch

from hetero_spec import ops
from hetero_spec.rdk import DenseSoftmaxKernel, DiagonalKernel, LowRankKernel, MixKernel, SparseKernel
from hetero_spec.reference.output_law import output_law
from tests.rdk.samples import KINDS, MIXTURES, make_draft_laws, make_kernels, make_laws, make_neighbours
from tests.tools.chi_square import departs
from tests.tools.inputs import generator
from tests.tools.laws import assert_target_law, of_prefix

# float32 laws of up to 50 tokens: a few roundings of 2**-24 each.
FLOAT32 = {"rtol": 1e-5, "atol": 1e-6}
# float64 computation on parameters that were rounded to float32.
ROW_SUM = 1e-6


def dense_matrix(kernel):
    """M from the definition, entry by entry, in float64."""
    size = kernel.vocab_size
    matrix = torch.zeros(size, size, dtype=torch.float64)
    for i in range(size):
        leak = 0.0 if kernel.leak is None else float(kernel.leak[i])
        spread = 0.0 if kernel.spread is None else float(kernel.spread[i])
        matrix[i, i] += 1.0 - leak - spread
        for t in range(size):
            if kernel.prior is not None:
                matrix[i, t] += leak * float(kernel.prior[t])
        if kernel.row_offsets is not None:
            for entry in range(int(kernel.row_offsets[i]), int(kernel.row_offsets[i + 1])):
                matrix[i, int(kernel.column_ids[entry])] += spread * float(kernel.weights[entry])
    return matrix


# -- the law -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vocab_size", [1, 5, 50])
@pytest.mark.parametrize("name", MIXTURES)
def test_redistribute_is_the_dense_matrix(name, vocab_size):
    kernel = make_kernels(vocab_size)[name]
    draft = torch.eye(1, dtype=torch.float64) if vocab_size == 1 else make_draft_laws(7, vocab_size, 5)
    expected = draft @ dense_matrix(kernel)
    torch.testing.assert_close(kernel.redistribute(draft), expected, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(kernel.redistribute(draft.float()), expected.float(), **FLOAT32)
    torch.testing.assert_close(kernel.matrix(), dense_matrix(kernel), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", KINDS)
def test_rows_are_laws(name):
    kernel = make_kernels(20)[name]
    for law in (kernel.matrix(), kernel.redistribute(make_draft_laws(9, 20, 6))):
        assert bool((law >= 0.0).all())
        torch.testing.assert_close(law.sum(1), torch.ones(len(law), dtype=torch.float64), rtol=0, atol=ROW_SUM)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", KINDS)
def test_dtype_stays_and_input_is_not_written(name, dtype):
    kernel = make_kernels(20)[name]
    draft = make_draft_laws(3, 20, 7).to(dtype)
    before = draft.clone()
    law = kernel.redistribute(draft)
    assert law.dtype == dtype and draft.equal(before)
    tolerance = 1e-2 if dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(law.double(), kernel.redistribute(draft.double()), rtol=tolerance, atol=tolerance)


def test_nothing_moved_is_the_same_bits():
    size = 30
    draft = make_draft_laws(6, size, 8).float()
    prior = make_laws(1, size, 9)[0]
    indices, values = make_neighbours(size, 3, 10)
    for kernel in (
        MixKernel(0.0, prior),
        MixKernel(torch.zeros(size), prior),
        SparseKernel.from_topk(indices, values, 0.0),
        SparseKernel.from_topk(indices, values, 0.0, leak=0.0, prior=prior),
        LowRankKernel(make_laws(3, size, 11), 0.1, lam=0.0),
    ):
        assert kernel.redistribute(draft).equal(draft)
        assert not kernel.moved_mass(draft).any()
    assert MixKernel(1e-3, prior).redistribute(draft).equal(draft) is False


@pytest.mark.parametrize("name", KINDS)
def test_prob_is_the_entry_of_the_law(name):
    kernel = make_kernels(20)[name]
    draft = make_draft_laws(4, 20, 12)
    ids = torch.tensor([[0, 1, 2], [3, 3, 4], [19, 0, 7], [5, 6, 11]])
    law = kernel.redistribute(draft)
    torch.testing.assert_close(kernel.prob(draft, ids), law.gather(1, ids), rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(kernel.prob(draft, ids[:, 0].int()), law.gather(1, ids[:, :1])[:, 0])
    assert kernel.prob(draft, ids[:, :0]).shape == (4, 0)


@pytest.mark.parametrize("name", KINDS)
def test_prob_of_no_rows(name):
    kernel = make_kernels(11)[name]
    assert kernel.prob(torch.zeros(0, 11), torch.zeros(0, dtype=torch.int64)).shape == (0,)


def test_a_kernel_whose_first_use_is_traced_stays_whole():
    kernel = SparseKernel.from_lists({1: [(0, 0.5), (3, 0.5)]}, 5, 0.5)
    logits, same = torch.zeros(2, 5), torch.arange(5, dtype=torch.int32)
    uniforms = torch.full((2, 3), 0.3, dtype=torch.float64)

    def draw(logits):
        return ops.draft_sample(
            logits, same, target_to_draft_ids=same, kernel=kernel, uniform_samples=uniforms
        ).target_token_ids

    traced = torch.compile(draw, fullgraph=True, backend="eager")(logits)
    assert traced.tolist() == draw(logits).tolist()


@pytest.mark.parametrize("name", MIXTURES)
def test_sparse_rows_are_handed_out_with_their_index(name):
    parts = make_kernels(20)[name].tensors("cpu")
    index = (parts.spreading_ids, parts.entry_target_ids, parts.entry_source_numbers)
    if parts.spread is None:
        assert index == (None, None, None)
        return
    assert parts.indexed() is parts
    sources, targets, numbers = (tensor.tolist() for tensor in index)
    assert sources == sorted({int(source) for source in parts.source_ids if parts.spread[source] > 0.0})
    for target in range(20):
        for entry in range(int(parts.source_offsets[target]), int(parts.source_offsets[target + 1])):
            assert targets[entry] == target
            assert sources[numbers[entry]] == int(parts.source_ids[entry])


@pytest.mark.parametrize("name", KINDS)
def test_rows_without_a_law(name):
    kernel = make_kernels(20)[name]
    draft = make_draft_laws(3, 20, 13)
    alone = kernel.redistribute(draft[:1])
    draft[1] = 0.0
    draft[2, 4] = torch.nan
    law = kernel.redistribute(draft)
    assert not law[1].any()
    assert law[2].isnan().any()
    torch.testing.assert_close(law[:1], alone)
    assert kernel.draw(draft, torch.full((3, 3), 0.5, dtype=torch.float64))[1:].tolist() == [-1, -1]


def test_leaked_mass_and_moved_mass_by_hand():
    kernel = MixKernel(torch.tensor([0.5, 0.0, 1.0]), torch.tensor([0.0, 0.5, 0.5]))
    draft = torch.tensor([[0.5, 0.25, 0.25]])
    assert kernel.leaked_mass(draft).tolist() == [0.5]
    assert kernel.redistribute(draft).tolist() == [[0.25, 0.5, 0.25]]
    assert kernel.moved_mass(draft).tolist() == [0.25]
    assert SparseKernel.from_lists({}, 3, 0.5).leaked_mass(draft).tolist() == [0.0]


@pytest.mark.parametrize("rule", ["token", "block"])
@pytest.mark.parametrize("name", KINDS)
def test_lossless_by_enumeration(name, rule):
    """Any kernel, clamped or not, leaves the target's law when the draft is drawn from the redistributed one."""
    kernel = make_kernels(4)[name]
    target, drafter = of_prefix(4, 20), of_prefix(4, 21, 0.4)

    def draft(prefix):
        law = kernel.redistribute(torch.from_numpy(drafter(prefix))[None])[0].numpy()
        return law / law.sum()  # the rounding of the parameters; a sampler divides by the total as well

    assert not np.allclose(draft(()), drafter(()))
    assert_target_law(output_law(target, draft, 2, rule), target, 3, 1e-9)


@pytest.mark.parametrize("name", KINDS)
def test_a_draft_from_another_law_than_the_verified_one_is_not_lossless(name):
    """The control: drawn from the drafter's law, verified as if redistributed."""
    target, drawn = torch.from_numpy(of_prefix(4, 20)(())), torch.from_numpy(of_prefix(4, 21, 0.4)(()))
    verified = make_kernels(4)[name].redistribute(drawn[None])[0]
    accepted = drawn * (target / verified).clamp(max=1.0)
    residual = (target - verified).clamp(min=0.0)
    emitted = accepted + (1.0 - accepted.sum()) * residual / residual.sum()
    assert float((emitted - target).abs().max()) > 1e-3


# -- against the dense softmax -----------------------------------------------------------------------------------------


def first_order_errors(dense, linear, draft):
    """Largest difference to the exact kernel at tau and at 10 tau."""
    return [
        float((dense(tau).redistribute(draft) - linear(tau).redistribute(draft)).abs().max()) for tau in (1.0, 10.0)
    ]


def test_diagonal_is_the_first_order_of_the_dense_kernel():
    variance = make_laws(5, 12, 30).var(0)
    errors = first_order_errors(
        lambda tau: DenseSoftmaxKernel(torch.diag(variance), tau),
        lambda tau: DiagonalKernel(variance, tau),
        make_draft_laws(4, 12, 31),
    )
    # An error of second order falls a hundredfold; float32 parameters keep it from reaching that far.
    assert errors[0] < 1e-3 and errors[1] < max(errors[0] / 50.0, 2e-8)
    stronger = 1000.0 * variance  # where the second order is well above rounding
    errors = first_order_errors(
        lambda tau: DenseSoftmaxKernel(torch.diag(stronger), 100.0 * tau),
        lambda tau: DiagonalKernel(stronger, 100.0 * tau),
        make_draft_laws(4, 12, 31),
    )
    assert errors[0] > 1e-6 and errors[1] < errors[0] / 50.0


def test_low_rank_is_the_first_order_of_the_dense_kernel():
    laws = make_laws(6, 12, 32)
    errors = first_order_errors(
        lambda tau: DenseSoftmaxKernel.from_laws(laws, 0.5 * tau),
        lambda tau: LowRankKernel(laws, 0.5 * tau),
        make_draft_laws(4, 12, 33),
    )
    assert 1e-6 < errors[0] < 1e-2 and errors[1] < errors[0] / 50.0


def test_low_rank_reports_what_it_clamps():
    laws = make_laws(6, 12, 34)
    assert LowRankKernel(laws, 1.0).clamped_mass == 0.0
    kernel = LowRankKernel(laws, 0.002)
    centred = laws - laws.mean(0)
    raw = (1.0 + laws @ (centred.T @ centred / 6) / 0.002) / 12
    negative = (-raw).clamp(min=0.0).sum(1)
    assert float(negative.max()) > 0.01
    torch.testing.assert_close(kernel.clamped_mass_of(laws), negative, rtol=1e-4, atol=1e-6)
    assert math.isclose(kernel.clamped_mass, float(negative.mean()), rel_tol=1e-4)


def test_low_rank_from_factors_is_the_same_kernel():
    laws = make_laws(6, 12, 35)
    draft = make_draft_laws(3, 12, 36)
    kernel = LowRankKernel(laws, 0.1, 0.6)
    again = LowRankKernel.from_factors(kernel.factors, 0.1, 0.6)
    assert again.redistribute(draft).equal(kernel.redistribute(draft))
    tensors = again.tensors("cpu")
    assert tensors.scale == pytest.approx(1.0 / 0.6) and tensors.lam == 0.6 and tensors.factors.shape == (12, 6)


# -- drawing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
def test_draws_follow_the_redistributed_law(name):
    kernel = make_kernels(8)[name]
    draft = make_draft_laws(1, 8, 40)
    num_draws = 4000
    uniforms = torch.rand(num_draws, 3, generator=generator(41), dtype=torch.float64)
    tokens = kernel.draw(draft.expand(num_draws, -1), uniforms)
    counts = torch.bincount(tokens, minlength=8)
    law = kernel.redistribute(draft)[0]
    assert not departs(counts, law / law.sum())
    assert departs(counts, draft[0]), "the control: these draws are not of the drafter's own law"


def test_draw_by_hand():
    kernel = SparseKernel.from_lists({0: [(2, 1.0), (3, 3.0)]}, 4, 0.5, leak=0.25, prior=torch.tensor([0.0, 1.0, 0, 0]))
    draft = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    cases = {(0.0, 0.0): 1, (0.24, 0.9): 1, (0.25, 0.2): 2, (0.74, 0.25): 3, (0.7, 0.999): 3, (0.75, 0.5): 0}
    for (leak, redraw), expected in cases.items():
        assert kernel.draw(draft, torch.tensor([[0.3, leak, redraw]], dtype=torch.float64)).tolist() == [expected]


def test_draw_never_gives_a_token_of_probability_0():
    kernel = MixKernel(0.5, torch.tensor([0.0, 0.5, 0.5, 0.0]))
    edges = torch.tensor([[u, v, w] for u in (0.0, 1 - 2**-53) for v in (0.0, 0.9) for w in (0.0, 1 - 2**-53)])
    draft = torch.tensor([[0.0, 0.25, 0.75, 0.0]]).expand(len(edges), -1)
    assert set(kernel.draw(draft, edges.double()).tolist()) == {1, 2}


# -- making ------------------------------------------------------------------------------------------------------------


def test_tensors_of_a_mix():
    prior = torch.tensor([0.25, 0.25, 0.5])
    kernel = MixKernel(0.3, prior, target_sha256="abc")
    tensors = kernel.tensors("cpu")
    assert kernel.tensors(torch.device("cpu")) is tensors and kernel.target_sha256 == "abc"
    assert tensors.constant_leak == pytest.approx(0.3) and tensors.leak.dtype == torch.float32
    assert tensors.prior_cumulative.tolist() == [0.25, 0.5, 1.0] and tensors.prior_cumulative.dtype == torch.float64
    assert tensors.spread is None and tensors.column_ids is None and tensors.source_ids is None
    assert math.isnan(MixKernel(torch.tensor([0.1, 0.2, 0.1]), prior).tensors("cpu").constant_leak)
    assert SparseKernel.from_lists({}, 3, 0.5).tensors("cpu").constant_leak == 0.0


def test_transpose_of_a_sparse_kernel():
    kernel = SparseKernel.from_lists({0: [(2, 1.0), (1, 3.0)], 2: [(1, 5.0)]}, 4, torch.tensor([0.5, 0.5, 0.25, 0.5]))
    tensors = kernel.tensors("cpu")
    assert tensors.row_offsets.tolist() == [0, 2, 2, 3, 3] and tensors.column_ids.tolist() == [1, 2, 1]
    assert tensors.weights.tolist() == [0.75, 0.25, 1.0]
    assert tensors.source_offsets.tolist() == [0, 0, 2, 3, 3]
    assert tensors.source_ids.tolist() == [0, 2, 0] and tensors.source_weights.tolist() == [0.75, 1.0, 0.25]
    assert tensors.spread.tolist() == [0.5, 0.0, 0.25, 0.0], "rows without neighbours keep all"
    ints = ("row_offsets", "column_ids", "source_offsets", "source_ids")
    assert all(getattr(tensors, name).dtype == torch.int32 for name in ints)


def test_mix_outside_the_intersection():
    kernel = MixKernel.outside(0.5, torch.tensor([0.4, 0.2, 0.1, 0.3]), torch.tensor([7, -1, -1, 0]))
    torch.testing.assert_close(kernel.prior, torch.tensor([0.0, 2 / 3, 1 / 3, 0.0]))
    with pytest.raises(ValueError, match="prior must be positive on some token that the drafter lacks"):
        MixKernel.outside(0.5, torch.tensor([0.5, 0.5]), torch.tensor([0, -1]) * 0)


def test_diagonal_by_hand():
    kernel = DiagonalKernel(torch.tensor([0.0, 0.4]), 0.1)  # keeps v / tau / (V + v / tau) = 4 / 6 of token 1
    torch.testing.assert_close(kernel.leak, torch.tensor([1.0, 1 / 3]))
    torch.testing.assert_close(kernel.matrix(), torch.tensor([[0.5, 0.5], [1 / 6, 5 / 6]]).double(), rtol=0, atol=1e-7)


def test_negative_affinities_are_left_out_and_reported():
    kernel = SparseKernel.from_lists({0: [(1, 3.0), (2, -1.0)], 1: [(2, -2.0)], 2: [(0, 2.0)]}, 3, 0.5)
    assert kernel.weights.tolist() == [1.0, 1.0] and kernel.column_ids.tolist() == [1, 0]
    assert kernel.clamped_mass == pytest.approx(3.0 / 8.0)
    assert kernel.spread.tolist() == [0.5, 0.0, 0.5]


def test_softmax_of_affinities():
    indices, values = torch.tensor([[1, 2], [2, -1], [-1, -1]]), torch.tensor([[1.0, -1.0], [1e6, 9.0], [0.0, 0.0]])
    kernel = SparseKernel.from_topk(indices, values, 0.5, tau=0.5)
    expected = torch.softmax(torch.tensor([2.0, -2.0]), 0).tolist()
    torch.testing.assert_close(kernel.weights, torch.tensor([*expected, 1.0]))
    assert kernel.clamped_mass == 0.0


def test_counts_are_added_up_and_cut():
    sources, targets = torch.tensor([0, 0, 1, 0, 0]), torch.tensor([2, 1, 1, 2, 0])
    counts = torch.tensor([1.0, 3.0, 4.0, 1.0, 2.0])
    kernel = SparseKernel.from_counts(sources, targets, counts, 3, 0.5)
    torch.testing.assert_close(kernel.weights, torch.tensor([2.0, 3.0, 2.0, 7.0]) / torch.tensor([7.0, 7.0, 7.0, 7.0]))
    cut = SparseKernel.from_counts(sources, targets, counts, 3, 0.5, max_per_source=2)
    assert cut.column_ids.tolist() == [0, 1, 1] and cut.weights.tolist() == pytest.approx([0.4, 0.6, 1.0])
    rare = SparseKernel.from_counts(sources, targets, counts, 3, 0.5, least_count=2.5)
    assert rare.column_ids.tolist() == [1, 1] and rare.weights.tolist() == [1.0, 1.0]


def test_spelling_gives_to_longer_tokens_that_the_drafter_lacks():
    tokens = [b"a", b"ab", b"abc", b"abd", None, b"b", b"bc", b"a"]
    shared = torch.tensor([0, 1, -1, -1, -1, 2, 3, -1])
    kernel = SparseKernel.from_spelling(tokens, shared, 0.5, prior=torch.tensor([9.0, 9, 3, 1, 9, 9, 9, 9]))
    rows = {i: kernel.column_ids[kernel.row_offsets[i] : kernel.row_offsets[i + 1]].tolist() for i in range(8)}
    assert rows == {0: [2, 3], 1: [2, 3], 2: [], 3: [], 4: [], 5: [], 6: [], 7: []}
    assert kernel.weights.tolist() == [0.75, 0.25, 0.75, 0.25]
    longest = SparseKernel.from_spelling(tokens, shared, 0.5, longest_only=True, max_per_source=1)
    assert longest.row_offsets.tolist() == [0, 0, 1, 1, 1, 1, 1, 1, 1] and longest.column_ids.tolist() == [2]


# -- what is refused ---------------------------------------------------------------------------------------------------

LAW = torch.tensor([0.5, 0.5])
ROW = (torch.tensor([0, 2, 2]), torch.tensor([0, 1]), torch.tensor([0.5, 0.5]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MixKernel(1.5, LAW), r"MixKernel: lam must be in \[0, 1\], got 1.5"),
        (lambda: MixKernel(-0.1, LAW), r"lam must be in \[0, 1\], got -0.1"),
        (lambda: MixKernel(math.nan, LAW), r"lam must be in \[0, 1\], got nan"),
        (lambda: MixKernel(torch.tensor([0.5, 1.5]), LAW), r"lam must be in \[0, 1\], got 1.5 at id 1"),
        (lambda: MixKernel(torch.tensor([0.5, math.nan]), LAW), "lam must be finite everywhere, got nan at id 1"),
        (lambda: MixKernel(torch.ones(3), LAW), r"lam must be of shape \[2\], got shape \[3\]"),
        (lambda: MixKernel(0.5, LAW[None]), r"prior must be of shape \[any\], got shape \[1, 2\]"),
        (lambda: MixKernel(0.5, torch.tensor([])), "prior must be 1 to 16777216 ids wide, got 0"),
        (lambda: MixKernel(0.5, torch.tensor([0.5, math.nan])), "prior must be finite everywhere, got nan at id 1"),
        (lambda: MixKernel(0.5, torch.tensor([1.5, -0.5])), "prior must be 0 or more everywhere, got -0.5 at id 1"),
        (lambda: MixKernel(0.5, torch.tensor([3.0, 1.0])), r"prior must be a law \(total 1\), got total 4"),
        (
            lambda: DiagonalKernel(torch.tensor([-1.0, 0.0]), 1.0),
            "variance must be 0 or more everywhere, got -1 at id 0",
        ),
        (lambda: DiagonalKernel(LAW, 0.0), "DiagonalKernel: tau must be positive and finite, got 0"),
        (
            lambda: LowRankKernel.from_factors(torch.tensor([[0.5], [-0.5]]), 1e-320),
            r"LowRankKernel: tau must be large enough for 1 / \(n tau\) to be finite in float32",
        ),
        (lambda: SparseKernel(*ROW, 2.0), r"SparseKernel: spread must be in \[0, 1\], got 2"),
        (lambda: SparseKernel(ROW[0], ROW[1], torch.tensor([0.5, 0.4]), 0.5), "weights must be of total 1 in each row"),
        (lambda: SparseKernel(ROW[0], ROW[1], torch.tensor([1.5, -0.5]), 0.5), "weights must be 0 or more everywhere"),
        (lambda: SparseKernel(ROW[0], ROW[1], torch.tensor([math.nan, 1]), 0.5), "weights must be finite everywhere"),
        (lambda: SparseKernel(ROW[0], torch.tensor([0, 2]), ROW[2], 0.5), r"column_ids must be in \[0, 2\), got 0..2"),
        (
            lambda: SparseKernel(ROW[0], torch.tensor([1, 0]), ROW[2], 0.5),
            "rising within a row, each id once, got 1, 0 in",
        ),
        (lambda: SparseKernel(ROW[0], torch.tensor([1, 1]), ROW[2], 0.5), "rising within a row, each id once"),
        (lambda: SparseKernel(torch.tensor([0, 3, 2]), *ROW[1:], 0.5), r"row_offsets must be rising from 0"),
        (lambda: SparseKernel(ROW[0], ROW[1][:1], ROW[2], 0.5), r"column_ids must be of shape \[2\], got shape \[1\]"),
        (lambda: SparseKernel(ROW[0], ROW[1].float(), ROW[2], 0.5), "column_ids must be whole numbers"),
        (lambda: SparseKernel(*ROW, 0.5, leak=0.1), "leak and prior must be given together, got only one"),
        (lambda: SparseKernel(*ROW, 0.5, leak=0.6, prior=LAW), r"leak \+ spread must be at most 1, got 1.1 at id 0"),
        (lambda: SparseKernel(*ROW, 0.5, leak=0.1, prior=torch.ones(3) / 3), r"prior must be of shape \[2\], got"),
        (lambda: SparseKernel.from_lists({0: [(5, 1.0)]}, 3, 0.5), r"target ids must be in \[0, 3\), got 5..5"),
        (lambda: SparseKernel.from_lists({9: [(1, 1.0)]}, 3, 0.5), r"source ids must be in \[0, 3\), got 9..9"),
        (lambda: SparseKernel.from_lists({0: [(1, 1.0), (1, 2.0)]}, 3, 0.5), "each id once"),
        (lambda: SparseKernel.from_lists({0: [(1, math.inf)]}, 3, 0.5), "values must be finite everywhere, got inf"),
        (lambda: SparseKernel.from_counts([0], [1], [-1.0], 3, 0.5), "counts must be 0 or more everywhere, got -1"),
        (lambda: SparseKernel.from_counts([0], [1, 2], [1.0], 3, 0.5), "must be of one shape"),
        (lambda: LowRankKernel(LAW[None], 1.0), r"laws must be of shape \[n, V\] with n at least 2"),
        (lambda: LowRankKernel(torch.tensor([[0.5, 0.5], [0.5, 0.6]]), 1.0), r"laws\[1\] must be a law"),
        (lambda: LowRankKernel(torch.eye(2), 1.0, 1.5), r"lam must be in \[0, 1\], got 1.5"),
        (
            lambda: LowRankKernel.from_factors(torch.ones(2, 1), 1.0),
            "factors must be of total 0 in each column, got 2 in 0",
        ),
        (lambda: DenseSoftmaxKernel(torch.ones(2, 3), 1.0), r"affinity must be of shape \[V, V\], got shape \[2, 3\]"),
        (lambda: DenseSoftmaxKernel(torch.full((2, 2), math.nan), 1.0), "affinity must be finite everywhere"),
        (lambda: DenseSoftmaxKernel(torch.eye(2), 1.0).tensors("cpu"), "no op takes it"),
    ],
)
def test_what_cannot_be_a_kernel_is_refused(make, message):
    with pytest.raises((ValueError, TypeError, NotImplementedError), match=message):
        make()


@pytest.mark.parametrize("name", KINDS)
def test_wrong_rows_are_refused(name):
    kernel = make_kernels(4)[name]
    draft = make_draft_laws(2, 4, 50)
    for function in (kernel.redistribute, kernel.moved_mass):
        with pytest.raises(ValueError, match=r"draft_probs must be of shape \[any, 4\], got shape \[2, 3\]"):
            function(draft[:, :3])
        with pytest.raises(TypeError, match="draft_probs must be of a float dtype, got torch.int64"):
            function(draft.long())
    with pytest.raises(ValueError, match=r"token_ids must be in \[0, 4\), got -1..4"):
        kernel.prob(draft, torch.tensor([-1, 4]))
    with pytest.raises(ValueError, match=r"token_ids must be of shape \[2\] or \[2, any\]"):
        kernel.prob(draft, torch.tensor([1, 1, 1]))
    with pytest.raises(ValueError, match=r"uniforms must be of shape \[2, 3\]"):
        kernel.draw(draft, torch.zeros(2, 2, dtype=torch.float64))


def test_shares_that_add_up_to_1_in_decimal_are_taken():
    kernel = SparseKernel(*ROW, 0.3, leak=0.7, prior=LAW)
    torch.testing.assert_close(kernel.matrix().sum(1), torch.ones(2).double(), rtol=0, atol=ROW_SUM)
    assert bool((kernel.matrix() >= 0.0).all())


@pytest.mark.parametrize("module", ["eagle", "kernels"])
def test_examples_of_the_docstrings(module):
    results = doctest.testmod(import_module(f"hetero_spec.rdk.{module}"))
    assert results.attempted > 0 and results.failed == 0
