# SPDX-License-Identifier: Apache-2.0
"""rejection_sample.cu, run on the CPU: the tests of the op, and what is particular to the kernels."""

from __future__ import annotations

import pytest
import torch

from tests.ops import test_rejection_sample as shared
from tests.tools.inputs import DTYPES, make_verification

from . import device_ops
from .shared_tests import collect_shared, use_device

on_device = use_device(shared)
globals().update(
    collect_shared(
        shared,
        leave_out={
            # hundreds of thousands of rows: minutes here
            "test_a_proposal_and_its_verification_with_one_seed_and_position_keep_the_law",
            "test_mean_number_of_accepted_tokens_is_exact",
            "test_output_law_is_the_targets_law_exactly",
            "test_sampled_law_is_the_targets_and_a_wrongly_declared_drafter_is_caught",
            "test_sampled_mean_number_of_accepted_tokens",
            "test_streams_of_a_row_are_independent_of_each_other_and_of_the_next_row",
            # about the Python side
            "test_bad_arguments_are_named",
            "test_good_arguments_of_the_error_tests_are_good",
            "test_ragged_lengths_of_the_inputs_hold_the_maximum_and_zero",
            "test_raise_for_status_names_what_was_wrong",
            "test_status_bits_are_those_of_the_reference",
        },
    )
)

RULES = ("token", "block")


def _equal(one: tuple[torch.Tensor, ...], other: tuple[torch.Tensor, ...]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_output_does_not_depend_on_where_rows_start(dtype: torch.dtype, rule: str) -> None:
    layout = {"row_padding": 3, "misalignment": 5}
    for parameters in ("plain", "all"):
        plain = make_verification(vocab_size=4700, seed=4, dtype=dtype, parameters=parameters)
        moved = make_verification(vocab_size=4700, seed=4, dtype=dtype, parameters=parameters, **layout)
        assert _equal(
            device_ops.rejection_sample(*plain.positional, **plain.keywords, rule=rule),
            device_ops.rejection_sample(*moved.positional, **moved.keywords, rule=rule),
        )


@pytest.mark.parametrize("rule", RULES)
def test_a_request_does_not_depend_on_the_batch(rule: str) -> None:
    case = make_verification(vocab_size=4700, seed=9, batch_size=6, parameters="per_request", map_kind="partial")
    together = device_ops.rejection_sample(*case.positional, **case.keywords, rule=rule)
    for index in range(6):
        alone = case.request(index)
        out = device_ops.rejection_sample(*alone.positional, **alone.keywords, rule=rule)
        assert _equal(out, tuple(values[index : index + 1] for values in together))


@pytest.mark.parametrize("rule", RULES)
def test_target_and_drafter_may_differ_in_dtype(rule: str) -> None:
    for target_dtype, draft_dtype in ((torch.bfloat16, torch.float32), (torch.float32, torch.float16)):
        case = make_verification(vocab_size=1003, seed=8, dtype=target_dtype)
        case.keywords["draft_logits"] = case.keywords["draft_logits"].float().to(draft_dtype)
        out = device_ops.rejection_sample(*case.positional, **case.keywords, rule=rule)
        shared.assert_verdicts_match(
            out, shared.rejection_sample_verdicts, case.positional, {**case.keywords, "rule": rule}
        )
