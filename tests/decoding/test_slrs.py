# SPDX-License-Identifier: Apache-2.0
"""SLRS on laws: psi against enumeration of every draft, the output's law, and controls that must fail."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cache

import numpy as np
import pytest
import torch

from hetero_spec import ops
from hetero_spec.decoding import FixedLookahead, Sampling, SpeculativeDecoder
from hetero_spec.decoding import slrs as slrs_module
from hetero_spec.decoding.proposers import Draft, Proposer
from hetero_spec.decoding.request import Request
from hetero_spec.decoding.slrs import SlrsProposer
from hetero_spec.decoding.stats import DecodingStats
from hetero_spec.decoding.text import TextStream
from hetero_spec.decoding.text_bridge import TextBridge
from hetero_spec.decoding.text_tables import TextTables
from hetero_spec.reference.philox import uniform
from tests.decoding.text_toys import (
    DRAFT_TOKENS,
    TARGET_EOS,
    TARGET_TOKENS,
    TextTarget,
    counts_of,
    exact_law,
    text_pair,
    toy_bridge,
    toy_map,
)
from tests.decoding.toys import LawDrafter, law_of_context
from tests.tools.chi_square import departs

PROMPT = [0, 2]
A, B, AB, ABB, C, SECOND_A = range(6)
VOCAB_SIZE = len(TARGET_TOKENS)
# Draws before a candidate, what its first draw cannot be, and what it must be.
Beginning = tuple[tuple[int, ...], frozenset[int], int | None]


def make_request(sampling: Sampling | None = None, index: int = 0) -> Request:
    sampling = sampling or Sampling()
    return Request(index, list(PROMPT), 3 + index, sampling, sampling, TextStream(TARGET_TOKENS), 20)


def letters_pair() -> tuple[TextTarget, LawDrafter]:
    """A drafter that writes mostly the letters of what the target says in one token, so that joins are what counts."""
    target_weights = np.array([1.0, 1.0, 3.0, 6.0, 1.0, 0.3, 0.3])
    draft_weights = np.array([4.0, 4.0, 2.0, 0.5, 1.0, 0.3, 0.3, 0.3])
    noise, draft_noise = law_of_context(VOCAB_SIZE, 3), law_of_context(len(DRAFT_TOKENS), 4)

    def target_law(context: tuple[int, ...]) -> np.ndarray:
        weights = target_weights * (0.1 + noise(context))
        return np.asarray(weights / weights.sum())

    def draft_law(context: tuple[int, ...]) -> np.ndarray:
        weights = draft_weights * (0.1 + draft_noise(context))
        return np.asarray(weights / weights.sum())

    return TextTarget(cache(target_law), TARGET_TOKENS), LawDrafter(cache(draft_law), toy_map())


def every_draft(
    proposer: SlrsProposer, request: Request, drafter: LawDrafter, length: int, law: Callable[[np.ndarray], np.ndarray]
) -> Iterator[tuple[float, Draft]]:
    """Make the proposer draw every possible sequence once; yield its probability and what was proposed."""
    allowed = proposer.tables.allowed.numpy() >= 0
    proposer._contexts.begin(request.index)
    context = tuple(proposer._contexts.tokens(request.index))

    def row(path: tuple[int, ...]) -> np.ndarray:
        weights = law(drafter.law(context + path) * allowed)
        return np.asarray(weights / weights.sum())

    def sequences(path: tuple[int, ...], prob: float) -> Iterator[tuple[tuple[int, ...], float]]:
        if len(path) == length or (path and DRAFT_TOKENS[path[-1]] is None):
            yield path, prob
            return
        for draft_id, value in enumerate(row(path)):
            if value > 0:
                yield from sequences((*path, draft_id), prob * value)

    draft_sample = ops.draft_sample
    for path, prob in sequences((), 1.0):
        drawn = iter(path)

        def forced(*arguments, drawn=drawn, **keywords):  # type: ignore[no-untyped-def]
            sample = draft_sample(*arguments, **keywords)
            return sample._replace(draft_token_ids=torch.tensor([next(drawn)], dtype=torch.int32))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ops, "draft_sample", forced)
            draft = proposer.propose([request], [length])
        yield prob, draft
        proposer._contexts.commit(request.index, [])


def truncated(weights: np.ndarray) -> np.ndarray:
    """Temperature 0.5, then the three likeliest."""
    warm = weights**2
    return np.where(warm >= np.sort(warm)[-3], warm, 0.0)


def largest_error(
    make_pair: Callable[[], tuple[TextTarget, LawDrafter]],
    length: int,
    max_pieces: int = 3,
    max_token_bytes: int = 16,
    sampling: Sampling | None = None,
    law: Callable[[np.ndarray], np.ndarray] = lambda weights: weights,
) -> tuple[float, float]:
    """Compare psi with how often each candidate comes up, given what was drawn before it began, over all drafts.

    Returns the largest difference, and the probability that the first candidate was joined from several draws.
    """
    target, drafter = make_pair()
    request = make_request(sampling)
    proposer = SlrsProposer(
        target,
        drafter,
        [request],
        FixedLookahead(length),
        length,
        DecodingStats(),
        max_pieces=max_pieces,
        max_token_bytes=max_token_bytes,
        num_branches=2,
    )
    masses: dict[Beginning, np.ndarray] = defaultdict(lambda: np.zeros(VOCAB_SIZE))
    starts = {}
    total = 0.0
    for prob, draft in every_draft(proposer, request, drafter, length, law):
        total += prob
        proposed, begun = draft.token_ids[0], proposer._starts[0]
        assert len(proposed) == len(begun) >= 1
        for token_id, start in zip(proposed, begun, strict=True):
            key = (start.drafted, start.excluded, start.certain)
            masses[key][token_id] += prob
            starts[key] = start
    assert total == pytest.approx(1.0)
    worst = 0.0
    for key, mass in masses.items():
        psi = proposer.laws([(starts[key], token_id) for token_id in range(VOCAB_SIZE)])
        worst = max(worst, float(np.abs(np.array(psi) - mass / mass.sum()).max()))
    return worst, float(masses[((), frozenset(), None)][[AB, ABB]].sum())


@pytest.mark.parametrize("make_pair", [text_pair, letters_pair])
@pytest.mark.parametrize(
    ("length", "bounds"), [(1, (3, 16)), (2, (3, 16)), (4, (3, 16)), (3, (2, 16)), (3, (1, 16)), (3, (3, 2))]
)
def test_psi_is_the_law_of_every_candidate(
    make_pair: Callable[[], tuple[TextTarget, LawDrafter]], length: int, bounds: tuple[int, int]
) -> None:
    worst, joined = largest_error(make_pair, length, *bounds)
    assert worst < 1e-6
    assert (joined > 0.002) == (length > 1 and bounds[0] > 1)


def test_psi_is_the_law_of_every_candidate_of_a_truncated_drafter() -> None:
    worst, joined = largest_error(letters_pair, 3, 3, 16, Sampling(temperature=0.5, top_k=3), truncated)
    assert worst < 1e-6 and joined > 0.05


def test_enumeration_rejects_psi_of_one_way_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = TextTables.ways
    monkeypatch.setattr(TextTables, "ways", lambda self, data, pieces: ways(self, data, pieces)[:1])
    assert largest_error(letters_pair, 3)[0] > 0.01


def test_enumeration_rejects_psi_that_forgets_what_could_still_be_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SlrsProposer, "_joins_at", lambda *_: [])
    assert largest_error(letters_pair, 3)[0] > 0.01


def test_enumeration_rejects_psi_that_forgets_how_the_candidate_before_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    read = SlrsProposer._read

    def forgetful(self, *arguments):  # type: ignore[no-untyped-def]
        token_ids, starts = read(self, *arguments)
        for start in starts:
            start.excluded_mass = 0.0
        return token_ids, starts

    monkeypatch.setattr(SlrsProposer, "_read", forgetful)
    assert largest_error(letters_pair, 3)[0] > 0.01


# -- the law of the output ---------------------------------------------------------------------------------------------


def law_departs(pair: tuple[TextTarget, LawDrafter], lookahead: int, trials: int = 1500) -> bool:
    target, drafter = pair
    decoder = SpeculativeDecoder(target, drafter, "slrs", lookahead)
    counts = counts_of(decoder, PROMPT, 3, trials)
    assert 0 < decoder.stats.accepted < decoder.stats.proposed
    return departs(counts, exact_law(target.law, tuple(PROMPT), VOCAB_SIZE, 3))


@pytest.mark.parametrize(("make_pair", "lookahead"), [(text_pair, 1), (letters_pair, 4)])
def test_the_law_of_the_output_is_the_targets(
    make_pair: Callable[[], tuple[TextTarget, LawDrafter]], lookahead: int
) -> None:
    assert not law_departs(make_pair(), lookahead)


def test_the_law_test_rejects_a_policy_that_drops_candidates_by_their_value(monkeypatch: pytest.MonkeyPatch) -> None:
    propose = SlrsProposer.propose

    def dropping(self: SlrsProposer, requests: Sequence[Request], lengths: Sequence[int]) -> Draft:
        draft = propose(self, requests, lengths)
        for ids in draft.token_ids:
            if ids and ids[0] == B:
                ids.clear()
        return draft

    monkeypatch.setattr(SlrsProposer, "propose", dropping)
    assert law_departs(letters_pair(), 4)


def halves_pair() -> tuple[TextTarget, LawDrafter]:
    """Half of the second draws join the first to "ab", which the target hardly ever says."""
    target_law = np.array([0.3, 0.3, 0.02, 0.02, 0.3, 0.03, 0.03])
    draft_law = np.array([0.5, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    return TextTarget(lambda _: target_law, TARGET_TOKENS), LawDrafter(lambda _: draft_law, toy_map())


def test_the_law_test_rejects_random_numbers_that_are_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not law_departs(halves_pair(), 2)
    # Draws keyed by their own position: the next round would repeat those that decided this one.
    honest = uniform
    first = slrs_module._DRAW_STREAM

    def repeated(seed: int, position: int, stream: int) -> float:
        is_draw = first <= stream < first + 64
        return honest(seed, position + stream - first, first) if is_draw else honest(seed, position, stream)

    monkeypatch.setattr(slrs_module, "uniform", repeated)
    assert law_departs(halves_pair(), 2)


def test_same_laws_accept_more_than_exact_match() -> None:
    target, drafter = letters_pair()
    accepted = {}
    for method in ("slem", "slrs"):
        decoder = SpeculativeDecoder(target, drafter, method, 4)
        decoder.generate([PROMPT] * 200, max_new_tokens=8, seed=list(range(200)))
        accepted[method] = decoder.stats.acceptance_length
    assert accepted["slrs"] > 1.05 * accepted["slem"] > 1.05


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_exact_verification_gives_the_tokens_of_plain_decoding(temperature: float) -> None:
    target, drafter = letters_pair()
    arguments = {"max_new_tokens": 10, "temperature": temperature, "seed": [1, 2, 3]}
    expected = SpeculativeDecoder(target, method="none").generate([PROMPT] * 3, **arguments)
    verify = None if temperature == 0.0 else "exact"
    results = SpeculativeDecoder(target, drafter, "slrs", 4, verify=verify).generate([PROMPT] * 3, **arguments)
    assert [result.token_ids for result in results] == [wanted.token_ids for wanted in expected]


def test_time_of_psi_is_the_drafters_and_counted_once() -> None:
    target, drafter = letters_pair()
    decoder = SpeculativeDecoder(target, drafter, "slrs", 4)
    decoder.generate([PROMPT] * 20, max_new_tokens=6, seed=list(range(20)))
    stats = decoder.stats
    parts = (stats.seconds_drafter, stats.seconds_target, stats.seconds_ops)
    assert min(parts) > 0.0 and sum(parts) <= stats.seconds
    assert stats.drafter_calls > 4 * stats.target_calls


def test_request_alone_and_in_a_ragged_batch_are_the_same() -> None:
    target, drafter = letters_pair()
    target.eos_token_ids = frozenset([TARGET_EOS])
    decoder = SpeculativeDecoder(target, drafter, "slrs", 4)
    prompts = [[A], [C, AB, C], [B, B], [ABB, A]]
    temperatures, seeds = [0.0, 1.0, 0.7, 1.0], [1, 2, 3, 4]
    together = decoder.generate(prompts, max_new_tokens=10, temperature=temperatures, seed=seeds)
    for i, result in enumerate(together):
        alone = decoder.generate(prompts[i], max_new_tokens=10, temperature=temperatures[i], seed=seeds[i])
        assert (alone.token_ids, alone.stats) == (result.token_ids, result.stats)


def residual_departs(monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether draws of the residual depart from norm((target - psi)+), for laws in which it is a matter of psi."""
    target_law = np.array([0.1, 0.2, 0.3, 0.2, 0.1, 0.05, 0.05])
    psi = np.array([0.3, 0.1, 0.2, 0.15, 0.2, 0.1, 0.1])
    target, drafter = letters_pair()
    request = make_request()
    proposer = SlrsProposer(target, drafter, [request], FixedLookahead(1), 1, DecodingStats())
    monkeypatch.setattr(SlrsProposer, "laws", lambda self, asked: [float(psi[token_id]) for _, token_id in asked])
    logits = torch.tensor(np.log(target_law))[None].float()
    row = slrs_module._Row.of(logits[0], ops.row_stats(logits)[0])
    counts = np.zeros(VOCAB_SIZE)
    for request.seed in range(3000):
        # Known when it begins: A was the candidate that was rejected, AB another's.
        start = slrs_module._Start(request, (), 1, laws={token_id: float(psi[token_id]) for token_id in (A, AB)})
        token_id, status = proposer._residual(start, request, request.position, logits, row)
        assert status == 0
        counts[token_id] += 1
    assert 3000 < proposer.num_tries < 3000 * VOCAB_SIZE
    residual = np.maximum(0.0, target_law - psi)
    return departs(counts, residual / residual.sum())


