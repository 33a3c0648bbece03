# SPDX-License-Identifier: Apache-2.0
"""The `hetero-spec` command. Each subcommand is a module with `add_parser` and `run`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from .. import __version__
from .errors import UsageError


def build_parser() -> argparse.ArgumentParser:
    """The parser of all subcommands."""
    from . import generate, overlap

    parser = argparse.ArgumentParser(
        prog="hetero-spec",
        description="Speculative decoding for a target and a drafter with different tokenizers, without changing what "
        "the target would have said.",
    )
    parser.add_argument("--version", action="version", version=f"hetero-spec {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in (generate, overlap):
        module.add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 0 = done, 2 = something the user can mend, 130 = interrupted."""
    args = build_parser().parse_args(argv)
    try:
        code: int = args.run(args)
        return code
    except UsageError as error:
        print(f"hetero-spec {args.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"hetero-spec {args.command}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output has left
        sys.stderr.close()
        return 0
