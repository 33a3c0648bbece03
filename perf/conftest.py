# SPDX-License-Identifier: Apache-2.0
"""Collects the cases of a selection; `python -m perf` is the front door."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from perf.cases import SELECTIONS, Case
from perf.harness import Workload, measure


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("perf")
    group.addoption("--selection", choices=sorted(SELECTIONS), default="quick")
    group.addoption("--rounds", type=int, default=15)
    group.addoption("--threads", type=int, default=0, help="of every case; 0: as the case says")
    group.addoption("--no-compile", action="store_true", help="leave torch.compile out")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" not in metafunc.fixturenames:
        return
    op = metafunc.function.__name__.removeprefix("bench_")
    cases = [case for case in SELECTIONS[metafunc.config.getoption("--selection")]() if case.op == op]
    if threads := metafunc.config.getoption("--threads"):
        # Cases that differed in their threads only become one.
        cases = list(dict.fromkeys(replace(case, threads=threads) for case in cases))
    metafunc.parametrize("case", cases, ids=[case.label for case in cases])


@pytest.fixture(autouse=True)
def case_threads(case: Case) -> Iterator[None]:
    default = torch.get_num_threads()
    torch.set_num_threads(case.threads or default)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(default)


@pytest.fixture
def use_compile(case: Case, request: pytest.FixtureRequest) -> bool:
    return case.compiled and not request.config.getoption("--no-compile")


@pytest.fixture
def run(benchmark: Any, request: pytest.FixtureRequest) -> Callable[[Case, Workload], None]:
    rounds = request.config.getoption("--rounds")
    return lambda case, workload: measure(case, workload, benchmark, rounds)
