# SPDX-License-Identifier: Apache-2.0
"""`hetero-spec generate`: a real model's answer, drafted by a model with another tokenizer, and what that was worth."""

from __future__ import annotations

import argparse
import secrets
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetero_spec.cli.controller_file import ControllerFile
from hetero_spec.cli.errors import UsageError
from hetero_spec.cli.output import checked_file, missing_package, one_line, write_json

if TYPE_CHECKING:
    from hetero_spec.decoding import Piece, SpeculativeDecoder

_DESCRIPTION = """\
Decode a prompt with a target model while a small drafter, whose tokenizer may be another one, proposes tokens. The
output follows the target's law exactly: at temperature 0 it is the target's own text. Text goes to standard output,
the table of figures to standard error.

Methods:
  tli      the drafter's law over the tokens that both vocabularies have
  rdk      the same, spread over the target's whole vocabulary by a kernel (--rdk-kernel, of `calibrate rdk`)
  slem     drafts cross as text and are kept while the target says the same
  slrs     drafts cross as text and are verified with the law of that text; to be measured, not to be quick
  ngram    what followed the last few tokens earlier in the text; no drafter
  cascade  drafts of a middle model (--middle), which the drafter helps in turn
  auto     chooses among tli, slem, ngram and (with --rdk-kernel) rdk, and the length, by running measurements;
           decodes plainly where drafting does not pay; --controller keeps what it learns
  none     plain decoding; no drafter

With --verify exact and a seed the text is that of plain decoding with the same seed, whatever drafts.

Models are smollm2, gemma3-270m and embedded (the drafter that comes with this package), or local transformers folders.
"""
# As in hetero_spec.decoding, which the command line loads only when it decodes.
_METHODS = ("tli", "rdk", "slem", "slrs", "ngram", "cascade", "auto", "none")
_WITHOUT_DRAFTER = ("ngram", "none")
_LONG_LOOKAHEAD = 8
# Tokens of the runs that are thrown away before a comparison is timed.
_WARM_UP_TOKENS = 4
_INTERRUPTED = 130
# More than any machine is worth; OpenMP ends the process when it cannot start them.
_MAX_THREADS = 1024


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """Add the subcommand to the command line."""
    parser = subparsers.add_parser(
        "generate",
        help="decode a prompt with a target and a drafter",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--target", default="smollm2", metavar="MODEL", help="default: smollm2")
    parser.add_argument("--drafter", default="embedded", metavar="MODEL", help="default: embedded")
    parser.add_argument("--prompt", required=True, metavar="TEXT", help="- reads it from standard input")
    parser.add_argument(
        "--raw", action="store_true", help="continue the prompt as it is, without the target's chat template"
    )
    parser.add_argument("--method", default="tli", metavar="METHOD", choices=_METHODS, help="see above; default: tli")
    parser.add_argument(
        "--lookahead",
        metavar="K",
        help="draft tokens per round (for auto: at most), or a policy: confidence (up to 4 while the drafter is sure), "
        "heuristic, disco, or a classifier's .json file of `calibrate lookahead`; default: confidence, for auto and "
        f"ngram {_LONG_LOOKAHEAD}",
    )
    parser.add_argument(
        "--verify",
        choices=("rejection", "exact"),
        help="rejection: by the law that drafts come from; exact: the target draws every token itself, and with a seed "
        "the text is plain decoding's; default: exact for slem and ngram, else rejection",
    )
    parser.add_argument("--rdk-kernel", "--kernel", metavar="FILE", help="for rdk, and for auto if there is one")
    parser.add_argument(
        "--keep", metavar="FILE", help="cut the drafter's output layer to these tokens (OUTPUT.keep of `calibrate rdk`)"
    )
    parser.add_argument("--middle", metavar="MODEL", help="for cascade: the model that drafts for the target")
    parser.add_argument(
        "--controller",
        metavar="FILE",
        help="for auto: keep here what it learns, and begin with what earlier runs of this pair have learnt",
    )
    parser.add_argument("--max-new-tokens", type=int, default=128, metavar="N", help="default: 128")
    parser.add_argument("--temperature", type=float, default=0.0, metavar="T", help="0 is greedy; default: 0")
    parser.add_argument("--top-k", type=int, default=0, metavar="K", help="0 is off")
    parser.add_argument("--top-p", type=float, default=1.0, metavar="P", help="1 is off")
    parser.add_argument("--min-p", type=float, default=0.0, metavar="P", help="0 is off")
    parser.add_argument("--seed", type=int, metavar="S", help="default: drawn anew, and told in the JSON file")
    parser.add_argument("--stop", action="append", default=[], metavar="TEXT", help="ends the text; may be repeated")
    parser.add_argument(
        "--compare", action="store_true", help="decode the same prompt plainly, in turns with the drafted run"
    )
    parser.add_argument("--threads", type=int, metavar="N", help="processor threads; default: as torch chooses")
    parser.add_argument("--json", metavar="FILE", help="write text and figures here")
    parser.set_defaults(run=run)
    return parser


@dataclass
class _Run:
    """One decoding in progress."""

    decoder: SpeculativeDecoder
    pieces: Iterator[Piece]
    text: str = ""
    finish_reason: str | None = None

    def advance(self) -> str:
        """Decode one round and return its text."""
        piece = next(self.pieces)
        self.text += piece.text
        self.finish_reason = piece.finish_reason
        return piece.text


def run(args: argparse.Namespace) -> int:
    """Run the subcommand; 0 on success, 130 after Ctrl-C.

    Raises
    ------
    UsageError   a model, a parameter, the prompt or the output file is not what it must be
    """
    prompt = _checked_prompt(args)
    json_path = _checked_output("json", args.json)
    controller_file = _checked_controller(args)
    if args.threads is not None and not 1 <= args.threads <= _MAX_THREADS:
        raise UsageError(f"threads must be in [1, {_MAX_THREADS}], got {args.threads}")
    if args.seed is None:
        args.seed = secrets.randbits(53)  # every JSON reader keeps such a number whole
    try:
        import rich.table  # noqa: F401 - missed now, not after the work

        from hetero_spec.decoding import Sampling, SpeculativeDecoder
        from hetero_spec.decoding.lookahead import as_lookahead
        from hetero_spec.decoding.methods import WITH_RDK_KERNEL
        from hetero_spec.models import ModelError, load
    except ImportError as error:
        raise UsageError(missing_package(error)) from error
    if args.threads is not None:
        import torch

        torch.set_num_threads(args.threads)
    try:
        Sampling(args.temperature, args.top_k, args.top_p, args.min_p)
        if args.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1, got {args.max_new_tokens}")
        if args.lookahead is None:
            args.lookahead = str(_LONG_LOOKAHEAD) if args.method in ("auto", "ngram") else "confidence"
        lookahead = as_lookahead(_number_or_name(args.lookahead))
        if (args.middle is not None) != (args.method == "cascade"):
            given = "no --middle" if args.middle is None else f"--method {args.method}"
            raise ValueError(f"--middle must be given with --method cascade and only there, got {given}")
        if args.method == "rdk" and args.rdk_kernel is None:
            raise ValueError("--rdk-kernel must be given with --method rdk; `hetero-spec calibrate rdk` makes one")
        if args.rdk_kernel is not None and args.method not in WITH_RDK_KERNEL:
            raise ValueError(f"--rdk-kernel must be given with --method rdk or auto, got {args.method}")
        # Packed layers make a step of a few tokens cost little more than a step of one: what verification needs.
        target = load(args.target, packed=True)
        drafter: Any = None if args.method in _WITHOUT_DRAFTER else load(args.drafter, packed=True)
        if args.keep is not None:
            drafter = _pruned(args.keep, drafter)
        decoder = SpeculativeDecoder(
            target,
            drafter,
            args.method,
            lookahead,
            verify=args.verify,
            rdk_kernel=args.rdk_kernel,
            middle=None if args.middle is None else load(args.middle, packed=True),
        )
        if controller_file is not None and decoder.controller is not None:
            controller_file.restore(decoder.controller)
        token_ids = _encode(target.tokenizer, prompt, args.raw)
        arguments: dict[str, Any] = {
            "max_new_tokens": args.max_new_tokens,
            "temperature": args.temperature,
            "top_k": args.top_k,
            "top_p": args.top_p,
            "min_p": args.min_p,
            "seed": args.seed,
            "stop": args.stop,
        }
        plain = SpeculativeDecoder(decoder.target, method="none") if args.compare else None
        drafted_run = _Run(decoder, decoder.pieces([token_ids], **arguments))
        plain_run = None if plain is None else _Run(plain, plain.pieces([token_ids], **arguments))
    except ImportError as error:
        raise UsageError(missing_package(error)) from error
    except (ModelError, ValueError, TypeError, OSError) as error:
        message = one_line(error)
        for speaker in ("generate: ", "SpeculativeDecoder: ", "sampling: "):
            message = message.removeprefix(speaker)
        raise UsageError(message) from error

    try:
        return _decode_and_report(args, drafted_run, plain_run, token_ids, arguments, json_path)
    finally:  # whatever becomes of the output
        if controller_file is not None and decoder.controller is not None:
            controller_file.save(decoder.controller)


def _decode_and_report(
    args: argparse.Namespace,
    drafted_run: _Run,
    plain_run: _Run | None,
    token_ids: Sequence[int],
    arguments: dict[str, Any],
    json_path: Path | None,
) -> int:
    """Write the text as it comes, then the figures; return the exit code."""
    interrupted = False
    try:
        if plain_run is not None:
            for warmed in (drafted_run.decoder, plain_run.decoder):
                # The runs to be timed keep the statistics they were given, and a few tokens are no text to learn from.
                stats, learnt = warmed.stats, None if warmed.controller is None else warmed.controller.state()
                try:
                    warmed.generate(token_ids, **{**arguments, "max_new_tokens": _WARM_UP_TOKENS})
                finally:
                    warmed.stats = stats
                    if warmed.controller is not None and learnt is not None:
                        warmed.controller.restore(learnt)
        _decode(drafted_run, plain_run)
    except KeyboardInterrupt:
        interrupted = True
    sys.stdout.write("\n")
    sys.stdout.flush()
    report = _report(args, drafted_run, plain_run, interrupted)
    _print_table(report)
    if json_path is not None:
        write_json(json_path, report)
    if drafted_run.finish_reason == "error":
        print("hetero-spec generate: the target's logits hold NaN, or leave no token to choose from", file=sys.stderr)
        return 1
    return _INTERRUPTED if interrupted else 0


def _decode(drafted: _Run, plain: _Run | None) -> None:
    """Decode to the end, writing the drafted run's text as it comes.

    With a plain run beside it the two take turns round by round, the one with fewer tokens first, so that whatever
    else the machine is doing slows both alike. Each run's clock stands still while the other works.
    """
    while drafted.finish_reason is None or (plain is not None and plain.finish_reason is None):
        plain_turn = (
            plain is not None
            and plain.finish_reason is None
            and (drafted.finish_reason is not None or plain.decoder.stats.tokens < drafted.decoder.stats.tokens)
        )
        if plain is not None and plain_turn:
            plain.advance()
        else:
            sys.stdout.write(drafted.advance())
            sys.stdout.flush()


def _pruned(path: str, drafter: Any) -> Any:
    """Cut a drafter's output layer to the tokens of a file that `calibrate rdk --keep` or `PrunedModel.save` wrote."""
    if drafter is None:
        raise ValueError("--keep must be given with a drafter, got a method without one")
    from hetero_spec.rdk import load_pruned

    return load_pruned(path, drafter.model, tokenizer=drafter.tokenizer)


def _encode(tokenizer: Any, prompt: str, is_raw: bool) -> list[int]:
    """Token ids of the prompt, as the user's turn of a chat where the model has a template."""
    chat = None if is_raw else tokenizer.apply_chat_template([{"role": "user", "content": prompt}])
    if chat is None:
        return list(tokenizer.encode(prompt))
    return list(tokenizer.encode(chat, add_special_tokens=False))


def _report(args: argparse.Namespace, drafted: _Run, plain: _Run | None, interrupted: bool) -> dict[str, Any]:
    """Gather what the table shows and the file holds."""
    report: dict[str, Any] = {
        "target": args.target,
        "drafter": None if args.method in _WITHOUT_DRAFTER else args.drafter,
        "middle": args.middle,
        "prompt": args.prompt,
        "text": drafted.text,
        "method": args.method,
        "lookahead": args.lookahead,
        "verify": drafted.decoder.verify,
        "rdk_kernel": args.rdk_kernel,
        "max_new_tokens": args.max_new_tokens,
        "temperature": args.temperature,
        "top_k": args.top_k,
        "top_p": args.top_p,
        "min_p": args.min_p,
        "seed": args.seed,
        "finish_reason": drafted.finish_reason,
        "interrupted": interrupted,
        "stats": drafted.decoder.stats.as_dict(),
    }
    if plain is not None:
        speed, plain_speed = drafted.decoder.stats.tokens_per_second, plain.decoder.stats.tokens_per_second
        report["plain"] = {
            "text": plain.text,
            "tokens_per_second": plain_speed,
            "finish_reason": plain.finish_reason,
            "stats": plain.decoder.stats.as_dict(),
        }
        # Two samples of one law differ, so only greedy texts, or those of exact verification, can be compared, and
        # only finished ones.
        is_comparable = (args.temperature == 0.0 or drafted.decoder.verify == "exact") and not interrupted
        report["identical"] = drafted.text == plain.text if is_comparable else None
        report["speedup"] = speed / plain_speed if plain_speed else None
    return report


def _print_table(report: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    stats = report["stats"]
    title = " <- ".join(report[side] for side in ("target", "middle", "drafter") if report[side] is not None)
    table = Table(title=f"{title}, method {report['method']}", title_justify="left", show_header=False)
    table.add_column("figure")
    table.add_column("value", justify="right")
    table.add_row("tokens", f"{stats['tokens']}{' (interrupted)' if report['interrupted'] else ''}")
    if report["method"] != "none":
        table.add_row("acceptance rate", f"{stats['acceptance_rate']:.3f} ({stats['accepted']} of {stats['proposed']})")
        table.add_row("acceptance length", f"{stats['acceptance_length']:.2f} tokens per look of the target")
    table.add_row("tokens per second", f"{stats['tokens_per_second']:.2f}")
    for part in ("drafter", "target", "ops"):
        table.add_row(f"time in {part}", f"{stats[f'seconds_{part}']:.3f} s")
    if stats["rounds_by_method"]:
        rounds = sorted(stats["rounds_by_method"].items(), key=lambda item: -item[1])
        table.add_row("rounds", ", ".join(f"{count} {method}" for method, count in rounds))
    notes = list(stats["notes"])
    if "plain" in report:
        table.add_row("plain tokens per second", f"{report['plain']['tokens_per_second']:.2f}")
        speedup = report["speedup"]
        table.add_row("speed-up", "-" if speedup is None else f"{speedup:.2f}x")
        if speedup is not None and speedup < 1.0 and report["method"] != "none":
            notes.append("Drafting did not pay here: plain decoding was quicker.")
        identical = report["identical"]
        if identical is not None:
            kind = "greedy text" if report["temperature"] == 0.0 else "text"
            table.add_row(f"{kind} identical", "yes" if identical else "NO")
        elif not report["interrupted"]:
            notes.append(
                "Sampled texts differ by chance; at temperature 0 or with --verify exact the two are compared."
            )
    console = Console(stderr=True)
    console.print(table)
    for note in notes:
        console.print(note)


def _checked_prompt(args: argparse.Namespace) -> str:
    prompt = args.prompt
    try:
        if prompt == "-":
            if sys.stdin is None:
                raise UsageError("prompt must come from standard input, which is closed")
            prompt = sys.stdin.read()
        prompt.encode("utf-8")  # a command line keeps bytes that are no text as lone surrogates
    except UnicodeError:
        raise UsageError("prompt must be UTF-8 text, got bytes that are not") from None
    except OSError as error:
        raise UsageError(f"prompt must come from standard input: {error.strerror}") from error
    if not prompt.strip():
        raise UsageError("prompt must hold text, got none")
    return str(prompt)


def _checked_controller(args: argparse.Namespace) -> ControllerFile | None:
    if args.controller is None:
        return None
    if args.method != "auto":
        raise UsageError(f"controller must be given with --method auto, got --method {args.method}")
    if args.json is not None and Path(args.json).resolve() == Path(args.controller).resolve():
        raise UsageError(f"controller must be another file than --json, got {args.controller} for both")
    files = {"keep": args.keep, "rdk_kernel": args.rdk_kernel}
    path = _checked_output("controller", args.controller)
    return None if path is None else ControllerFile(path, args.target, args.drafter, files)


def _checked_output(option: str, path: str | None) -> Path | None:
    if path == "-":
        raise UsageError(f"{option} must be a file, got -: standard output is the text's")
    return checked_file(option, path)


def _number_or_name(lookahead: str) -> int | str:
    try:
        return int(lookahead)
    except ValueError:
        return lookahead
