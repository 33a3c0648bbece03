# SPDX-License-Identifier: Apache-2.0
"""Measuring a cell: all contestants and plain decoding take turns, round by round.

Whatever else the machine does slows all of them alike, and each one's clock stands still while another works.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hetero_spec.bench.suite import Cell, Contestant
from hetero_spec.decoding.controller import Controller
from hetero_spec.decoding.lookahead import OracleLookahead

if TYPE_CHECKING:
    from hetero_spec.decoding import Piece, SpeculativeDecoder

PLAIN = "plain"
Clock = Callable[[], float]


class _Run:
    """One decoding in progress, with a clock of its own."""

    def __init__(self, decoder: SpeculativeDecoder, pieces: Iterator[Piece], clock: Clock) -> None:
        self.decoder, self.stats = decoder, decoder.stats
        self.pieces, self.clock = pieces, clock
        self.token_ids: list[int] = []
        self.finish_reason: str | None = None
        self.seconds = 0.0
        self._ends: list[tuple[int, float]] = []  # of rounds: tokens and seconds so far

    @property
    def tokens_per_second(self) -> float:
        """Emitted tokens per second of its own clock; 0 before the first."""
        return len(self.token_ids) / self.seconds if self.seconds > 0.0 else 0.0

    def advance(self) -> None:
        """Decode one round."""
        start = self.clock()
        piece = next(self.pieces)
        self.seconds += self.clock() - start
        self.token_ids += piece.token_ids
        self.finish_reason = piece.finish_reason
        self._ends.append((len(self.token_ids), self.seconds))

    def seconds_for(self, num_tokens: int) -> float:
        """Return the time that its first tokens took; inside a round each of its tokens takes as long."""
        tokens, seconds = 0, 0.0
        for end_tokens, end_seconds in self._ends:
            if end_tokens >= num_tokens:
                if tokens == 0:  # the round that reads the prompt
                    return end_seconds
                share = (num_tokens - tokens) / (end_tokens - tokens)
                return seconds + share * (end_seconds - seconds)
            tokens, seconds = end_tokens, end_seconds
        return seconds


class PairBench:
    """A pair of models ready to be measured.

    Parameters
    ----------
    plain : SpeculativeDecoder
        Of method "none".
    contestants : dict of Contestant to SpeculativeDecoder
    encode : callable
        From a BenchPrompt to the target's token ids.

    Notes
    -----
    A contestant that learns ("auto") does so from cell to cell and from repeat to repeat, as it would in a server; see
    `begin`.
    """

    def __init__(
        self,
        plain: SpeculativeDecoder,
        contestants: Mapping[Contestant, SpeculativeDecoder],
        encode: Callable[[Any], Sequence[int]],
    ) -> None:
        self.plain, self.contestants, self.encode = plain, dict(contestants), encode
        self._controllers: dict[str, Controller] = {}
        for contestant, decoder in self.contestants.items():
            controller: Controller | None = getattr(decoder, "controller", None)
            if controller is not None:
                self._controllers[contestant.name] = controller
        self._untaught = {name: controller.state() for name, controller in self._controllers.items()}

    def begin(self, states: Mapping[str, Any] | None = None) -> None:
        """Begin a pair and temperature: whoever learns knows what it knew after the last finished cell, or nothing.

        Parameters
        ----------
        states : mapping, optional
            `controllers` of that cell's record. Default: there is none.

        Raises
        ------
        ValueError   these are no such states
        """
        for name, controller in self._controllers.items():
            controller.restore(self._untaught[name] if states is None else states.get(name, self._untaught[name]))

    def measure(
        self,
        cell: Cell,
        *,
        num_repeats: int,
        max_new_tokens: int,
        seed: int,
        clock: Clock | None = None,
        on_repeat: Callable[[int], None] = lambda repeat: None,
    ) -> dict[str, Any]:
        """Return the cell's record; times and rates that depend on the clock lie under "timing".

        What contestants that learn know after it lies under "controllers".

        Parameters
        ----------
        cell : Cell
        num_repeats, max_new_tokens, seed : int
        clock : callable, optional
            Seconds. Default: time.perf_counter.
        on_repeat : callable
            Told the number of each repeat before it begins.

        Notes
        -----
        All repeats have one seed, so they emit the same tokens (but for methods that look at the clock themselves). A
        run's first round takes in the prompt, and counts.
        """
        clock = clock or time.perf_counter
        for controller in self._controllers.values():
            controller.clock = clock
        token_ids = list(self.encode(cell.prompt))
        record: dict[str, Any] = {
            "key": cell.key,
            "target": cell.target,
            "drafter": cell.drafter,
            "temperature": cell.temperature,
            "kind": cell.prompt.kind,
            "prompt": cell.prompt.name,
            "prompt_tokens": len(token_ids),
        }
        limit = self.plain.target.max_length
        if limit is not None and len(token_ids) + max_new_tokens > limit:
            return {**record, "skipped": f"the prompt and {max_new_tokens} tokens exceed the target's {limit}"}
        arguments: dict[str, Any] = {"max_new_tokens": max_new_tokens, "temperature": cell.temperature, "seed": seed}
        if any(contestant.lookahead == "oracle" for contestant in self.contestants):
            known = self.plain.generate(token_ids, **arguments).token_ids
            for contestant, decoder in self.contestants.items():
                if contestant.lookahead == "oracle":
                    decoder.lookahead = OracleLookahead([known])
        decoders = {PLAIN: self.plain, **{contestant.name: each for contestant, each in self.contestants.items()}}
        repeats = []
        for repeat in range(num_repeats):
            on_repeat(repeat)
            names = list(decoders)
            first = repeat % len(names)  # nobody is always first
            runs = {}
            for name in names[first:] + names[:first]:
                pieces = decoders[name].pieces([token_ids], **arguments)
                runs[name] = _Run(decoders[name], pieces, clock)
            take_turns(list(runs.values()))
            repeats.append(runs)
        return {
            **record,
            "plain": _figures([runs[PLAIN] for runs in repeats]),
            "runs": {
                contestant.name: self._contestant_figures(contestant, cell, repeats) for contestant in self.contestants
            },
            **(
                {"controllers": {name: controller.state() for name, controller in self._controllers.items()}}
                if self._controllers
                else {}
            ),
        }

    def _contestant_figures(
        self, contestant: Contestant, cell: Cell, repeats: Sequence[Mapping[str, _Run]]
    ) -> dict[str, Any]:
        runs = [runs[contestant.name] for runs in repeats]
        figures = _figures(runs)
        speedups = []
        for run, beside in zip(runs, repeats, strict=True):
            # For as many tokens: a sampled text that ends sooner has the same prompt to read.
            shared = min(len(run.token_ids), len(beside[PLAIN].token_ids))
            seconds = run.seconds_for(shared)
            speedups.append(beside[PLAIN].seconds_for(shared) / seconds if seconds > 0.0 else 0.0)
        verify = getattr(self.contestants[contestant], "verify", None)
        if cell.temperature == 0.0 or verify == "exact":
            # Only then is the text promised to be plain decoding's own.
            figures["identical"] = all(
                run.token_ids == beside[PLAIN].token_ids for run, beside in zip(runs, repeats, strict=True)
            )
        figures["timing"]["speedup"] = statistics.median(speedups)
        figures["timing"]["speedups"] = speedups
        return figures

    def warm_up(self, cell: Cell, num_tokens: int = 4) -> None:
        """Let every decoder work a little, so that no measured run pays for what happens once."""
        token_ids = list(self.encode(cell.prompt))
        limit = self.plain.target.max_length
        if limit is not None:
            token_ids = token_ids[: max(1, limit - num_tokens)]
        for contestant, decoder in self.contestants.items():
            if contestant.lookahead == "oracle":
                decoder.lookahead = OracleLookahead([[]])
        for decoder in (self.plain, *self.contestants.values()):
            decoder.generate(token_ids, max_new_tokens=num_tokens, temperature=cell.temperature, seed=0)


def take_turns(runs: Sequence[_Run]) -> None:
    """Decode all runs to their ends, the one with fewest tokens first."""
    unfinished = list(runs)
    while unfinished:
        run = min(unfinished, key=lambda run: len(run.token_ids))
        run.advance()
        if run.finish_reason is not None:
            unfinished.remove(run)


def _figures(runs: Sequence[_Run]) -> dict[str, Any]:
    """Gather the repeats of one contestant: counts added up, the median of each time."""
    proposed, accepted = (sum(getattr(run.stats, name) for run in runs) for name in ("proposed", "accepted"))
    calls, tokens = sum(run.stats.target_steps for run in runs), sum(len(run.token_ids) for run in runs)
    return {
        "tokens": tokens,
        "target_calls": calls,
        "proposed": proposed,
        "accepted": accepted,
        "acceptance_rate": accepted / proposed if proposed else None,
        "block_efficiency": tokens / calls if calls else None,
        "finish_reason": runs[0].finish_reason,
        "timing": {
            "tokens_per_second": statistics.median(run.tokens_per_second for run in runs),
            "seconds": [run.seconds for run in runs],
            **{
                name: statistics.median(getattr(run.stats, name) for run in runs)
                for name in ("seconds_drafter", "seconds_target", "seconds_ops")
            },
        },
    }
