# SPDX-License-Identifier: Apache-2.0
"""`hetero-spec calibrate lookahead`: record drafts, train DISCO's classifier, sweep its threshold."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetero_spec.cli.errors import UsageError
from hetero_spec.cli.output import checked_file, missing_package, one_line

if TYPE_CHECKING:
    from hetero_spec.bench.results import ResultsFile
    from hetero_spec.decoding import SpeculativeDecoder
    from hetero_spec.decoding.disco import DiscoLookahead

_DESCRIPTION = """\
Decode prompts with one long lookahead, record after each drafted token what the drafter knew and whether the target
accepted it, train a small classifier on most prompts, and choose the threshold and the longest draft that give most
tokens per second on the others, by the costs of a step that are measured here. OUTPUT then serves as a lookahead:

  hetero-spec generate --lookahead OUTPUT ...

Each finished prompt is kept in OUTPUT.records.jsonl; a run that is interrupted goes on from there when it is started
again with the same arguments. The classifier cannot change what the target says, only how fast.
"""
_INTERRUPTED = 130
_MAX_THREADS = 1024
# Recorded drafts are longer than any that is chosen from, so that a replay rarely meets the end of one.
_EXTRA_TOKENS = 4
# Every fourth prompt is held out.
_HELD_OUT = 4
_PASSAGE_TOKENS = 64


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """Add the subcommand to `hetero-spec calibrate`."""
    parser = subparsers.add_parser(
        "lookahead",
        help="train the classifier of the lookahead 'disco'",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--target", default="smollm2", metavar="MODEL", help="default: smollm2")
    parser.add_argument("--drafter", default="embedded", metavar="MODEL", help="default: embedded")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--prompts", metavar="FILE", help='UTF-8, a prompt a line; one in "quotes" is a JSON string, with \\n'
    )
    source.add_argument("--text", metavar="FILE", help="UTF-8 text; passages of it are continued as they are")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the classifier, a .json file")
    parser.add_argument("--num-prompts", type=int, metavar="N", help="the first N only; default: all")
    parser.add_argument("--max-new-tokens", type=int, default=64, metavar="N", help="of each prompt; default: 64")
    parser.add_argument("--temperatures", default="0,0.7", metavar="LIST", help="default: 0,0.7")
    parser.add_argument("--max-draft-tokens", type=int, default=8, metavar="K", help="longest draft; default: 8")
    parser.add_argument("--raw", action="store_true", help="prompts without the target's chat template")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="default: 1")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="processor threads; default: 1")
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Run the subcommand; 0 on success, 130 after Ctrl-C.

    Raises
    ------
    UsageError   an argument, a file or a model is not what it must be
    """
    temperatures = _checked_temperatures(args.temperatures)
    for name, least, most in (
        ("max_new_tokens", 2, None),
        ("max_draft_tokens", 2, None),
        ("num_prompts", 2, None),
        ("threads", 1, _MAX_THREADS),
    ):
        value = getattr(args, name)
        if value is not None and (value < least or (most is not None and value > most)):
            expected = f"at least {least}" if most is None else f"in [{least}, {most}]"
            raise UsageError(f"{name.replace('_', '-')} must be {expected}, got {value}")
    if not args.output.endswith(".json"):
        raise UsageError(f"output must be a .json file, which is how a lookahead's file is known, got {args.output}")
    output = checked_file("output", args.output)
    text = _read(args.prompts or args.text)
    prompts = None if args.prompts is None else _prompts_of(text)
    if prompts is not None and len(prompts[: args.num_prompts]) < 2:
        raise UsageError(f"prompts must be at least 2, got {len(prompts)} in {args.prompts}")
    settings = {
        **{name: getattr(args, name) for name in ("target", "drafter", "num_prompts", "max_new_tokens", "raw", "seed")},
        **{name: getattr(args, name) for name in ("max_draft_tokens", "threads")},
        "temperatures": temperatures,
        "source": "text" if prompts is None else "prompts",
        "sha256": hashlib.sha256(text.encode("utf-8")).hexdigest(),
    }
    assert output is not None
    try:
        import rich.table  # noqa: F401 - missed now, not after the work
        import torch

        from hetero_spec.bench.results import ResultsFile
        from hetero_spec.decoding import SpeculativeDecoder
        from hetero_spec.decoding.disco_training import RecordingLookahead
        from hetero_spec.models import ModelError, load
    except ImportError as error:
        raise UsageError(missing_package(error)) from error
    torch.set_num_threads(args.threads)
    try:
        records = ResultsFile(Path(f"{output}.records.jsonl"), "hetero-spec calibrate lookahead 1", settings)
        target, drafter = load(args.target, packed=True), load(args.drafter, packed=True)
        lookahead = RecordingLookahead(args.max_draft_tokens + _EXTRA_TOKENS)
        decoder = SpeculativeDecoder(target, drafter, "tli", lookahead)
        if prompts is None:
            encoded = _passages(list(target.tokenizer.encode(text)), args.max_new_tokens)
            if len(encoded[: args.num_prompts]) < 2:
                raise UsageError(f"text must give at least 2 passages of {_PASSAGE_TOKENS} tokens, got {len(encoded)}")
        else:
            encoded = [_encode(target.tokenizer, prompt, args.raw) for prompt in prompts]
        encoded = encoded[: args.num_prompts]
        limit = decoder.target.max_length
        longest = max(map(len, encoded))
        if limit is not None and longest + args.max_new_tokens > limit:
            raise ValueError(
                f"prompts and max-new-tokens must fit the target's {limit} positions, "
                f"got {longest} + {args.max_new_tokens}"
            )
        try:
            _record(decoder, lookahead, encoded, temperatures, args, records)
        except KeyboardInterrupt:
            print(
                f"hetero-spec calibrate: interrupted; {len(records.records)} records are kept in {records.path}, "
                "the same command goes on from there",
                file=sys.stderr,
            )
            return _INTERRUPTED
        made_for = {"target": target.name, "drafter": drafter.name, **_hashes(target.tokenizer, drafter.tokenizer)}
        _fit(records, len(encoded), temperatures, args, output, made_for)
    except ImportError as error:
        raise UsageError(missing_package(error)) from error
    except (ModelError, ValueError, TypeError, OSError) as error:
        raise UsageError(one_line(error)) from error
    return 0


