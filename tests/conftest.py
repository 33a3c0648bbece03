# SPDX-License-Identifier: Apache-2.0
"""Settings of every test: one thread, so that a run takes the same path on every machine; the device of the ops."""

from collections.abc import Iterator

import pytest
import torch

from tests.tools import device


@pytest.fixture(autouse=True)
def single_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def ops_on_the_test_device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where HETERO_SPEC_TEST_DEVICE names a device, what a test module calls `ops` runs there."""
    chosen = device.chosen_device()
    if chosen is not None:
        for module in device.modules_with_ops(request.module):
            monkeypatch.setattr(module, "ops", device.ops_on(chosen))
