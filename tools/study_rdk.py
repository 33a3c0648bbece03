#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""When do redistributing kernels accept more than token-level intersection? Real pairs, text that no fit has seen.

    python tools/study_rdk.py all --work build/rdk            the whole study: some hours of one core
    python tools/study_rdk.py all --work build/rdk --quick    every stage on every pair, small: about ten minutes

Stages (each writes whole files into the work folder and is skipped, or resumed, where they are there):

    texts      the targets write answers at temperature 1 and 0.7               -> texts/*.json
    records    target and drafter read them                                     -> records/<pair>-<part>-<T>/
    views      the heaviest entries of both laws, for every kept set            -> views/*.safetensors
    fit        a kernel for every kept set and setting                          -> rows/*.safetensors
    evaluate   exact acceptance on held-out documents                           -> results/*.safetensors
    heads      the anchor: a small low-rank head over the missing tokens        -> results/*-head.safetensors
    control    token-level intersection with the drafter at other temperatures  -> results/*-control.json
    speed      time against the width of the vocabulary                         -> results/speed.json
    report     tables and plots                                                 -> docs/rdk/, docs/rdk.md

`--quick` works in the folder `quick` of the work folder and writes its report there, never to docs/: it shows that
everything runs, and its numbers are too few to mean anything. `--corpus FOLDER` takes the corpus of
tools/train_drafter.py as SmolLM2's text instead of having it written anew.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import study_rdk_report as tables_of
import torch
from torch import Tensor

from hetero_spec.files import write_whole
from hetero_spec.rdk import calibration as cal
from hetero_spec.rdk import fit
from hetero_spec.rdk.priors import Priors, gather_priors
from hetero_spec.rdk.records import Document, Records, RecordsError, collect, head_weight, tokenizer_sha256
from hetero_spec.rdk.views import ROWS_AT_ONCE, Pair, Setting, Views, make_views

ROOT = Path(__file__).resolve().parent.parent
SEED = 20240611
SETTINGS = {"T=1": Setting(1.0), "T=0.7": Setting(0.7), "T=1, top-p 0.9": Setting(1.0, 0.9)}


@dataclass(frozen=True)
class Case:
    """One drafter: who drafts, and which share of the shared tokens is kept."""

    name: str
    target: str
    drafter: str
    share: float
    max_per_source: int
    has_anchor: bool = False
    has_control: bool = False

    @property
    def pair(self) -> str:
        return f"{self.target} <- {self.drafter}"


CASES = (
    Case("self-0.01", "smollm2", "smollm2", 0.01, 64, has_anchor=True),
    Case("self-0.1", "smollm2", "smollm2", 0.1, 32),
    Case("self-0.25", "smollm2", "smollm2", 0.25, 24),
    Case("self-0.5", "smollm2", "smollm2", 0.5, 16),
    Case("embedded-0.01", "smollm2", "embedded", 0.01, 64, has_anchor=True),
    # As many tokens as the target keeps at 1 % of its own.
    Case("embedded-0.06", "smollm2", "embedded", 492 / 8046, 64, has_anchor=True),
    Case("embedded-0.1", "smollm2", "embedded", 0.1, 64),
    Case("embedded-0.25", "smollm2", "embedded", 0.25, 48),
    Case("embedded-0.5", "smollm2", "embedded", 0.5, 32),
    Case("embedded-1", "smollm2", "embedded", 1.0, 32, has_control=True),
    Case("gemma-0.01", "gemma3-270m", "smollm2", 0.01, 64, has_anchor=True, has_control=True),
    Case("gemma-0.1", "gemma3-270m", "smollm2", 0.1, 32),
    Case("gemma-0.25", "gemma3-270m", "smollm2", 0.25, 24),
    Case("gemma-0.5", "gemma3-270m", "smollm2", 0.5, 16),
    Case("gemma-1", "gemma3-270m", "smollm2", 1.0, 16, has_control=True),
)


@dataclass(frozen=True)
class Scale:
    """How much is written, read, fitted and judged.

    Attributes
    ----------
    parts : tuple of (str, float, int)
        Part of the text, temperature that it is written at, number of answers.
    answer_tokens, answers_per_file : int
        An interruption of `texts` costs at most the file that is being written.
    fit_positions, held_positions : mapping
        By target; the held-out ones are all judged at T = 1, half of them at other settings.
    prior_positions : int
    speed_sizes : tuple of int
        Widths of the vocabulary that are timed.
    minutes, gigabytes : float
        What the whole study takes: time of one core, room in the work folder.
    """

    parts: tuple[tuple[str, float, int], ...]
    answer_tokens: int
    answers_per_file: int
    fit_positions: Mapping[str, int]
    held_positions: Mapping[str, int]
    prior_positions: int
    speed_sizes: tuple[int, ...]
    minutes: float
    gigabytes: float


FULL = Scale(
    parts=(("train", 1.0, 768), ("train", 0.7, 384), ("held", 1.0, 128), ("held", 0.7, 64)),
    answer_tokens=128,
    answers_per_file=64,
    fit_positions={"smollm2": 72_000, "gemma3-270m": 50_000},
    held_positions={"smollm2": 5_400, "gemma3-270m": 3_000},
    prior_positions=16_384,
    speed_sizes=(1024, 4096, 16_384, 49_152, 131_072, 262_144),
    minutes=180,
    gigabytes=3.0,
)
QUICK = Scale(
    parts=(("train", 1.0, 32), ("train", 0.7, 16), ("held", 1.0, 16), ("held", 0.7, 16)),
    answer_tokens=64,
    answers_per_file=16,
    fit_positions={"smollm2": 2_048, "gemma3-270m": 2_048},
    held_positions={"smollm2": 384, "gemma3-270m": 256},
    prior_positions=1_024,
    speed_sizes=(1024, 4096, 49_152),
    minutes=10,
    gigabytes=0.2,
)
QUICK_CASES = ("self-0.01", "self-0.25", "embedded-0.1", "embedded-1", "gemma-0.01", "gemma-1")


@dataclass(frozen=True, eq=False)
class Study:
    """What is to be done, and where."""

    work: Path
    page: Path  # the report; plots and numbers lie in the folder of its name beside it
    scale: Scale
    cases: tuple[Case, ...]
    settings: tuple[str, ...] = tuple(SETTINGS)
    corpus: Path | None = None
    dtype: str = "float32"
    epochs: int = 2
    repeats: int = 41
    rank: int = 64
    head_epochs: int = 4

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(case.target for case in self.cases))


def log(text: str) -> None:
    """One line of progress, with the time of day."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


# ------------------------------------------------------------------------------------------------------------ models


def loaded(name: str, dtype: str = "float32") -> Any:
    return _loaded(name, dtype)


@cache
def _loaded(name: str, dtype: str) -> Any:
    from hetero_spec import models

    return models.load(name, dtype=dtype)


@cache
def vocab_map(target: str, drafter: str) -> Any:
    from hetero_spec.vocab import VocabMap

    one, other = loaded(target), loaded(drafter)
    return VocabMap.from_tokenizers(
        one.tokenizer, other.tokenizer, target_vocab_size=one.vocab_size, draft_vocab_size=other.vocab_size
    )


@cache
def weights(name: str, dtype: torch.dtype) -> Tensor:
    return head_weight(loaded(name)).to(dtype)


def shared_ids(case: Case) -> Tensor:
    """Target ids of the tokens that both have."""
    mapping = to_target(case)
    return torch.arange(loaded(case.target).vocab_size) if mapping is None else mapping[mapping >= 0].long()


def num_kept(case: Case) -> int:
    return max(1, round(case.share * len(shared_ids(case))))


def to_target(case: Case) -> Tensor | None:
    return None if case.target == case.drafter else vocab_map(case.target, case.drafter).draft_to_target_ids


def pair_of(case: Case, study: Study, dtype: torch.dtype) -> Pair:
    """The case's output layers; the kept set is by the mean law on the fitting text."""
    mean = priors_of(case.target, study).mean
    mapping, shared = to_target(case), shared_ids(case)
    order = mean[shared].double()
    for token_id in loaded(case.target).tokenizer.eos_token_ids:
        order[shared == token_id] = 2.0
    kept = shared[order.topk(num_kept(case)).indices]
    return Pair.of(weights(case.target, dtype), weights(case.drafter, dtype), mapping, kept)


# ------------------------------------------------------------------------------------------------------ texts, records


def prompts_of(target: str, part: str, count: int) -> list[list[int]]:
    """Prompts in target ids: questions behind a chat template where the target has one, else openings and questions."""
    import drafter_prompts as prompts

    train, held = prompts.split_topics(SEED)
    topics = train if part == "train" else held
    seed = SEED + (part == "held")
    questions = prompts.compose_prompts(topics, count, seed)
    tokenizer = loaded(target).tokenizer
    if tokenizer.chat_template is not None:
        chats = [tokenizer.apply_chat_template([{"role": "user", "content": text}]) for text in questions]
        return [tokenizer.encode(text, add_special_tokens=False) for text in chats]
    openings = prompts.compose_prompts(topics, count, seed + 1, templates=prompts.OPENINGS)
    mixed = [text for both in zip(openings, questions, strict=False) for text in both]
    return [tokenizer.encode(text) for text in mixed[:count]]


# Who reads a target's text beside it; the target may be its own drafter in any case.
READERS = {"smollm2": "embedded", "gemma3-270m": "smollm2"}


def run_texts(study: Study) -> None:
    """The targets answer prompts, so many answers a file."""
    from hetero_spec.decoding import SpeculativeDecoder

    folder = study.work / "texts"
    folder.mkdir(parents=True, exist_ok=True)
    batch = study.scale.answers_per_file
    for target in study.targets:
        if target == "smollm2" and study.corpus is not None:
            continue
        decoder = None
        for part, temperature, count in study.scale.parts:
            if records_done(target, part, temperature, study):
                continue
            prompts = prompts_of(target, part, count)
            for start in range(0, len(prompts), batch):
                path = folder / f"{target}-{part}-{temperature:.1f}-{start:05d}.json"
                if path.exists():
                    continue
                if decoder is None:
                    decoder = SpeculativeDecoder(loaded(target, study.dtype), method="none")
                some = prompts[start : start + batch]
                answers = decoder.generate(
                    some,
                    max_new_tokens=study.scale.answer_tokens,
                    temperature=temperature,
                    seed=[SEED + 1000 * start + index for index in range(len(some))],
                )
                pairs = [[prompt, list(answer.token_ids)] for prompt, answer in zip(some, answers, strict=True)]
                write_whole(path, json.dumps(pairs))
                log(f"texts: {path.name}, {sum(len(answer) for _, answer in pairs)} tokens")


def documents_of(target: str, part: str, temperature: float, study: Study) -> list[Document]:
    if target == "smollm2" and study.corpus is not None:
        import drafter_data

        prefix = "heldout" if part == "held" else "train"
        found = [c for c in drafter_data.read_corpus(study.corpus, prefix) if c.temperature == temperature]
        random.Random(1).shuffle(found)
        return [Document(c.prompt_ids + c.output_ids, len(c.prompt_ids)) for c in found]
    paths = sorted((study.work / "texts").glob(f"{target}-{part}-{temperature:.1f}-*.json"))
    pairs = [pair for path in paths for pair in json.loads(path.read_text(encoding="utf-8"))]
    return [Document(prompt + answer, len(prompt)) for prompt, answer in pairs]


def records_done(target: str, part: str, temperature: float, study: Study) -> bool:
    try:
        records_of(target, part, temperature, study)
    except RecordsError:
        return False
    return True


def run_records(study: Study) -> None:
    """Target and drafter read the texts: those to judge on in float32, those to fit on in --dtype."""
    for target in study.targets:
        for part, temperature, _ in study.scale.parts:
            if records_done(target, part, temperature, study):
                continue
            dtype = study.dtype if part == "train" else "float32"
            both = loaded(target, dtype), loaded(READERS[target], dtype)
            documents = documents_of(target, part, temperature, study)
            folder = study.work / "records" / f"{target}-{part}-{temperature:.1f}"
            log(f"records: {folder.name}, {len(documents)} documents")
            done = [0]

            def tell(count: int, done: list[int] = done) -> None:
                before, done[0] = done[0], done[0] + count
                if before // 8192 != done[0] // 8192:
                    log(f"  {done[0]} positions")

            collect(folder, documents, *both, vocab_map(target, READERS[target]), on_positions=tell)


# ------------------------------------------------------------------------------------------------------------ stages


def records_of(target: str, part: str, temperature: float, study: Study) -> Records:
    return Records(study.work / "records" / f"{target}-{part}-{temperature:.1f}")


def states_of(case: Case, records: Records, at: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    target_states = records.target_states[at]
    draft_states = target_states if case.target == case.drafter else records.draft_states[at]
    return target_states, draft_states, records.document_ids[at]


def spread(count: int, at_most: int) -> Tensor:
    """So many positions, evenly over all documents."""
    return torch.arange(count) if count <= at_most else torch.linspace(0, count - 1, at_most).long()


@cache
def priors_of(target: str, study: Study) -> Priors:
    path = study.work / "priors" / f"{target}.safetensors"
    sha = tokenizer_sha256(loaded(target))
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        states = records_of(target, "train", 1.0, study).target_states
        log(f"priors of {target}")
        gather_priors(weights(target, torch.bfloat16), states[spread(len(states), study.scale.prior_positions)]).save(
            path, tokenizer_sha256=sha
        )
    return Priors.load(path, tokenizer_sha256=sha)


def run_views(study: Study) -> None:
    """Views at temperature 1 of the fitting texts, for all kept sets of a pair at once."""
    (study.work / "views").mkdir(exist_ok=True)
    for target in study.targets:
        for text, count in ((1.0, study.scale.fit_positions[target]), (0.7, study.scale.fit_positions[target] // 2)):
            todo = [case for case in study.cases if case.target == target]
            todo = [case for case in todo if not views_path(case.name, text, study).exists()]
            if not todo or not records_done(target, "train", text, study):
                continue
            records = records_of(target, "train", text, study)
            at = spread(len(records), count)
            for drafter in dict.fromkeys(case.drafter for case in todo):
                _views_of_pair([case for case in todo if case.drafter == drafter], records, at, text, study)


def _views_of_pair(same: Sequence[Case], records: Records, at: Tensor, text: float, study: Study) -> None:
    from safetensors.torch import save_file

    pairs = [pair_of(case, study, torch.bfloat16) for case in same]
    log(f"views of {same[0].pair} on text at {text}: {len(at)} positions, {len(same)} kept sets")
    done = [0]

    def tell(count: int) -> None:
        done[0] += count
        if done[0] % (64 * ROWS_AT_ONCE) == 0:
            log(f"  {done[0]} of {len(at)}")

    made = make_views(pairs, *states_of(same[0], records, at), Setting(), on_positions=tell)
    for case, views in zip(same, made, strict=True):
        path = views_path(case.name, text, study)
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        tensors = {name: value for name, value in vars(views).items() if isinstance(value, Tensor)}
        # The target's side is the same for all kept sets: one file of it.
        shared = {name: tensors.pop(name) for name in ("target_ids", "target_probs", "document_ids")}
        common = views_path(case.target, text, study)
        if not common.exists():
            save_file(shared, temporary)
            os.replace(temporary, common)
        save_file(tensors, temporary)
        os.replace(temporary, path)


def views_path(name: str, text: float, study: Study) -> Path:
    return study.work / "views" / (f"{name}.safetensors" if text == 1.0 else f"{name}-text-{text}.safetensors")


def views_of(case: Case, study: Study, setting: Setting) -> Views:
    """Views at a setting, of text written at its temperature where there is such text to fit on."""
    from safetensors.torch import load_file

    text = setting.temperature if views_path(case.name, setting.temperature, study).exists() else 1.0
    tensors = load_file(views_path(case.name, text, study)) | load_file(views_path(case.target, text, study))
    return Views(**tensors, vocab_size=loaded(case.target).vocab_size).at(setting)


# --------------------------------------------------------------------------------------------------------------- fit


def rows_path(case: Case, setting: str, study: Study) -> Path:
    return study.work / "rows" / f"{case.name}-{setting.replace(' ', '').replace(',', '-')}.safetensors"


def save_rows(path: Path, rows: fit.Rows, notes: dict[str, str]) -> None:
    from safetensors.torch import save_file

    path.parent.mkdir(exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    save_file({name: value.contiguous() for name, value in vars(rows).items()}, temporary, metadata=notes)
    os.replace(temporary, path)


def load_rows(path: Path) -> fit.Rows:
    from safetensors.torch import load_file

    return fit.Rows(**load_file(path))


def run_fit(study: Study) -> None:
    """Fit a kernel for every case and setting; the unfitted affinities are kept for comparison."""
    for case in study.cases:
        pair = None
        for name, setting in SETTINGS.items():
            path = rows_path(case, name, study)
            if path.exists() or name not in study.settings:
                continue
            if pair is None:
                pair = pair_of(case, study, torch.float32)
            prior = cal.outside_prior(priors_of(case.target, study).root_mean, pair)
            began, cpu = time.monotonic(), time.process_time()
            # The other settings may begin at what was found at temperature 1, and look at half as much.
            first = rows_path(case, "T=1", study)
            again = name != "T=1" and first.exists()
            here = views_of(case, study, setting)
            if again and len(here) > study.scale.fit_positions[case.target] // 2:
                here = here[torch.arange(0, len(here), 2)]
            here = replace(here, source_ids=here.source_ids[:, :32], source_probs=here.source_probs[:, :32])
            candidates = fit.find_candidates(here, pair.kept_target_ids, case.max_per_source)
            probe = here[spread(len(here), 8192)]
            starts = [fit.start_rows(pair.kept_target_ids, candidates, prior), *([load_rows(first)] if again else [])]
            start = max(starts, key=lambda rows: float(fit.view_acceptance(rows, probe).mean()))
            rows = fit.fit_rows(start, here, num_epochs=study.epochs, seed=SEED)
            tli, started, fitted = (
                float(fit.view_acceptance(each, probe).mean()) for each in (rows.blended(0.0), start, rows)
            )
            log(
                f"fit {case.name}, {name}: on the views {tli:.4f} (TLI), {started:.4f} (start), {fitted:.4f} (fitted); "
                f"{time.monotonic() - began:.0f} s, {time.process_time() - cpu:.0f} s of processor"
            )
            affinity = candidates.affinities.square()
            affinity = affinity / affinity.sum(1, keepdim=True).clamp_min(1e-30)
            unfitted = fit.Rows(
                pair.kept_target_ids,
                1.0 - affinity.sum(1),
                torch.zeros(len(affinity)),
                affinity,
                candidates.columns,
                prior,
            )
            save_rows(path, rows, {"cpu_seconds": f"{time.process_time() - cpu:.1f}"})
            save_rows(path.with_name(f"unfitted-{path.name}"), unfitted, {})
            gc.collect()


# ---------------------------------------------------------------------------------------------------------- evaluate


@dataclass
class Direction:
    """Where a kernel moves mass: q~ = (1 - share) q' + share direction(q'), for each of some shares."""

    redistribute: Callable[[Tensor, Tensor], Tensor]  # (q' [rows, K], q' laid out over V) to [rows, V]
    shares: tuple[float, ...]
    cost: str


def constant(law: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda draft_laws, wide: law.expand_as(wide)


def of_rows(rows: fit.Rows) -> Callable[[Tensor, Tensor], Tensor]:
    redistribute = rows.redistributor()
    return lambda draft_laws, wide: redistribute(draft_laws)


def of_kernel(kernel: Any) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda draft_laws, wide: kernel.redistribute(wide)


def covariance_rows(views: Views, pair: Pair, mean: Tensor, prior: Tensor, width: int) -> fit.Rows:
    """Rows in proportion to the positive covariance of the target's own probabilities of source and target."""
    size = views.vocab_size
    row_of = torch.full((size,), -1)
    row_of[pair.kept_target_ids] = torch.arange(len(pair.kept_target_ids))
    keys, sums = torch.empty(0, dtype=torch.int64), torch.empty(0)
    for start in range(0, len(views), 4096):
        ids = views.target_ids[start : start + 4096].long()
        probs = views.target_probs[start : start + 4096]
        sources, targets = row_of[ids[:, :24]], ids[:, :48]
        value = probs[:, :24, None] * probs[:, None, :48]
        chosen = (value > 1e-4) & (sources >= 0)[:, :, None]
        keys = torch.cat([keys, (sources[:, :, None] * size + targets[:, None, :])[chosen]])
        sums = torch.cat([sums, value[chosen]])
        keys, place = torch.unique(keys, return_inverse=True)
        sums = torch.zeros(len(keys)).index_add_(0, place, sums)
    rows, targets = keys // size, keys % size
    covariance = sums / len(views) - mean[pair.kept_target_ids[rows]] * mean[targets]
    good = covariance > 0
    columns, weights = fit._heaviest(rows[good], targets[good], covariance[good], pair.kept_target_ids, width)
    weights /= weights.sum(1, keepdim=True).clamp_min(1e-30)
    return fit.Rows(pair.kept_target_ids, 1.0 - weights.sum(1), torch.zeros(len(weights)), weights, columns, prior)


def diagonal_tau(variance: Tensor, mean: Tensor, size: int, moved: float) -> float:
    """The tau at which the first-order diagonal kernel moves so much of the mean law."""
    low, high = 1e-16, 1.0
    for _ in range(80):
        tau = math.sqrt(low * high)
        share = float((mean * (size / (size + variance / tau))).sum())
        low, high = (tau, high) if share < moved else (low, tau)
    return math.sqrt(low * high)


def directions_of(case: Case, name: str, pair: Pair, study: Study) -> dict[str, Direction]:
    """Every kernel to compare, at one setting."""
    from hetero_spec.rdk import DiagonalKernel, LowRankKernel, SparseKernel

    priors = priors_of(case.target, study)
    outside = cal.outside_prior(priors.root_mean, pair)
    size, width = pair.vocab_size, case.max_per_source
    path = rows_path(case, name, study)
    small = (0.01, 0.02, 0.05, 0.1)
    fitted = load_rows(path)
    num_entries = int((fitted.weights > 1e-5).sum())
    views = views_of(case, study, SETTINGS[name])
    trimmed = fitted.trimmed(size // 4, fit.source_mass(views, pair.kept_target_ids))
    found = {
        "mix, root-mean law outside I": Direction(constant(outside), small, "V"),
        "conditional affinity, not fitted": Direction(
            of_rows(load_rows(path.with_name(f"unfitted-{path.name}"))), small[1:], f"nnz {num_entries}"
        ),
        "fitted sparse": Direction(of_rows(fitted), (0.25, 0.5, 0.75, 1.0), f"nnz {num_entries}"),
        "fitted sparse, V/4 entries": Direction(
            of_rows(trimmed), (0.25, 0.5, 0.75, 1.0), f"nnz {int((trimmed.weights > 0.0).sum())}"
        ),
    }
    mean = priors.mean / priors.mean.sum()
    found["mix, mean law"] = Direction(constant(mean), small, "V")
    found["mix, mean law outside I"] = Direction(constant(cal.outside_prior(priors.mean, pair)), small, "V")
    for moved in (0.005, 0.02):
        tau = diagonal_tau(priors.variance[pair.kept_target_ids], mean[pair.kept_target_ids], size, moved)
        found[f"first-order diagonal, tau {tau:.1e}"] = Direction(
            of_kernel(DiagonalKernel(priors.variance, tau)), (1.0,), "V"
        )
    records = records_of(case.target, "train", 1.0, study)
    laws = pair.target_laws(records.target_states[spread(len(records), 64)], SETTINGS[name])
    for tau in (1e-4, 1e-6):
        found[f"low rank (64 laws), tau {tau:g}"] = Direction(of_kernel(LowRankKernel(laws, tau)), small[:3], "64 V")
    shared = torch.full((size,), -1)
    shared[pair.kept_target_ids] = torch.arange(len(pair.kept_target_ids))
    tokens = vocab_map(case.target, READERS[case.target]).target_tokens
    spelling = SparseKernel.from_spelling(tokens, shared, 1.0, prior=priors.mean, max_per_source=width)
    found["spelling"] = Direction(of_kernel(spelling), small[:3], f"nnz {len(spelling.column_ids)}")
    covariance = covariance_rows(views, pair, priors.mean, outside, width)
    num_entries = int((covariance.weights > 0.0).sum())
    found["covariance affinity"] = Direction(of_rows(covariance), small[1:], f"nnz {num_entries}")
    return found


def results_path(case: Case, setting: str, study: Study) -> Path:
    return rows_path(case, setting, study).parent.parent / "results" / rows_path(case, setting, study).name


@torch.inference_mode()
def run_evaluate(study: Study) -> None:
    """Exact acceptance of every kernel at every held-out position, over whole laws."""
    from safetensors.torch import save_file

    for case in study.cases:
        for name, setting in SETTINGS.items():
            path = results_path(case, name, study)
            if path.exists() or name not in study.settings or not rows_path(case, name, study).exists():
                continue
            path.parent.mkdir(exist_ok=True)
            pair = pair_of(case, study, torch.float32)
            directions = directions_of(case, name, pair, study)
            # Text written at the temperature that is judged.
            records = records_of(case.target, "held", setting.temperature, study)
            at = spread(len(records), study.scale.held_positions[case.target] // (1 if name == "T=1" else 2))
            target_states, draft_states, document_ids = states_of(case, records, at)
            columns = ["tli", "inside", "zero padding", "entropy", "fitted, on missing tokens"]
            columns += [f"{kind}|{share:g}" for kind, each in directions.items() for share in each.shares]
            table = torch.empty(len(columns), len(at))
            began, cpu = time.monotonic(), time.process_time()
            for start in range(0, len(at), ROWS_AT_ONCE):
                part = slice(start, min(start + ROWS_AT_ONCE, len(at)))
                table[:, part] = _acceptances(case, pair, setting, directions, target_states[part], draft_states[part])
            tensors = dict(zip(columns, table.contiguous().unbind(0), strict=True))
            tensors = {key: value.clone() for key, value in tensors.items()} | {"document_ids": document_ids.clone()}
            temporary = path.with_suffix(f".{os.getpid()}.tmp")
            save_file(tensors, temporary, metadata={kind: each.cost for kind, each in directions.items()})
            os.replace(temporary, path)
            found = summary(tensors)
            log(
                f"evaluate {case.name}, {name}: {len(at)} positions, {time.monotonic() - began:.0f} s, "
                f"{time.process_time() - cpu:.0f} s of processor: inside {found['inside'].mean:.4f}, "
                f"TLI {found['tli'].mean:.4f}"
            )
            for kind, (share, gain) in found["families"].items():
                log(f"    {kind:34s} share {share:<5} gain {gain}")
            gc.collect()


def _acceptances(
    case: Case,
    pair: Pair,
    setting: Setting,
    directions: dict[str, Direction],
    target_states: Tensor,
    draft_states: Tensor,
) -> Tensor:
    """All columns at one batch, [columns, rows]."""
    laws = pair.target_laws(target_states, setting)
    draft_laws = pair.draft_laws(draft_states, setting)
    kept = pair.kept_target_ids
    inside = laws[:, kept]
    result = [torch.minimum(inside, draft_laws).sum(1), inside.sum(1)]
    # The same drafter with its whole output layer, its other tokens being rejected whenever they are drawn.
    whole = setting.laws(draft_states @ weights(case.drafter, torch.float32).T)
    mapping = to_target(case)
    if mapping is None:
        own = whole[:, kept]
    else:
        column_of = torch.full((pair.vocab_size,), -1)
        column_of[mapping[mapping >= 0].long()] = (mapping >= 0).nonzero()[:, 0]
        own = whole[:, column_of[kept]]
    result.append(torch.minimum(inside, own).sum(1))
    result.append(-(draft_laws * draft_laws.clamp_min(1e-30).log()).sum(1))
    wide = torch.zeros_like(laws)
    wide[:, kept] = draft_laws
    fitted = directions["fitted sparse"].redistribute(draft_laws, wide)
    accepted = torch.minimum(laws, fitted)
    result.append(accepted.sum(1) - accepted[:, kept].sum(1))
    for direction in directions.values():
        moved = direction.redistribute(draft_laws, wide)
        for share in direction.shares:
            mixed = torch.lerp(wide, moved, share) if share != 1.0 else moved
            result.append(torch.minimum(laws, mixed).sum(1))
    return torch.stack(result)


def summary(tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Estimates of one case and setting. Shares are chosen on one half of the documents and judged on the other."""
    documents = tensors["document_ids"]
    tli = tensors["tli"]
    halves = cal.deal_documents(documents, (0.5, 0.5), SEED)
    found: dict[str, Any] = {key: cal.estimate(tensors[key], documents) for key in ("inside", "tli", "zero padding")}
    families: dict[str, list[str]] = {}
    for key in tensors:
        if "|" in key:
            kind = key.split("|")[0]
            families.setdefault(kind.split(", tau")[0], []).append(key)

    def judged(keys: Sequence[str], must_be_sure: bool) -> tuple[str, cal.Estimate]:
        gain = torch.zeros_like(tli)
        chosen_keys = []
        for own, other in (halves, halves[::-1]):
            best = max(keys, key=lambda key: float((tensors[key] - tli)[other].mean()))
            evidence = cal.estimate((tensors[best] - tli)[other], documents[other])
            if evidence.mean > 0.0 and (evidence.is_gain or not must_be_sure):
                gain[own] = (tensors[best] - tli)[own]
                chosen_keys.append(best.split("|")[1])
            else:
                chosen_keys.append("0")
        return "/".join(dict.fromkeys(chosen_keys)), cal.estimate(gain, documents)

    found["families"] = {kind: best_of(tensors, keys, tli, documents) for kind, keys in families.items()}
    found["judged"] = {kind: judged(keys, False) for kind, keys in families.items()}
    found["calibrated"] = judged(families["fitted sparse"], True)
    if "fitted, on missing tokens" in tensors:
        found["on missing tokens"] = cal.estimate(tensors["fitted, on missing tokens"], documents)
    found["gated"] = gated(tensors, families["fitted sparse"], halves)
    return found


def best_of(
    tensors: dict[str, Tensor], keys: Sequence[str], tli: Tensor, documents: Tensor
) -> tuple[str, cal.Estimate]:
    """The share that gains most on these very positions: flattering to the kernels that lose."""
    best = max(keys, key=lambda key: float(tensors[key].mean()))
    return best.split("|")[1], cal.estimate(tensors[best] - tli, documents)


def gated(tensors: dict[str, Tensor], keys: Sequence[str], halves: Sequence[Tensor]) -> cal.Estimate:
    """The fitted kernel with a share by how uncertain the drafter is (quarters of its entropy)."""
    tli, entropy, documents = tensors["tli"], tensors["entropy"], tensors["document_ids"]
    gain = torch.zeros_like(tli)
    for own, other in (halves, halves[::-1]):
        edges = entropy[other].quantile(torch.tensor([0.25, 0.5, 0.75]))
        bucket = torch.bucketize(entropy, edges)
        for quarter in range(4):
            here = other[bucket[other] == quarter]
            best = max(keys, key=lambda key: float((tensors[key] - tli)[here].mean()))
            if float((tensors[best] - tli)[here].mean()) > 0.0:
                mine = own[bucket[own] == quarter]
                gain[mine] = (tensors[best] - tli)[mine]
    return cal.estimate(gain, documents)


# ------------------------------------------------------------------------------------------------------------- heads


class Head(torch.nn.Module):
    """Logits of the missing tokens from the drafter's hidden state: a low-rank layer and a bias."""

    def __init__(self, down: Tensor, up: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.down = torch.nn.Parameter(down)
        self.up = torch.nn.Parameter(up)
        self.bias = torch.nn.Parameter(bias)

    def forward(self, states: Tensor) -> Tensor:
        result: Tensor = torch.nn.functional.linear(states @ self.down, self.up, self.bias)
        return result


def compressed(weight: Tensor, states: Tensor, importance: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """(down [hidden, rank], up [n, rank]): the best low-rank stand-in for weight [n, hidden] on states like these."""
    moments = states.double().T @ states.double() / len(states)
    values, axes = torch.linalg.eigh(moments)
    roots = values.clamp_min(float(values[-1]) * 1e-9).sqrt()
    root, inverse = (axes * roots) @ axes.T, (axes / roots) @ axes.T
    seen = weight.double() @ root
    _, directions = torch.linalg.eigh(seen.T @ (seen * importance.double()[:, None]))
    chosen = directions[:, -rank:]
    return (inverse @ chosen).float(), (seen @ chosen).float()


@torch.inference_mode()
def head_acceptance(head: Head, pair: Pair, missing: Tensor, target_states: Tensor, draft_states: Tensor) -> Tensor:
    """Exact acceptance [N] at T = 1 of a drafter with such a head."""
    ids = torch.cat([pair.kept_target_ids, missing])
    accepted = []
    for start in range(0, len(target_states), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        own = draft_states[part]
        law = torch.cat([own @ pair.draft_weight.T, head(own)], dim=1).softmax(1)
        accepted.append(torch.minimum(pair.target_laws(target_states[part], Setting())[:, ids], law).sum(1))
    return torch.cat(accepted)


def run_heads(study: Study) -> None:
    """Train the anchor on the same text as the kernels: it sees the hidden state, which no kernel does.

    The drafter's law is the softmax over its kept logits and the head's logits of the missing tokens, so it is as
    lossless as any. It begins as the best low-rank stand-in for the rows that were cut from the drafter's own output
    layer (missing tokens that the drafter never had begin at their mean probability), and is trained by cross entropy
    on the target's recorded entries; of a wide vocabulary only the 32,768 likeliest missing tokens have a logit.
    """
    from safetensors.torch import load_file, save_file

    for case in study.cases:
        path = results_path(case, "T=1", study).with_name(f"{case.name}-head.safetensors")
        if path.exists() or not case.has_anchor or not results_path(case, "T=1", study).exists():
            continue
        torch.manual_seed(SEED)
        pair, views = pair_of(case, study, torch.float32), views_of(case, study, Setting())
        priors = priors_of(case.target, study)
        outside = cal.outside_prior(priors.mean, pair)
        missing = outside.topk(min(32_768, pair.vocab_size - len(pair.kept_target_ids))).indices.sort().values
        place = torch.full((pair.vocab_size,), -1)
        place[pair.kept_target_ids] = torch.arange(len(pair.kept_target_ids))
        place[missing] = len(pair.kept_target_ids) + torch.arange(len(missing))
        records = records_of(case.target, "train", 1.0, study)
        at = spread(len(records), study.scale.fit_positions[case.target])
        _, states, _ = states_of(case, records, at)
        some = states[spread(len(states), 8192)]
        # Tokens without a row begin with the mass that they have on average.
        mapping = to_target(case)
        column_of = torch.arange(pair.vocab_size)
        if mapping is not None:
            column_of = torch.full((pair.vocab_size,), -1)
            column_of[mapping[mapping >= 0].long()] = (mapping >= 0).nonzero()[:, 0]
        has_row = column_of[missing] >= 0
        own_rows = weights(case.drafter, torch.float32)[column_of[missing].clamp_min(0)] * has_row[:, None]
        down, up = compressed(own_rows, some, outside[missing], study.rank)
        typical = (some @ pair.draft_weight.T).logsumexp(1).mean()
        inside = float(priors.mean[pair.kept_target_ids].sum())
        unknown = outside[missing].clamp_min(1e-9).log() + typical + math.log((1 - inside) / inside)
        head = Head(down, up, torch.where(has_row, 0.0, unknown))
        # Directions of the states differ much in size; what they give to a logit is what a step should change evenly.
        rates = [{"params": [head.up, head.bias], "lr": 3e-3}, {"params": [head.down], "lr": 3e-5}]
        optimizer = torch.optim.Adam(rates)
        num_steps = study.head_epochs * math.ceil(len(at) / 256)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, [3e-3, 3e-5], total_steps=num_steps)
        held = records_of(case.target, "held", 1.0, study)
        target_states, draft_states, _ = states_of(
            case, held, spread(len(held), study.scale.held_positions[case.target])
        )

        untrained = head_acceptance(head, pair, missing, target_states, draft_states)
        began, cpu = time.monotonic(), time.process_time()
        for _ in range(study.head_epochs):
            for chosen in torch.randperm(len(at)).split(256):
                kept_logits = states[chosen] @ pair.draft_weight.T
                logits = torch.cat([kept_logits, head(states[chosen])], dim=1)
                ids = place[views.target_ids[chosen].long()]
                probs = views.target_probs[chosen] * (ids >= 0)
                normalizer = logits.logsumexp(1, keepdim=True)
                loss = -(probs * (logits.gather(1, ids.clamp_min(0)) - normalizer)).sum(1).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
        seconds = time.process_time() - cpu
        head_accepted = head_acceptance(head, pair, missing, target_states, draft_states)
        notes = {"rank": str(study.rank), "missing": str(len(missing)), "cpu_seconds": f"{seconds:.0f}"}
        save_file({"head": head_accepted, "untrained": untrained}, path, metadata=notes)
        table = load_file(results_path(case, "T=1", study))
        gain = cal.estimate(head_accepted - table["tli"], table["document_ids"])
        log(
            f"head of rank {study.rank}, {case.name}: gain {gain}, before training "
            f"{cal.estimate(untrained - table['tli'], table['document_ids'])}; {time.monotonic() - began:.0f} s, "
            f"{seconds:.0f} s of processor"
        )
        gc.collect()


# ----------------------------------------------------------------------------------------------------------- control

_DRAFT_TEMPERATURES = (0.7, 0.8, 0.9, 1.1, 1.25)


@torch.inference_mode()
def run_control(study: Study) -> None:
    """What token-level intersection gains by another temperature of the drafter alone, at T = 1 of the target."""
    for case in study.cases:
        table = results_path(case, "T=1", study)
        path = table.with_name(f"{case.name}-control.json")
        if path.exists() or not table.exists() or not case.has_control:
            continue
        pair = pair_of(case, study, torch.float32)
        records = records_of(case.target, "held", 1.0, study)
        at = spread(len(records), study.scale.held_positions[case.target] // 2)
        target_states, draft_states, document_ids = states_of(case, records, at)
        accepted: dict[float, list[Tensor]] = {temperature: [] for temperature in (1.0, *_DRAFT_TEMPERATURES)}
        for start in range(0, len(at), ROWS_AT_ONCE):
            part = slice(start, start + ROWS_AT_ONCE)
            inside = pair.target_laws(target_states[part], Setting())[:, pair.kept_target_ids]
            logits = draft_states[part] @ pair.draft_weight.T
            for temperature, own in accepted.items():
                own.append(torch.minimum(inside, (logits / temperature).softmax(1)).sum(1))
        tli = torch.cat(accepted[1.0])
        gains = {
            f"{temperature:g}": cal.estimate(torch.cat(accepted[temperature]) - tli, document_ids).as_dict()
            for temperature in _DRAFT_TEMPERATURES
        }
        write_whole(path, json.dumps(gains, indent=1) + "\n")
        log(f"control {case.name}: " + ", ".join(f"{key}: {gain['mean']:+.4f}" for key, gain in gains.items()))


# ------------------------------------------------------------------------------------------------------------- speed

_LARGEST_DENSE = 16_384  # a matrix of 1 GiB


def ways_of(size: int) -> tuple[dict[str, Callable[[], Any]], int]:
    """What is timed at one width of the vocabulary, and the kernel's number of entries."""
    from hetero_spec import ops
    from hetero_spec.rdk import SparseKernel

    generator = torch.Generator().manual_seed(SEED)
    # A hundredth of the tokens have rows of 25: V/4 entries, as calibration leaves in a kernel.
    indices = torch.full((size, 25), -1)
    sources = torch.arange(0, size, 100)
    indices[sources] = torch.stack([torch.randperm(size, generator=generator)[:25] for _ in sources])
    kernel = SparseKernel.from_topk(indices, torch.rand(size, 25, generator=generator), 0.2)
    draft_logits, target_logits = (3.0 * torch.randn(rows, size, generator=generator) for rows in (1, 2))
    shared = torch.arange(size, dtype=torch.int32)
    seeds, positions = torch.tensor([1]), torch.tensor([7])
    cu_num_draft_tokens = torch.tensor([0, 1], dtype=torch.int32)
    laws = draft_logits.softmax(1)
    # A draft that the target has next to no mass on: rejected, so that the residual is evaluated too.
    unlikely = target_logits[0].argmin().to(torch.int32)[None]

    def draft(own: Any) -> Any:
        return ops.draft_sample(
            draft_logits, shared, kernel=own, target_to_draft_ids=shared, seeds=seeds, positions=positions
        )

    def verify(own: Any) -> Any:
        return ops.rejection_sample(
            target_logits,
            unlikely,
            cu_num_draft_tokens,
            1,
            draft_logits=draft_logits,
            target_to_draft_ids=shared,
            kernel=own,
            seeds=seeds,
            positions=positions,
        )

    ways: dict[str, Callable[[], Any]] = {
        "draft_sample, TLI": lambda: draft(None),
        "draft_sample, sparse kernel": lambda: draft(kernel),
        "rejection_sample, TLI": lambda: verify(None),
        "rejection_sample, sparse kernel": lambda: verify(kernel),
        "rdk_redistribute, sparse kernel": lambda: ops.rdk_redistribute(laws, kernel),
    }
    if size <= _LARGEST_DENSE:
        matrix = torch.rand(size, size)
        ways["dense matrix, O(V^2)"] = lambda: laws @ matrix
    return ways, len(kernel.column_ids)


def run_speed(study: Study) -> None:
    """Processor time of one row or one draft against V: one pass, the fused kernel, and the dense matrix."""
    path = study.work / "results" / "speed.json"
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    points = []
    for size in study.scale.speed_sizes:
        ways, num_entries = ways_of(size)
        own: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(study.repeats):
            # In turns, so that another process's minute falls on all of them.
            for name, way in ways.items():
                way()  # the data of the one before are out of the cache by now
                cpu = time.process_time()
                way()
                own[name].append((time.process_time() - cpu) * 1e6)
        times = {name: sorted(each)[len(each) // 2] for name, each in own.items()}
        points.append({"vocab_size": size, "nnz": num_entries, "cpu_us": times})
        log(f"speed: V {size}: " + ", ".join(f"{name} {value:.0f} us" for name, value in times.items()))
        del ways
    write_whole(path, json.dumps(points, indent=1) + "\n")


# ------------------------------------------------------------------------------------------------------------ report


def collected(study: Study) -> list[dict[str, Any]]:
    """All estimates of all cases and settings."""
    from safetensors import safe_open
    from safetensors.torch import load_file

    found = []
    for case in study.cases:
        for name in SETTINGS:
            path = results_path(case, name, study)
            if not path.exists():
                continue
            tensors = load_file(path)
            entry: dict[str, Any] = {"case": case.name, "pair": case.pair, "setting": name}
            entry["share"] = case.share
            entry |= summary(tensors)
            with safe_open(path, "pt") as file:
                entry["cost"] = file.metadata() or {}
            with safe_open(rows_path(case, name, study), "pt") as file:
                entry["num_kept"] = file.get_slice("source_ids").get_shape()[0]
                entry["fit_cpu_seconds"] = float((file.metadata() or {}).get("cpu_seconds", "nan"))
            head = path.with_name(f"{case.name}-head.safetensors")
            if name == "T=1" and head.exists():
                accepted = load_file(head)["head"]
                entry["head"] = cal.estimate(accepted - tensors["tli"], tensors["document_ids"])
                with safe_open(head, "pt") as file:
                    entry["head_notes"] = file.metadata()
            control = path.with_name(f"{case.name}-control.json")
            if name == "T=1" and control.exists():
                entry["drafter_temperature"] = json.loads(control.read_text(encoding="utf-8"))
            found.append(entry)
    return found


def run_report(study: Study) -> None:
    """Tables into the marked places of the page, plots and numbers into the folder beside it."""
    folder = study.page.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    found = collected(study)
    write_whole(folder / "results.json", json.dumps(tables_of.as_json(found), indent=1, sort_keys=True) + "\n")
    tables_of.plot_gains(found, list(SETTINGS), folder / "gains.png")
    tables_of.plot_kernels(found, folder / "kernels.png")
    write_whole(folder / "kernels.md", tables_of.kernels_page(found, list(SETTINGS)))
    tables = {"short": tables_of.short_table(found)}
    for name in SETTINGS:
        tables[name.replace("=", "").replace(", ", "-").replace(" ", "")] = tables_of.main_table(found, name)
    tables |= {"kernels": tables_of.pruned_table(found), "cost": tables_of.cost_table(found)}
    speed = study.work / "results" / "speed.json"
    if speed.exists():
        points = json.loads(speed.read_text(encoding="utf-8"))
        write_whole(folder / "speed.json", json.dumps(points, indent=1) + "\n")
        tables_of.plot_speed(points, folder / "speed.png")
        tables["speed"] = tables_of.speed_table(points)
    if study.page.exists():
        text = study.page.read_text(encoding="utf-8")
    else:
        text = "# A small run of tools/study_rdk.py\n\nToo little text to mean anything.\n"
        text += "".join(f"\n<!-- table {name} -->\n<!-- end -->\n" for name in tables)
        text += "".join(f"\n![{name}]({folder.name}/{name}.png)\n" for name in ("gains", "kernels", "speed"))
    for name, table in tables.items():
        begin, end = f"<!-- table {name} -->", "<!-- end -->"
        if begin not in text:
            raise SystemExit(f"{study.page}: must hold {begin}")
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n\n{table}\n\n{end}{rest.partition(end)[2]}"
    write_whole(study.page, text)
    log(f"report: {study.page}")


# ------------------------------------------------------------------------------------------------------ command line


def run_all(study: Study) -> None:
    """Every stage, in order."""
    for stage in STAGES:
        began, cpu = time.monotonic(), time.process_time()
        globals()[f"run_{stage}"](study)
        log(f"{stage}: done, {time.monotonic() - began:.0f} s, {time.process_time() - cpu:.0f} s of processor")


STAGES = ("texts", "records", "views", "fit", "evaluate", "heads", "control", "speed", "report")


def study_of(options: argparse.Namespace) -> Study:
    """What the options ask for; a small run has a folder of its own in the work folder."""
    scale = QUICK if options.quick else FULL
    work = (options.work / "quick" if options.quick else options.work).absolute()
    wanted = options.cases.split(",") if options.cases else QUICK_CASES if options.quick else None
    known = {case.name for case in CASES}
    if unknown := set(wanted or ()) - known:
        raise SystemExit(f"study_rdk: --cases must be of {', '.join(sorted(known))}, got {', '.join(sorted(unknown))}")
    settings = tuple(options.settings.split(";"))
    if unknown := set(settings) - set(SETTINGS):
        raise SystemExit(f"study_rdk: --settings must be of {'; '.join(SETTINGS)}, got {'; '.join(sorted(unknown))}")
    targets = options.targets.split(",")
    cases = tuple(case for case in CASES if case.target in targets and (wanted is None or case.name in wanted))
    if not cases:
        raise SystemExit(f"study_rdk: --targets must be of {', '.join(READERS)}, got {options.targets}")
    return Study(
        work=work,
        page=work / "report" / "rdk.md" if options.quick else ROOT / "docs" / "rdk.md",
        scale=scale,
        cases=cases,
        settings=settings,
        corpus=options.corpus,
        dtype=options.dtype,
        epochs=options.epochs,
        repeats=5 if options.quick else options.repeats,
        rank=options.rank,
        head_epochs=1 if options.quick else options.head_epochs,
    )


def announce(study: Study) -> None:
    """Say what will be done, how long it takes, what it keeps; stop where a model is not installed.

    Raises
    ------
    SystemExit   a model is not installed
    """
    from hetero_spec import models

    needed = {name for case in study.cases for name in (case.target, case.drafter, READERS[case.target])}
    for entry in models.available():
        if entry.name in needed and not entry.is_installed:
            raise SystemExit(
                f"study_rdk: {entry.name} must be installed (pip install {' '.join(entry.requirements)}), or left out "
                "with --targets"
            )
    minutes = study.scale.minutes
    length = f"{minutes:.0f} minutes" if minutes < 120 else f"{minutes / 60:.0f} hours"
    num_pairs = len({case.pair for case in study.cases})
    log(f"{num_pairs} pairs, {len(study.cases)} drafters, {len(study.settings)} settings: about {length} of one core")
    log(
        f"  keeps texts, records and results in {study.work} (up to {study.scale.gigabytes:g} GB; delete it in the end)"
    )
    log(f"  writes {study.page} and {study.page.with_suffix('')}")
    log("  interrupt it at any time: the same command goes on with what is finished")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a stage or all; 0 = done, 130 = interrupted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=(*STAGES, "all"))
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "rdk")
    parser.add_argument("--quick", action="store_true", help="every stage on every pair with little text")
    parser.add_argument("--targets", default=",".join(READERS))
    parser.add_argument("--cases", default="")
    parser.add_argument("--settings", default=";".join(SETTINGS))
    parser.add_argument("--corpus", type=Path, help="corpus folder of tools/train_drafter.py")
    parser.add_argument("--dtype", default="float32", help="for writing and reading the text to fit on")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=41, help="of a timing")
    parser.add_argument("--rank", type=int, default=64)
    parser.add_argument("--head-epochs", type=int, default=4)
    options = parser.parse_args(arguments)
    study = study_of(options)
    torch.set_num_threads(1)
    try:
        announce(study)
        globals()[f"run_{options.stage}"](study)
    except KeyboardInterrupt:
        log(f"interrupted: what was finished is kept in {study.work}, and the same command goes on with it")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
