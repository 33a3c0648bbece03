# SPDX-License-Identifier: Apache-2.0
"""Files are written whole or not at all."""

from __future__ import annotations

import os
import secrets
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
    OSError   the folder can't be written to, or the disk is full; nothing is left behind
    """
    destination = Path(path)
    temporary = destination.with_name(f".{destination.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data.encode("utf-8") if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, destination)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
