# SPDX-License-Identifier: Apache-2.0
"""Progress of long work, on standard error: a bar on a terminal, one plain line a step elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Protocol


class Progress(Protocol):
    """What long work reports to."""

    def step(self, description: str, total: float | None = None) -> None:
        """Begin a step of `total` units."""

    def advance(self, amount: float) -> None:
        """Tell that `amount` units of the present step are done."""


class _Silent:
    def step(self, description: str, total: float | None = None) -> None:
        pass

    def advance(self, amount: float) -> None:
        pass


class _Lines(_Silent):
    def __init__(self, title: str) -> None:
        self.title = title

    def step(self, description: str, total: float | None = None) -> None:
        sys.stderr.write(f"{self.title}: {description}\n")
        sys.stderr.flush()


@contextlib.contextmanager
def progress_of(title: str, shown: bool | None) -> Iterator[Progress]:
    """Open a progress display.

    Parameters
    ----------
    title : str
        Leads every line.
    shown : bool or None
        False: silent. True: always a bar, where `rich` is installed. None: a bar on a terminal, plain lines elsewhere.
    """
    if shown is False:
        yield _Silent()
        return
    if shown is None and not sys.stderr.isatty():
        yield _Lines(title)
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress
    except ImportError:
        yield _Lines(title)
        return

    columns = (TextColumn(f"{title}: {{task.description}}"), BarColumn(), TimeElapsedColumn())
    with RichProgress(*columns, console=Console(file=sys.stderr)) as display:

        class _Bar:
            def __init__(self) -> None:
                self.task: TaskID | None = None

            def step(self, description: str, total: float | None = None) -> None:
                self._finish()
                self.task = display.add_task(description, total=total)

            def advance(self, amount: float) -> None:
                if self.task is not None:
                    display.advance(self.task, amount)

            def _finish(self) -> None:
                if self.task is not None:
                    total = display.tasks[self.task].total or 1
                    display.update(self.task, total=total, completed=total)

        bar = _Bar()
        yield bar
        bar._finish()
