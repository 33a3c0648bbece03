# SPDX-License-Identifier: Apache-2.0
"""The composed ways compute what ours do, and a way that doesn't is refused before it is timed."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from perf import bench_rejection_sample, checks
from perf.alternatives import Draw
from perf.cases import Case
from perf.inputs import make_verification

SMALL = Case("rejection_sample", "float32", vocab_size=1003, batch_size=6, acceptance=0.5)
CASES = {
    "plain": SMALL,
    "bfloat16": replace(SMALL, dtype="bfloat16", temperature=0.7),
    "mapped": replace(SMALL, mapped=True),
    "top_p": replace(SMALL, top_p=0.9, mapped=True),
    "block": replace(SMALL, rule="block"),
    "full acceptance": replace(SMALL, acceptance=1.0),
}


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def _check(case: Case, change: Callable[[str, Any], Any] = lambda name, chain: chain) -> None:
    inputs = make_verification(case)
    uniforms = torch.rand(case.batch_size, case.num_drafts + 1, 2, dtype=torch.float64)
    for name, chain in bench_rejection_sample.exact_chains(case, inputs).items():
        bench_rejection_sample.check(case, inputs, name, 0, uniforms, change(name, chain))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_every_chain_accepts_and_draws_as_ours(case: Case) -> None:
    torch.manual_seed(0)
    _check(case)


@pytest.mark.parametrize("fault", ["accepted", "token"])
def test_a_chain_that_computes_something_else_is_refused(fault: str) -> None:
    def wrong(_: str, chain: Any) -> Any:
        def run(idx: int, uniforms: Tensor, draw: Draw, wrap: Callable[[Any], Any]) -> tuple[Tensor, Tensor]:
            accepted, token = chain(idx, uniforms, draw, wrap)
            return (accepted + 1, token) if fault == "accepted" else (accepted, (token + 500) % 1003)

        return run

    torch.manual_seed(0)
    with pytest.raises(checks.Disagreement, match=fault):
        _check(SMALL, wrong)


@pytest.mark.parametrize("acceptance", [0.3, 0.5])
def test_drafts_have_the_acceptance_that_was_asked_for(acceptance: float) -> None:
    inputs = make_verification(replace(SMALL, acceptance=acceptance))
    assert abs(inputs.overlap - acceptance) < 0.01


def test_draws_may_differ_only_at_a_boundary() -> None:
    weights = torch.tensor([[0.5, 0.25, 0.25]])
    ours, theirs = torch.tensor([0]), torch.tensor([1])
    checks.same_draws("near", ours, theirs, weights, torch.tensor([0.5 - 1e-6]))
    with pytest.raises(checks.Disagreement, match="far"):
        checks.same_draws("far", ours, theirs, weights, torch.tensor([0.4]))
