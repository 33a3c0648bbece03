# SPDX-License-Identifier: Apache-2.0
"""Files are written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path


def write_whole(path: str | os.PathLike[str], data: bytes | str) -> None:
    """Write a file so that a reader, or a crash, meets either the old file or the complete new one.

    Parameters
    ----------
    path : path
        Replaced if it exists, and keeps its permissions; of a link, what it points to. The temporary file lies beside
        it, so that the final step is a rename.
    data : bytes or str
        Text is written as UTF-8.

    Raises
    ------
    OSError   the folder can't be written to, the disk is full, or there is something else than a file (a pipe, a
              device); nothing is left behind. It names `path`.
    """
    with _temporary_of(Path(path)) as (temporary, destination):
        with temporary.open("xb") as file:
            file.write(data.encode("utf-8") if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        if destination.exists():
            temporary.chmod(stat.S_IMODE(destination.stat().st_mode))
        os.replace(temporary, destination)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Find out whether `write_whole` could write a file, by making and removing a temporary file beside it.

    Raises
    ------
    OSError   it could not; names `path`
    """
    with _temporary_of(Path(path)) as (temporary, _):
        temporary.open("xb").close()


@contextlib.contextmanager
def _temporary_of(asked: Path) -> Iterator[tuple[Path, Path]]:
    """Give a name beside a file, and the file itself behind any links.

    What has the name is removed in the end, and errors name the file that was asked for.
    """
    destination = Path(os.path.realpath(asked))
    # The name's length doesn't depend on the file's, which may be as long as a file system allows.
    temporary = destination.parent / f".hetero_spec.{os.getpid()}.{secrets.token_hex(4)}.tmp"
    try:
        _check_kind(destination)
        yield temporary, destination
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(asked)) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _check_kind(destination: Path) -> None:
    """Refuse what a rename would put a file in the place of."""
    try:
        mode = destination.lstat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if stat.S_ISLNK(mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "Not a regular file")
