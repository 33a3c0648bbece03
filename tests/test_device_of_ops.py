# SPDX-License-Identifier: Apache-2.0
"""The op tests' way to another device (tests/tools/device.py), with the CPU for the device."""

from __future__ import annotations

import types
from typing import NamedTuple

import pytest
import torch

from hetero_spec import ops
from tests.tools import calls, device
from tests.tools.inputs import make_logits, with_layout

CPU = torch.device("cpu")


@pytest.mark.parametrize("layout", [{}, {"row_padding": 3, "misalignment": 5}])
def test_rows_keep_their_layout_and_what_lies_between_them(layout: dict[str, int]) -> None:
    rows = with_layout(make_logits(3, 17, seed=1, dtype=torch.bfloat16), **layout)
    copy = device.moved(rows, CPU)
    assert (copy.stride(), copy.storage_offset()) == (rows.stride(), rows.storage_offset())
    assert copy.equal(rows) and copy.data_ptr() != rows.data_ptr()
    assert copy.untyped_storage().nbytes() == rows.untyped_storage().nbytes()
    expanded = torch.randn(1, 4).expand(5, 4)
    assert device.moved(expanded, CPU).stride() == (0, 1)


def test_ops_get_copies_and_give_what_they_gave() -> None:
    seen = []

    def op(logits: torch.Tensor, scale: float, *, other: torch.Tensor | None = None) -> torch.Tensor:
        seen.append((logits, other))
        return logits * scale

    logits, other = torch.randn(2, 3), torch.ones(2)
    assert device.on_device(op, CPU)(logits, 2.0, other=other).equal(logits * 2.0)
    assert seen[0][0].data_ptr() != logits.data_ptr() and seen[0][1].data_ptr() != other.data_ptr()


def test_an_op_that_writes_to_an_input_is_caught() -> None:
    def careless(logits: torch.Tensor) -> torch.Tensor:
        logits[0] = torch.nan
        return logits

    with pytest.raises(AssertionError, match="careless wrote to an input"):
        device.on_device(careless, CPU)(torch.zeros(2))


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor | None


def test_results_go_into_the_tensors_of_the_caller_and_so_does_what_is_written_beside_them() -> None:
    def op(values: torch.Tensor, *, out: Pair) -> Pair:
        out.first.copy_(values)
        torch.as_strided(out.first, (1,), (1,), 0).fill_(-1.0)  # before its begin
        return out

    buffer = torch.zeros(5)
    out = Pair(buffer[1:4], None)
    assert device.on_device(op, CPU)(torch.arange(3.0) + 1, out=out) is out
    assert buffer.tolist() == [-1.0, 1.0, 2.0, 3.0, 0.0]


def test_tensors_of_another_device_are_passed_on() -> None:
    meta = torch.zeros(2, device="meta")
    assert device.on_device(lambda values: torch.tensor(values.is_meta), CPU)(meta)


def test_every_registered_op_is_wrapped_and_the_rest_is_as_it_was() -> None:
    there = device.ops_on(CPU)
    for name in ops.__all__:
        is_op = hasattr(torch.ops.hetero_spec, name)
        assert (getattr(there, name) is not getattr(ops, name)) == is_op
    assert there.row_stats(torch.zeros(1, 2)).equal(ops.row_stats(torch.zeros(1, 2)))


def test_modules_that_call_ops_are_found() -> None:
    module = types.ModuleType("some_test")
    assert device.modules_with_ops(module) == [calls]
    module.ops = ops  # type: ignore[attr-defined]
    assert device.modules_with_ops(module) == [module, calls]
