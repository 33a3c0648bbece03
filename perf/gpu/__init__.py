# SPDX-License-Identifier: Apache-2.0
"""Measurements of the ops on a GPU against what people use today; tools/gpu_check.py runs them."""
