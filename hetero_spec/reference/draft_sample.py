# SPDX-License-Identifier: Apache-2.0
"""Drawing a draft token from the drafter's law on the shared tokens.

Source
------
Timor et al. 2025, 2502.05202 (token-level intersection); inverse CDF in the drafter's vocabulary order. With an RDK
kernel (Timor et al. 2025, 2506.03206) the token drawn keeps its place, or moves along its row of the kernel's matrix; a
low-rank one replaces it, with its share as the probability, by a draw from the weights that it makes of the row.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hetero_spec.reference import inverse_cdf
from hetero_spec.reference.philox import Stream, uniform
from hetero_spec.reference.rdk_redistribute import leaks, low_rank_coefficients, low_rank_weights, redistribute
from hetero_spec.reference.row_law import Floats, logits_of, parameters_of, probs_of_row, stats_of_row


class DraftSample(NamedTuple):
    """One proposed token per request; see ``draft_sample``."""

    target_token_ids: Tensor
    draft_token_ids: Tensor
    probs: Tensor
    stats: Tensor
    entropy: Tensor
    max_prob: Tensor
    leaked_mass: Tensor | None = None


def moved(kernel: Any, law: Floats, token_id: int, leak_uniform: float, redraw_uniform: float) -> int:
    """Where a token drawn from the drafter's law goes: to the prior, along its sparse row, or nowhere."""
    parts = kernel.tensors(torch.device("cpu"))
    if hasattr(parts, "factors"):
        if leak_uniform >= float(np.float32(parts.lam)):
            return token_id
        return inverse_cdf.sample(low_rank_weights(low_rank_coefficients(law, parts), parts), redraw_uniform)
    leak = float(leaks(parts, kernel.vocab_size)[token_id])
    spread = 0.0 if parts.spread is None else float(parts.spread[token_id])
    if leak_uniform < leak:
        return inverse_cdf.sample(parts.prior.double().numpy(), redraw_uniform)
    if leak_uniform < leak + spread:
        row = slice(int(parts.row_offsets[token_id]), int(parts.row_offsets[token_id + 1]))
        return int(parts.column_ids[row][inverse_cdf.sample(parts.weights[row].double().numpy(), redraw_uniform)])
    return token_id


def leaked(kernel: Any, law: Floats) -> Floats:
    """What verification needs to know of a row: float64 [1], the leaked mass; low rank [n + 1], coefficients and Z."""
    parts = kernel.tensors(torch.device("cpu"))
    if not hasattr(parts, "factors"):
        return np.array([(leaks(parts, kernel.vocab_size) * law).sum()])
    if parts.lam == 0.0:  # nothing moves, and nothing is needed
        return np.zeros(parts.factors.shape[1] + 1)
    coefficients = low_rank_coefficients(law, parts)
    return np.append(coefficients, low_rank_weights(coefficients, parts).sum())


def draft_sample(
    draft_logits: Tensor,
    draft_to_target_ids: Tensor | None = None,
    *,
    temperature: float | Tensor | None = None,
    top_k: int | Tensor | None = None,
    top_p: float | Tensor | None = None,
    min_p: float | Tensor | None = None,
    kernel: Any = None,
    target_to_draft_ids: Tensor | None = None,
    seeds: Tensor | None = None,
    positions: Tensor | None = None,
    uniform_samples: Tensor | None = None,
) -> DraftSample:
    """Draw one token per row of draft_logits [B, Vd]; a row without a law gives ids -1 and zeros.

    uniform_samples is float64 [B]; without it, the number of (seed, position, PROPOSE) is used. With an RDK kernel it
    is [B, 3], or the numbers of PROPOSE, LEAK and REDRAW. target_to_draft_ids is not read: it is the map's inverse.
    """
    if draft_to_target_ids is None:  # the same ids on both sides
        draft_to_target_ids = torch.arange(draft_logits.shape[1], dtype=torch.int32)
    allowed = (draft_to_target_ids >= 0).numpy()
    batch_size = len(draft_logits)
    target_token_ids = torch.full((batch_size,), -1, dtype=torch.int32)
    draft_token_ids = torch.full((batch_size,), -1, dtype=torch.int32)
    probs = torch.zeros(batch_size, dtype=torch.float64)
    all_stats = torch.zeros(batch_size, 4, dtype=torch.float64)
    entropy = torch.zeros(batch_size, dtype=torch.float64)
    max_prob = torch.zeros(batch_size, dtype=torch.float64)
    leaked_mass = None
    if kernel is not None:
        leaked_mass = torch.zeros(batch_size, len(leaked(kernel, np.zeros(kernel.vocab_size))), dtype=torch.float64)
    for request in range(batch_size):
        logits = logits_of(draft_logits, request)
        stats = stats_of_row(logits, parameters_of(request, temperature, top_k, top_p, min_p), allowed)
        all_stats[request] = torch.tensor(stats, dtype=torch.float64)
        if stats.is_invalid or stats.is_empty:
            continue
        if uniform_samples is not None:
            chosen, *moves = uniform_samples[request].reshape(-1).tolist()
        else:
            assert seeds is not None and positions is not None
            key = (int(seeds[request]), int(positions[request]))
            chosen, *moves = (uniform(*key, stream) for stream in (Stream.PROPOSE, Stream.LEAK, Stream.REDRAW))
        law = probs_of_row(logits, stats, allowed)
        draft_id = inverse_cdf.sample(law, chosen)
        positive = law[law > 0.0]
        draft_token_ids[request] = draft_id
        target_token_ids[request] = draft_to_target_ids[draft_id]
        probs[request] = float(law[draft_id])
        entropy[request] = max(0.0, -float((positive * np.log(positive)).sum()))
        max_prob[request] = float(law.max())
        if kernel is not None:
            assert leaked_mass is not None
            over_target: Floats = np.zeros(kernel.vocab_size)
            over_target[draft_to_target_ids.numpy()[allowed]] = law[allowed]
            token_id = moved(kernel, over_target, int(target_token_ids[request]), *moves)
            target_token_ids[request] = token_id
            draft_token_ids[request] = max(
                (draft for draft, target in enumerate(draft_to_target_ids.tolist()) if target == token_id), default=-1
            )
            probs[request] = float(redistribute(over_target, kernel)[token_id])
            leaked_mass[request] = torch.from_numpy(leaked(kernel, over_target))
    if leaked_mass is not None and not hasattr(kernel.tensors(torch.device("cpu")), "factors"):
        leaked_mass = leaked_mass[:, 0]
    return DraftSample(target_token_ids, draft_token_ids, probs, all_stats, entropy, max_prob, leaked_mass)
