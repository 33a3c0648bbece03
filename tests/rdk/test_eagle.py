# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

from hetero_spec.rdk import from_eagle_d2t, from_eagle_t2d, to_eagle_d2t, to_eagle_t2d
from tests.tools.inputs import generator


def test_by_hand():
    d2t, t2d = torch.tensor([1, 1, 3]), torch.tensor([False, True, True, False, False, True])
    ids = from_eagle_d2t(d2t, 6, t2d)
    assert ids.tolist() == [1, 2, 5] and ids.dtype == torch.int32
    assert from_eagle_t2d(t2d).equal(ids)
    assert to_eagle_d2t(ids, 6).tolist() == [1, 1, 3] and to_eagle_t2d(ids, 6).equal(t2d)


def test_there_and_back():
    ids = torch.randperm(1000, generator=generator(1))[:320].to(torch.int32)
    assert from_eagle_d2t(to_eagle_d2t(ids, 1000), 1000).equal(ids)
    assert from_eagle_t2d(to_eagle_t2d(ids, 1000)).equal(ids.sort().values)


def test_mask_leaves_out_what_is_not_shared():
    assert to_eagle_t2d(torch.tensor([-1, 2, -1]), 3).tolist() == [False, False, True]


def test_absolute_ids_taken_for_offsets_are_an_error():
    ids = torch.arange(500, 1000)
    with pytest.raises(ValueError, match=r"draft id \+ d2t must be in \[0, 1000\), got 500..1498"):
        from_eagle_d2t(ids, 1000)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: from_eagle_d2t(torch.tensor([1, 0]), 4), ValueError, "got target id 1 more than once"),
        (lambda: from_eagle_d2t(torch.tensor([-1, 0]), 4), ValueError, r"in \[0, 4\), got -1..1"),
        (lambda: from_eagle_d2t(torch.tensor([0.0]), 4), TypeError, "d2t must be whole numbers, got torch.float32"),
        (lambda: from_eagle_d2t(torch.tensor([[0]]), 4), ValueError, r"d2t must be of shape \[Vd\]"),
        (lambda: from_eagle_d2t(torch.tensor([]).long(), 4), ValueError, r"d2t must be of shape \[Vd\]"),
        (lambda: from_eagle_d2t(torch.tensor([0]), 2, torch.tensor([True])), ValueError, r"t2d must be of shape \[2\]"),
        (
            lambda: from_eagle_d2t(torch.tensor([0]), 2, torch.tensor([False, True])),
            ValueError,
            "t2d must be true exactly at the target ids of d2t, got 2 other entries",
        ),
        (
            lambda: to_eagle_d2t(torch.tensor([0, -1]), 4),
            ValueError,
            r"draft_to_target_ids must be in \[0, 4\), got -1..0",
        ),
        (lambda: to_eagle_d2t(torch.tensor([3, 3]), 4), ValueError, "target id 3 more than once"),
        (lambda: to_eagle_t2d(torch.tensor([3, -1, 4]), 4), ValueError, r"in \[0, 4\), got 3..4"),
        (lambda: from_eagle_t2d(torch.tensor([1, 0])), TypeError, "t2d must be bool, got torch.int64"),
        (
            lambda: from_eagle_t2d(torch.tensor([False])),
            ValueError,
            "t2d must be true at one target id or more, got none",
        ),
        (lambda: from_eagle_t2d(torch.tensor([[True]])), ValueError, r"t2d must be of shape \[V\]"),
    ],
)
def test_what_is_no_reduced_vocabulary(call, error, message):
    with pytest.raises(error, match=message):
        call()
