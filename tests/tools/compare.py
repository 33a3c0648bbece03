# SPDX-License-Identifier: Apache-2.0
"""Comparison of an op with its float64 reference.

Ids must be equal except where the uniform lies within EPSILON of a boundary: an acceptance threshold, or the edge of
an id's interval in the CDF. Where a float32 op and the float64 reference decide such a case differently, the rest of
the request is compared with the reference following the op's decision.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hetero_spec.reference import inverse_cdf
from hetero_spec.reference.row_law import (
    Floats,
    Parameters,
    RowStats,
    logits_of,
    parameters_of,
    stats_of_row,
    unnormalized,
)
from hetero_spec.reference.verification import Verdict

# Probabilities are float32 functions of float32 stats: a relative error of 2**-24 from the rounding of the
# log-normaliser per unit of its size (12 at V = 151,936), a few units in the last place of exp, and the sum of a chunk
# of 4096 float32 terms in at most 4096 / 8 steps. Together below 1e-5; errors of the CDF and of acceptance thresholds
# are no larger.
EPSILON = 1e-5

# (relative, absolute) tolerance of a float32 output by dtype of the logits. The ops read each dtype exactly and
# compute in float32, so that the three agree: exp loses 2**-24 for each unit of its argument, 2e-5 covers arguments to
# -300, and what lies below exp(-300) is less than the absolute term.
TOLERANCES = {
    torch.float32: (2e-5, 1e-9),
    torch.float16: (2e-5, 1e-9),
    torch.bfloat16: (2e-5, 1e-9),
}


def assert_probs_match(actual: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    rtol, atol = TOLERANCES[dtype]
    assert actual.dtype == torch.float32
    torch.testing.assert_close(actual.double(), expected.double(), rtol=rtol, atol=atol, equal_nan=True)


def _mass(logits: Floats, stats: RowStats, cutoff: float, *, strict: bool = False) -> float:
    kept = logits > cutoff if strict else logits >= cutoff
    return float(unnormalized(logits[kept], stats.max_logit, stats.inv_temperature).sum())


def _is_cutoff(cutoff: float, logits: Floats, expected: RowStats, parameters: Parameters) -> bool:
    """Whether a cutoff differs from the reference's only by rounding."""
    if cutoff == expected.cutoff:
        return True
    everything = -math.inf
    if _mass(logits, expected, cutoff) == _mass(logits, expected, expected.cutoff):
        return True  # the same ids, as when top-k keeps all that is unmasked
    if parameters.min_p > 0.0 and math.isclose(cutoff, expected.cutoff, rel_tol=1e-6, abs_tol=1e-6):
        return True
    if parameters.top_p < 1.0 and cutoff in logits:
        if parameters.top_k > 0:
            everything = stats_of_row(logits, parameters._replace(top_p=1.0, min_p=0.0)).cutoff
        goal = parameters.top_p * _mass(logits, expected, everything)
        slack = EPSILON * _mass(logits, expected, everything)
        enough = _mass(logits, expected, cutoff) >= goal - slack
        return enough and _mass(logits, expected, cutoff, strict=True) < goal + slack
    return False


def assert_stats_match(
    actual: Tensor, logits: Tensor, parameters: dict[str, Any], draft_to_target_ids: Tensor | None = None
) -> None:
    """float32 [rows, 4] against the reference, row by row."""
    assert actual.dtype == torch.float32 and actual.shape == (len(logits), 4)
    allowed = None if draft_to_target_ids is None else (draft_to_target_ids >= 0).numpy()
    for row in range(len(logits)):
        row_parameters = parameters_of(
            row, *(parameters.get(name) for name in ("temperature", "top_k", "top_p", "min_p"))
        )
        values = logits_of(logits, row)
        expected = stats_of_row(values, row_parameters, allowed)
        found = RowStats(*actual[row].double().tolist())
        where = f"row {row}: {found} against {expected}"
        if expected.is_invalid or expected.is_empty or expected.is_greedy:
            np.testing.assert_array_equal(np.array(found), np.array(expected), err_msg=where)
            continue
        present = values if allowed is None else values[allowed]
        assert found.max_logit == expected.max_logit, where
        assert math.isclose(found.inv_temperature, expected.inv_temperature, rel_tol=2.0**-23), where
        assert _is_cutoff(found.cutoff, present, expected, row_parameters), where
        normalizer = math.log(_mass(present, expected, found.cutoff))
        assert math.isclose(found.log_normalizer, normalizer, rel_tol=1e-6, abs_tol=EPSILON), where


def _follow(verdict: Verdict, num_accepted: int, uniforms: list[float]) -> list[float]:
    """Accept uniforms that lead the reference to num_accepted, each changed one near its threshold."""
    return [
        uniform
        if j >= len(verdict.thresholds) or abs(uniform - min(1.0, verdict.thresholds[j])) > EPSILON
        else (-1.0 if j < num_accepted else math.inf)
        for j, uniform in enumerate(uniforms)
    ]


def assert_verdicts_match(
    output: Any,
    reference: Callable[..., list[Verdict]],
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    *,
    ignore: int = 0,
) -> None:
    """Compare a RejectionSample of an op with the verdicts of a reference on the same uniforms."""
    cu, max_draft_tokens = arguments[-2], arguments[-1]
    batch_size = len(cu) - 1
    assert output.output_token_ids.shape == (batch_size, max_draft_tokens + 1)
    assert output.num_accepted_tokens.shape == output.status.shape == (batch_size,)
    assert {tensor.dtype for tensor in output} == {torch.int32}
    verdicts = reference(*arguments, **keywords)
    uniforms = keywords["uniform_samples"].clone()
    for request, verdict in enumerate(verdicts):
        num_accepted = int(output.num_accepted_tokens[request])
        if num_accepted != verdict.num_accepted:
            first = int(cu[request]) + request
            rows = uniforms[first : int(cu[request + 1]) + request + 1, 0]
            rows.copy_(torch.tensor(_follow(verdict, num_accepted, rows.tolist()), dtype=torch.float64))
    followed = reference(*arguments, **{**keywords, "uniform_samples": uniforms})
    for request, verdict in enumerate(followed):
        ids = output.output_token_ids[request].tolist()
        num_accepted = int(output.num_accepted_tokens[request])
        where = f"request {request}: {ids} against {verdict.token_ids}, before rounding {verdicts[request].token_ids}"
        assert num_accepted == verdict.num_accepted, where
        assert ids[:num_accepted] == verdict.token_ids[:-1], where
        assert ids[num_accepted + 1 :] == [-1] * (max_draft_tokens - num_accepted), where
        if ids[num_accepted] != verdict.token_ids[-1]:
            assert verdict.weights is not None, where
            row = int(cu[request]) + request + num_accepted
            epsilon = EPSILON / min(1.0, verdict.mass)
            near = inverse_cdf.ids_near(verdict.weights, float(uniforms[row, 1]), epsilon)
            assert ids[num_accepted] in near, where
        status = int(output.status[request])
        assert status | ignore == int(verdict.status) | ignore, (
            f"request {request}: status {status}, {verdict.status!r}"
        )
