# SPDX-License-Identifier: Apache-2.0
"""Drafts from the text itself."""

import numpy as np
import pytest

from hetero_spec.decoding import ConfidenceLookahead, FixedLookahead, SpeculativeDecoder
from hetero_spec.decoding.ngram import NgramProposer
from hetero_spec.decoding.proposers import RetractableProposer
from hetero_spec.decoding.request import Request
from hetero_spec.decoding.sampling import Sampling
from hetero_spec.decoding.stats import DecodingStats
from hetero_spec.decoding.text import TextStream
from tests.decoding.pairs import counts_of, exact_law, make_pair
from tests.decoding.toys import LawTarget
from tests.tools.chi_square import departs

TARGET = LawTarget(lambda context: np.full(10, 0.1), "0123456789", eos_token_ids=[9])


def make_proposer(*prompts: list[int], lookahead: int = 4, **arguments: int) -> tuple[NgramProposer, list[Request]]:
    sampling = Sampling()
    requests = [
        Request(i, prompt, 0, sampling, sampling, TextStream(TARGET.token_bytes), 20)
        for i, prompt in enumerate(prompts)
    ]
    proposer = NgramProposer(TARGET, None, requests, FixedLookahead(lookahead), lookahead, DecodingStats(), **arguments)
    proposer.begin(requests)
    return proposer, requests


@pytest.mark.parametrize(
    ("prompt", "drafted"),
    [
        ([1, 2, 3, 4, 5, 6, 1, 2], [3, 4, 5, 6]),
        ([1, 2, 3, 1, 2, 4, 7, 1, 2], [4, 7, 1, 2]),  # the latest occurrence
        ([5, 1, 2, 3, 8, 1, 2, 4, 5, 1, 2], [3, 8, 1, 2]),  # but a longer match first
        ([1, 2, 1, 2], [1, 2, 1, 2]),  # on into the copy
        ([3, 3, 3], [3, 3, 3, 3]),
        ([1, 2, 9, 3, 1, 2], [9]),  # nothing behind an end of text
        ([1, 2, 3, 2], []),  # one token is too little
        ([1], []),
    ],
)
def test_what_followed_the_longest_known_end_is_proposed(prompt: list[int], drafted: list[int]) -> None:
    proposer, requests = make_proposer(prompt)
    assert proposer.propose(requests, [4]).token_ids == [drafted]
    assert proposer.propose(requests, [2]).token_ids == [drafted[:2]]
    assert proposer.propose(requests, [0]).token_ids == [[]]


@pytest.mark.parametrize(
    ("prompt", "match"),
    [
        ([1, 2, 3, 4, 5, 6, 1, 2], 2),
        ([5, 1, 2, 3, 8, 1, 2, 4, 5, 1, 2], 3),
        ([7, *range(9), 6, *range(9)], 9),  # longer than any n-gram that is looked up
        ([*range(9), *range(9)], 9),  # the earlier one begins with the text
        ([3] * 40, 16),
        ([1, 2, 3, 2], 0),
        ([1], 0),
    ],
)
def test_how_much_matches_is_known_without_drafting(prompt: list[int], match: int) -> None:
    proposer, requests = make_proposer([4, 4, 4], prompt)
    assert proposer.match_lengths(requests[1:]) == [match]
    assert proposer.match_lengths(requests) == [2, match]
    assert bool(match) == bool(proposer.propose(requests[1:], [1]).token_ids[0])


def test_the_length_of_a_match_can_be_chosen() -> None:
    proposer, requests = make_proposer([1, 2, 3, 2], min_ngram=1)
    assert proposer.propose(requests, [4]).token_ids == [[3, 2, 3, 2]]
    with pytest.raises(ValueError, match=r"min_ngram must be in \[1, 2\], got 3"):
        make_proposer([1], min_ngram=3, max_ngram=2)


def test_emitted_tokens_are_learnt_and_unlearnt_request_by_request() -> None:
    proposer, requests = make_proposer([1, 2, 3], [1, 2, 3])
    assert isinstance(proposer, RetractableProposer)
    proposer.commit(0, 0, [1])
    proposer.commit(0, 1, [2, 4])
    proposer.commit(0, 1, [1, 2])
    assert proposer.propose(requests, [4, 4]).token_ids == [[4, 1, 2, 4], []]
    proposer.retract(0, 3)  # back to 1 2 3 1 2
    assert proposer.propose(requests, [2, 2]).token_ids == [[3, 1], []]
    proposer.drop(1)
    assert proposer.propose(requests[:1], [1]).token_ids == [[3]]


def test_taking_back_leaves_no_trace() -> None:
    gen = np.random.default_rng(1)
    tokens = gen.integers(3, size=60).tolist()
    for cut in (1, 7, 25):
        proposer, requests = make_proposer(tokens[:20])
        other, _ = make_proposer(tokens[:20])
        for token_id in tokens[20:]:
            proposer.commit(0, 0, [token_id])
        for token_id in tokens[20 : 60 - cut]:
            other.commit(0, 0, [token_id])
        proposer.retract(0, cut)
        assert proposer._histories[0]._places == other._histories[0]._places
        assert proposer.propose(requests, [4]) == other.propose(requests, [4])


@pytest.mark.parametrize("verify", ["rejection", "exact"])
def test_the_law_of_the_output_is_the_targets(verify: str) -> None:
    target, _ = make_pair()
    decoder = SpeculativeDecoder(target, None, "ngram", 2, verify=verify)
    counts = counts_of(decoder, [0, 2, 1, 3, 0, 2], length=3, trials=4000)
    assert not departs(counts, exact_law(target.law, (0, 2, 1, 3, 0, 2), 5, 3))
    assert 0 < decoder.stats.accepted < decoder.stats.proposed
    assert decoder.stats.drafter_calls == 0


def test_a_text_that_repeats_itself_is_copied() -> None:
    target = LawTarget(lambda context: np.eye(5)[(context[-1] + 1) % 5], "abcde")
    decoder = SpeculativeDecoder(target, method="ngram", lookahead=ConfidenceLookahead(0.9, 7))
    result = decoder.generate("abcdeab", max_new_tokens=16, temperature=0)
    assert result.text == "cdeabcdeabcdeabc"
    assert (decoder.stats.target_calls, decoder.stats.acceptance_rate) == (2, 1.0)
