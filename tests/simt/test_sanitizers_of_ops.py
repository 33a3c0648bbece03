# SPDX-License-Identifier: Apache-2.0
"""The kernels of every op under AddressSanitizer, UndefinedBehaviorSanitizer and the race detector."""

from __future__ import annotations

import pytest

from .conftest import BUILD, build
from .sanitizers import LIBRARIES, run_cases


@pytest.mark.parametrize("flavour", LIBRARIES)
def test_every_op_is_clean(flavour: str) -> None:
    build(f"_simt_{flavour}")
    status, text = run_cases(flavour, BUILD)
    assert status == 0, text[-6000:]
    assert " passed" in text
