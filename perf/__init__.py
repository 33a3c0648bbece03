# SPDX-License-Identifier: Apache-2.0
"""Microbenchmarks of the ops against what one would use instead. `python -m perf` runs them."""
