# SPDX-License-Identifier: Apache-2.0
"""From token ids to text while it is being generated."""

from __future__ import annotations

import codecs
from collections.abc import Sequence


class TextStream:
    """Turns one request's tokens into text, piece by piece.

    The text does not depend on how the tokens are grouped into calls: bytes that do not yet end a UTF-8 character are
    held back, and so is text that may be the beginning of a stop string. Bytes that can never be a character become
    U+FFFD. Special and unused tokens add nothing, and no character spans one.

    Parameters
    ----------
    token_bytes : sequence of bytes or None
        What each id adds to the text.
    stop : sequence of str
        Strings that end the text. The one whose last character comes first wins (the longest of those); neither it nor
        anything after it is part of the text.
    """

    def __init__(self, token_bytes: Sequence[bytes | None], stop: Sequence[str] = ()) -> None:
        if any(not string for string in stop):
            raise ValueError("stop: strings must not be empty, got ''")
        self._token_bytes = token_bytes
        self._stop = tuple(stop)
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held = ""
        self.stopped = False

    def push(self, token_id: int) -> str:
        """Add one token and return the text that is now certain (often all of it, sometimes nothing)."""
        token = self._token_bytes[token_id] if token_id < len(self._token_bytes) else None
        if token is None:
            return self._release(self._decoder.decode(b"", final=True))
        return self._release(self._decoder.decode(token))

    def finish(self) -> str:
        """Return what was held back; an unfinished character comes out as U+FFFD."""
        text = self._release(self._decoder.decode(b"", final=True))
        held, self._held = self._held, ""
        return text + held

    def _release(self, text: str) -> str:
        if self.stopped:
            return ""
        self._held += text
        found = [(start + len(stop), start) for stop in self._stop if (start := self._held.find(stop)) >= 0]
        if found:
            self.stopped = True
            kept = self._held[: min(found)[1]]
            self._held = ""
            return kept
        keep = len(self._held) - self._num_held()
        released, self._held = self._held[:keep], self._held[keep:]
        return released

    def _num_held(self) -> int:
        """Length of the longest end of the text that begins a stop string."""
        longest = max((len(stop) for stop in self._stop), default=1) - 1
        for length in range(min(longest, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-length:]) for stop in self._stop):
                return length
        return 0
