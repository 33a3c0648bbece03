# SPDX-License-Identifier: Apache-2.0
"""Every instruction set gives the reference's answers and the same ids. Chosen once per process, hence the children."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.rank import emitted_token_ids

CHILD = """
import torch
from hetero_spec import ops, reference
from tests.tools.kernels import make_kernel
from tests.tools.rank import emitted_token_ids

torch.set_num_threads(1)
generator = torch.Generator().manual_seed(7)
vocab_size, draft_vocab_size, batch_size, length = 9001, 5003, 4, 3
rows = batch_size * (length + 1)
to_target = torch.full((draft_vocab_size,), -1, dtype=torch.int32)
shared = torch.randperm(draft_vocab_size, generator=generator)[:4000]
to_target[shared] = torch.randperm(vocab_size, generator=generator)[:4000].int()
to_draft = torch.full((vocab_size,), -1, dtype=torch.int32)
to_draft[to_target[shared].long()] = shared.int()
cu = torch.arange(batch_size + 1, dtype=torch.int32) * length
kernel = make_kernel("general", vocab_size, seed=1)
laws = torch.randn(2, vocab_size, generator=generator).softmax(-1)
moved = reference.rdk_redistribute(laws, kernel)
torch.testing.assert_close(ops.rdk_redistribute(laws, kernel).double(), moved, rtol=1e-5, atol=1e-9)
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    target = (torch.randn(rows, vocab_size, generator=generator) * 3).to(dtype)
    drafter = (torch.randn(batch_size * length, draft_vocab_size, generator=generator) * 3).to(dtype)
    for params in ({}, {"temperature": 0.7, "top_p": 0.8}, {"top_k": 40}, {"min_p": 0.02}, {"temperature": 0.0}):
        stats = ops.row_stats(target, **params)
        expected = reference.row_stats(target, **params)
        torch.testing.assert_close(stats.double(), expected.double(), rtol=1e-5, atol=2e-5)
        uniforms = torch.rand(batch_size * length, generator=generator, dtype=torch.float64)
        draft = ops.draft_sample(drafter, to_target, uniform_samples=uniforms, **params)
        wanted = reference.draft_sample(drafter, to_target, uniform_samples=uniforms, **params)
        assert torch.equal(draft.target_token_ids.long(), wanted.target_token_ids.long())
        torch.testing.assert_close(draft.probs.double(), wanted.probs.double(), rtol=1e-4, atol=1e-7)
        pair = torch.rand(rows, 2, generator=generator, dtype=torch.float64)
        for rule in ("token", "block"):
            arguments = dict(draft_logits=drafter, target_to_draft_ids=to_draft, uniform_samples=pair, rule=rule)
            got = ops.rejection_sample(target, draft.target_token_ids, cu, length, **arguments, **params)
            right = reference.rejection_sample(target, draft.target_token_ids, cu, length, **arguments, **params)
            assert torch.equal(got.output_token_ids.long(), right.output_token_ids.long()), (dtype, params, rule)
        arguments |= params | {"kernel": kernel}
        got = ops.rejection_sample(target, draft.target_token_ids, cu, length, **arguments)
        right = reference.rejection_sample(target, draft.target_token_ids, cu, length, **arguments)
        assert torch.equal(got.output_token_ids.long(), right.output_token_ids.long()), (dtype, params, "kernel")
print(emitted_token_ids())
"""


@pytest.mark.parametrize("isa", ["generic", "avx2", "avx512"])
def test_kernels_of_an_instruction_set_equal_the_reference(isa):
    child = subprocess.run(
        [sys.executable, "-c", CHILD],
        cwd=Path(__file__).resolve().parents[2],
        env={**os.environ, "HETERO_SPEC_CPU_ISA": isa},
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    assert child.stdout.strip() == str(emitted_token_ids())  # of this process, whatever its set