def _record(
    decoder: SpeculativeDecoder,
    lookahead: Any,
    prompts: Sequence[Sequence[int]],
    temperatures: Sequence[float],
    args: argparse.Namespace,
    records: ResultsFile,
) -> None:
    """Fill the records: one for each prompt and temperature, and one for the costs."""
    from hetero_spec.decoding.disco_training import measure_costs
    from hetero_spec.models.progress import progress_of

    with progress_of("hetero-spec calibrate", None) as progress:
        progress.step(f"recording {len(prompts)} prompts", len(prompts) * len(temperatures))
        for number, token_ids in enumerate(prompts):
            for temperature in temperatures:
                key = _key(number, temperature)
                if key not in records.records:
                    decoder.generate(
                        token_ids, max_new_tokens=args.max_new_tokens, temperature=temperature, seed=args.seed + number
                    )
                    records.append({"key": key, "drafts": [draft.as_dict() for draft in lookahead.drafts]})
                progress.advance(1)
        if "costs" not in records.records:
            num_repeats = 9
            progress.step("measuring what a step costs", num_repeats + 1)
            assert decoder.drafter is not None
            # Of one thread on a processor, its own time is what other work on the machine disturbs least.
            on_processor = decoder.drafter.draft_to_target_ids.device.type == "cpu"
            costs = measure_costs(
                decoder.target,
                decoder.drafter,
                prompts[0],
                args.max_draft_tokens,
                num_repeats=num_repeats,
                clock=time.process_time if args.threads == 1 and on_processor else time.perf_counter,
                on_step=lambda: progress.advance(1),
            )
            records.append({"key": "costs", "draft": costs.draft, "verify": list(costs.verify)})


