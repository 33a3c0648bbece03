# SPDX-License-Identifier: Apache-2.0
"""Lookahead policies."""

from pathlib import Path

import numpy as np
import pytest

from hetero_spec.decoding import ConfidenceLookahead, DraftedToken, FixedLookahead, SpeculativeDecoder
from hetero_spec.decoding.disco import NUM_FEATURES, DiscoClassifier, DiscoLookahead
from hetero_spec.decoding.lookahead import HeuristicLookahead, Lookahead, OracleLookahead, as_lookahead, lengths_within
from tests.decoding.pairs import agreeing_drafter, counts_of, exact_law, make_pair
from tests.tools.chi_square import departs


def drafted(prob: float = 0.5, depth: int = 0, request: int = 0, token_id: int = -1) -> DraftedToken:
    return DraftedToken(request, depth, prob, entropy=1.0, max_prob=0.9, token_id=token_id)


def test_a_fixed_length_is_never_ended_early() -> None:
    lookahead = FixedLookahead(3)
    assert lookahead.length(0) == lookahead.max_draft_tokens == 3
    assert lookahead.wants_more(drafted(0.0))


def test_confidence_stops_below_its_threshold_only() -> None:
    lookahead = ConfidenceLookahead(0.5, 6)
    assert lookahead.length(0) == 6
    assert lookahead.wants_more(drafted(0.5))
    assert not lookahead.wants_more(drafted(0.4999))


def test_drafts_leave_room_for_the_token_that_the_target_adds() -> None:
    assert lengths_within(FixedLookahead(4), [0, 1, 2, 3], [9, 5, 3, 1]) == [4, 4, 2, 0]


def test_a_number_or_a_name_stands_for_a_policy() -> None:
    assert as_lookahead(2).max_draft_tokens == 2
    assert isinstance(as_lookahead("confidence"), ConfidenceLookahead)
    assert isinstance(as_lookahead("heuristic"), HeuristicLookahead)
    assert isinstance(as_lookahead("disco"), DiscoLookahead)
    own = FixedLookahead(1)
    assert as_lookahead(own) is own


def test_a_file_stands_for_its_classifier(tmp_path: Path) -> None:
    path = tmp_path / "own.json"
    constant_disco(0.8, 0.35, 3).save(path)
    for name in (path, str(path)):
        policy = as_lookahead(name)
        assert isinstance(policy, DiscoLookahead)
        assert (policy.threshold, policy.max_draft_tokens) == (0.35, 3)
    with pytest.raises(FileNotFoundError, match="absent"):
        as_lookahead(tmp_path / "absent.json")


@pytest.mark.parametrize("bad", [-1, "disko", True, 2.5, None])
def test_what_is_no_policy_is_refused(bad: object) -> None:
    with pytest.raises(ValueError, match="lookahead: "):
        as_lookahead(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("threshold", [-0.1, 1.1, float("nan")])
def test_a_threshold_outside_zero_to_one_is_refused(threshold: float) -> None:
    with pytest.raises(ValueError, match=r"lookahead: threshold must be in \[0, 1\]"):
        ConfidenceLookahead(threshold)


def test_the_heuristic_adds_two_after_a_whole_draft_and_takes_one_after_another() -> None:
    lookahead = HeuristicLookahead(4, 9)
    lookahead.begin(2)
    lengths = [lookahead.length(0)]
    for drafted_tokens, accepted in ((4, 4), (6, 6), (8, 8), (9, 3), (8, 0), (7, 7)):
        lookahead.observe(0, drafted_tokens, accepted)
        lengths.append(lookahead.length(0))
    assert lengths == [4, 6, 8, 9, 8, 7, 9]
    assert lookahead.length(1) == 4
    lookahead.observe(1, 0, 0)
    assert lookahead.length(1) == 4
    lookahead.begin(2)
    assert lookahead.length(0) == 4


def test_the_heuristic_never_ceases_to_draft() -> None:
    lookahead = HeuristicLookahead(2)
    for _ in range(5):
        lookahead.observe(0, lookahead.length(0), 0)
    assert lookahead.length(0) == 1
    with pytest.raises(ValueError, match=r"num_tokens must be in \[1, 3\], got 4"):
        HeuristicLookahead(4, 3)


def test_the_oracle_stops_after_the_first_token_that_differs() -> None:
    lookahead = OracleLookahead([[7, 8, 9, 7], [1, 2]], 3)
    lookahead.begin(2)
    assert (lookahead.length(0), lookahead.length(1)) == (3, 2)
    assert lookahead.wants_more(drafted(depth=0, token_id=7))
    assert not lookahead.wants_more(drafted(depth=1, token_id=5))
    assert not lookahead.wants_more(drafted(depth=0, request=1, token_id=2))
    assert lookahead.wants_more(drafted(depth=0, request=1))
    # One token was accepted and the target's own 8 followed: the next draft is compared from the third on.
    lookahead.observe(0, 2, 1)
    assert lookahead.length(0) == 2
    assert lookahead.wants_more(drafted(depth=0, token_id=9))
    assert not lookahead.wants_more(drafted(depth=2, token_id=7))
    with pytest.raises(ValueError, match="tokens_by_request must be 1 texts, got 2"):
        lookahead.begin(1)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_with_the_oracle_a_draft_has_at_most_one_wrong_token_and_few_rounds_are_needed(temperature: float) -> None:
    target, _ = make_pair()
    prompts, arguments = [[0, 2], [1], [3, 3, 0]], {"max_new_tokens": 40, "temperature": temperature, "seed": 5}
    plain = SpeculativeDecoder(target, method="none").generate(prompts, **arguments)
    texts = [result.token_ids for result in plain]

    def decode(lookahead: Lookahead) -> SpeculativeDecoder:
        decoder = SpeculativeDecoder(target, agreeing_drafter(target), lookahead=lookahead, verify="exact")
        assert [result.token_ids for result in decoder.generate(prompts, **arguments)] == texts
        return decoder

    oracle, long = decode(OracleLookahead(texts, 40)), decode(FixedLookahead(40))
    assert [request.target_steps for request in oracle.stats.requests] == [
        request.target_steps for request in long.stats.requests
    ]
    assert oracle.stats.accepted == long.stats.accepted > 10
    wrong = oracle.stats.proposed - oracle.stats.accepted
    assert 0 < wrong <= oracle.stats.target_steps
    assert long.stats.proposed > oracle.stats.proposed


def constant_disco(chance: float, threshold: float, max_draft_tokens: int) -> DiscoLookahead:
    zeros = np.zeros((1, NUM_FEATURES))
    classifier = DiscoClassifier(zeros, np.zeros(1), np.zeros(1), float(np.log(chance / (1.0 - chance))))
    return DiscoLookahead(classifier, threshold, max_draft_tokens)


def disco_by_prob() -> DiscoLookahead:
    """Its chance rises with the token's own probability."""
    weights = np.zeros((1, NUM_FEATURES))
    weights[0, 0] = 2.0
    return DiscoLookahead(DiscoClassifier(weights, np.array([1.0]), np.array([4.0]), 0.0), 0.5, 3)


@pytest.mark.parametrize("lookahead", [HeuristicLookahead(1, 3), disco_by_prob()])
def test_the_law_of_the_output_is_the_targets(lookahead: Lookahead) -> None:
    target, drafter = make_pair()
    decoder = SpeculativeDecoder(target, drafter, lookahead=lookahead)
    assert not departs(counts_of(decoder, [0, 2], length=3, trials=4000), exact_law(target.law, (0, 2), 5, 3))
    assert 0 < decoder.stats.accepted < decoder.stats.proposed
