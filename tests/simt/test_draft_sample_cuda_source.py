# SPDX-License-Identifier: Apache-2.0
"""draft_sample.cu, run on the CPU: the tests of the op, and what is particular to the kernel."""

from __future__ import annotations

import pytest
import torch

from tests.ops import test_draft_sample as shared
from tests.tools.inputs import DTYPES, make_logits, make_map, make_parameters, with_layout

from . import device_ops
from .shared_tests import collect_shared, use_device

on_device = use_device(shared)
globals().update(
    collect_shared(
        shared,
        leave_out={
            "test_draws_follow_the_law_and_not_another",  # hundreds of thousands of rows: minutes here
            # about the Python side
            "test_bad_arguments_are_named",
            "test_randomness_must_be_given",
            "test_seeds_and_uniforms_together_are_refused",
        },
    )
)


@pytest.mark.parametrize("parameters", ["plain", "all"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_bits_do_not_depend_on_where_a_row_starts(dtype: torch.dtype, parameters: str) -> None:
    logits = make_logits(4, 4700, seed=5, dtype=dtype)
    draft_to_target, _ = make_map("partial", 4700, seed=5)
    keywords = {**make_parameters(parameters, 4), "uniform_samples": torch.tensor([0.0, 0.3, 0.7, 1 - 2**-53]).double()}
    one = device_ops.draft_sample(logits, draft_to_target, **keywords)
    moved = with_layout(logits, row_padding=1, misalignment=3)
    other = device_ops.draft_sample(moved, draft_to_target, **keywords)
    assert all(torch.equal(a, b) for a, b in zip(one[:-1], other[:-1], strict=True))


@pytest.mark.parametrize("parameters", ["plain", "all", "greedy"])
def test_stats_and_probability_are_what_verification_finds(parameters: str) -> None:
    logits = make_logits(4, 4700, seed=6, dtype=torch.bfloat16)
    keywords = make_parameters(parameters, 4)
    draft = device_ops.draft_sample(logits, None, **keywords, uniform_samples=torch.rand(4).double())
    assert torch.equal(draft.stats, device_ops.row_stats(logits, **keywords))
