# SPDX-License-Identifier: Apache-2.0
"""The kill list: planted faults in copies of the CUDA sources, each of which the tests must notice.

    python -m tests.simt.mutants [WORD...]     # those whose names contain one of the words; all without
    python -m tests.simt.mutants --list

Each fault changes one place in a copy of csrc/. Only the ops that its tests call are compiled with it, the rest of the
simulated device comes from build/simt; nothing of the working tree is touched. Then its tests run until the first that
fails. Ends with a table; exit status 1 if a fault survived, 2 if one could not be tried.

A new fault is a line in MUTANTS. Its suite says which tests must notice, in which flavour, and which ops to compile.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from .conftest import AS_BUILT, BUILD, FLAVOURS, ROOT, SANITIZER_EXIT, build
from .sanitizers import LIBRARIES, run_cases

TIMEOUT_S = 900


class Suite(NamedTuple):
    """Tests that must notice a fault; under a sanitizer those are of sanitizer_cases.py."""

    tests: str
    flavour: str
    ops: tuple[str, ...]  # whose .cu files are compiled with the fault
    select: str = ""  # of the tests, as pytest's -k


class Mutant(NamedTuple):
    """One planted fault: `old` becomes `new` wherever it stands in `path`, and the suite must fail."""

    name: str
    path: str
    old: str
    new: str
    suite: Suite
    select: str = ""  # of the suite's tests, in place of the suite's own


def _suite(op: str) -> Suite:
    return Suite(f"tests/simt/test_{op}_cuda_source.py", "plain", (op,))


REJECTION, STATS, DRAFT = _suite("rejection_sample"), _suite("row_stats"), _suite("draft_sample")
PROBS = _suite("rejection_sample_probs")
TRAFFIC = "tests/simt/test_traffic_of_ops.py"
READS = Suite(TRAFFIC, "traffic", ("row_stats",), "wherever")
EARLY_EXIT = Suite(TRAFFIC, "traffic", ("rejection_sample",), "exits_early and rejection_sample")
RACES = Suite("tests/simt/sanitizer_cases.py", "tsan", ("row_stats",), "row_stats")
RDK = Suite("tests/simt/test_rdk_redistribute_cuda_source.py", "plain", ("rdk_redistribute",))
RDK_DRAFT = Suite("tests/simt/test_rdk_draft_sample_cuda_source.py", "plain", ("draft_sample",))
RDK_REJECTION = Suite("tests/simt/test_rdk_rejection_sample_cuda_source.py", "plain", ("rejection_sample",))
RDK_RACES = Suite(
    "tests/simt/sanitizer_cases.py",
    "tsan",
    ("draft_sample", "rdk_redistribute"),
    "rdk_kernel or low_rank_redistribution",
)
LOW_RANK_RACES = Suite(
    "tests/simt/sanitizer_cases.py", "tsan", ("draft_sample", "rejection_sample", "acceptance_overlap"), "low_rank"
)
RDK_OVERLAP = Suite("tests/simt/test_rdk_rejection_sample_cuda_source.py", "plain", ("acceptance_overlap",))
MEMORY = Suite("tests/simt/sanitizer_cases.py", "asan", ("row_stats",), "row_stats")
RULES = "csrc/rejection_sample/rejection_sample.cuh"
PROB_RULES = "csrc/rejection_sample_probs/rejection_sample_probs.cuh"
VERIFY = "csrc/common/verify.cuh"
LAW = "csrc/common/row_law.cuh"
LOW_RANK = "csrc/common/low_rank.cuh"
LOADS = "csrc/common/vector_load.cuh"

MUTANTS = [
    Mutant("no barrier before the ticket", LAW, "__syncthreads();  // what all threads", "// what all", RACES),
    Mutant("no fence before the ticket", LAW, "    __threadfence();\n    shared.is_last", "    shared.is_last", RACES),
    Mutant("no fence after the ticket", LAW, "    __threadfence();  // in the thread", "    // in the thread", RACES),
    Mutant(
        "RDK: what leaks is not taken away",
        "csrc/common/rdk.h",
        "1.0f - leak_of(kernel, token) - spread_of(kernel, token)",
        "1.0f - spread_of(kernel, token)",
        RDK, "mixture or reference",
    ),
    Mutant(
        "RDK: rows by source taken for rows by target",
        "csrc/common/rdk.h",
        "entries_of(kernel.source_offsets, token",
        "entries_of(kernel.row_offsets, token",
        RDK, "reference or dense",
    ),
    Mutant(
        "RDK: leaked mass without the leaks",
        "csrc/common/rdk.cuh",
        "sum = fmaf(prob, kernel.leak[token], sum);",
        "sum += prob;",
        RDK_DRAFT, "reference",
    ),
    Mutant(
        "RDK: the redraw takes the leak's random number",
        "csrc/draft_sample/draft_sample.cuh",
        "uniform_of(call, request_idx, Stream::kRedraw)",
        "uniform_of(call, request_idx, Stream::kLeak)",
        RDK_DRAFT, "reference",
    ),
    Mutant(
        "RDK: a token is tested with the drafter's own law",
        RULES,
        "if (call.draft_logits.data != nullptr && is_redistributed(call)) {",
        "if (false) {",
        RDK_REJECTION, "reference",
    ),
    Mutant(
        "RDK: residual without the redistributed draft",
        RULES,
        "const float rest = stop.scale * weight[step][n] - draft_prob;",
        "const float rest = stop.scale * weight[step][n];",
        RDK_REJECTION, "reference",
    ),
    Mutant(
        "RDK: the token moves before all have read it",
        "csrc/draft_sample/draft_sample.cuh",
        "  __syncthreads();  // all have read the source\n",
        "",
        RDK_RACES,
    ),
    Mutant(
        "low rank: no barrier behind the coefficients",
        LOW_RANK,
        "  __syncthreads();  // all coefficients are there\n",
        "",
        RDK_RACES,
    ),
    Mutant(
        "low rank: no barrier behind the chunk's law",
        LOW_RANK,
        "  __syncthreads();  // the chunk's law is there\n",
        "",
        RDK_RACES,
    ),
    Mutant(
        "low rank: sums of factors taken before they are there",
        LOW_RANK,
        "    __syncthreads();  // sums of all groups are there\n",
        "",
        RDK_RACES,
    ),
    Mutant(
        "low rank: what is kept of a row read before it is there",
        LOW_RANK,
        "  __syncthreads();  // the row's numbers are there\n",
        "",
        LOW_RANK_RACES,
    ),
    Mutant(
        "low rank: weights read before all lanes have written",
        LOW_RANK,
        "  __syncwarp();  // all lanes have written\n",
        "",
        LOW_RANK_RACES,
    ),
    Mutant(
        "low rank: weights overwritten while lanes read them",
        LOW_RANK,
        "  __syncwarp();  // all lanes have read what was there\n",
        "",
        LOW_RANK_RACES,
    ),
    Mutant(
        "low rank: negative weights stay",
        "csrc/common/low_rank.h",
        "return weight < 0.0f ? 0.0f : weight;",
        "return weight;",
        RDK, "low_rank",
    ),
    Mutant(
        "low rank: the drafter's law is not taken away",
        "csrc/common/low_rank.h",
        "(1.0f - factors.lam) * law",
        "law",
        RDK_DRAFT, "low_rank",
    ),
    Mutant(
        "low rank: first group of ids only",
        LOW_RANK,
        "for (int other = 1; other < groups; ++other) sum +=",
        "for (int other = groups; other < groups; ++other) sum +=",
        RDK_DRAFT, "low_rank",
    ),
    Mutant(
        "low rank: factors beyond the block's threads are left out",
        LOW_RANK,
        "for (int first = 0; first < factors; first += width) {",
        "for (int first = 0; first < width; first += width) {",
        RDK_DRAFT, "low_rank",
    ),
    Mutant(
        "low rank: the redraw takes the leak's random number",
        "csrc/draft_sample/draft_sample.cuh",
        "uniform_of(call, request_idx, Stream::kRedraw));\n  }\n  if (thread",
        "uniform_of(call, request_idx, Stream::kLeak));\n  }\n  if (thread",
        RDK_DRAFT, "low_rank",
    ),
    Mutant(
        "low rank: every draft is drawn again",
        "csrc/draft_sample/draft_sample.cuh",
        "uniform_of(call, request_idx, Stream::kLeak) < factors.lam",
        "true",
        RDK_DRAFT, "low_rank",
    ),
    Mutant(
        "low rank: weights of a chunk one warp's share off",
        LOW_RANK,
        "low_rank_weight_at(factors, shared_kept(), first + begin + other, lane);",
        "low_rank_weight_at(factors, shared_kept(), first + other, lane);",
        RDK_DRAFT, "low_rank",
    ),
    Mutant(
        "low rank: weights beyond the vocabulary",
        LOW_RANK,
        "other < kWarpLanes && first + begin + other < vocab_size;",
        "other < kWarpLanes;",
        Suite("tests/simt/sanitizer_cases.py", "asan", ("draft_sample", "rejection_sample"), "low_rank"),
    ),
    Mutant(
        "low rank: ids of drafts are not held in range",
        RULES,
        "  if (!has_id(call.kernel, token)) return;  // rejected, whatever the draft law\n",
        "",
        Suite("tests/simt/sanitizer_cases.py", "asan", ("rejection_sample",), "low_rank"),
    ),
    Mutant(
        "low rank: a token is tested with the drafter's own law",
        RULES,
        "if (arguments.draft_probs != nullptr) {",
        "if (false) {",
        RDK_REJECTION, "low_rank",
    ),
    Mutant(
        "low rank: residual without the redistributed draft",
        RULES,
        "stop.scale * weight[step][n] - low_rank_prob(factors, total, drafted, law);",
        "stop.scale * weight[step][n];",
        RDK_REJECTION, "low_rank",
    ),
    Mutant(
        "low rank: the block rule draws with the row of another position",
        RULES,
        "    if (stop.is_residual) {\n      share_kept(call.kernel.low_rank, kept_of(arguments, stop.draft_row));\n",
        "    if (false) {\n      share_kept(call.kernel.low_rank, kept_of(arguments, stop.draft_row));\n",
        RDK_REJECTION, "low_rank",
    ),
    Mutant(
        "low rank: what is handed over is not read",
        "csrc/rejection_sample/rejection_sample.cu",
        "    if (call.draft_leaked_mass == nullptr) {\n      out.leaked_mass",
        "    if (true) {\n      out.leaked_mass",
        RDK_REJECTION, "low_rank",
    ),
    Mutant(
        "low rank: overlap of the drafter's own law",
        "csrc/acceptance_overlap/acceptance_overlap.cuh",
        "low_rank_prob(factors, total, staged[lane * kPack<T> + n], draft.at(id))",
        "draft.at(id)",
        RDK_OVERLAP, "overlap and low_rank",
    ),
    Mutant(
        "RDK: ids of a broken kernel are not held in range",
        "csrc/common/rdk.h",
        "return id >= 0 && id < kernel.vocab_size;",
        "return true;",
        Suite("tests/simt/sanitizer_cases.py", "asan", ("rdk_redistribute",), "rdk_kernel"),
    ),
    Mutant(
        "probabilities: a broken draft row taken for an empty residual",
        PROB_RULES,
        "stop.weights.draft.logits != nullptr && is_broken(stop.weights.draft)",
        "false",
        PROBS,
    ),
    Mutant(
        "probabilities: residuals of the block rule one row off",
        VERIFY,
        "sum_of_chunks(masses + at * chunks, chunks, lane)",
        "sum_of_chunks(masses + (at - 1) * chunks, chunks, lane)",
        PROBS,
    ),
    Mutant(
        "probabilities: a request is drawn by the last block of a position",
        PROB_RULES,
        "gridDim.x * static_cast<unsigned>(most)",
        "gridDim.x",
        PROBS,
    ),
    Mutant(
        "probabilities: stop one position too early",
        PROB_RULES,
        "if (!goes_on) atomicMin(&arguments.stop_at[request_idx], static_cast<int>(position));",
        "if (!goes_on) atomicMin(&arguments.stop_at[request_idx], static_cast<int>(position > 0 ? position - 1 : 0));",
        PROBS,
    ),
    Mutant(
        "probabilities: last chunk of a residual left out",
        PROB_RULES,
        "      if (chunk < chunks) {\n        const float mass",
        "      if (chunk < chunks - 1) {\n        const float mass",
        PROBS,
    ),
    Mutant(
        "first group of chunks only",
        "csrc/common/launch.cuh",
        "return static_cast<unsigned>((items + items_per_block - 1) / items_per_block);",
        "return static_cast<unsigned>(items_per_block > 8 ? (items + items_per_block - 1) / items_per_block : 1);",
        STATS, "large",
    ),
    Mutant(
        "residual without the draft",
        RULES,
        "const float rest = stop.scale * weight[step][n] - draft.prob(logit[step][n], id);",
        "const float rest = stop.scale * weight[step][n];",
        REJECTION, "by_hand",
    ),
    Mutant(
        "accept and resample share a stream",
        "csrc/common/uniforms.h",
        "Stream::kResample",
        "Stream::kAccept",
        REJECTION, "philox",
    ),
    Mutant(
        "<= for <",
        VERIFY,
        "uniform * draft_prob < static_cast<double>(target_prob)",
        "uniform * draft_prob <= static_cast<double>(target_prob)",
        REJECTION, "by_hand",
    ),
    Mutant(
        "tail of the row skipped",
        LOADS,
        "out[step][n] = at + n < row.size ? to_float(row.logits[at + n]) : neg_inf();",
        "out[step][n] = neg_inf();",
        STATS, "test_stats_equal_the_reference",
    ),
    Mutant("one id too many", LOADS, "at + n < row.size ?", "at + n <= row.size ?", MEMORY),
    Mutant(
        "top-k off by one", LAW, "return count_so_far >= count", "return count_so_far > count", STATS, "top_k"
    ),
    Mutant("histogram not cleared", LAW, "      scratch.count[bin] = 0;\n", "", STATS, "top_k"),
    Mutant(
        "tickets not reset",
        "csrc/row_stats/row_stats.cu",
        "space.tickets, 0, static_cast",
        "space.tickets, 1, static_cast",
        STATS, "by_hand or adjacent",
    ),
    Mutant(
        "early exit of rows before the stop",
        RULES,
        "gpu::load_relaxed(&arguments.stop_at[request_idx]) >= position",
        "gpu::load_relaxed(&arguments.stop_at[request_idx]) > position + 1000",
        REJECTION, "draft_length",
    ),
    Mutant(
        "stop one position too early",
        RULES,
        "if (!accepted) atomicMin(&arguments.stop_at[request_idx], static_cast<int>(position));",
        "if (!accepted) atomicMin(&arguments.stop_at[request_idx], static_cast<int>(position > 0 ? position - 1 : 0));",
        REJECTION, "by_hand",
    ),
    Mutant(
        "no early exit",
        RULES,
        "gpu::load_relaxed(&arguments.stop_at[request_idx]) >= position",
        "true",
        EARLY_EXIT,
    ),
    Mutant(
        "map read backwards",
        RULES,
        "call.target_to_draft_ids == nullptr ? token : call.target_to_draft_ids[token]",
        "token",
        REJECTION, "map",
    ),
    Mutant(
        "temperature applied twice",
        LAW,
        "return fminf(inv_temperature * kLog2E, kLargestFloat);",
        "return fminf(inv_temperature * inv_temperature * kLog2E, kLargestFloat);",
        STATS, "reference",
    ),
    Mutant(
        "chunks in the wrong order in the draw",
        "csrc/common/draw.cuh",
        "const double mass = chunk < chunks ? masses[chunk] : 0.0;",
        "const double mass = chunk < chunks ? masses[chunks - 1 - chunk] : 0.0;",
        DRAFT, "reference",
    ),
    Mutant(
        "bonus row taken for a recovered one",
        RULES,
        "stop.is_residual = state == RowTest::kDraftZero || state == RowTest::kSound;",
        "stop.is_residual = state != RowTest::kTargetInvalid && state != RowTest::kOutOfRange;",
        REJECTION,
    ),
    Mutant(
        "NaN overlooked",
        LAW,
        "out.is_invalid |= sum.sum != sum.sum || sum.max_logit == INFINITY;",
        "",
        STATS, "nan",
    ),
    Mutant(
        "shift of an unaligned row by one element too few",
        LOADS,
        "if (shift & 2u) {",
        "if (false) {",
        STATS, "starts",
    ),
    Mutant("logits read twice", LAW, "const float base = finite_max(largest);",
           "load_steps(row, first, lane, logit); const float base = finite_max(largest);", READS),
    Mutant("kept logits at the cutoff not added", LAW, "if (logit < cutoff || chunk < first",
           "if (logit <= cutoff || chunk < first", DRAFT, "reference"),
    Mutant(
        "probabilities: residual without the draft",
        PROB_RULES,
        "non_negative(weights.scale * weight[step][n] - non_negative(draft[step][n]))",
        "non_negative(weights.scale * weight[step][n])",
        PROBS, "by_hand",
    ),
    Mutant("probabilities: NaN taken for an empty row", PROB_RULES, "if (!(total < INFINITY))",
           "if (total == INFINITY)", PROBS, "statuses"),
    Mutant("probabilities: one-hot residual keeps the drafted token's mass", PROB_RULES,
           "if (stop.is_residual) {  // of a one-hot draft", "if (false) {  // of a one-hot draft", PROBS, "by_hand"),
    Mutant("probabilities: block residual not scaled", PROB_RULES, "stop.weights.scale = scale;",
           "stop.weights.scale = 1.0f;", PROBS, "equals_reference"),
    Mutant("probabilities: no fallback to the target", PROB_RULES, "if (token < 0 && stop.is_residual) {",
           "if (false) {", PROBS, "empty_residual"),
    Mutant("probabilities: negative numbers count", PROB_RULES, "return prob < 0.0f ? 0.0f : prob; }",
           "return prob == -INFINITY ? 0.0f : prob; }", PROBS, "broken_rows"),
    Mutant("probabilities: the block rule forgets the row that ended the draft", PROB_RULES,
           "stop.status |= tests[length].status();", "", PROBS, "broken_rows"),
]  # fmt: skip


def _commands(flavour: str) -> tuple[dict[str, list[str]], list[str]]:
    """How build/simt compiles each op of a flavour, and links the module."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    command = ["ninja", "-C", str(BUILD), "-t", "commands", f"_simt_{flavour}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    compiles: dict[str, list[str]] = {}
    link: list[str] = []
    for line in done.stdout.splitlines():
        if found := re.search(rf" -c \S*/hetero_spec_simt_ops_{flavour}\.sources/(\w+)\.cu\.cpp$", line):
            compiles[found[1]] = shlex.split(line)
        elif f" -o _simt_{flavour}.so " in line:
            link = shlex.split(line.removeprefix(": && ").removesuffix(" && :"))
    return compiles, link


