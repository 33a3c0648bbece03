# SPDX-License-Identifier: Apache-2.0
"""A tiny model that pretends to be an installed package, and a cache of its own."""

from pathlib import Path

import pytest

from hetero_spec.models.cache import CACHE_VARIABLE
from hetero_spec.models.registry import PACKAGED_MODELS
from tests.models import tiny_gguf


@pytest.fixture
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv(CACHE_VARIABLE, str(folder))
    return folder


@pytest.fixture
def tiny_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache_folder: Path) -> Path:
    """The GGUF file of the packaged model "tiny"."""
    package = tmp_path / "site" / "tiny_model_package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('a package of weights must not be imported')\n")
    path = package / "tiny.gguf"
    tiny_gguf.write_llama(path)
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setitem(PACKAGED_MODELS, "tiny", tiny_gguf.packaged(path))
    return path
