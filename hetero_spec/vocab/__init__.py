# SPDX-License-Identifier: Apache-2.0
"""Vocabularies as raw bytes, the map between two of them, and the report on it.

Names are resolved on first use: reading a vocabulary needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hetero_spec.vocab.report import VocabReport
    from hetero_spec.vocab.tokens import read_vocabulary
    from hetero_spec.vocab.vocab_map import EmptyIntersectionError, VocabMap, VocabMismatchError
    from hetero_spec.vocab.vocabulary import Vocabulary, make_vocabulary

__all__ = [
    "EmptyIntersectionError",
    "VocabMap",
    "VocabMismatchError",
    "VocabReport",
    "Vocabulary",
    "make_vocabulary",
    "read_vocabulary",
]

_MODULES = {
    "EmptyIntersectionError": "vocab_map",
    "VocabMap": "vocab_map",
    "VocabMismatchError": "vocab_map",
    "VocabReport": "report",
    "Vocabulary": "vocabulary",
    "make_vocabulary": "vocabulary",
    "read_vocabulary": "tokens",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"hetero_spec.vocab.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
