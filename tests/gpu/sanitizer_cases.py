# SPDX-License-Identifier: Apache-2.0
"""The calls of tests/simt/sanitizer_cases.py on a GPU; tools/gpu_check.py runs them under compute-sanitizer."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.simt import sanitizer_cases as shared
from tests.simt.shared_tests import collect_shared
from tests.tools.device import VARIABLE, ops_on

globals().update(collect_shared(shared, leave_out=set()))


@pytest.fixture(autouse=True)
def on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    device = torch.device(os.environ.get(VARIABLE, "cuda"))
    if device.type == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    # The schedules of the simulated device have no counterpart.
    ops: dict[str, Any] = dict(vars(ops_on(device)))
    monkeypatch.setattr(shared, "device_ops", SimpleNamespace(**ops))
