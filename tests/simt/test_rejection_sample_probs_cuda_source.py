# SPDX-License-Identifier: Apache-2.0
"""rejection_sample_probs.cu, run on the CPU: the tests of the op, and what is particular to the kernels."""

from __future__ import annotations

import pytest
import torch

from hetero_spec import ops
from hetero_spec.reference.rejection_sample_probs import rejection_sample_probs_verdicts
from tests.ops import test_rejection_sample_probs as shared
from tests.tools.compare import assert_verdicts_match
from tests.tools.inputs import make_cu

from . import device_ops
from .shared_tests import collect_shared, use_device

on_device = use_device(shared)
globals().update(
    collect_shared(
        shared,
        leave_out={
            "test_output_law_is_the_targets_law_exactly",  # hundreds of thousands of rows: minutes here
            # about the Python side
            "test_bad_arguments_are_named",
            "test_good_arguments_of_the_error_tests_are_good",
        },
    )
)

RULES = ("token", "block")
CHUNK = 4096


def _equal(one: tuple[torch.Tensor, ...], other: tuple[torch.Tensor, ...]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def _with_faults(vocab_size: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, int]:
    """A batch of requests of two drafts, most of them broken in one way each; the last of no draft."""
    lengths = [2] * 11 + [0]
    arguments, _ = shared.make_case(vocab_size, 6, batch_size=12, max_draft_tokens=2)
    gen = torch.Generator().manual_seed(1)
    target = torch.rand(sum(lengths) + 12, vocab_size, generator=gen).softmax(-1)
    draft = torch.rand(sum(lengths), vocab_size, generator=gen).softmax(-1)
    ids = torch.randint(vocab_size, (sum(lengths),), generator=gen).to(torch.int32)
    far = vocab_size - 2  # in the last chunk
    target[0, far] = torch.nan
    target[3 + 1, far] = torch.inf  # of the second row of its request
    target[6] = -0.5  # nothing but negative numbers: empty
    target[9, :far] = -target[9, :far]
    draft[2 * 4, far] = torch.nan
    draft[2 * 4, ids[2 * 4]] = 1.0  # so that it is rejected, and the residual looked at
    draft[2 * 5 + 1, far] = torch.inf
    ids[2 * 6] = vocab_size
    ids[2 * 7 + 1] = -2
    draft[2 * 8, ids[2 * 8]] = 0.0
    draft[2 * 9] = target[3 * 9] * 2  # rejected half of the time, and then nothing is left
    ids[2 * 10] = -1
    target[-1, 1:] = 0.0
    return target, draft, ids, make_cu(lengths), 2


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("one_hot", [False, True])
def test_broken_rows_end_as_on_the_cpu(any_schedule: None, one_hot: bool, rule: str) -> None:
    target, draft, ids, cu, most = _with_faults(2 * CHUNK + 5)
    for uniform in (0.0, 0.4, 1 - 2**-53):
        arguments = (target, None if one_hot else draft, ids, cu, most)
        keywords = {"uniform_samples": torch.full((len(target), 2), uniform, dtype=torch.float64), "rule": rule}
        on_cpu = ops.rejection_sample_probs(*arguments, **keywords)
        out = device_ops.rejection_sample_probs(*arguments, **keywords)
        assert torch.equal(out.status, on_cpu.status) and out.status.count_nonzero() >= 3
        assert torch.equal(out.num_accepted_tokens, on_cpu.num_accepted_tokens)
        assert_verdicts_match(out, rejection_sample_probs_verdicts, arguments, keywords)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("one_hot", [False, True])
def test_ids_equal_those_of_the_cpu_over_several_groups_of_blocks(any_schedule: None, one_hot: bool, rule: str) -> None:
    arguments, _ = shared.make_case(9 * CHUNK + 1, 2, one_hot=one_hot, batch_size=5, max_draft_tokens=4, noise=0.4)
    seeds, positions = torch.arange(5), torch.arange(5) * 100
    for shift in range(3):
        keywords = {"seeds": seeds + shift, "positions": positions, "rule": rule}
        assert _equal(
            device_ops.rejection_sample_probs(*arguments, **keywords),
            ops.rejection_sample_probs(*arguments, **keywords),
        )


@pytest.mark.parametrize("rule", RULES)
def test_a_request_does_not_depend_on_the_batch(any_schedule: None, rule: str) -> None:
    (target, draft, ids, cu, most), uniforms = shared.make_case(4700, 9, batch_size=6)
    together = device_ops.rejection_sample_probs(target, draft, ids, cu, most, uniform_samples=uniforms, rule=rule)
    for index in range(6):
        begin, end = cu[index : index + 2].tolist()
        rows = slice(begin + index, end + index + 1)
        alone = (target[rows].clone(), draft[begin:end].clone(), ids[begin:end].clone(), make_cu([end - begin]), most)
        out = device_ops.rejection_sample_probs(*alone, uniform_samples=uniforms[rows].clone(), rule=rule)
        assert _equal(out, tuple(values[index : index + 1] for values in together))


@pytest.mark.parametrize("rule", RULES)
def test_offsets_that_make_no_sense_stay_in_bounds_and_leave_other_requests_alone(
    any_schedule: None, rule: str
) -> None:
    """Two requests that claim the same rows; what they get is anything, the first is as alone."""
    (target, draft, _, _, _), uniforms = shared.make_case(1003, 3, batch_size=1, max_draft_tokens=6)
    target, draft = target[0].repeat(7, 1), target[0].repeat(4, 1)
    ids = torch.tensor([1, 2, 3, 4], dtype=torch.int32)
    uniforms = torch.full((7, 2), 0.5, dtype=torch.float64)
    for cu in ([0, 4, 2, 4], [0, 4, -9, 2**31 - 1], [0, 4, 4, 0]):
        out = device_ops.rejection_sample_probs(
            target, draft, ids, torch.tensor(cu, dtype=torch.int32), 4, uniform_samples=uniforms, rule=rule
        )
        assert out.num_accepted_tokens[0] == 4 and out.output_token_ids[0, :4].tolist() == [1, 2, 3, 4]
        assert ((out.output_token_ids >= -1) & (out.output_token_ids < 1003)).all()