def test_residual_is_what_the_target_has_more_than_psi(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not residual_departs(monkeypatch)


def test_the_residual_test_rejects_tokens_kept_at_first_sight(monkeypatch: pytest.MonkeyPatch) -> None:
    def kept(seed: int, position: int, stream: int) -> float:
        return 0.0 if stream >= slrs_module._TRY_STREAM and stream % 2 else uniform(seed, position, stream)

    monkeypatch.setattr(slrs_module, "uniform", kept)
    assert residual_departs(monkeypatch)


def test_residual_of_no_mass_falls_back_to_the_target_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    target, drafter = letters_pair()
    request = make_request()
    proposer = SlrsProposer(target, drafter, [request], FixedLookahead(1), 1, DecodingStats())
    draft = proposer.propose([request], [1])
    monkeypatch.setattr(SlrsProposer, "laws", lambda self, asked: [2.0] * len(asked))
    monkeypatch.setattr(slrs_module, "uniform", lambda seed, position, stream: 0.999)
    assert draft.verifier is not None
    rows = torch.tensor(np.log(np.stack([target.law((0, 2)), target.law((2, 0))]))).float()
    result = draft.verifier([request], draft, rows)
    # Every token of the target is looked at once, then there is nothing left.
    assert result.num_accepted_tokens.tolist() == [0] and proposer.num_tries == len(TARGET_TOKENS)
    assert result.status.tolist() == [int(ops.Status.RESIDUAL_EMPTY)]


def test_broken_target_row_is_flagged_and_touches_nobody_else() -> None:
    target, drafter = letters_pair()
    requests = [make_request(), make_request(index=1)]
    proposer = SlrsProposer(target, drafter, requests, FixedLookahead(2), 2, DecodingStats())
    draft = proposer.propose(requests, [2, 2])
    assert isinstance(proposer, Proposer) and draft.verifier is not None
    rows = torch.tensor(np.log(np.stack([target.law((0, 2))] * (sum(draft.counts) + 2)))).float()
    whole = draft.verifier(requests, draft, rows)
    rows[0] = torch.nan
    broken = draft.verifier(requests, draft, rows)
    assert broken.status[0] == int(ops.Status.TARGET_NAN) and broken.status[1] == whole.status[1] == 0
    assert broken.num_accepted_tokens[0] == 0
    assert broken.output_token_ids[1].tolist() == whole.output_token_ids[1].tolist()


# -- what the vocabularies say -----------------------------------------------------------------------------------------


def test_tables_say_what_joins_and_what_may_be_drawn() -> None:
    tables = TextTables(toy_bridge(), 16)
    # "z" has no text in the target; the end has a counterpart.
    assert tables.allowed.tolist() == [0, 1, 2, 3, 4, -1, 6, 7]
    assert tables.special_ids == {TARGET_EOS: [6]}
    assert [tables.single(text) for text in (b"a", b"ab", b"bb", b"z", b"abbb")] == [A, AB, None, None, None]
    assert [tables.several(draft_id) for draft_id in (0, 2, 3, 7)] == [None, [B, B], [C, AB], [B, C, A]]
    assert tables.first_in == {B: [2, 7], C: [3]}
    assert tables.joining(b"a") == [1, 4, 2] and tables.joining(b"ab") == [1, 4] and tables.joining(b"abb") == []
    assert tables.ways(b"abb", 3) == [(0, 1, 1), (0, 1, 4), (0, 4, 1), (0, 4, 4), (0, 2)]
    assert tables.ways(b"abb", 2) == [(0, 2)] and tables.ways(b"c", 3) == []
    short = TextTables(toy_bridge(), 2)
    assert short.joining(b"a") == [1, 4] and not short.joins(b"a", 2) and short.joins(b"a", 4)
    assert short.ways(b"abb", 3) == []


def test_tokens_that_no_text_is_encoded_as_are_never_candidates() -> None:
    def letters(text: str) -> list[int]:
        return [TARGET_TOKENS.index(bytes([byte])) for byte in text.encode() if bytes([byte]) in TARGET_TOKENS]

    tables = TextTables(TextBridge(toy_map(), target_encoder=letters), 16)
    assert tables.single(b"ab") is None and tables.joining(b"a") == [] and not tables.joins(b"a", 1)
    assert tables.several(3) == [C, A, B]


def test_bounds_must_be_positive() -> None:
    target, drafter = text_pair()
    for name in ("max_pieces", "max_token_bytes", "num_branches"):
        with pytest.raises(ValueError, match=f"slrs: {name} must be at least 1, got 0"):
            SlrsProposer(target, drafter, [], FixedLookahead(1), 1, DecodingStats(), **{name: 0})  # type: ignore[arg-type]
