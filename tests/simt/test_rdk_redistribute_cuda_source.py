# SPDX-License-Identifier: Apache-2.0
"""rdk_redistribute.cu, run on the CPU: the tests of the op."""

from __future__ import annotations

from tests.ops import test_rdk_redistribute as shared

from .shared_tests import collect_shared, use_device

on_device = use_device(shared)
globals().update(
    collect_shared(
        shared,
        leave_out={
            # about the Python side
            "test_bad_kernels_are_named",
            "test_bad_laws_are_named",
            "test_tensors_of_another_kind_or_device_are_named",
            "test_the_index_by_hand",
            # about the index of the sparse rows, which the device does without
            "test_the_index_changes_no_bit",
            "test_a_broken_index_stays_in_bounds",
        },
    )
)
