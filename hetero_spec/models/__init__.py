# SPDX-License-Identifier: Apache-2.0
"""Real language models: from registry packages (GGUF), from the embedded drafter, from local transformers folders.

`load("smollm2")` gives a `LoadedModel`; `available()` lists the names.
"""

from hetero_spec.models.loading import LoadedModel, ModelEntry, available, load, verify_cache, vocabulary_source
from hetero_spec.models.registry import ModelError
from hetero_spec.models.tokenizer import TextTokenizer

__all__ = [
    "LoadedModel",
    "ModelEntry",
    "ModelError",
    "TextTokenizer",
    "available",
    "load",
    "verify_cache",
    "vocabulary_source",
]
