# SPDX-License-Identifier: Apache-2.0
"""The kill list: planted faults in copies of the CUDA sources, each of which the tests must notice.

    python -m tests.simt.mutants [NAME...]

Copies the tree to a temporary folder, changes one line, builds the flavour that should notice, and runs the tests named
beside the fault. Prints one line a fault; exit status 1 if one survived.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class Mutant(NamedTuple):
    """One planted fault: `old` becomes `new` in `path`, and `tests` (arguments of pytest) must fail."""

    name: str
    path: str
    old: str
    new: str
    tests: str


REJECTION = "tests/simt/test_rejection_sample_cuda_source.py"
STATS = "tests/simt/test_row_stats_cuda_source.py"
DRAFT = "tests/simt/test_draft_sample_cuda_source.py"
TRAFFIC = "tests/simt/test_traffic_of_ops.py"
RACES = "tests/simt/test_sanitizers_of_ops.py -k tsan"
MEMORY = "tests/simt/test_sanitizers_of_ops.py -k asan"
RULES = "csrc/rejection_sample/rejection_sample.cuh"
LAW = "csrc/common/row_law.cuh"

MUTANTS = [
    Mutant("no barrier before the ticket", LAW, "__syncthreads();  // what all threads", "// what all", RACES),
    Mutant("no fence before the ticket", LAW, "    __threadfence();\n    shared.is_last", "    shared.is_last", RACES),
    Mutant("no fence after the ticket", LAW, "    __threadfence();  // in the thread", "    // in the thread", RACES),
    Mutant(
        "first group of chunks only",
        "csrc/common/launch.cuh",
        "return static_cast<unsigned>((items + items_per_block - 1) / items_per_block);",
        "return static_cast<unsigned>(items_per_block > 8 ? (items + items_per_block - 1) / items_per_block : 1);",
        f"{STATS} -k large",
    ),
    Mutant(
        "residual without the draft",
        RULES,
        "const float rest = stop.scale * weight[step][n] - draft.prob(logit[step][n], id);",
        "const float rest = stop.scale * weight[step][n];",
        f"{REJECTION} -k by_hand",
    ),
    Mutant(
        "accept and resample share a stream",
        "csrc/common/uniforms.h",
        "Stream::kResample",
        "Stream::kAccept",
        f"{REJECTION} -k philox",
    ),
    Mutant(
        "<= for <",
        RULES,
        "uniform * test.draft_prob < static_cast<double>(test.target_prob)",
        "uniform * test.draft_prob <= static_cast<double>(test.target_prob)",
        f"{REJECTION} -k by_hand",
    ),
    Mutant(
        "tail of the row skipped",
        "csrc/common/vector_load.cuh",
        "out[step][n] = at + n < row.size ? to_float(row.logits[at + n]) : neg_inf();",
        "out[step][n] = neg_inf();",
        f"{STATS} -k test_stats_equal_the_reference",
    ),
    Mutant("one id too many", "csrc/common/vector_load.cuh", "at + n < row.size ?", "at + n <= row.size ?", MEMORY),
    Mutant(
        "top-k off by one", LAW, "return count_so_far >= count", "return count_so_far > count", f"{STATS} -k top_k"
    ),
    Mutant("histogram not cleared", LAW, "      scratch.count[bin] = 0;\n", "", f"{STATS} -k top_k"),
    Mutant(
        "tickets not reset",
        "csrc/row_stats/row_stats.cu",
        "space.tickets, 0, static_cast",
        "space.tickets, 1, static_cast",
        f"{STATS} -k by_hand or adjacent",
    ),
    Mutant(
        "early exit of rows before the stop",
        RULES,
        "gpu::load_relaxed(&arguments.stop_at[request_idx]) >= position",
        "gpu::load_relaxed(&arguments.stop_at[request_idx]) > position + 1000",
        f"{REJECTION} -k draft_length",
    ),
    Mutant(
        "stop one position too early",
        RULES,
        "if (!accepted) atomicMin(&arguments.stop_at[request_idx], static_cast<int>(position));",
        "if (!accepted) atomicMin(&arguments.stop_at[request_idx], static_cast<int>(position > 0 ? position - 1 : 0));",
        f"{REJECTION} -k by_hand",
    ),
    Mutant(
        "no early exit",
        RULES,
        "gpu::load_relaxed(&arguments.stop_at[request_idx]) >= position",
        "true",
        f"{TRAFFIC} -k exits_early",
    ),
    Mutant(
        "map read backwards",
        RULES,
        "call.target_to_draft_ids == nullptr ? token : call.target_to_draft_ids[token]",
        "token",
        f"{REJECTION} -k map",
    ),
    Mutant(
        "temperature applied twice",
        LAW,
        "return fminf(inv_temperature * kLog2E, kLargestFloat);",
        "return fminf(inv_temperature * inv_temperature * kLog2E, kLargestFloat);",
        f"{STATS} -k reference",
    ),
    Mutant(
        "chunks in the wrong order in the draw",
        "csrc/common/draw.cuh",
        "const double mass = chunk < chunks ? masses[chunk] : 0.0;",
        "const double mass = chunk < chunks ? masses[chunks - 1 - chunk] : 0.0;",
        f"{DRAFT} -k reference",
    ),
    Mutant(
        "bonus row taken for a recovered one",
        RULES,
        "stop.is_residual = state == RowTest::kDraftZero || state == RowTest::kSound;",
        "stop.is_residual = state != RowTest::kNoLaw && state != RowTest::kOutOfRange;",
        REJECTION,
    ),
    Mutant(
        "NaN overlooked",
        LAW,
        "out.is_invalid |= sum.sum != sum.sum || sum.max_logit == INFINITY;",
        "",
        f"{STATS} -k nan",
    ),
    Mutant(
        "shift of an unaligned row by one element too few",
        "csrc/common/vector_load.cuh",
        "if (shift & 2u) {",
        "if (false) {",
        f"{STATS} -k starts",
    ),
    Mutant("logits read twice", LAW, "const float base = finite_max(largest);",
           "load_steps(row, first, lane, logit); const float base = finite_max(largest);", f"{TRAFFIC} -k wherever"),
]  # fmt: skip


def survives(mutant: Mutant, tree: Path) -> bool:
    """Whether the tests pass although the fault is in."""
    path = tree / mutant.path
    source = path.read_text()
    assert source.count(mutant.old) >= 1, f"{mutant.name}: not found in {mutant.path}"
    path.write_text(source.replace(mutant.old, mutant.new))
    try:
        environment = {**os.environ, "HETERO_SPEC_SIMT_BUILD": str(tree / "build" / "simt")}
        arguments = mutant.tests.split(" -k ")
        selection = ["-k", arguments[1]] if len(arguments) == 2 else []
        command = [sys.executable, "-m", "pytest", "-q", "-x", arguments[0], *selection]
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
        # 1: a test failed; below 0: the fault brought the process down. Anything else is no verdict.
        no_verdict = done.returncode > 1 or "failed:\n" in done.stdout
        assert not no_verdict, f"{mutant.name}: pytest could not run\n{done.stdout[-3000:]}"
        return done.returncode == 0
    finally:
        path.write_text(source)


def main(names: list[str]) -> int:
    """Run the mutants whose names contain one of the words given, or all."""
    chosen = [mutant for mutant in MUTANTS if not names or any(name in mutant.name for name in names)]
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        ignored = shutil.ignore_patterns(".git", ".venv", "build", "__pycache__")
        shutil.copytree(ROOT, tree, ignore=ignored)
        for mutant in chosen:
            survived = survives(mutant, tree)
            survivors += survived
            print(f"{'SURVIVED' if survived else 'killed  '}  {mutant.name}", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} killed")
    return 1 if survivors else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
