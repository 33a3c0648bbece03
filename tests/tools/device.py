# SPDX-License-Identifier: Apache-2.0
"""Where the op tests run: HETERO_SPEC_TEST_DEVICE names a device of torch; without it they call the ops as they are.

Tests make their inputs on the CPU and compare there with the reference. On another device the name `ops` of a test
module stands for ops that move their tensors there (every stride and every misalignment kept), call, and bring the
results back; so the same files test every backend. tests/conftest.py puts them in place.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

VARIABLE = "HETERO_SPEC_TEST_DEVICE"


def chosen_device() -> torch.device | None:
    """The device that the environment names, or None."""
    name = os.environ.get(VARIABLE)
    return torch.device(name) if name else None


def replaced(**functions: Callable[..., Any]) -> SimpleNamespace:
    """What tests reach through their name `ops`: everything that hetero_spec.ops exports, some of it replaced."""
    from hetero_spec import ops

    return SimpleNamespace(**{**{name: getattr(ops, name) for name in ops.__all__}, **functions})


def _everything(tensor: Tensor) -> Tensor:
    """All elements of a tensor's storage."""
    return torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(tensor.untyped_storage())


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """A copy on the device of all that a tensor's storage holds, seen through the same strides and offset."""
    if torch.compiler.is_compiling():
        return tensor.to(device)
    elements = _everything(tensor).to(device, copy=True)
    return elements.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def _move_back(tensor: Tensor, there: Tensor) -> None:
    """What an op wrote into the copy of a tensor, and beside it, into the tensor."""
    if torch.compiler.is_compiling():
        tensor.copy_(there)
    else:
        _everything(tensor).copy_(_everything(there))


def _same_bits(one: Tensor, other: Tensor) -> bool:
    dtypes = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return torch.equal(one.view(dtypes[one.element_size()]), other.view(dtypes[other.element_size()]))


def on_device(function: Callable[..., Any], device: torch.device) -> Callable[..., Any]:
    """The op with CPU tensors in and out, run on a device. What it must not write is compared afterwards."""

    @functools.wraps(function)
    def call(*arguments: Any, out: Any = None, **keywords: Any) -> Any:
        pairs: list[tuple[Tensor, Tensor]] = []

        def move(value: Any) -> Any:
            # Tensors of another device are passed on as they are: some tests want them refused.
            if not isinstance(value, Tensor) or value.device.type != "cpu":
                return value
            pairs.append((value, moved(value, device)))
            return pairs[-1][1]

        positional = [move(value) for value in arguments]
        named = {name: move(value) for name, value in keywords.items()}
        inputs, results = list(pairs), []
        if out is not None:  # results go into tensors of the caller; what is no such tuple is for the op to refuse
            named["out"] = type(out)(*(move(value) for value in out)) if hasattr(out, "_fields") else out
            results = pairs[len(inputs) :]
        returned = function(*positional, **named)
        if not torch.compiler.is_compiling():
            for original, copy in inputs:
                assert _same_bits(original, copy.cpu()), f"{function.__name__} wrote to an input"
        if out is not None:
            assert returned is named["out"]
            for original, copy in results:
                _move_back(original, copy)
            return out
        if isinstance(returned, Tensor):
            return returned.cpu()
        return type(returned)(*(value.cpu() if isinstance(value, Tensor) else value for value in returned))

    return call


@functools.cache
def ops_on(device: torch.device) -> SimpleNamespace:
    """hetero_spec.ops with every op on a device."""
    from hetero_spec import ops

    names = [name for name in ops.__all__ if hasattr(torch.ops.hetero_spec, name)]
    return replaced(**{name: on_device(getattr(ops, name), device) for name in names})


def modules_with_ops(module: ModuleType) -> list[ModuleType]:
    """A test module and the tools that call ops for it, as far as they reach hetero_spec.ops by the name `ops`."""
    from hetero_spec import ops
    from tests.tools import calls

    return [candidate for candidate in (module, calls) if getattr(candidate, "ops", None) is ops]
