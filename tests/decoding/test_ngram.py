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


def held_to(confidence: float, occurrences: int, agreeing: int) -> float:
    """What a context says, held to the next shorter one as if that were four occurrences."""
    return (agreeing + 4.0 * confidence) / (occurrences + 4.0)


ONCE = held_to(held_to(0.3, 1, 1), 1, 1)  # its last two tokens occurred once, each of them nowhere else


@pytest.mark.parametrize(
    ("prompt", "confidence"),
    [
        ([1, 2, 3, 4, 5, 6, 1, 2], ONCE),
        ([0, 1, 2, 3, 4, 5, 6, 0, 1, 2], held_to(ONCE, 1, 1)),
        # The last token was followed by 4 once and by others twice, the last two by 4 once and once by 9.
        ([1, 2, 9, 7, 2, 8, 1, 2, 4, 5, 1, 2], held_to(held_to(0.3, 3, 1), 2, 1)),
        # Longer than any n-gram that is looked up: nine tokens.
        ([7, *range(9), 6, *range(9)], 1.0 - (1.0 - held_to(held_to(ONCE, 1, 1), 1, 1)) * 0.8**5),
        ([*range(9), *range(9)], 1.0 - (1.0 - held_to(held_to(ONCE, 1, 1), 1, 1)) * 0.8**5),
        ([1, 2, 3, 2], 0.0),
        ([1], 0.0),
    ],
)
def test_how_sure_it_is_is_known_without_drafting(prompt: list[int], confidence: float) -> None:
    proposer, requests = make_proposer([4, 4, 4, 4, 4], prompt)
    assert proposer.confidences(requests[1:]) == [pytest.approx(confidence)]
    assert bool(confidence) == bool(proposer.propose(requests[1:], [1]).token_ids[0])
    assert 0.5 < proposer.confidences(requests)[0] < 1.0


def test_confidences_follow_the_text_as_it_grows_and_shrinks() -> None:
    gen = np.random.default_rng(4)
    tokens = [int(token) for token in gen.integers(4, size=60)]
    proposer, requests = make_proposer(tokens[:20])
    expected = []
    for end in range(20, 60):
        fresh, alone = make_proposer(tokens[:end])
        expected.append(fresh.confidences(alone))
        assert proposer.confidences(requests) == expected[-1]
        proposer.commit(0, 0, [tokens[end]])
    for end in range(59, 19, -1):
        proposer.retract(0, 1)
        assert proposer.confidences(requests) == expected[end - 20]


def test_a_look_at_what_would_be_proposed_changes_nothing() -> None:
    proposer, requests = make_proposer([1, 2, 9, 3, 1, 2])
    assert proposer.peek(requests[0], 6) == [9, 3, 1, 2, 9, 3]
    assert proposer.propose(requests, [6]).token_ids == [[9]]  # where 9 ends a text
    assert make_proposer([1, 2, 3])[0].peek(requests[0], 6) == []


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
