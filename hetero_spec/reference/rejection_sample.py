# SPDX-License-Identifier: Apache-2.0
"""Lossless verification of ragged drafts from logits.

Source
------
Leviathan et al. 2023, 2211.17192, algorithm 1 (rule "token"); Sun et al. 2024, 2403.10444, algorithm 2 (rule
"block"); drafter laws on another vocabulary by Timor et al. 2025, 2502.05202, redistributed by 2506.03206.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hetero_spec.reference.philox import Stream, uniform
from hetero_spec.reference.rdk_redistribute import redistribute
from hetero_spec.reference.row_law import (
    Floats,
    Parameters,
    RowStats,
    logits_of,
    parameters_of,
    probs_of_row,
    stats_of_row,
)
from hetero_spec.reference.verification import RULES, Status, TargetRow, Verdict, effective_length


class RejectionSample(NamedTuple):
    """Emitted ids padded with -1, accepted draft tokens, status bits; one row per request."""

    output_token_ids: Tensor
    num_accepted_tokens: Tensor
    status: Tensor


def target_row(logits: Floats, parameters: Parameters) -> TargetRow:
    """Law of a target row, or the documented id of a row that has none."""
    stats = stats_of_row(logits, parameters)
    probs = probs_of_row(logits, stats)
    if stats.is_invalid:
        problem = Status.TARGET_NAN if parameters.are_valid else Status.INVALID_PARAMETER
        numbers = np.where(np.isnan(logits), -np.inf, logits)
        return TargetRow(probs, problem, int(np.argmax(numbers)))
    return TargetRow(probs, Status.TARGET_EMPTY if stats.is_empty else Status(0), 0)


def draft_law_over_target_ids(
    logits: Floats,
    stats: RowStats | None,
    parameters: Parameters,
    target_to_draft_ids: Sequence[int] | None,
    target_vocab_size: int,
    kernel: Any = None,
) -> Floats:
    """Read a drafter's row law through the inverse map; without saved stats, the request's parameters make it.

    An RDK kernel then redistributes it.
    """
    mapping = range(target_vocab_size) if target_to_draft_ids is None else target_to_draft_ids
    allowed = np.zeros(len(logits), dtype=np.bool_)
    for draft_id in mapping:
        if 0 <= draft_id < len(logits):
            allowed[draft_id] = True
    if stats is None:
        stats = stats_of_row(logits, parameters, allowed)
    probs = probs_of_row(logits, stats, allowed)
    law: Floats = np.zeros(target_vocab_size)
    for token_id, draft_id in enumerate(mapping):
        if 0 <= draft_id < len(logits):
            law[token_id] = probs[draft_id]
        elif stats.is_invalid:
            law[token_id] = np.nan
    return law if kernel is None or stats.is_invalid else redistribute(law, kernel)


def one_hot(token_id: int, vocab_size: int) -> Floats:
    """Law of a drafter that always proposes this token; empty when the id is out of range."""
    law: Floats = np.zeros(vocab_size)
    if 0 <= token_id < vocab_size:
        law[token_id] = 1.0
    return law


def request_uniforms(
    request: int, first_row: int, num_rows: int, seeds: Tensor | None, positions: Tensor | None, given: Tensor | None
) -> list[tuple[float, float]]:
    """(accept, resample) of each row of a request."""
    if given is not None:
        return [(float(given[first_row + j, 0]), float(given[first_row + j, 1])) for j in range(num_rows)]
    assert seeds is not None and positions is not None
    seed, position = int(seeds[request]), int(positions[request])
    return [
        (uniform(seed, position + j, Stream.ACCEPT), uniform(seed, position + j, Stream.RESAMPLE))
        for j in range(num_rows)
    ]


def verify_batch(
    draft_token_ids: Tensor,
    cu_num_draft_tokens: Tensor,
    max_draft_tokens: int,
    rule: str,
    make_target_row: Callable[[int, int], TargetRow],
    make_draft_law: Callable[[int, int, int], Floats],
    make_uniforms: Callable[[int, int, int], list[tuple[float, float]]],
) -> list[Verdict]:
    """Verify each request on its own: make_target_row(request, row), make_draft_law(request, draft row, id)."""
    offsets = [int(offset) for offset in cu_num_draft_tokens]
    verdicts = []
    for request in range(len(offsets) - 1):
        begin, end = offsets[request], offsets[request + 1]
        ids = [int(token_id) for token_id in draft_token_ids[begin:end]]
        length = effective_length(ids, max_draft_tokens)
        first_row = begin + request
        verdicts.append(
            RULES[rule](
                [make_target_row(request, first_row + j) for j in range(length + 1)],
                [make_draft_law(request, begin + j, ids[j]) for j in range(length)],
                ids[:length],
                make_uniforms(request, first_row, length + 1),
            )
        )
    return verdicts


def pack(verdicts: Sequence[Verdict], max_draft_tokens: int) -> RejectionSample:
    """Put the verdicts into tensors: ids padded with -1 to max_draft_tokens + 1."""
    output_token_ids = torch.full((len(verdicts), max_draft_tokens + 1), -1, dtype=torch.int32)
    for request, verdict in enumerate(verdicts):
        output_token_ids[request, : len(verdict.token_ids)] = torch.tensor(verdict.token_ids, dtype=torch.int32)
    return RejectionSample(
        output_token_ids,
        torch.tensor([verdict.num_accepted for verdict in verdicts], dtype=torch.int32),
        torch.tensor([int(verdict.status) for verdict in verdicts], dtype=torch.int32),
    )


def rejection_sample_verdicts(
    target_logits: Tensor,
    draft_token_ids: Tensor,
    cu_num_draft_tokens: Tensor,
    max_draft_tokens: int,
    *,
    draft_logits: Tensor | None = None,
    draft_stats: Tensor | None = None,
    target_to_draft_ids: Tensor | None = None,
    kernel: Any = None,
    temperature: float | Tensor | None = None,
    top_k: int | Tensor | None = None,
    top_p: float | Tensor | None = None,
    min_p: float | Tensor | None = None,
    seeds: Tensor | None = None,
    positions: Tensor | None = None,
    uniform_samples: Tensor | None = None,
    rule: str = "token",
) -> list[Verdict]:
    """As ``rejection_sample``, with what each request hinged on."""
    vocab_size = target_logits.shape[1]
    mapping = None if target_to_draft_ids is None else [int(draft_id) for draft_id in target_to_draft_ids]

    def parameters(request: int) -> Parameters:
        return parameters_of(request, temperature, top_k, top_p, min_p)

    def make_target_row(request: int, row: int) -> TargetRow:
        return target_row(logits_of(target_logits, row), parameters(request))

    def make_draft_law(request: int, row: int, token_id: int) -> Floats:
        if draft_logits is None:
            return one_hot(token_id, vocab_size)
        stats = None if draft_stats is None else RowStats(*draft_stats[row].double().tolist())
        logits = logits_of(draft_logits, row)
        return draft_law_over_target_ids(logits, stats, parameters(request), mapping, vocab_size, kernel)

    def make_uniforms(request: int, first_row: int, num_rows: int) -> list[tuple[float, float]]:
        return request_uniforms(request, first_row, num_rows, seeds, positions, uniform_samples)

    return verify_batch(
        draft_token_ids, cu_num_draft_tokens, max_draft_tokens, rule, make_target_row, make_draft_law, make_uniforms
    )


def rejection_sample(
    target_logits: Tensor,
    draft_token_ids: Tensor,
    cu_num_draft_tokens: Tensor,
    max_draft_tokens: int,
    *,
    draft_logits: Tensor | None = None,
    draft_stats: Tensor | None = None,
    target_to_draft_ids: Tensor | None = None,
    kernel: Any = None,
    temperature: float | Tensor | None = None,
    top_k: int | Tensor | None = None,
    top_p: float | Tensor | None = None,
    min_p: float | Tensor | None = None,
    seeds: Tensor | None = None,
    positions: Tensor | None = None,
    uniform_samples: Tensor | None = None,
    rule: str = "token",
) -> RejectionSample:
    """Verify drafts; shapes and dtypes as in ``hetero_spec.ops.rejection_sample``."""
    verdicts = rejection_sample_verdicts(
        target_logits,
        draft_token_ids,
        cu_num_draft_tokens,
        max_draft_tokens,
        draft_logits=draft_logits,
        draft_stats=draft_stats,
        target_to_draft_ids=target_to_draft_ids,
        kernel=kernel,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        seeds=seeds,
        positions=positions,
        uniform_samples=uniform_samples,
        rule=rule,
    )
    return pack(verdicts, max_draft_tokens)
