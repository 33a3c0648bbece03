# SPDX-License-Identifier: Apache-2.0
"""What one rank of a group computes: nothing but the ops is imported, so that a second process starts quickly."""

import torch

from hetero_spec import ops


def emitted_token_ids() -> list[list[int]]:
    rows = torch.sin(torch.arange(8 * 5000, dtype=torch.float32)).reshape(8, 5000) * 3
    keys = torch.tensor([1, 2, 3])
    out = ops.rejection_sample(
        rows,
        torch.tensor([1, 2, 3, 4, 5], dtype=torch.int32),
        torch.tensor([0, 2, 3, 5], dtype=torch.int32),
        2,
        draft_logits=rows[:5] + 0.5,
        seeds=keys,
        positions=keys,
    )
    return out.output_token_ids.tolist()
