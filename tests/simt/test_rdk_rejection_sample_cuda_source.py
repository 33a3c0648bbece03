# SPDX-License-Identifier: Apache-2.0
"""rejection_sample.cu and acceptance_overlap.cu with an RDK kernel, run on the CPU: the tests of the ops."""

from __future__ import annotations

from tests.ops import test_rdk_rejection_sample as shared

from .shared_tests import collect_shared, use_device

on_device = use_device(shared)
globals().update(
    collect_shared(
        shared,
        leave_out={
            # tens of thousands of rows: minutes here
            "test_a_proposal_and_its_verification_with_one_seed_and_position_keep_the_law",
            "test_output_law_is_the_targets_law_exactly",
            "test_a_kernel_that_is_not_declared_bends_the_law",
            "test_bad_arguments_are_named",  # about the Python side
            # about the index of the sparse rows, which the device does without
            "test_the_index_of_the_sparse_rows_changes_no_bit",
        },
    )
)
