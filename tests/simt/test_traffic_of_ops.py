# SPDX-License-Identifier: Apache-2.0
"""Bytes that the kernels ask of memory, counted, against the least that the ops need. The numbers depend on no machine.

Floors of a verification of B requests with K drafts each, in bytes: every target row once (plain), and for each
rejection its target row and its draft row once more (tight). What memory moves is counted in sectors of 32 bytes, once
for each instruction of a warp: 32 lanes that read one number read one sector.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.tools.inputs import make_cu, make_logits, with_layout

from . import device_ops

VOCAB_SIZE, BATCH_SIZE, DRAFTS, ITEM = 151936, 4, 4, 2
ROW = VOCAB_SIZE * ITEM


def count(function: Any, *arguments: Any, **keywords: Any) -> tuple[Any, dict[str, Any]]:
    device = device_ops.module("traffic")
    device.configure(order="forward")
    device.take_traffic()
    out = function(*arguments, **keywords, flavour="traffic")
    return out, device.take_traffic()


def verification(accepted: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A batch whose requests keep exactly `accepted` tokens: the drafter's law is the target's, uniforms decide."""
    target = make_logits(BATCH_SIZE * (DRAFTS + 1), VOCAB_SIZE, seed=3, dtype=torch.bfloat16)
    target[target == -torch.inf] = -9.0
    rows = [request * (DRAFTS + 1) + position for request in range(BATCH_SIZE) for position in range(DRAFTS)]
    draft = target[rows].clone()
    token_ids = draft.argmax(-1).to(torch.int32)
    for request in range(BATCH_SIZE):
        if accepted < DRAFTS:
            at = request * DRAFTS + accepted
            draft[at, token_ids[at]] += 4.0  # the drafter is surer than the target
    uniforms = torch.full((len(target), 2), 1 - 2**-53, dtype=torch.float64)
    uniforms[:, 1] = 0.5
    keywords = {"draft_logits": draft, "uniform_samples": uniforms}
    return (target, token_ids, make_cu([DRAFTS] * BATCH_SIZE), DRAFTS), keywords


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("accepted", range(DRAFTS + 1))
def test_verification_stays_near_the_floor_and_exits_early(accepted: int, temperature: float) -> None:
    arguments, keywords = verification(accepted)
    stats = device_ops.row_stats(keywords["draft_logits"], temperature=temperature)
    out, traffic = count(
        device_ops.rejection_sample, *arguments, **keywords, draft_stats=stats, temperature=temperature
    )
    assert out.num_accepted_tokens.tolist() == [accepted] * BATCH_SIZE
    plain = BATCH_SIZE * (DRAFTS + 1) * ROW
    rejected = accepted < DRAFTS
    floor = BATCH_SIZE * (accepted + 1 + 2 * rejected) * ROW
    loaded = 32 * traffic["load_sectors"]
    assert loaded <= 1.05 * floor
    if accepted <= 1:
        assert loaded < plain
    assert traffic["store_bytes"] < 0.005 * loaded
    assert traffic["wide_load_bytes"] > 0.95 * loaded
    assert traffic["uninitialised_shared_loads"] == 0
    # Draft rows of accepted tokens: one logit each; a rejected one once, and the chunk of the draw again.
    assert traffic["loads"]["draft_logits"] <= BATCH_SIZE * (rejected * 1.03 * ROW + DRAFTS * ITEM)


def test_truncated_verification_reads_each_needed_row_three_times_at_most() -> None:
    arguments, keywords = verification(DRAFTS)
    stats = device_ops.row_stats(keywords["draft_logits"])
    _, traffic = count(device_ops.rejection_sample, *arguments, **keywords, draft_stats=stats, top_p=0.9)
    rows = BATCH_SIZE * (DRAFTS + 1)
    # The bonus row is summed once more for its draw.
    assert traffic["loads"]["target_logits"] <= (3 * rows + BATCH_SIZE) * ROW * 1.01


@pytest.mark.parametrize(("parameters", "reads"), [({}, 1.03), ({"temperature": 0.7}, 1.03), ({"top_p": 0.9}, 4.03)])
def test_draft_sample_reads_its_rows_once(parameters: dict[str, float], reads: float) -> None:
    logits = make_logits(2, VOCAB_SIZE, seed=4, dtype=torch.bfloat16)
    _, traffic = count(device_ops.draft_sample, logits, None, uniform_samples=torch.rand(2).double(), **parameters)
    assert traffic["loads"]["draft_logits"] <= reads * 2 * ROW
    assert traffic["wide_load_bytes"] > 0.95 * traffic["load_bytes"]


@pytest.mark.parametrize("misalignment", [0, 3])
def test_row_stats_reads_each_logit_once_wherever_the_row_starts(misalignment: int) -> None:
    logits = with_layout(make_logits(2, 32003, seed=5, dtype=torch.bfloat16), row_padding=5, misalignment=misalignment)
    _, traffic = count(device_ops.row_stats, logits)
    # A shifted row costs one 16-byte load in 32 more.
    assert traffic["loads"]["logits"] <= 2 * 32003 * ITEM * (1.001 if misalignment == 0 else 1.05)
    assert traffic["wide_load_bytes"] > 0.93 * traffic["loads"]["logits"]