class Workshop:
    """Builds flavours of the simulated device with a fault in some ops, from copies of all that it needs."""

    def __init__(self, folder: Path, flavours: set[str]) -> None:
        self.tree, self.out, self.base = folder / "tree", folder / "build", folder / "base"
        self.csrc = self.tree / "csrc"
        # The tests too: who goes on working in the tree must not change what a fault is tried with.
        ignored = shutil.ignore_patterns(".git", ".venv", "build", "__pycache__", ".*_cache")
        shutil.copytree(ROOT, self.tree, ignore=ignored)
        self.out.mkdir()
        self._commands = {}
        for flavour in sorted(flavours | {"plain"}):  # plain makes the inputs of the other flavours' tests
            build(f"_simt_{flavour}")
            compiles, link = self._commands[flavour] = _commands(flavour)
            for word in [*link, f"_simt_{flavour}.so"]:
                if not Path(word).is_absolute() and (BUILD / word).is_file():
                    (self.base / word).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(BUILD / word, self.base / word)

    def build(self, flavour: str, ops: tuple[str, ...]) -> None:
        """The module of a flavour from the copied sources of `ops` and the copied objects."""
        compiles, link = self._commands[flavour]
        objects = []
        for op in ops:
            wrapper, made = self.out / f"{op}.cpp", self.out / f"{op}.{flavour}.o"
            wrapper.write_text(f'#include "{self.csrc / op / op}.cu"\n')
            # The same flags, but the copied headers, another source and another object.
            flags = [f"-I{self.csrc}" if flag == f"-I{ROOT / 'csrc'}" else flag for flag in compiles[op]]
            flags = flags[: flags.index("-MD")]
            self._run([*flags, "-o", str(made), "-c", str(wrapper)])
            objects.append(str(made))
        for other in FLAVOURS:  # some tests call other flavours too: those have no fault
            there = self.out / f"_simt_{other}.so"
            there.unlink(missing_ok=True)
            if other != flavour and (self.base / there.name).exists():
                there.symlink_to(self.base / there.name)
        at = link.index("-o")
        # Before the archives: of a function that is there twice, the first is taken.
        archive = next(index for index, word in enumerate(link) if word.endswith(".a"))
        words = [*link[:archive], *objects, *link[archive:]]
        words[at + 1] = str(self.out / f"_simt_{flavour}.so")
        self._run(words)

    def _run(self, command: list[str]) -> None:
        done = subprocess.run(command, cwd=self.base, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"does not build:\n{done.stderr[-3000:]}")


