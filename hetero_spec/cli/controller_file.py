# SPDX-License-Identifier: Apache-2.0
"""A file in which method "auto" keeps from run to run what it has learnt of a pair of models on a machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetero_spec.cli.errors import UsageError
from hetero_spec.cli.output import as_json, checked_file, one_line
from hetero_spec.files import write_whole

if TYPE_CHECKING:
    from hetero_spec.decoding.controller import Controller

_KIND = "hetero-spec controller"


class ControllerFile:
    """The file, read and checked before any work is done.

    Parameters
    ----------
    path : str
        A file that `save` has written, or one that does not exist yet.
    target, drafter : str
        As they were named; what is known of one pair says nothing of another.

    Raises
    ------
    UsageError   it cannot be written, or holds something else
    """

    def __init__(self, path: str, target: str, drafter: str) -> None:
        self._path = checked_file("controller", path) or Path(path)
        self._pair = {"target": target, "drafter": drafter}
        self._state: dict[str, Any] | None = None
        if self._path.exists():
            self._state = self._read()

    def _read(self) -> dict[str, Any]:
        try:
            content = json.loads(self._path.read_bytes())
        except OSError as error:
            raise UsageError(f"controller must be a file that can be read, got {one_line(error)}") from error
        except ValueError:
            content = None
        if not isinstance(content, dict) or content.get("kind") != _KIND or not isinstance(content.get("state"), dict):
            raise UsageError(f"controller must be a file that an earlier run has written, got {self._path}")
        found = {name: content.get(name) for name in self._pair}
        if found != self._pair:
            pairs = [f"{pair['target']} <- {pair['drafter']}" for pair in (self._pair, found)]
            raise UsageError(f"controller must be of {pairs[0]}, got one of {pairs[1]} in {self._path}")
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
                    f"controller must be a file that can be taken up, got {self._path}: {message}"
                ) from error

    def save(self, controller: Controller) -> None:
        """Write what a controller knows, whole or not at all.

        Raises
        ------
        UsageError   the file cannot be written
        """
        try:
            write_whole(self._path, as_json({"kind": _KIND, **self._pair, "state": controller.state()}))
        except OSError as error:
            raise UsageError(one_line(error)) from error
