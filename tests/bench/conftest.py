# SPDX-License-Identifier: Apache-2.0
"""Tiny models under the names of the real ones, and a clock that counts."""

import time
from typing import Any

import pytest

from hetero_spec import models
from hetero_spec.models import LoadedModel, ModelEntry, ModelError, TextTokenizer
from tests.decoding.toys import tiny_llama, trained_pair


@pytest.fixture(scope="session")
def tiny_models() -> dict[str, LoadedModel]:
    loaded = {}
    for name, backend, seed, eos in zip(
        ("smollm2", "embedded"), trained_pair(), (3, 4), ("<eos>", "</s>"), strict=True
    ):
        tokenizer = TextTokenizer(backend, eos_token_ids=[backend.token_to_id(eos)])
        size = backend.get_vocab_size()
        loaded[name] = LoadedModel(tiny_llama(size, seed), tokenizer, name, "Apache-2.0", size)
    return loaded


@pytest.fixture
def loads(tiny_models: dict[str, LoadedModel], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names that were loaded, in order; gemma3-270m is known and not installed."""
    asked: list[str] = []

    def load(name: str, **_: Any) -> LoadedModel:
        asked.append(name)
        if name not in tiny_models:
            raise ModelError(f"load: no model {name}")
        return tiny_models[name]

    entries = [
        ModelEntry(name, name in tiny_models, "Apache-2.0", "", ("some-package",))
        for name in ("smollm2", "gemma3-270m", "embedded")
    ]
    monkeypatch.setattr(models, "load", load)
    monkeypatch.setattr(models, "available", lambda: entries)
    return asked


class Ticks:
    """A clock that tells how often it was asked, and may raise Ctrl-C when it has been asked too often."""

    def __init__(self, limit: int | None = None) -> None:
        self.count, self.limit = 0, limit

    def __call__(self) -> float:
        self.count += 1
        if self.limit is not None and self.count > self.limit:
            self.limit = None  # once
            raise KeyboardInterrupt
        return float(self.count)


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> type[Ticks]:
    """Making one puts it in place of the clocks that work is timed by."""

    class Installed(Ticks):
        def __init__(self, limit: int | None = None) -> None:
            super().__init__(limit)
            for name in ("perf_counter", "process_time"):
                monkeypatch.setattr(time, name, self)

    return Installed
