# SPDX-License-Identifier: Apache-2.0
"""Files are written whole or not at all, and never in the place of something else."""

import errno
import os
import stat
from pathlib import Path

import pytest

from hetero_spec.files import check_writable, write_whole


def test_a_file_is_replaced_whole_and_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_whole(path, "first")
    path.chmod(0o600)
    check_writable(path)
    write_whole(path, b"second")
    assert path.read_bytes() == b"second"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    file, link, dangling = tmp_path / "folder" / "file", tmp_path / "link", tmp_path / "dangling"
    link.symlink_to(file)
    dangling.symlink_to(tmp_path / "folder" / "new")
    for each in (link, dangling):
        check_writable(each)
        write_whole(each, "text")
        assert each.is_symlink()
        assert each.read_text() == "text"
    assert sorted(each.name for each in (tmp_path / "folder").iterdir()) == ["file", "new"]


def test_what_is_no_file_is_left_alone(tmp_path: Path) -> None:
    pipe, loop, folder = tmp_path / "pipe", tmp_path / "loop", tmp_path / "folder"
    os.mkfifo(pipe)
    loop.symlink_to(loop)
    folder.mkdir()
    expected = {pipe: errno.EINVAL, loop: errno.ELOOP, folder: errno.EISDIR, Path(os.devnull): errno.EINVAL}
    for path, code in expected.items():
        for attempt in (lambda path=path: check_writable(path), lambda path=path: write_whole(path, "text")):
            with pytest.raises(OSError, match=".") as refused:
                attempt()
            assert refused.value.errno == code
            assert refused.value.filename == str(path)
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    assert stat.S_ISCHR(Path(os.devnull).lstat().st_mode)
    assert loop.is_symlink()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["folder", "loop", "pipe"]
