# SPDX-License-Identifier: Apache-2.0
"""`hetero-spec calibrate rdk`: fit a redistributing kernel to a pair of models, or say that none helps."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetero_spec.cli.errors import UsageError
from hetero_spec.cli.output import checked_file, missing_package, one_line
from hetero_spec.files import write_whole

if TYPE_CHECKING:
    from torch import Tensor

    from hetero_spec.models import LoadedModel
    from hetero_spec.rdk.calibration import Calibration
    from hetero_spec.rdk.records import Records
    from hetero_spec.rdk.views import Pair, Setting
    from hetero_spec.vocab import VocabMap

_DESCRIPTION = """\
Read a text with target and drafter once, fit the kernel that gives a drafter's missing tokens back so that the target
accepts most, choose its strength on other documents of the text, and measure the gain over plain token-level
intersection on yet other ones. Where no gain is sure, OUTPUT holds the kernel that changes nothing, and says so.

Text that the target wrote itself at the same temperature is best; a hundred thousand tokens and up. OUTPUT serves as

  hetero-spec generate --method rdk --kernel OUTPUT ...

Beside it lie OUTPUT.json (the report), OUTPUT.priors (the target's mean law and variances), with --keep OUTPUT.keep
(the tokens that were kept), and OUTPUT.records: what was read, kept every thousand positions. An interrupted run goes
on from there when it is started again with the same arguments; the fit begins anew.
"""
_MAX_THREADS = 1024
_INTERRUPTED = 130
# To fit on, to choose on, to check on.
_LEAST_DOCUMENTS = 3


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """Add the subcommand to `hetero-spec calibrate`."""
    parser = subparsers.add_parser(
        "rdk",
        help="fit a kernel that redistributes a drafter's mass to tokens it does not have",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--target", default="smollm2", metavar="MODEL", help="default: smollm2")
    parser.add_argument("--drafter", default="embedded", metavar="MODEL", help="default: embedded")
    parser.add_argument(
        "--keep",
        metavar="FRACTION|FILE",
        help="calibrate for a pruned drafter: a share of the shared tokens, by how often the target says them, or a "
        "file of kept tokens. With it the drafter may be the target itself",
    )
    parser.add_argument("--text", required=True, nargs="+", metavar="FILE", help="UTF-8 text, one file or more")
    parser.add_argument("--temperature", type=float, default=1.0, metavar="T", help="above 0; default: 1")
    parser.add_argument("--top-p", type=float, default=1.0, metavar="P", help="1 is off")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the kernel")
    parser.add_argument("--records", metavar="FOLDER", help="what is read is kept here; default: OUTPUT.records")
    parser.add_argument("--document-tokens", type=int, default=256, metavar="N", help="cut text so; default: 256")
    parser.add_argument("--max-tokens", type=int, metavar="N", help="read no more of the text; default: all")
    parser.add_argument("--affinities", type=int, default=64, metavar="K", help="per token; default: 64")
    parser.add_argument(
        "--max-entries", type=int, metavar="N", help="of the kernel in all; default: a quarter of the vocabulary"
    )
    parser.add_argument("--epochs", type=int, default=3, metavar="N", help="passes of the fit; default: 3")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="default: 0")
    parser.add_argument("--threads", type=int, metavar="N", help="processor threads; default: as torch chooses")
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Run the subcommand; 0 on success, fallback included, 130 where it was interrupted.

    Raises
    ------
    UsageError   an argument, a text, a model or an output file is not what it must be
    """
    for name, least, most in (
        ("document_tokens", 32, None),
        ("max_tokens", 1, None),
        ("affinities", 1, None),
        ("max_entries", 0, None),
        ("epochs", 1, None),
        ("threads", 1, _MAX_THREADS),
    ):
        value = getattr(args, name)
        if value is not None and (value < least or (most is not None and value > most)):
            expected = f"at least {least}" if most is None else f"in [{least}, {most}]"
            raise UsageError(f"--{name.replace('_', '-')} must be {expected}, got {value}")
    if not (math.isfinite(args.temperature) and args.temperature > 0.0):
        raise UsageError(
            f"--temperature must be above 0, got {args.temperature} (at 0 both laws are certain, and nothing is gained)"
        )
    if not 0.0 < args.top_p <= 1.0:
        raise UsageError(f"--top-p must be in (0, 1], got {args.top_p}")
    keep = _checked_keep(args.keep)
    if args.target == args.drafter and keep is None:
        raise UsageError("--drafter must be another model than --target unless --keep is given, got the same")
    output = checked_file("--output", args.output)
    assert output is not None
    folder = Path(args.records or f"{output}.records")
    texts = [_read(path) for path in args.text]
    try:
        import torch

        from hetero_spec.models import ModelError, load
        from hetero_spec.models.progress import progress_of
        from hetero_spec.rdk.views import Setting
    except ImportError as error:
        raise UsageError(missing_package(error)) from error
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    try:
        setting = Setting(args.temperature, args.top_p)
        target = load(args.target)
        drafter = None if args.drafter == args.target else load(args.drafter)
        with progress_of("calibrate", None) as progress:
            records, vocab_map = _recorded(args, folder, texts, target, drafter, progress)
            calibration, kept_ids = _calibrated(args, setting, keep, records, target, drafter, vocab_map, progress)
    except ImportError as error:
        raise UsageError(missing_package(error)) from error
    except (ModelError, ValueError, OSError) as error:
        message = one_line(error)
        what, _, rest = message.partition("records: ")
        raise UsageError(message if what else f"--records: {rest}") from error
    except KeyboardInterrupt:
        print(f"hetero-spec calibrate: {_what_is_kept(folder)}", file=sys.stderr)
        return _INTERRUPTED
    _write(output, calibration, kept_ids if keep is not None else None, target, drafter, vocab_map)
    _tell(output, calibration.report)
    return 0


def _what_is_kept(folder: Path) -> str:
    """Say after an interruption what the same command finds when it is started again."""
    from hetero_spec.rdk.records import num_recorded

    count = num_recorded(folder)
    if count == 0:
        return "interrupted before anything was kept; the same command begins anew"
    return f"interrupted; {count} positions that were read are kept in {folder}, and the same command goes on from them"


def _checked_keep(keep: str | None) -> float | Path | None:
    if keep is None:
        return None
    try:
        share = float(keep)
    except ValueError:
        if not Path(keep).is_file():
            raise UsageError(f"--keep must be a share in (0, 1] or a file of kept tokens, got {keep}") from None
        return Path(keep)
    if not 0.0 < share <= 1.0:
        raise UsageError(f"--keep must be a share in (0, 1] or a file of kept tokens, got {keep}")
    return share


def _read(path: str) -> str:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"--text: {path} must be UTF-8 text ({error})") from None
    except OSError as error:
        raise UsageError(f"--text: {one_line(error)}") from error
    if not text.strip():
        raise UsageError(f"--text: {path} must hold text, got an empty file")
    return text


