# SPDX-License-Identifier: Apache-2.0
"""Verification by exact match: reproducible decoding.

At every row the target draws its own token, with the random number that plain decoding would use at that position; a
draft token is accepted while it is the very token drawn, and the first that differs is emitted in its place. Every
emitted token is drawn from the target's law, so no law of the drafter enters. With a seed, the text is token for token
that of plain seeded decoding, whatever the drafter (up to float rounding between a pass over one token and a pass over
several).

Source: string-level exact match of Timor et al. 2502.05202; with counter-based random numbers it becomes a promise
about the tokens and not only about their law.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hetero_spec import ops
from hetero_spec.decoding.request import Request
from hetero_spec.decoding.sampling import sampling_arguments


def exact_sample(
    target_logits: Tensor, draft_token_ids: Sequence[Sequence[int]], requests: Sequence[Request]
) -> ops.RejectionSample:
    """Let the target draw at every row, and keep each draft for as long as it says the same.

    Parameters
    ----------
    target_logits : float [N + B, V]
        Rows of the B requests back to back; one more than its draft is long for each.
    draft_token_ids : one sequence of target ids per request
        N ids in all.
    requests : sequence of Request
        Seeds, positions and sampling parameters.

    Returns
    -------
    ops.RejectionSample
        As of `ops.rejection_sample`, on the CPU. `status` speaks of the rows that were reached.
    """
    counts = [len(ids) for ids in draft_token_ids]
    device = target_logits.device
    owners = [request for request, count in zip(requests, counts, strict=True) for _ in range(count + 1)]
    depths = [j for count in counts for j in range(count + 1)]
    # Every row is a request of its own without a draft: one draw from the target's law each.
    drawn = ops.rejection_sample(
        target_logits,
        torch.zeros(0, dtype=torch.int32, device=device),
        torch.zeros(len(owners) + 1, dtype=torch.int32, device=device),
        0,
        **sampling_arguments([request.sampling for request in owners], device),
        seeds=torch.tensor([request.seed for request in owners], dtype=torch.int64, device=device),
        positions=torch.tensor(
            [request.position + depth for request, depth in zip(owners, depths, strict=True)],
            dtype=torch.int64,
            device=device,
        ),
    )
    drawn_ids, drawn_status = drawn.output_token_ids[:, 0].tolist(), drawn.status.tolist()
    output = torch.full((len(requests), max(counts, default=0) + 1), -1, dtype=torch.int32)
    num_accepted, status = [], []
    row = 0
    for i, ids in enumerate(draft_token_ids):
        accepted = 0
        # A row without a law ends the request: what it drew means nothing.
        while accepted < len(ids) and not drawn_status[row + accepted] and drawn_ids[row + accepted] == ids[accepted]:
            accepted += 1
        emitted = drawn_ids[row : row + accepted + 1]
        output[i, : accepted + 1] = torch.tensor(emitted, dtype=torch.int32)
        num_accepted.append(accepted)
        status.append(drawn_status[row + accepted])
        row += len(ids) + 1
    return ops.RejectionSample(
        output, torch.tensor(num_accepted, dtype=torch.int32), torch.tensor(status, dtype=torch.int32)
    )
