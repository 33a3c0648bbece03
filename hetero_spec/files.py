# SPDX-License-Identifier: Apache-2.0
"""Files are written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path


def write_whole(path: str | os.PathLike[str], data: bytes | str) -> None:
    """Write a file so that a reader, or a crash, meets either the old file or the complete new one.

    Parameters
    ----------
    path : path
        Replaced if it exists. The temporary file lies beside it, so that the final step is a rename.
    data : bytes or str
        Text is written as UTF-8.

    Raises
    ------
    OSError   the folder can't be written to, or the disk is full; nothing is left behind. It names `path`.
    """
    with _temporary_of(Path(path)) as temporary:
        with temporary.open("xb") as file:
            file.write(data.encode("utf-8") if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Find out whether `write_whole` could write a file, by making and removing a temporary file beside it.

    Raises
    ------
    OSError   it could not; names `path`
    """
    with _temporary_of(Path(path)) as temporary:
        if Path(path).is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        temporary.open("xb").close()


@contextlib.contextmanager
def _temporary_of(destination: Path) -> Iterator[Path]:
    """Give a name beside a file; remove what has it in the end, and let errors name the file that was asked for."""
    # The name's length doesn't depend on the file's, which may be as long as a file system allows.
    temporary = destination.parent / f".hetero_spec.{os.getpid()}.{secrets.token_hex(4)}.tmp"
    try:
        yield temporary
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(destination)) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
