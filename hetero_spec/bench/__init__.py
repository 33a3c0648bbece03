# SPDX-License-Identifier: Apache-2.0
"""`hetero-spec bench`: what drafting is worth, pair by pair and prompt by prompt, against plain decoding beside it."""
