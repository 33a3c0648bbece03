# SPDX-License-Identifier: Apache-2.0
"""Reproducible decoding: verification by exact match emits the very tokens of plain seeded decoding."""

import numpy as np
import pytest
import torch

from hetero_spec import ops
from hetero_spec.decoding import ConfidenceLookahead, SpeculativeDecoder
from hetero_spec.decoding.exact import exact_sample
from hetero_spec.decoding.request import Request
from hetero_spec.decoding.sampling import Sampling
from hetero_spec.decoding.text import TextStream
from tests.decoding.pairs import agreeing_drafter, counts_of, exact_law, make_map, make_pair
from tests.decoding.toys import LawDrafter, LawTarget
from tests.tools.chi_square import departs, hits_limits

PROMPTS = [[0, 2], [1], [4, 4, 3, 0, 1], [2, 2, 2]]
SEEDS = [5, 6, 7, 8]


def request(index: int, seed: int, prompt_length: int, sampling: Sampling) -> Request:
    return Request(index, [0] * prompt_length, seed, sampling, sampling, TextStream([b"a"] * 4), 10)


@pytest.mark.parametrize("temperature", [0.0, 0.8, [0.0, 0.8, 1.7, 0.3]])
@pytest.mark.parametrize("method", ["tli", "ngram"])
def test_tokens_are_those_of_plain_seeded_decoding(method: str, temperature: float | list[float]) -> None:
    target, _ = make_pair()
    arguments = {"max_new_tokens": 24, "temperature": temperature, "top_p": 0.97, "seed": SEEDS}
    plain = SpeculativeDecoder(target, method="none").generate(PROMPTS, **arguments)
    drafter = agreeing_drafter(target) if method == "tli" else None
    for lookahead in (1, 4, ConfidenceLookahead(0.4, 6)):
        decoder = SpeculativeDecoder(target, drafter, method, lookahead, verify="exact")
        drafted = decoder.generate(PROMPTS, **arguments)
        assert [result.token_ids for result in drafted] == [result.token_ids for result in plain]
        assert 0 < decoder.stats.accepted < decoder.stats.proposed


def test_drafts_are_greedy_unless_told_otherwise() -> None:
    """The target says the same as a sampled draft with sum(target * draft), as a greedy one with target(argmax)."""
    target, drafter = LawTarget(lambda context: np.array([0.6, 0.4]), "ab"), make_map([b"a", b"b"], "ab")
    decoder = SpeculativeDecoder(
        target, LawDrafter(lambda context: np.array([0.55, 0.45]), drafter), lookahead=1, verify="exact"
    )
    arguments = {"max_new_tokens": 40, "seed": list(range(100))}
    decoder.generate([[0]] * 100, **arguments)
    low, high = hits_limits(decoder.stats.proposed, 0.6)
    assert low <= decoder.stats.accepted <= high
    decoder.generate([[0]] * 100, **arguments, draft_sampling=Sampling())
    low, high = hits_limits(decoder.stats.proposed, 0.6 * 0.55 + 0.4 * 0.45)
    assert low <= decoder.stats.accepted <= high


def test_without_exact_match_the_tokens_are_others() -> None:
    # Negative control: the comparison above would see it.
    target, _ = make_pair()
    arguments = {"max_new_tokens": 24, "temperature": 0.8, "seed": SEEDS}
    plain = SpeculativeDecoder(target, method="none").generate(PROMPTS, **arguments)
    drafted = SpeculativeDecoder(target, agreeing_drafter(target)).generate(PROMPTS, **arguments)
    assert [result.token_ids for result in drafted] != [result.token_ids for result in plain]


def test_the_law_is_the_targets_too() -> None:
    target, drafter = make_pair()
    decoder = SpeculativeDecoder(target, drafter, lookahead=2, verify="exact")
    assert not departs(counts_of(decoder, [0, 2], length=2, trials=2000), exact_law(target.law, (0, 2), 5, 2))


def test_each_row_draws_with_its_own_position_and_stops_at_the_first_difference() -> None:
    logits = torch.tensor([[0.1, 0.2, 0.3, 0.4]] * 6).log()
    sampling = Sampling()
    requests = [request(0, 3, 5, sampling), request(1, 3, 6, sampling)]
    alone = ops.rejection_sample(
        logits,
        torch.zeros(0, dtype=torch.int32),
        torch.zeros(7, dtype=torch.int32),
        0,
        seeds=torch.full((6,), 3),
        positions=torch.tensor([5, 6, 7, 6, 7, 8]),
    ).output_token_ids[:, 0]
    drawn = alone.tolist()
    assert len(set(drawn)) > 1
    out = exact_sample(logits, [drawn[:2], [drawn[3], (drawn[4] + 1) % 4]], requests)
    assert out.output_token_ids.tolist() == [drawn[:3], [*drawn[3:5], -1]]
    assert out.num_accepted_tokens.tolist() == [2, 1]
    assert out.status.tolist() == [0, 0]


def test_a_broken_row_is_flagged_only_where_it_is_reached() -> None:
    sure = [0.0, -torch.inf, -torch.inf]
    broken = [torch.nan, 0.0, 0.0]
    empty = [-torch.inf] * 3
    sampling = Sampling()
    requests = [request(i, 1, 2, sampling) for i in range(4)]
    logits = torch.tensor([sure, broken, sure, broken, sure, empty, broken, sure])
    #      reached at once;  rejected before it;  accepted up to it;  a draft on a broken row
    out = exact_sample(logits, [[0], [1], [0], [1]], requests)
    assert out.num_accepted_tokens.tolist() == [1, 0, 1, 0]
    assert out.status.tolist() == [ops.Status.TARGET_NAN, 0, ops.Status.TARGET_EMPTY, ops.Status.TARGET_NAN]
    assert out.output_token_ids[1].tolist() == [0, -1]


def test_a_request_whose_target_row_is_nan_ends_alone() -> None:
    def law(context: tuple[int, ...]) -> np.ndarray:
        return np.full(3, np.nan) if context[0] == 2 and len(context) == 4 else np.array([0.5, 0.3, 0.2])

    target = LawTarget(law, "abc")
    drafter = LawDrafter(lambda context: np.array([0.5, 0.5]), make_map([b"a", b"b"], "abc"))
    decoder = SpeculativeDecoder(target, drafter, lookahead=2, verify="exact")
    results = decoder.generate([[0], [2], [1]], max_new_tokens=8, seed=[1, 2, 3])
    assert [result.finish_reason for result in results] == ["length", "error", "length"]
    plain = SpeculativeDecoder(target, method="none").generate([[0]], max_new_tokens=8, seed=[1])
    assert results[0].token_ids == plain[0].token_ids


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"verify": "best"}, "verify must be one of rejection, exact, got 'best'"),
        ({"verify": "exact", "rule": "block"}, "rule must be 'token' where verification is exact, got 'block'"),
        ({"method": "slrs", "rule": "block"}, "rule must be 'token' for method 'slrs', got 'block'"),
    ],
)
def test_what_cannot_be_is_refused(arguments: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SpeculativeDecoder(*make_pair(), **arguments)
