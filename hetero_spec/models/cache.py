# SPDX-License-Identifier: Apache-2.0
"""The folder of converted models: entries appear whole or not at all, and a damaged one is never used.

An entry is written into a temporary folder beside its final place, its manifest (sizes and sha256 of all files) last,
and renamed in one step. A lock lets one process convert while others wait for the result; without locks (some network
file systems) both convert and the rename decides.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hetero_spec.models.gguf_reader import sha256_of
from hetero_spec.models.registry import ModelError

CACHE_VARIABLE = "HETERO_SPEC_CACHE"
# Part of every entry's name: raise it whenever a conversion writes something else than before.
FORMAT_VERSION = 1
MANIFEST = "manifest.json"


def cache_root() -> Path:
    """Return the cache folder: $HETERO_SPEC_CACHE, else `hetero_spec` in the platform's folder for caches."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "hetero_spec"


def entry_path(name: str, source_sha256: str) -> Path:
    """Return where the conversion of the source with this checksum lies, or would lie."""
    return cache_root() / f"{name}-{source_sha256[:16]}-v{FORMAT_VERSION}"


def is_intact(entry: Path, *, checksums: bool = False) -> bool:
    """Whether an entry is whole: its manifest is readable and all files have their sizes (and, if asked, checksums)."""
    try:
        manifest: dict[str, Any] = json.loads((entry / MANIFEST).read_text(encoding="utf-8"))
        if manifest["format"] != FORMAT_VERSION or not manifest["files"]:
            return False
        for name, expected in manifest["files"].items():
            path = entry / name
            if path.stat().st_size != expected["num_bytes"]:
                return False
            if checksums and sha256_of([path]) != expected["sha256"]:
                return False
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
    return True


def get_or_create(entry: Path, write: Callable[[Path], dict[str, Any]]) -> Path:
    """Return an intact entry, made by `write` where there is none.

    Parameters
    ----------
    entry : Path
        The entry's final place.
    write : callable
        Writes the files into the folder that it is given and returns what the manifest should say of their source.
        Called at most once, and not at all where the entry is intact.

    Raises
    ------
    ModelError
        The cache folder cannot be written to.
    """
    if is_intact(entry):
        return entry
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        with _locked(entry.parent / f".{entry.name}.lock") as is_locked:
            if is_intact(entry):  # another process made it while this one waited
                return entry
            if is_locked:  # nobody else is at work on this entry, so what lies here was left by a process that died
                for left_over in entry.parent.glob(f".{entry.name}.*.tmp"):
                    shutil.rmtree(left_over, ignore_errors=True)
            _create(entry, write)
    except OSError as error:
        raise ModelError(
            f"cache: {entry.parent} cannot be written to: {error}; set {CACHE_VARIABLE} to another"
        ) from error
    return entry


def _create(entry: Path, write: Callable[[Path], dict[str, Any]]) -> None:
    folder = Path(tempfile.mkdtemp(prefix=f".{entry.name}.", suffix=".tmp", dir=entry.parent))
    try:
        source = write(folder)
        files = {
            path.name: {"num_bytes": path.stat().st_size, "sha256": sha256_of([path])}
            for path in sorted(folder.iterdir())
        }
        manifest = {"format": FORMAT_VERSION, "source": source, "files": files}
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        if entry.exists() and not is_intact(entry):  # a folder is not replaced by a rename unless it is empty
            shutil.rmtree(entry)
        folder.chmod(0o755)  # mkdtemp, and safetensors too, keep other users of a shared cache out
        for path in folder.iterdir():
            path.chmod(0o644)
        try:
            os.replace(folder, entry)
        except OSError:
            if not is_intact(entry):
                raise
            # Without locks another process may have been first; its entry is as good as this one.
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Hold an exclusive lock on `path`; yields False where the system has none to give."""
    with path.open("wb") as file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)  # goes when the file is closed, also by the process's death
        except (ImportError, OSError):
            yield False
        else:
            yield True
