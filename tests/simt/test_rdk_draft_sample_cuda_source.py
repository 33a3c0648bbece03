# SPDX-License-Identifier: Apache-2.0
"""draft_sample.cu with an RDK kernel, run on the CPU: the tests of the op."""

from __future__ import annotations

from tests.ops import test_rdk_draft_sample as shared

from .shared_tests import collect_shared, use_device

on_device = use_device(shared)
globals().update(
    collect_shared(
        shared,
        leave_out={
            "test_draws_follow_the_redistributed_law_and_not_the_drafters",  # tens of thousands of rows: minutes here
            "test_bad_arguments_are_named",  # about the Python side
        },
    )
)
