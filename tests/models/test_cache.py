# SPDX-License-Identifier: Apache-2.0
import json
import multiprocessing
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from hetero_spec.models import cache
from hetero_spec.models.cache import CACHE_VARIABLE, MANIFEST, cache_root, entry_path, get_or_create, is_intact
from hetero_spec.models.registry import ModelError


def write_two_files(folder: Path) -> dict[str, Any]:
    (folder / "weights").write_bytes(b"w" * 1000)
    (folder / "words").write_text("hello")
    return {"name": "test"}


@pytest.fixture
def entry(tmp_path: Path) -> Path:
    return get_or_create(tmp_path / "cache" / "entry", write_two_files)


def never(folder: Path) -> dict[str, Any]:
    raise AssertionError("an intact entry must not be made again")


def test_root_follows_the_variable_then_the_platform(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "chosen"))
    assert cache_root() == tmp_path / "chosen"
    monkeypatch.delenv(CACHE_VARIABLE)
    monkeypatch.setattr(cache.sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_root() == tmp_path / "xdg" / "hetero_spec"


def test_entry_name_changes_with_source_and_format(monkeypatch: pytest.MonkeyPatch) -> None:
    first = entry_path("model", "a" * 64)
    assert entry_path("model", "b" * 64) != first
    monkeypatch.setattr(cache, "FORMAT_VERSION", cache.FORMAT_VERSION + 1)
    assert entry_path("model", "a" * 64) != first


def test_entry_is_made_once_and_nothing_else_is_left(entry: Path) -> None:
    assert get_or_create(entry, never) == entry
    assert sorted(path.name for path in entry.iterdir()) == [MANIFEST, "weights", "words"]
    assert [path.name for path in entry.parent.iterdir() if path.name.endswith(".tmp")] == []
    assert json.loads((entry / MANIFEST).read_text())["source"] == {"name": "test"}


@pytest.mark.parametrize(
    "damage", ["shorter", "missing", "no manifest", "empty manifest", "other format", "manifest is a list"]
)
def test_damaged_entry_is_made_again(entry: Path, damage: str) -> None:
    manifest = entry / MANIFEST
    if damage == "shorter":
        (entry / "weights").write_bytes(b"w" * 999)
    elif damage == "missing":
        (entry / "words").unlink()
    elif damage == "no manifest":
        manifest.unlink()
    elif damage == "empty manifest":
        manifest.write_text("")
    elif damage == "other format":
        manifest.write_text(manifest.read_text().replace(f'"format": {cache.FORMAT_VERSION}', '"format": 0'))
    else:
        manifest.write_text("[]")
    assert not is_intact(entry)
    get_or_create(entry, write_two_files)
    assert is_intact(entry, checksums=True)
    assert (entry / "weights").read_bytes() == b"w" * 1000


def test_entry_appears_by_a_rename(tmp_path: Path) -> None:
    seen: list[int] = []

    def write(folder: Path) -> dict[str, Any]:
        seen.append(folder.stat().st_ino)
        return write_two_files(folder)

    entry = get_or_create(tmp_path / "cache" / "entry", write)
    assert seen == [entry.stat().st_ino]  # the very folder, not a copy that could be half done


def test_changed_byte_is_seen_by_checksum_only(entry: Path) -> None:
    (entry / "weights").write_bytes(b"w" * 999 + b"v")
    assert is_intact(entry)
    assert not is_intact(entry, checksums=True)


def test_failed_conversion_leaves_nothing(tmp_path: Path) -> None:
    entry = tmp_path / "cache" / "entry"

    def fail(folder: Path) -> dict[str, Any]:
        (folder / "weights").write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        get_or_create(entry, fail)
    assert not entry.exists()
    assert [path.name for path in entry.parent.iterdir()] == [".entry.lock"]


def test_left_over_of_a_killed_process_is_removed_and_never_used(tmp_path: Path) -> None:
    entry = tmp_path / "cache" / "entry"
    left_over = entry.parent / ".entry.abcd.tmp"
    other = entry.parent / ".entry2.abcd.tmp"
    for folder in (left_over, other):
        folder.mkdir(parents=True)
        (folder / "weights").write_bytes(b"half")
    get_or_create(entry, write_two_files)
    assert not left_over.exists()
    assert other.exists()  # of another entry, whose lock is not held here
    assert (entry / "weights").read_bytes() == b"w" * 1000


def test_cache_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    with pytest.raises(ModelError, match=f"cannot be written to.*{CACHE_VARIABLE}"):
        get_or_create(blocker / "entry", write_two_files)


def _slow_writer(folder: Path) -> dict[str, Any]:
    (folder / "weights").write_bytes(b"w" * 1000)
    with (folder.parent / "calls").open("a") as calls:
        calls.write("x")
    time.sleep(0.3)
    (folder / "words").write_text("hello")
    return {"name": "test"}


def _convert(entry: Path) -> None:
    assert get_or_create(entry, _slow_writer) == entry
    assert is_intact(entry, checksums=True)


def test_of_processes_at_once_one_converts_and_all_get_the_result(tmp_path: Path) -> None:
    entry = tmp_path / "cache" / "entry"
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_convert, args=(entry,)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert (entry.parent / "calls").read_text() == "x"


def test_without_locks_the_first_to_finish_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no locks here")

    import fcntl

    monkeypatch.setattr(fcntl, "flock", refuse)
    entry = tmp_path / "cache" / "entry"

    def write_while_another_finishes(folder: Path) -> dict[str, Any]:
        source = write_two_files(folder)
        other = folder.parent / "other"
        shutil.copytree(get_or_create(folder.parent / "made", write_two_files), other)
        os.replace(other, entry)
        (folder / "words").write_text("late!")
        return source

    get_or_create(entry, write_while_another_finishes)
    assert is_intact(entry)
    assert (entry / "words").read_text() == "hello"
    assert [path.name for path in entry.parent.iterdir() if path.name.endswith(".tmp")] == []
