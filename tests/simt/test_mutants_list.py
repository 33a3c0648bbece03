# SPDX-License-Identifier: Apache-2.0
"""The kill list fits the sources: every fault can still be planted. `make mutants` plants them."""

from __future__ import annotations

import pytest

from .conftest import FLAVOURS, ROOT
from .mutants import MUTANTS, Mutant


def test_list_is_long_and_names_each_fault_once() -> None:
    assert len(MUTANTS) >= 15
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert len({(mutant.path, mutant.old, mutant.new) for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_fault_can_be_planted_and_its_tests_are_there(mutant: Mutant) -> None:
    assert mutant.old in (ROOT / mutant.path).read_text()
    assert mutant.new not in (mutant.old, None)
    assert (ROOT / mutant.suite.tests).is_file()
    assert mutant.suite.flavour in FLAVOURS
    assert mutant.suite.ops and all((ROOT / "csrc" / op / f"{op}.cu").is_file() for op in mutant.suite.ops)