def _survives_tests(suite: Suite, select: str, workshop: Workshop) -> bool:
    environment = {**os.environ, "HETERO_SPEC_SIMT_BUILD": str(workshop.out), AS_BUILT: "1", "OMP_NUM_THREADS": "1"}
    selection = ["-k", select] if select else []
    command = [sys.executable, "-m", "pytest", "-q", "-x", suite.tests, *selection]
    done = subprocess.run(
        command, cwd=workshop.tree, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, errors="replace"
    )
    # 1: a test failed; below 0: the fault brought the process down. Anything else is no verdict.
    if done.returncode > 1:
        raise RuntimeError(f"pytest could not run\n{done.stdout[-3000:]}")
    return done.returncode == 0


def survives(mutant: Mutant, workshop: Workshop) -> bool:
    """Whether the tests pass although the fault is in."""
    path = workshop.tree / mutant.path
    source = path.read_text()
    if mutant.old not in source:
        raise RuntimeError(f"not found in {mutant.path}: {mutant.old}")
    path.write_text(source.replace(mutant.old, mutant.new))
    try:
        workshop.build(mutant.suite.flavour, mutant.suite.ops)
        select = mutant.select or mutant.suite.select
        if mutant.suite.flavour not in LIBRARIES:
            return _survives_tests(mutant.suite, select, workshop)
        status, text = run_cases(mutant.suite.flavour, workshop.out, select, tree=workshop.tree, stop_at_first=True)
        if status in (0, 1, SANITIZER_EXIT) or status < 0:  # below 0: the fault brought the process down
            return status == 0
        raise RuntimeError(f"the cases could not run\n{text[-3000:]}")
    finally:
        path.write_text(source)


