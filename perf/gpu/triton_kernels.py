# SPDX-License-Identifier: Apache-2.0
"""The field's approach in Triton, written for this comparison: probabilities first, then a kernel that verifies them.

Engines write float32 probabilities of every target and draft row to memory and verify from there, a program a request.
Same draws as ours (inverse CDF in vocabulary order, the same uniforms in float32), so that both can be compared.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096


@triton.jit
def softmax_kernel(logits, probs, width, inv_temperature, BLOCK: tl.constexpr):
    """One program a row: a pass for maximum and sum, a pass that writes."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    # Finite, so that -inf - largest is no NaN; lower than any bfloat16 logit that counts.
    largest = tl.full([BLOCK], -3.0e38, tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for first in range(0, width, BLOCK):
        inside = first + at < width
        value = tl.load(logits + row * width + first + at, mask=inside, other=-float("inf")).to(tl.float32)
        value = value * inv_temperature
        higher = tl.maximum(largest, value)
        total = total * tl.exp(largest - higher) + tl.exp(value - higher)
        largest = higher
    row_largest = tl.max(largest, 0)
    row_total = tl.sum(total * tl.exp(largest - row_largest), 0)
    for first in range(0, width, BLOCK):
        inside = first + at < width
        value = tl.load(logits + row * width + first + at, mask=inside, other=-float("inf")).to(tl.float32)
        prob = tl.exp(value * inv_temperature - row_largest) / row_total
        tl.store(probs + row * width + first + at, prob, mask=inside)


@triton.jit
def verify_kernel(
    target_probs, draft_probs, draft_ids, uniforms, token_ids, num_accepted, width,
    DRAFTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program a request: the tests in order, then a draw from the residual or from the bonus row."""
    request = tl.program_id(0).to(tl.int64)
    first_row = request * (DRAFTS + 1)
    accepted = tl.zeros([], tl.int32)
    for position in range(DRAFTS):
        token = tl.load(draft_ids + request * DRAFTS + position)
        target_prob = tl.load(target_probs + (first_row + position) * width + token)
        draft_prob = tl.load(draft_probs + (request * DRAFTS + position) * width + token)
        uniform = tl.load(uniforms + (first_row + position) * 2)
        keeps = (accepted == position) & (uniform * draft_prob < target_prob)
        tl.store(token_ids + first_row + position, tl.where(keeps, token, -1))
        accepted += keeps.to(tl.int32)
    tl.store(num_accepted + request, accepted)

    at = tl.arange(0, BLOCK)
    target_row = target_probs + (first_row + accepted) * width
    draft_row = draft_probs + (request * DRAFTS + tl.minimum(accepted, DRAFTS - 1)) * width
    draft_width = tl.where(accepted < DRAFTS, width, 0)  # a bonus is drawn from the target alone
    total = tl.zeros([BLOCK], tl.float32)
    for first in range(0, width, BLOCK):
        inside = first + at < width
        weight = tl.load(target_row + first + at, mask=inside, other=0.0)
        weight -= tl.load(draft_row + first + at, mask=first + at < draft_width, other=0.0)
        total += tl.maximum(weight, 0.0)
    uniform = tl.load(uniforms + (first_row + accepted) * 2 + 1)
    goal = uniform * tl.sum(total, 0)
    passed = tl.zeros([], tl.float32)
    chosen = tl.zeros([], tl.int32) + width
    for first in range(0, width, BLOCK):
        inside = first + at < width
        weight = tl.load(target_row + first + at, mask=inside, other=0.0)
        weight -= tl.load(draft_row + first + at, mask=first + at < draft_width, other=0.0)
        weight = tl.maximum(weight, 0.0)
        cumulative = passed + tl.cumsum(weight, 0)
        found = tl.where((cumulative > goal) & (weight > 0.0), first + at, width)
        chosen = tl.minimum(chosen, tl.min(found, 0))
        passed += tl.sum(weight, 0)
    tl.store(token_ids + first_row + accepted, tl.minimum(chosen, width - 1))


def softmax(logits: Tensor, temperature: float) -> Tensor:
    """float32 probabilities of bfloat16 rows [..., V]."""
    probs = torch.empty(logits.shape, dtype=torch.float32, device=logits.device)
    rows = logits.numel() // logits.shape[-1]
    softmax_kernel[(rows,)](logits, probs, logits.shape[-1], 1.0 / temperature, BLOCK=BLOCK, num_warps=8)
    return probs


def verify(target_probs: Tensor, draft_probs: Tensor, draft_ids: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """(token ids [B, K + 1] padded with -1, num_accepted [B]) of probabilities [B, K + 1, V] and [B, K, V]."""
    batch, drafts = draft_ids.shape
    token_ids = torch.full((batch, drafts + 1), -1, dtype=torch.int32, device=draft_ids.device)
    num_accepted = torch.empty(batch, dtype=torch.int32, device=draft_ids.device)
    verify_kernel[(batch,)](
        target_probs, draft_probs, draft_ids, uniforms, token_ids, num_accepted, target_probs.shape[-1],
        DRAFTS=drafts, BLOCK=BLOCK, num_warps=8,
    )  # fmt: skip
    return token_ids, num_accepted
