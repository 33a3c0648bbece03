# SPDX-License-Identifier: Apache-2.0
"""Results as JSON lines, shared by the steps of a check. Nothing but the standard library is needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Lines:
    """A file of JSON lines; each is on the disk before the next is measured, so that a stopped run keeps them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def add(self, kind: str, **record: Any) -> dict[str, Any]:
        record = {"kind": kind, **record}
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        return record

    def read(self) -> list[dict[str, Any]]:
        """All records, of earlier steps too."""
        return [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []
