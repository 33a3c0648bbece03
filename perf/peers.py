# SPDX-License-Identifier: Apache-2.0
"""What transformers itself runs for the same job. Imported, never copied; None where it is not installed.

Its sampler is for one request: a batch is a loop. Its top-p keeps ties differently from ours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from perf.cases import Case
from perf.inputs import Verification


def _generation() -> tuple[Any, Any, Any] | None:
    try:
        from transformers.generation import candidate_generator, logits_process, utils
    except ImportError:
        return None
    return utils, logits_process, candidate_generator


def is_available() -> bool:
    """Whether transformers is installed with the functions that are measured."""
    modules = _generation()
    return modules is not None and hasattr(modules[0], "_speculative_sampling")


def warper(case: Case) -> Callable[[Tensor], Tensor]:
    """Temperature and top-p as `generate` applies them, on float32 scores [rows, V]."""
    modules = _generation()
    assert modules is not None
    steps: list[Any] = []
    if case.temperature != 1.0:
        steps.append(modules[1].TemperatureLogitsWarper(case.temperature))
    if case.top_p is not None:
        steps.append(modules[1].TopPLogitsWarper(case.top_p))

    def apply(scores: Tensor) -> Tensor:
        for step in steps:
            scores = step(None, scores)
        return scores

    return apply


def suppressor(draft_to_target: Tensor) -> Callable[[Tensor], Tensor]:
    """The processor that keeps a drafter to the shared ids."""
    modules = _generation()
    assert modules is not None
    processor = modules[1].SuppressTokensLogitsProcessor(torch.nonzero(draft_to_target < 0).flatten())
    return lambda scores: processor(None, scores)


def translator(draft_to_target: Tensor, target_vocab_size: int) -> Callable[[Tensor], Tensor]:
    """`AssistantToTargetTranslator.get_target_logits` with our map in place of its map of display strings."""
    modules = _generation()
    assert modules is not None
    made = object.__new__(modules[2].AssistantToTargetTranslator)
    made._assistant_to_target_input_ids = draft_to_target.long()
    made._assistant_model_device = "cpu"
    made.target_vocab_size = target_vocab_size
    made.assistant_prune_lm_head = False
    return made.get_target_logits  # type: ignore[no-any-return]


def verification(case: Case, inputs: Verification) -> Callable[[int], list[Tensor]] | None:
    """A loop over the requests of `_speculative_sampling`; the drafter's scores come processed, as from drafting."""
    modules = _generation()
    if modules is None or not is_available():
        return None
    warp = warper(case)
    batch, num_drafts, vocab_size = case.batch_size, case.num_drafts, case.vocab_size
    target = inputs.target_logits.view(batch, num_drafts + 1, vocab_size)
    scores = inputs.draft_logits.float()
    translate: Callable[[Tensor], Tensor] | None = None
    if inputs.draft_to_target_ids is not None:
        scores = suppressor(inputs.draft_to_target_ids)(scores)
        translate = translator(inputs.draft_to_target_ids, vocab_size)
    draft = warp(scores).view(batch, num_drafts, -1)
    sample = modules[0]._speculative_sampling
    ids = [drafts.token_ids.view(batch, num_drafts).long() for drafts in inputs.drafts]

    def run(idx: int) -> list[Tensor]:
        out = []
        for request in range(batch):
            candidate = draft[request : request + 1]
            if translate is not None:
                candidate = translate(candidate)
            scores = warp(target[request].float()).unsqueeze(0)
            out.append(sample(ids[idx][request : request + 1], candidate, num_drafts, scores)[0])
        return out

    return run
