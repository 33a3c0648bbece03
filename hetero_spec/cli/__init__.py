# SPDX-License-Identifier: Apache-2.0
"""The `hetero-spec` command. Each subcommand is a module with `add_parser` and `run`."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Sequence

from .. import __version__
from .errors import UsageError


def build_parser() -> argparse.ArgumentParser:
    """The parser of all subcommands."""
    from . import bench, calibrate, generate, overlap

    parser = argparse.ArgumentParser(
        prog="hetero-spec",
        description="Speculative decoding for a target and a drafter with different tokenizers, without changing what "
        "the target would have said.",
    )
    parser.add_argument("--version", action="version", version=f"hetero-spec {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in (generate, overlap, bench, calibrate):
        module.add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 0 = done, 1 = output cannot be written, 2 = the user can mend it, 130 = interrupted."""
    # Before torch is loaded: OpenMP's threads otherwise spin while they wait, and on a machine that does other work
    # too they take the processor from the very thread they wait for, which costs an order of magnitude.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that cannot show a character is no reason to stop
    if sys.stdout is None:
        print("hetero-spec: standard output is closed", file=sys.stderr)
        return 1
    try:
        try:
            return _run(argv)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output has left
        _forget_output()
        return 0
    except OSError as error:
        with contextlib.suppress(OSError):
            print(f"hetero-spec: output cannot be written: {error.strerror or error}", file=sys.stderr)
        _forget_output()
        return 1


def _run(argv: Sequence[str] | None) -> int:
    args = build_parser().parse_args(argv)
    try:
        code: int = args.run(args)
        return code
    except UsageError as error:
        message = _with_option(str(error), sys.argv[1:] if argv is None else argv)
        print(f"hetero-spec {args.command}: {message}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"hetero-spec {args.command}: interrupted", file=sys.stderr)
        return 130


def _with_option(message: str, argv: Sequence[str]) -> str:
    """Call an argument that a message begins with as it was typed: `top_p must be ...` is `--top-p must be ...`."""
    name = message.partition(" ")[0].rstrip(":")
    option = f"--{name.replace('_', '-')}"
    typed = any(argument == option or argument.startswith(f"{option}=") for argument in argv)
    return option + message.removeprefix(name) if typed else message


def _forget_output() -> None:
    """Let what is still in the streams' buffers vanish, instead of failing once more when the interpreter ends."""
    for stream in (sys.stdout, sys.stderr):
        # Streams that are no files, or closed, have nothing to forget.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
            continue
        with contextlib.suppress(OSError, ValueError, AttributeError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)