def _columns(mutants: list[Mutant]) -> tuple[list[str], list[str]]:
    return [mutant.name for mutant in mutants], [mutant.path for mutant in mutants]


def main(arguments: list[str] | None = None) -> int:
    """Run the mutants whose names contain one of the words given, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.simt.mutants", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("words", nargs="*", help="of the names of the faults to plant")
    parser.add_argument("--list", action="store_true", help="print the names and where the faults are planted")
    options = parser.parse_args(arguments)
    chosen = [mutant for mutant in MUTANTS if not options.words or any(word in mutant.name for word in options.words)]
    if options.list:
        print("\n".join(f"{mutant.name} ({mutant.path})" for mutant in chosen))
        return 0
    verdicts: list[tuple[str, Mutant, float]] = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        workshop = Workshop(Path(folder), {mutant.suite.flavour for mutant in chosen})
        for mutant in chosen:
            start = time.monotonic()
            try:
                verdict = "SURVIVED" if survives(mutant, workshop) else "killed"
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                verdict = "no verdict"
                print(f"{mutant.name}: {error}", file=sys.stderr)
            verdicts.append((verdict, mutant, time.monotonic() - start))
            print(f"{verdict:10} {mutant.name}", flush=True)
    name, path = (max((len(text) for text in column), default=0) for column in _columns(chosen))
    print(f"\n{'fault':{name}}  {'in':{path}}  flavour  verdict     seconds")
    for verdict, mutant, seconds in verdicts:
        print(f"{mutant.name:{name}}  {mutant.path:{path}}  {mutant.suite.flavour:8} {verdict:10} {seconds:8.0f}")
    killed = sum(verdict == "killed" for verdict, _, _ in verdicts)
    print(f"{killed} of {len(chosen)} killed, {sum(seconds for _, _, seconds in verdicts):.0f} s")
    if any(verdict == "no verdict" for verdict, _, _ in verdicts):
        return 2
    return 0 if killed == len(chosen) else 1


if __name__ == "__main__":
    raise SystemExit(main())
