# SPDX-License-Identifier: Apache-2.0
"""The results file of a run that may be interrupted and taken up again: JSON lines, the settings first."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from hetero_spec.files import write_whole


class ResultsError(ValueError):
    """The file holds something else than results of these settings."""


class ResultsFile:
    """A header line with the settings, then one line for each finished piece of work.

    The file is made when the first piece of work is finished. A line is appended in one write and forced to the disk.
    What a crash leaves of a last line is cut off when the file is opened again, so that at most the piece of work that
    was running is lost.

    Parameters
    ----------
    path : Path
    kind : str
        What the file is, so that another command's is refused.
    settings : dict
        Everything that decides the results; JSON gives it back as it is.
    about : dict, optional
        What may differ when a run is taken up again, such as the machine; kept as it was at first.

    Attributes
    ----------
    records : dict
        Finished work by its key, in the order of the file.

    Raises
    ------
    ResultsError   the file is of another kind or of other settings, or damaged
    OSError        it cannot be read or written
    """

    def __init__(self, path: Path, kind: str, settings: dict[str, Any], about: dict[str, Any] | None = None) -> None:
        self.path = path
        self.records: dict[str, dict[str, Any]] = {}
        self._header: dict[str, Any] | None = {"kind": kind, "settings": settings, "about": about or {}}
        content = path.read_bytes() if path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        if not whole:
            return
        self._header = None
        if len(whole) < len(content):
            write_whole(path, whole)
        lines = [self._parsed(number, line) for number, line in enumerate(whole.splitlines(), start=1)]
        self._check_header(lines[0], kind, settings)
        for line in lines[1:]:
            self.records[str(line["key"])] = line

    def append(self, record: dict[str, Any]) -> None:
        """Add a finished piece of work, whose "key" names it."""
        if self._header is not None:
            write_whole(self.path, _line(self._header) + _line(record))
            self._header = None
        else:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND)
            try:
                os.write(descriptor, _line(record).encode("utf-8"))
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        self.records[str(record["key"])] = record

    def _parsed(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            record = json.loads(line)
            if isinstance(record, dict) and (number == 1 or "key" in record):
                return record
        except ValueError:
            pass
        raise ResultsError(f"{self.path}: line {number} must be a JSON object of results, got {line[:40]!r}")

    def _check_header(self, header: dict[str, Any], kind: str, settings: dict[str, Any]) -> None:
        if header.get("kind") != kind:
            raise ResultsError(f"{self.path}: must be a file of {kind}, got {header.get('kind')!r}")
        found = header.get("settings") or {}
        for name in sorted(settings.keys() | found.keys()):
            if found.get(name) != settings.get(name):
                raise ResultsError(
                    f"{self.path}: was begun with {name} = {found.get(name)}, got {settings.get(name)}; "
                    "write elsewhere, or remove it"
                )


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False) + "\n"