def _fit(
    records: ResultsFile,
    num_prompts: int,
    temperatures: Sequence[float],
    args: argparse.Namespace,
    output: Path,
    made_for: dict[str, Any],
) -> None:
    """Train, sweep, write the classifier and show what it is worth."""
    from hetero_spec.decoding.disco import DiscoLookahead
    from hetero_spec.decoding.disco_training import Costs, RecordedDraft, fit

    training: list[RecordedDraft] = []
    held_out: list[RecordedDraft] = []
    for number in range(num_prompts):
        # The last of each four; of fewer than four, the last.
        is_held_out = number % _HELD_OUT == _HELD_OUT - 1 or (num_prompts < _HELD_OUT and number == num_prompts - 1)
        for temperature in temperatures:
            drafts = records.records[_key(number, temperature)]["drafts"]
            (held_out if is_held_out else training).extend(map(RecordedDraft.from_dict, drafts))
    measured = records.records["costs"]
    costs = Costs(measured["draft"], tuple(measured["verify"]))
    classifier, threshold, longest, report = fit(training, held_out, costs, args.max_draft_tokens)
    lookahead = DiscoLookahead(classifier, threshold, longest, made_for)
    lookahead.save(output, {"temperatures": list(temperatures), "num_prompts": num_prompts, **report})
    _print_table(lookahead, report)


def _print_table(lookahead: DiscoLookahead, report: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    replays = report["replays"]
    plain = replays["plain"]["tokens_per_second"]
    chosen = f"threshold {lookahead.threshold:g}, at most {lookahead.max_draft_tokens} draft tokens"
    count = report["num_examples_held_out"]
    table = Table(title=f"Prompts held out ({count} draft tokens), replayed; {chosen}", title_justify="left")
    for name in ("lookahead", "tokens per target call", "tokens/s expected", "against plain"):
        table.add_column(name, justify="left" if name == "lookahead" else "right")
    for name, result in replays.items():
        speed = result["tokens_per_second"]
        table.add_row(name, f"{result['block_efficiency']:.2f}", f"{speed:.1f}", f"{speed / plain:.2f}x")
    console = Console(stderr=True)
    console.print(table)
    score = report["ranking_held_out"]
    if score is None:
        console.print("Held-out draft tokens were all accepted, or none was: too few to judge by. Give more prompts.")
    else:
        console.print(f"An accepted token scores above a rejected one in {100 * score:.0f} of 100 pairs (chance: 50).")
    if max(plain, replays["disco"]["tokens_per_second"]) == plain:
        console.print("Drafting does not pay for this pair on this machine, whatever the lookahead tried here.")


def _key(number: int, temperature: float) -> str:
    return f"prompt {number}, T {temperature:g}"


def _encode(tokenizer: Any, prompt: str, is_raw: bool) -> list[int]:
    chat = None if is_raw else tokenizer.apply_chat_template([{"role": "user", "content": prompt}])
    if chat is None:
        return list(tokenizer.encode(prompt))
    return list(tokenizer.encode(chat, add_special_tokens=False))


def _hashes(target: Any, drafter: Any) -> dict[str, str]:
    from hetero_spec.vocab import read_vocabulary

    return {
        "target_tokenizer_sha256": read_vocabulary(target).sha256,
        "drafter_tokenizer_sha256": read_vocabulary(drafter).sha256,
    }


def _passages(token_ids: Sequence[int], max_new_tokens: int) -> list[list[int]]:
    """Cut a text into prompts, apart by what is decoded after each."""
    step = _PASSAGE_TOKENS + max_new_tokens
    starts = range(0, len(token_ids) - _PASSAGE_TOKENS + 1, step)
    return [list(token_ids[start : start + _PASSAGE_TOKENS]) for start in starts]


def _prompts_of(text: str) -> list[str]:
    prompts = []
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.strip()
        if line.startswith('"'):
            try:
                line = json.loads(line)
            except ValueError:
                raise UsageError(f"prompts must be text or JSON strings, got neither in line {number}") from None
        if line.strip():
            prompts.append(line)
    return prompts


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{path} must be UTF-8 text") from None
    except OSError as error:
        raise UsageError(one_line(error)) from error


def _checked_temperatures(text: str) -> list[float]:
    try:
        temperatures = [float(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"temperatures must be numbers with commas between them, got {text!r}") from None
    if not all(0.0 <= temperature < float("inf") for temperature in temperatures):
        raise UsageError(f"temperatures must be finite and at least 0, got {text}")
    if len(set(temperatures)) < len(temperatures):
        raise UsageError(f"temperatures must differ, got {text}")
    return temperatures
