# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable

import pytest

from hetero_spec.vocab import Vocabulary
from tests.vocab.samples import read_real


@pytest.fixture(scope="session")
def real() -> Callable[[str], Vocabulary]:
    """Read a real vocabulary by its name in `samples.REAL_FILES`, once a session; skip where it isn't installed."""
    return read_real
