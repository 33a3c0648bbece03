# SPDX-License-Identifier: Apache-2.0
"""A file in which method "auto" keeps from run to run what it has learnt of a pair of models on a machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetero_spec.cli.errors import UsageError
from hetero_spec.cli.output import one_line, write_json

if TYPE_CHECKING:
    from hetero_spec.decoding.controller import Controller

_KIND = "hetero-spec controller"


class ControllerFile:
    """The file, read and checked before any work is done.

    Parameters
    ----------
    path : Path
        A file that `save` has written, or one that does not exist yet; known to be writable.
    target, drafter : str
        As they were named, folders in full; what is known of one pair says nothing of another.
    files : dict of str to str or None
        Option and path of what makes another drafter of it: kept tokens, a kernel. They are told apart by content.

    Raises
    ------
    UsageError   it holds something else
    """

    def __init__(self, path: Path, target: str, drafter: str, files: Mapping[str, str | None]) -> None:
        self._path = path
        self._pair: dict[str, str | None] = {"target": _in_full(target), "drafter": _in_full(drafter)}
        self._pair |= {option: _fingerprint(file) for option, file in files.items() if file is not None}
        self._state: dict[str, Any] | None = None
        if self._path.exists():
            self._state = self._read()

    def _read(self) -> dict[str, Any]:
        try:
            content = json.loads(self._path.read_bytes())
        except OSError as error:
            raise UsageError(f"controller must be a file that can be read, got {one_line(error)}") from error
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict) or content.get("kind") != _KIND or not isinstance(content.get("state"), dict):
            raise UsageError(f"controller must be a file that an earlier run has written, got {self._path}")
        found = content.get("pair")
        if found != self._pair:
            raise UsageError(f"controller must be of {_told(self._pair)}, got one of {_told(found)} in {self._path}")
        state: dict[str, Any] = content["state"]
        return state

    def restore(self, controller: Controller) -> None:
        """Let a controller know what the file says, if there is one.

        Raises
        ------
        UsageError   the state is of another version, or damaged
        """
        if self._state is not None:
            try:
                controller.restore(self._state)
            except ValueError as error:
                message = one_line(error).removeprefix("Controller: ")
                raise UsageError(
                    f"controller must be a file that can be taken up, got {self._path}: {message}; "
                    "remove it to begin anew"
                ) from error

    def save(self, controller: Controller) -> None:
        """Write what a controller knows, whole or not at all.

        Raises
        ------
        UsageError   the file cannot be written
        """
        write_json(self._path, {"kind": _KIND, "pair": self._pair, "state": controller.state()})


def _in_full(name: str) -> str:
    """Return a model's name, or its folder's whole path."""
    return str(Path(name).resolve()) if Path(name).is_dir() else name


def _fingerprint(path: str) -> str | None:
    """Return what tells a file from others; None if it cannot be read, which will be told when it is needed."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]
    except OSError:
        return None


def _told(pair: Any) -> str:
    """Name a pair in a message."""
    if not isinstance(pair, dict):
        return "no pair"
    others = "".join(f", {option} {value}" for option, value in pair.items() if option not in ("target", "drafter"))
    return f"{pair.get('target')} <- {pair.get('drafter')}{others}"
