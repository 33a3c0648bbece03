# SPDX-License-Identifier: Apache-2.0
"""Lossless speculative decoding for a target and a drafter with different tokenizers.

`hetero_spec.ops` holds the ops, `hetero_spec.VocabMap` the map between two vocabularies,
`hetero_spec.decoding.SpeculativeDecoder` the loop over two models.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["VocabMap", "__version__", "ops"]

if TYPE_CHECKING:
    from . import ops as ops
    from .vocab import VocabMap as VocabMap


def __getattr__(name: str) -> Any:
    """Load the heavy parts (torch, the compiled module) only when they are asked for."""
    if name == "ops":
        return importlib.import_module(".ops", __name__)
    if name == "VocabMap":
        return importlib.import_module(".vocab", __name__).VocabMap
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
