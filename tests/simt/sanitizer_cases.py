# SPDX-License-Identifier: Apache-2.0
"""Calls of every op that take each path of the kernels once; test_sanitizers_of_ops.py runs them under sanitizers.

Vocabularies of two block groups, so that blocks meet; few rows, since every CUDA thread is a fiber of the sanitizer.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.tools.inputs import make_logits, make_map, make_parameters, make_verification, with_layout
from tests.tools.kernels import Kernel, make_kernel

from . import device_ops

VOCAB_SIZE = 41_003  # eleven chunks: two groups of blocks, of eight and of three warps that have one; odd
# The kernels that read a map have a thread for each of its ids, and the race detector knows 7,168.
MAPPED_VOCAB_SIZE = 5_003


@pytest.fixture(autouse=True)
def schedule() -> None:
    device_ops.module().configure(order="random", seed=2, resident_blocks=2)


@pytest.mark.parametrize("parameters", ["plain", "all", "greedy"])
def test_row_stats(parameters: str) -> None:
    logits = with_layout(make_logits(2, VOCAB_SIZE, seed=1, dtype=torch.bfloat16), misalignment=3)
    device_ops.row_stats(logits, **make_parameters(parameters, 2))
    draft_to_target, _ = make_map("partial", MAPPED_VOCAB_SIZE, seed=1)
    mapped = logits[:, :MAPPED_VOCAB_SIZE]
    device_ops.row_stats(mapped, draft_to_target_ids=draft_to_target, **make_parameters(parameters, 2))
    device_ops.row_stats(torch.zeros(1, 5000), top_k=2500, top_p=0.5)  # does not fit into shared memory


@pytest.mark.parametrize("parameters", ["plain", "all"])
def test_draft_sample(parameters: str) -> None:
    logits = make_logits(2, VOCAB_SIZE, seed=2, dtype=torch.float16)
    keywords = {**make_parameters(parameters, 2), "uniform_samples": torch.tensor([0.2, 0.9], dtype=torch.float64)}
    device_ops.draft_sample(logits, None, **keywords)
    draft_to_target, _ = make_map("partial", MAPPED_VOCAB_SIZE, seed=2)
    device_ops.draft_sample(logits[:, :MAPPED_VOCAB_SIZE], draft_to_target, **keywords)


@pytest.mark.parametrize("rule", ["token", "block"])
@pytest.mark.parametrize("parameters", ["plain", "all"])
@pytest.mark.parametrize("kind", ["logits", "map", "one_hot"])
def test_rejection_sample(kind: str, parameters: str, rule: str) -> None:
    case = make_verification(
        vocab_size=MAPPED_VOCAB_SIZE if kind == "map" else VOCAB_SIZE,
        seed=3,
        batch_size=2,
        max_draft_tokens=2,
        dtype=torch.bfloat16,
        parameters=parameters,
        map_kind="partial" if kind == "map" else None,
        one_hot=kind == "one_hot",
        misalignment=1,
    )
    case.draft_token_ids[0] = int(case.target_logits[0].argmin())  # rejected
    device_ops.rejection_sample(*case.positional, **case.keywords, rule=rule)


def test_remap_probs() -> None:
    draft_to_target, _ = make_map("narrower", 2003, seed=4)
    device_ops.remap_probs(make_logits(2, len(draft_to_target), seed=4), draft_to_target, 2003, top_p=0.9)


def test_acceptance_overlap() -> None:
    logits = make_logits(2, VOCAB_SIZE, seed=5, dtype=torch.float16)
    device_ops.acceptance_overlap(logits[:1], logits[1:])
    _, target_to_draft = make_map("partial", MAPPED_VOCAB_SIZE, seed=5)
    mapped = logits[:, :MAPPED_VOCAB_SIZE]
    device_ops.acceptance_overlap(mapped[:1], mapped[1:], target_to_draft_ids=target_to_draft)


@pytest.mark.parametrize("rule", ["token", "block"])
@pytest.mark.parametrize("one_hot", [False, True])
def test_rejection_sample_probs(one_hot: bool, rule: str) -> None:
    case = make_verification(vocab_size=VOCAB_SIZE, seed=6, batch_size=2, max_draft_tokens=2)
    target = case.target_logits.softmax(-1)
    target[3, VOCAB_SIZE - 1] = torch.nan  # of the request that has no other row
    case.draft_token_ids[0] = int(target[0].argmin())  # rejected
    draft = None if one_hot else with_layout(case.keywords["draft_logits"].softmax(-1), row_padding=1, misalignment=1)
    target = with_layout(target, row_padding=3, misalignment=3)
    uniforms = case.keywords["uniform_samples"]
    device_ops.rejection_sample_probs(target, draft, *case.positional[1:], uniform_samples=uniforms, rule=rule)
    if draft is not None:
        draft[0, -1] = torch.nan  # the residual is none: the target is drawn from instead
        device_ops.rejection_sample_probs(target, draft, *case.positional[1:], uniform_samples=uniforms, rule=rule)
    cu = torch.tensor([0, 2, -1], dtype=torch.int32)  # makes no sense
    device_ops.rejection_sample_probs(target, draft, case.draft_token_ids, cu, 2, uniform_samples=uniforms, rule=rule)


FAR = 2**31 - 1
BROKEN: dict[str, dict[str, list[int]]] = {
    "sound": {},
    "ids": {"column_ids": [FAR, -1], "source_ids": [-FAR, FAR]},
    "offsets": {"row_offsets": [-FAR, FAR], "source_offsets": [FAR, -FAR]},
}


def make_broken(vocab_size: int, changes: dict[str, list[int]]) -> Kernel:
    """A kernel of every part, some of whose ids or offsets lie anywhere."""
    kernel = make_kernel("general", vocab_size, seed=7)
    for name, values in changes.items():
        tensor = getattr(kernel.parts, name).clone()
        tensor[1::3] = torch.tensor(values, dtype=torch.int32).repeat(len(tensor))[: len(tensor[1::3])]
        kernel = kernel.changed(**{name: tensor})
    return kernel


@pytest.mark.parametrize("changes", BROKEN)
def test_rdk_kernel(changes: str) -> None:
    size = 700
    kernel = make_broken(size, BROKEN[changes])
    draft_to_target, target_to_draft = make_map("narrower", size, seed=8)
    logits = make_logits(3, len(draft_to_target), seed=9, dtype=torch.bfloat16)
    keywords: dict[str, Any] = {"kernel": kernel, "target_to_draft_ids": target_to_draft}
    device_ops.draft_sample(logits, draft_to_target, **keywords, uniform_samples=torch.full((3, 3), 0.3).double())
    device_ops.rdk_redistribute(logits.new_full((2, size), 1 / size, dtype=torch.float32), kernel)
    device_ops.acceptance_overlap(make_logits(3, size, seed=10, dtype=torch.bfloat16), logits, **keywords)
    case = make_verification(
        vocab_size=size, seed=11, batch_size=3, max_draft_tokens=2, dtype=torch.bfloat16, map_kind="narrower"
    )
    case.draft_token_ids[0] = int(case.target_logits[0].argmin())  # rejected
    for rule in ("token", "block"):
        device_ops.rejection_sample(*case.positional, **case.keywords, kernel=kernel, rule=rule)


def test_rdk_kernel_that_needs_no_sum() -> None:
    """No sum over the row, and so none of its barriers, comes between the draw and the move."""
    kernel, same = make_kernel("mix", 700, seed=13), torch.arange(700, dtype=torch.int32)
    uniforms = torch.tensor([[0.3, 0.1, 0.7], [0.6, 0.9, 0.2]], dtype=torch.float64)
    device_ops.draft_sample(make_logits(2, 700, seed=14), same, kernel=kernel, uniform_samples=uniforms)


@pytest.mark.parametrize("num_factors", [4, 300])
def test_low_rank_redistribution(num_factors: int) -> None:
    kernel = make_kernel("low_rank", 4500, seed=12, num_factors=num_factors)
    device_ops.rdk_redistribute(torch.full((2, 4500), 1 / 4500), kernel)


def test_low_rank_draws() -> None:
    size = 4500
    kernel = make_kernel("low_rank", size, seed=15)
    draft_to_target, target_to_draft = make_map("narrower", size, seed=16)
    logits = make_logits(2, len(draft_to_target), seed=17, dtype=torch.bfloat16)
    uniforms = torch.tensor([[0.3, 0.1, 0.7], [0.6, 0.9, 0.2]], dtype=torch.float64)  # one is drawn again, one is not
    keywords: dict[str, Any] = {"kernel": kernel, "target_to_draft_ids": target_to_draft}
    device_ops.draft_sample(logits, draft_to_target, **keywords, uniform_samples=uniforms)
    device_ops.acceptance_overlap(make_logits(2, size, seed=18, dtype=torch.bfloat16), logits, **keywords)


@pytest.mark.parametrize("rule", ["token", "block"])
def test_low_rank_verification(rule: str) -> None:
    size = 4500
    kernel = make_kernel("low_rank", size, seed=19)
    case = make_verification(
        vocab_size=size, seed=20, batch_size=2, max_draft_tokens=2, dtype=torch.bfloat16, map_kind="narrower"
    )
    case.draft_token_ids[0] = int(case.target_logits[0].argmin())  # rejected
    case.draft_token_ids[1] = FAR
    device_ops.rejection_sample(*case.positional, **case.keywords, kernel=kernel, rule=rule)
    kept = torch.ones(len(case.draft_token_ids), kernel.parts.factors.shape[1] + 1)  # type: ignore[union-attr]
    device_ops.rejection_sample(*case.positional, **case.keywords, kernel=kernel, draft_leaked_mass=kept, rule=rule)
