# SPDX-License-Identifier: Apache-2.0
"""The ops' own tests (tests/ops), run on the CUDA sources: one suite holds for every backend."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from tests.tools.device import replaced

from . import device_ops

ON_DEVICE = replaced(**{name: getattr(device_ops, name) for name in device_ops.OPS})


def collect_shared(module: ModuleType, *, leave_out: set[str]) -> dict[str, Callable[..., Any]]:
    """Tests of a module under their own names, but for those that are not about the kernels."""
    found = {
        name: function
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if name.startswith("test_") and function.__module__ == module.__name__
    }
    unknown = leave_out - set(found)
    assert not unknown, f"{module.__name__} has no {sorted(unknown)}"
    return {name: function for name, function in found.items() if name not in leave_out}


def use_device(module: ModuleType) -> Any:
    """An autouse fixture under which the tests of a module call the device's ops, in one schedule after the other."""

    @pytest.fixture(autouse=True)
    def on_device(monkeypatch: pytest.MonkeyPatch, any_schedule: None) -> None:
        monkeypatch.setattr(module, "ops", ON_DEVICE)

    return on_device
