# SPDX-License-Identifier: Apache-2.0
import math
from typing import NamedTuple

import pytest
import torch

from hetero_spec import ops, reference
from hetero_spec.ops import RdkFactors, RdkTensors
from tests.tools.inputs import make_logits, with_layout
from tests.tools.kernels import KINDS, MIXTURES, Kernel, dense_matrix, identities, make_kernel, sparse_rows, with_prior

VOCAB_SIZES = [1, 2, 17, 300]


def ids(*values):
    return torch.tensor(values, dtype=torch.int32)


def make_laws(rows, vocab_size, seed):
    return make_logits(rows, vocab_size, seed=seed).softmax(-1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("vocab_size", VOCAB_SIZES)
def test_redistributed_laws_equal_the_reference(vocab_size, kind):
    kernel = make_kernel(kind, vocab_size, seed=vocab_size)
    laws = make_laws(3, vocab_size, seed=1)
    probs = ops.rdk_redistribute(laws, kernel)
    assert probs.dtype == torch.float32 and probs.is_contiguous()
    torch.testing.assert_close(probs.double(), reference.rdk_redistribute(laws, kernel), rtol=2e-5, atol=1e-7)
    torch.testing.assert_close(probs.sum(-1), torch.ones(3), rtol=2e-5, atol=0)
    assert (probs >= 0).all()
    if vocab_size > 2:
        assert not torch.allclose(probs, laws, atol=1e-3)


@pytest.mark.parametrize("kind", ["mix", "diagonal", "sparse", "general", "low_rank"])
def test_a_vocabulary_of_many_chunks(kind):
    kernel = make_kernel(kind, 9000, seed=3)
    laws = make_laws(2, 9000, seed=4)
    probs = ops.rdk_redistribute(laws, kernel)
    torch.testing.assert_close(probs.double(), reference.rdk_redistribute(laws, kernel), rtol=2e-5, atol=1e-9)


@pytest.mark.parametrize(("vocab_size", "num_factors"), [(4200, 31), (150, 1), (150, 64), (150, 257), (150, 700)])
def test_low_rank_kernels_of_many_factors_and_rows(vocab_size, num_factors):
    kernel = make_kernel("low_rank", vocab_size, seed=12, num_factors=num_factors)
    laws = make_laws(19, vocab_size, seed=13)
    laws[3] = 0.0
    probs = ops.rdk_redistribute(laws, kernel)
    torch.testing.assert_close(probs.double(), reference.rdk_redistribute(laws, kernel), rtol=2e-5, atol=1e-8)
    assert torch.equal(probs[7:8], ops.rdk_redistribute(laws[7:8], kernel))


def test_a_mixture_by_hand():
    rows = [{2: 1.0}, {0: 0.25, 1: 0.75}, {}]
    kernel = Kernel(
        3,
        with_prior(
            torch.tensor([0.0, 0.5, 0.5]),
            leak=torch.tensor([0.5, 0.0, 1.0]),
            spread=torch.tensor([0.25, 0.5, 0.0]),
            **sparse_rows(rows),
        ),
    )
    law = torch.tensor([[0.5, 0.25, 0.25]])
    # s = .5 * .5 + 1 * .25 = .5; S adds .5 * .25 to id 2 and .25 * .5 * (.25, .75) to ids 0 and 1.
    expected = [0.25 * 0.5 + 0.03125, 0.5 * 0.25 + 0.25 + 0.09375, 0.25 + 0.125]
    assert ops.rdk_redistribute(law, kernel)[0].tolist() == pytest.approx(expected)


def test_low_rank_by_hand_with_a_clamped_weight():
    # U = (1, -1, 0): the coefficient is .5 - .25 = .25; weights 1 + 8 * .25 * U = (3, -1 -> 0, 1).
    kernel = Kernel(3, RdkFactors(torch.tensor([[1.0], [-1.0], [0.0]]), scale=8.0, lam=0.5))
    probs = ops.rdk_redistribute(torch.tensor([[0.5, 0.25, 0.25]]), kernel)
    assert probs[0].tolist() == pytest.approx([0.25 + 0.375, 0.125, 0.125 + 0.125])


@pytest.mark.parametrize("kind", MIXTURES)
def test_sparse_and_leak_forms_equal_the_dense_matrix(kind):
    kernel = make_kernel(kind, 257, seed=5)
    torch.testing.assert_close(dense_matrix(kernel).sum(1), torch.ones(257).double(), rtol=1e-6, atol=0)
    laws = make_laws(4, 257, seed=6)
    dense = laws @ dense_matrix(kernel).float()
    torch.testing.assert_close(ops.rdk_redistribute(laws, kernel), dense, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("name", list(identities(5)))
def test_a_kernel_that_moves_nothing_returns_the_same_bits(name):
    laws = make_laws(3, 4700, seed=7)
    assert torch.equal(ops.rdk_redistribute(laws, identities(4700)[name]), laws)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_without_a_law_stay_without_one(kind):
    kernel = make_kernel(kind, 33, seed=8)
    laws = torch.stack([torch.zeros(33), torch.full((33,), math.nan), torch.full((33,), 1 / 33)])
    probs = ops.rdk_redistribute(laws, kernel)
    assert not probs[0].any()
    assert probs[1].isnan().all()
    assert float(probs[2].sum()) == pytest.approx(1.0)


@pytest.mark.parametrize("kind", KINDS)
def test_empty_batches_and_rows_with_gaps(kind):
    kernel = make_kernel(kind, 33, seed=9)
    assert ops.rdk_redistribute(torch.zeros(0, 33), kernel).shape == (0, 33)
    laws = make_laws(3, 33, seed=10)
    assert torch.equal(
        ops.rdk_redistribute(with_layout(laws, row_padding=3, misalignment=1), kernel),
        ops.rdk_redistribute(laws, kernel),
    )


def test_entries_out_of_range_are_left_out():
    far = 2**31 - 1
    rows = sparse_rows([{1: 0.5, 2: 0.5}, {}, {}])
    kernel = Kernel(3, RdkTensors(spread=torch.tensor([1.0, 0.0, 0.0]), **rows))
    broken = kernel.changed(column_ids=ids(1, far), source_ids=ids(0, far))
    assert ops.rdk_redistribute(torch.tensor([[1.0, 0.0, 0.0]]), broken)[0].tolist() == [0.0, 0.5, 0.0]
    offsets = ids(-far, far, -far, far)
    wild = kernel.changed(
        row_offsets=offsets, column_ids=ids(-1, -far), source_offsets=offsets, source_ids=ids(-2, far)
    )
    assert ops.rdk_redistribute(torch.tensor([[1.0, 0.0, 0.0]]), wild)[0].tolist() == [0.0, 0.0, 0.0]


# -- the index of the sparse rows


def test_the_index_by_hand():
    # Ids 0 and 3 spread; id 1 has a row but no share, id 2 a share but no row.
    rows = sparse_rows([{2: 1.0}, {2: 1.0}, {}, {0: 0.5, 2: 0.5}])
    parts = RdkTensors(spread=torch.tensor([0.5, 0.0, 0.5, 0.25]), **rows).indexed()
    assert parts.source_ids.tolist() == [3, 0, 1, 3]
    assert parts.spreading_ids.tolist() == [0, 3]
    assert parts.entry_target_ids.tolist() == [0, 2, 2, 2]
    assert parts.entry_source_numbers.tolist() == [1, 0, -1, 1]
    for name in ("spreading_ids", "entry_target_ids", "entry_source_numbers"):
        assert getattr(parts, name).dtype == torch.int32
    assert parts.indexed() is parts
    mix = make_kernel("mix", 5, seed=1).parts
    assert mix.indexed() is mix


def test_rows_without_entries_have_an_empty_index():
    parts = RdkTensors(spread=torch.zeros(3), **sparse_rows([{}, {}, {}])).indexed()
    assert parts.spreading_ids.shape == parts.entry_target_ids.shape == parts.entry_source_numbers.shape == (0,)
    laws = make_laws(2, 3, seed=1)
    assert torch.equal(ops.rdk_redistribute(laws, Kernel(3, parts)), laws)


@pytest.mark.parametrize("kind", ["sparse", "general"])
@pytest.mark.parametrize("vocab_size", [2, 300, 9000])
def test_the_index_changes_no_bit(vocab_size, kind):
    kernel = make_kernel(kind, vocab_size, seed=12)
    laws = make_laws(3, vocab_size, seed=13)
    assert torch.equal(ops.rdk_redistribute(laws, kernel.indexed()), ops.rdk_redistribute(laws, kernel))


@pytest.mark.parametrize("spreading_ids", [(0, 2), (-1, 0), (2**31 - 1, 2)])
@pytest.mark.parametrize("entry_target_ids", [(1, 2), (-(2**31), 2**31 - 1), (3, -1)])
@pytest.mark.parametrize("entry_source_numbers", [(0, 0), (-1, 2**31 - 1), (2, -(2**31))])
def test_a_broken_index_stays_in_bounds(spreading_ids, entry_target_ids, entry_source_numbers):
    rows = sparse_rows([{1: 0.5, 2: 0.5}, {}, {}])
    kernel = Kernel(3, RdkTensors(spread=torch.tensor([1.0, 0.0, 0.0]), **rows)).changed(
        spreading_ids=ids(*spreading_ids),
        entry_target_ids=ids(*entry_target_ids),
        entry_source_numbers=ids(*entry_source_numbers),
    )
    probs = ops.rdk_redistribute(torch.tensor([[1.0, 0.0, 0.0]]), kernel)[0].tolist()
    # What an entry out of range would have brought is missing, and nothing else is touched.
    taken = 0 in spreading_ids
    mass = [1.0 if source == 0 else 0.0 for source in spreading_ids]
    expected = [0.0 if taken else 1.0, 0.0, 0.0]
    for target, number in zip(entry_target_ids, entry_source_numbers, strict=True):
        if 0 <= target < 3 and 0 <= number < 2:
            expected[target] += 0.5 * mass[number]
    assert probs == pytest.approx(expected)


_GOOD = make_kernel("general", 5, seed=11)
_INDEXED = _GOOD.indexed()
_LOW_RANK = make_kernel("low_rank", 5, seed=11)


@pytest.mark.parametrize(
    ("error", "match", "kernel"),
    [
        (TypeError, "kernel must be an RDK kernel", 0.5),
        (TypeError, "kernel must be an RDK kernel", torch.zeros(5)),
        (ValueError, "kernel must be over the target's 5 ids, got 6 ids", make_kernel("mix", 6, seed=1)),
        (TypeError, "kernel.leak must be", _GOOD.changed(leak=torch.zeros(5).double())),
        (ValueError, "kernel.leak must be", _GOOD.changed(leak=torch.zeros(6))),
        (ValueError, "kernel.prior must be", _GOOD.changed(prior=torch.zeros(10)[::2])),
        (TypeError, "kernel.prior_cumulative must be", _GOOD.changed(prior_cumulative=torch.zeros(5))),
        (ValueError, "kernel must be given with prior and prior_cumulative", _GOOD.changed(prior=None)),
        (ValueError, "kernel.row_offsets must be", _GOOD.changed(row_offsets=ids(0, 1))),
        (TypeError, "kernel.column_ids must be", _GOOD.changed(column_ids=torch.arange(3))),
        (ValueError, "kernel.weights must be", _GOOD.changed(weights=torch.zeros(1))),
        (ValueError, "kernel.source_ids must be", _GOOD.changed(source_ids=ids(0))),
        (ValueError, "kernel must be given with spread and row_offsets", _GOOD.changed(spread=None)),
        (TypeError, "kernel.spreading_ids must be", _INDEXED.changed(spreading_ids=torch.arange(2))),
        (ValueError, "kernel.spreading_ids must be", _INDEXED.changed(spreading_ids=ids(0).reshape(1, 1))),
        (ValueError, "kernel.entry_target_ids must be", _INDEXED.changed(entry_target_ids=ids(0))),
        (TypeError, "kernel.entry_source_numbers must be", _INDEXED.changed(entry_source_numbers=torch.zeros(1))),
        (
            ValueError,
            "kernel must be given with spreading_ids and entry_target_ids and entry_source_numbers, got no",
            _INDEXED.changed(entry_target_ids=None),
        ),
        (
            ValueError,
            "kernel must be given with spread and row_offsets",
            make_kernel("mix", 5, seed=1).changed(
                spreading_ids=ids(0), entry_target_ids=ids(0), entry_source_numbers=ids(0)
            ),
        ),
        (ValueError, "kernel must be given with prior", Kernel(5, RdkTensors(constant_leak=0.5))),
        (ValueError, "kernel.factors must be", _LOW_RANK.changed(factors=torch.zeros(4, 2))),
        (ValueError, "kernel.factors must be", _LOW_RANK.changed(factors=torch.zeros(5, 0))),
        (ValueError, "kernel.lam must be", _LOW_RANK.changed(lam=1.5)),
        (ValueError, "kernel.scale must be", _LOW_RANK.changed(scale=math.nan)),
    ],
)
def test_bad_kernels_are_named(error, match, kernel):
    with pytest.raises(error, match=f"rdk_redistribute: {match}"):
        ops.rdk_redistribute(torch.full((1, 5), 0.2), kernel)


class Raw(NamedTuple):
    """A kernel that hands out what it holds, whatever the device."""

    vocab_size: int
    parts: object

    def tensors(self, device):
        return self.parts


def test_tensors_of_another_kind_or_device_are_named():
    laws = torch.full((1, 5), 0.2)
    with pytest.raises(TypeError, match=r"rdk_redistribute: kernel.tensors\(device\) must be RdkTensors or RdkFactors"):
        ops.rdk_redistribute(laws, Raw(5, (1, 2)))
    with pytest.raises(ValueError, match="rdk_redistribute: kernel.leak must be on cpu, got meta"):
        ops.rdk_redistribute(laws, Raw(5, _GOOD.parts._replace(leak=_GOOD.parts.leak.to("meta"))))


@pytest.mark.parametrize(
    ("error", "laws"),
    [
        (ValueError, torch.full((5,), 0.2)),
        (TypeError, torch.full((1, 5), 0.2).double()),
        (ValueError, torch.full((5, 2), 0.2).t()),
    ],
)
def test_bad_laws_are_named(error, laws):
    with pytest.raises(error, match="rdk_redistribute: draft_probs must be"):
        ops.rdk_redistribute(laws, _GOOD)
