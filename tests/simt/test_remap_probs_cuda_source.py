# SPDX-License-Identifier: Apache-2.0
"""remap_probs.cu, run on the CPU: the tests of the op."""

from __future__ import annotations

from tests.ops import test_remap_probs as shared

from .shared_tests import collect_shared, use_device

on_device = use_device(shared)
globals().update(collect_shared(shared, leave_out={"test_bad_arguments_are_named"}))  # about the Python side
