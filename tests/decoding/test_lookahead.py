# SPDX-License-Identifier: Apache-2.0
"""Lookahead policies."""

import pytest

from hetero_spec.decoding import ConfidenceLookahead, DraftedToken, FixedLookahead
from hetero_spec.decoding.lookahead import as_lookahead, lengths_within


def drafted(prob: float) -> DraftedToken:
    return DraftedToken(request=0, depth=0, prob=prob, entropy=1.0, max_prob=0.9)


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
    own = FixedLookahead(1)
    assert as_lookahead(own) is own


@pytest.mark.parametrize("bad", [-1, "disco", True, 2.5, None])
def test_what_is_no_policy_is_refused(bad: object) -> None:
    with pytest.raises(ValueError, match="lookahead: "):
        as_lookahead(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("threshold", [-0.1, 1.1, float("nan")])
def test_a_threshold_outside_zero_to_one_is_refused(threshold: float) -> None:
    with pytest.raises(ValueError, match=r"lookahead: threshold must be in \[0, 1\]"):
        ConfidenceLookahead(threshold)