def _recorded(
    args: argparse.Namespace,
    folder: Path,
    texts: list[str],
    target: LoadedModel,
    drafter: LoadedModel | None,
    progress: Any,
) -> tuple[Records, VocabMap | None]:
    from hetero_spec.rdk.records import collect, documents_of_text
    from hetero_spec.vocab import VocabMap

    vocab_map = None
    if drafter is not None:
        vocab_map = VocabMap.from_tokenizers(
            target.tokenizer,
            drafter.tokenizer,
            target_vocab_size=target.vocab_size,
            draft_vocab_size=drafter.vocab_size,
        )
    documents = []
    for text in texts:
        documents += documents_of_text(text, target.tokenizer, max_tokens=args.document_tokens)
    if args.max_tokens is not None:
        documents = documents[: max(1, args.max_tokens // args.document_tokens)]
    if len(documents) < _LEAST_DOCUMENTS:
        tokens = "--max-tokens and --document-tokens" if args.max_tokens is not None else "--document-tokens"
        raise UsageError(f"--text must give at least {_LEAST_DOCUMENTS} documents (see {tokens}), got {len(documents)}")
    count = sum(len(document.token_ids) - document.num_prompt_tokens for document in documents)
    progress.step(f"reading {count} tokens of text in {len(documents)} documents", count)
    return collect(folder, documents, target, drafter, vocab_map, on_positions=progress.advance), vocab_map


def _calibrated(
    args: argparse.Namespace,
    setting: Setting,
    keep: float | Path | None,
    records: Records,
    target: LoadedModel,
    drafter: LoadedModel | None,
    vocab_map: VocabMap | None,
    progress: Any,
) -> tuple[Calibration, Tensor]:
    from hetero_spec.rdk.calibration import calibrate, frequent_shared_ids
    from hetero_spec.rdk.records import head_weight, tokenizer_sha256
    from hetero_spec.rdk.views import Pair

    own = drafter or target
    to_target = None if vocab_map is None else vocab_map.draft_to_target_ids
    target_weight, draft_weight = head_weight(target), head_weight(own)
    kept = None
    if isinstance(keep, Path):
        from hetero_spec.rdk.prune import load_pruned

        try:
            kept_columns = load_pruned(keep, own.model, tokenizer=own.tokenizer).kept_ids
        except (ValueError, OSError) as error:
            raise UsageError(f"--keep: {one_line(error)}") from error
        kept = kept_columns if to_target is None else to_target.long()[kept_columns]
        kept = kept[kept >= 0]
    elif keep is not None:
        progress.step("which tokens to keep")
        kept = frequent_shared_ids(
            records.target_states, target_weight, to_target, keep, target.tokenizer.eos_token_ids
        )
    if (to_target is not None and not bool((to_target >= 0).any())) or (kept is not None and len(kept) == 0):
        where = f"--keep {keep}" if isinstance(keep, Path) else "--drafter"
        raise UsageError(f"{where} must share a token with the target, got none")
    pair: Pair = Pair.of(target_weight, draft_weight, to_target, kept)
    result = calibrate(
        pair,
        records.target_states,
        records.draft_states,
        records.document_ids,
        setting,
        max_per_source=args.affinities,
        max_entries=args.max_entries,
        num_epochs=args.epochs,
        seed=args.seed,
        target_sha256=tokenizer_sha256(target),
        drafter_sha256=tokenizer_sha256(own),
        on_stage=lambda what, count: progress.step(f"{what} ({count} positions)", count),
        on_positions=progress.advance,
    )
    result.report["target"], result.report["drafter"] = target.name, own.name
    result.report["documents_sha256"] = records.manifest["documents_sha256"]
    return result, pair.kept_target_ids


def _write(
    output: Path,
    calibration: Calibration,
    kept_ids: Tensor | None,
    target: LoadedModel,
    drafter: LoadedModel | None,
    vocab_map: VocabMap | None,
) -> None:
    """Write the kernel last: where it is, everything is."""
    from hetero_spec.rdk.prune import prune_vocabulary
    from hetero_spec.rdk.records import tokenizer_sha256

    calibration.priors.save(Path(f"{output}.priors"), tokenizer_sha256=tokenizer_sha256(target))
    write_whole(f"{output}.json", json.dumps(calibration.report, indent=1) + "\n")
    if kept_ids is not None:
        own = drafter or target
        columns = kept_ids if vocab_map is None else vocab_map.target_to_draft_ids.long()[kept_ids]
        prune_vocabulary(own, columns).save(f"{output}.keep")
    calibration.kernel.save(output)


def _tell(output: Path, report: dict[str, Any]) -> None:
    inside, tli, gain = report["target_mass_inside"], report["acceptance_tli"], report["gain_of_best"]
    print(f"target mass on the drafter's {report['num_kept_tokens']} tokens: {inside['mean']:.4f}")
    print(f"acceptance of token-level intersection: {tli['mean']:.4f}")
    width = gain["half_width_95"]
    around = "" if width is None else f" ± {width:.4f}"
    print(f"gain of {report['best']} on text not seen: {gain['mean']:+.4f}{around}")
    if report["fallback"] is not None:
        print(f"{report['fallback']}: {output} changes nothing")
    else:
        print(f"kernel: {output}")
