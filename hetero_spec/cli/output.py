# SPDX-License-Identifier: Apache-2.0
"""What the subcommands share: output files, and errors as one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hetero_spec.cli.errors import UsageError
from hetero_spec.files import check_writable, write_whole


def checked_file(option: str, path: str | None) -> Path | None:
    """Return an output file's path once it is known that it can be written; None where none is asked for.

    Raises
    ------
    UsageError   it cannot
    """
    if path is None:
        return None
    try:
        check_writable(path)
    except OSError as error:
        expected = f"{option} must be a file in a folder that can be written to"
        raise UsageError(f"{expected}, got {path or repr('')} ({error.strerror})") from error
    return Path(path)


def as_json(report: dict[str, Any]) -> bytes:
    """Encode a report; bytes of the command line that are no UTF-8 come out as JSON escapes."""
    return (json.dumps(report, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")


def write_json(path: Path, report: dict[str, Any]) -> None:
    """Write a report, whole or not at all.

    Raises
    ------
    UsageError   the file cannot be written
    """
    try:
        write_whole(path, as_json(report))
    except OSError as error:
        raise UsageError(one_line(error)) from error


def missing_package(error: ImportError) -> str:
    """Say which package is not installed and how to get it."""
    name = error.name.partition(".")[0] if error.name else one_line(error)
    return f"{name} is not installed; pip install 'hetero-spec[models]'"


def one_line(error: BaseException) -> str:
    """Return an error's message without line breaks; of a file's error, the file and what is wrong with it."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split())
