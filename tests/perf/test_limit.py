# SPDX-License-Identifier: Apache-2.0
"""The yardstick does the work that it stands for."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from perf.limit import KINDS, Limit

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the yardstick is compiled with g++")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_limit_finds_the_log_sum_exp_of_every_row(kind: str, dtype: torch.dtype) -> None:
    logits = (torch.randn(3, 9001, generator=torch.Generator().manual_seed(0)) * 4).to(dtype)
    limit = Limit(logits, kind)
    limit()
    # The short polynomial is good to 2e-7 of each term; float32 sums of 4096 terms to some 1e-6.
    torch.testing.assert_close(limit.log_sum_exp(), torch.logsumexp(logits.float(), -1), atol=1e-5, rtol=0)


def test_limit_refuses_what_is_not_a_dense_matrix() -> None:
    with pytest.raises(ValueError, match="contiguous matrix"):
        Limit(torch.zeros(4, 6)[:, ::2])


def test_the_yardstick_leaves_subnormal_numbers_alone():
    """A library linked with -ffast-math would flush them in the whole process, and with them tiny temperatures."""
    program = (
        "import torch; from perf.limit import Limit; Limit(torch.zeros(1, 1)); "
        "assert float(torch.tensor([1e-38]) * 0.5) > 0.0"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).resolve().parents[2])
