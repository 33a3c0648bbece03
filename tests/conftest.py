# SPDX-License-Identifier: Apache-2.0
"""Settings of every test: one thread, so that a run takes the same path on every machine."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def single_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
