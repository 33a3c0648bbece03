# SPDX-License-Identifier: Apache-2.0
"""What decoding cost and what the drafts were worth."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field


@dataclass
class RequestStats:
    """Counts of one request.

    Attributes
    ----------
    prompt_tokens, tokens : int
        Target tokens of the prompt, and emitted (the end-of-text token included).
    proposed, accepted : int
        Draft tokens verified, and accepted by the verification.
    target_steps : int
        Times the target looked at this request.
    """

    prompt_tokens: int = 0
    tokens: int = 0
    proposed: int = 0
    accepted: int = 0
    target_steps: int = 0

    @property
    def acceptance_rate(self) -> float:
        """Accepted per proposed draft token, in [0, 1]; 0 when nothing was proposed."""
        return self.accepted / self.proposed if self.proposed else 0.0

    @property
    def acceptance_length(self) -> float:
        """Emitted tokens per look of the target, at least 1 and at most the lookahead + 1; 0 before the first."""
        return self.tokens / self.target_steps if self.target_steps else 0.0


@dataclass
class DecodingStats(RequestStats):
    """Totals over a batch, with times.

    On CUDA the times are the host's: work is queued, and the wait for it falls on whoever first reads a result (the
    ops). The total is right everywhere.

    Attributes
    ----------
    target_calls, drafter_calls : int
        Forward passes, each over all the requests of the batch that took part.
    seconds_drafter, seconds_target, seconds_ops : float
        Wall time inside the drafter's passes, the target's passes, and this package's ops.
    seconds : float
        Wall time of decoding, prompts included, without what the consumer of the stream did between pieces.
    requests : list of RequestStats
        The counts of each request.
    inner : RequestStats or None
        With a cascade: the same counts between the middle model and its own drafter; `tokens` is what it drafted for
        the target.
    rounds_by_method : dict
        With method "auto": rounds decoded with each method ("none" for plain ones).
    notes : list of str
        What the user should know, in sentences.
    """

    target_calls: int = 0
    drafter_calls: int = 0
    seconds_drafter: float = 0.0
    seconds_target: float = 0.0
    seconds_ops: float = 0.0
    seconds: float = 0.0
    requests: list[RequestStats] = field(default_factory=list)
    inner: RequestStats | None = None
    rounds_by_method: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def tokens_per_second(self) -> float:
        """Emitted tokens of all requests per second of decoding; 0 before the first round."""
        return self.tokens / self.seconds if self.seconds else 0.0

    def add(self, request: int, *, proposed: int, accepted: int, tokens: int) -> None:
        """Count one request's part of a round."""
        for counts in (self, self.requests[request]):
            counts.proposed += proposed
            counts.accepted += accepted
            counts.tokens += tokens
            counts.target_steps += 1

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the wall time of a block to the attribute `name`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            setattr(self, name, getattr(self, name) + time.perf_counter() - start)

    def as_dict(self) -> dict[str, object]:
        """Return every count, time and rate under its own name, ready for JSON."""
        totals = asdict(self)
        totals["requests"] = [
            {**asdict(counts), "acceptance_rate": counts.acceptance_rate, "acceptance_length": counts.acceptance_length}
            for counts in self.requests
        ]
        return {
            **totals,
            "acceptance_rate": self.acceptance_rate,
            "acceptance_length": self.acceptance_length,
            "tokens_per_second": self.tokens_per_second,
        }
