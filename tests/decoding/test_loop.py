# SPDX-License-Identifier: Apache-2.0
"""The loop with engines that are plain laws: no transformers model, so that every law is known exactly."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
import torch

from hetero_spec import ops
from hetero_spec.decoding import (
    ConfidenceLookahead,
    DraftedToken,
    Drafter,
    FixedLookahead,
    Sampling,
    Sequences,
    SpeculativeDecoder,
    Target,
)
from hetero_spec.decoding import loop as loop_module
from hetero_spec.decoding.proposers import Draft, packed
from hetero_spec.reference.philox import Stream, uniform
from hetero_spec.vocab import VocabMap
from tests.decoding.pairs import CHARACTERS, DRAFT_TOKENS, agreeing_drafter, counts_of, exact_law, make_map, make_pair
from tests.decoding.toys import LawDrafter, LawSequences, LawTarget, law_of_context
from tests.tools.chi_square import departs


def test_the_toys_satisfy_the_protocols() -> None:
    target, drafter = make_pair()
    assert isinstance(target, Target)
    assert isinstance(drafter, Drafter)
    assert isinstance(target.open(1, 8), Sequences)
    assert not isinstance(target, Drafter)


@pytest.mark.parametrize("lookahead", [FixedLookahead(2), ConfidenceLookahead(0.6, 3)])
@pytest.mark.parametrize("rule", ["token", "block"])
def test_the_law_of_the_output_is_the_targets(lookahead: FixedLookahead, rule: str) -> None:
    target, drafter = make_pair()
    decoder = SpeculativeDecoder(target, drafter, lookahead=lookahead, rule=rule)
    counts = counts_of(decoder, [0, 2], length=3, trials=4000)
    assert not departs(counts, exact_law(target.law, (0, 2), 5, 3))
    assert 0 < decoder.stats.accepted < decoder.stats.proposed


def test_the_law_test_rejects_drafts_verified_with_another_law(monkeypatch: pytest.MonkeyPatch) -> None:
    # The negative control: drafts are drawn at temperature 3 and verified as if drawn at temperature 1.
    target, drafter = make_pair()
    draft_sample = ops.draft_sample

    def drawn_elsewhere(logits, ids, **keywords):  # type: ignore[no-untyped-def]
        honest = draft_sample(logits, ids, **keywords)
        return draft_sample(logits, ids, **{**keywords, "temperature": 3.0})._replace(stats=honest.stats)

    monkeypatch.setattr(loop_module.ops, "draft_sample", drawn_elsewhere)
    decoder = SpeculativeDecoder(target, drafter, lookahead=2)
    assert departs(counts_of(decoder, [0, 2], length=3, trials=4000), exact_law(target.law, (0, 2), 5, 3))


def test_the_law_test_rejects_a_policy_that_drops_tokens_by_their_value(monkeypatch: pytest.MonkeyPatch) -> None:
    # Negative control for the lookahead: the token that triggers the stop must be kept.
    target, drafter = make_pair()
    append = loop_module.propose

    def dropping(batch):  # type: ignore[no-untyped-def]
        draft = append(batch)
        for i, ids in enumerate(draft.token_ids):
            if len(ids) == 1 and ids[0] == 1:  # "b" is never proposed on its own
                batch.proposer._contexts._tokens[batch.active[i].index].pop()
                ids.clear()
        counts = [len(ids) for ids in draft.token_ids]
        if not any(counts):
            return Draft(draft.token_ids)
        rows = [i for i, ids in enumerate(draft.token_ids) if ids]
        return Draft(draft.token_ids, draft.logits[rows], draft.stats[rows], draft.target_to_draft_ids)

    monkeypatch.setattr(loop_module, "propose", dropping)
    decoder = SpeculativeDecoder(target, drafter, lookahead=1)
    assert departs(counts_of(decoder, [0, 2], length=2, trials=4000), exact_law(target.law, (0, 2), 5, 2))


def test_plain_decoding_draws_each_position_with_its_own_resample_stream() -> None:
    target, _ = make_pair()
    result = SpeculativeDecoder(target, method="none").generate([0, 2], max_new_tokens=6, seed=11)
    context = [0, 2]
    for _ in range(6):
        edges = np.cumsum(target.law(tuple(context)))
        context.append(int(np.searchsorted(edges, uniform(11, len(context), Stream.RESAMPLE) * edges[-1], "right")))
    assert list(result.token_ids) == context[2:]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_batch_gives_every_request_what_it_gets_alone(temperature: float) -> None:
    target, drafter = make_pair()
    prompts = [[0, 2], [1], [4, 4, 3, 0, 1], [2, 2, 2]]
    decoder = SpeculativeDecoder(target, drafter, lookahead=ConfidenceLookahead(0.5, 4))
    together = decoder.generate(prompts, max_new_tokens=9, temperature=temperature, seed=[5, 6, 7, 8])
    for prompt, seed, result in zip(prompts, [5, 6, 7, 8], together, strict=True):
        alone = decoder.generate(prompt, max_new_tokens=9, temperature=temperature, seed=seed)
        assert (alone.token_ids, alone.text) == (result.token_ids, result.text)
        assert alone.stats == result.stats


def test_greedy_output_is_the_plain_one_at_any_lookahead() -> None:
    target = LawTarget(law_of_context(5, 3), CHARACTERS)
    drafter = agreeing_drafter(target)
    plain = SpeculativeDecoder(target, method="none").generate("ab", max_new_tokens=12, temperature=0)
    for lookahead in (0, 1, 3, 7, ConfidenceLookahead(0.4, 5)):
        decoder = SpeculativeDecoder(target, drafter, lookahead=lookahead)
        assert decoder.generate("ab", max_new_tokens=12, temperature=0).token_ids == plain.token_ids


def test_greedy_and_sampled_requests_mix_in_one_batch() -> None:
    target, drafter = make_pair()
    decoder = SpeculativeDecoder(target, drafter, lookahead=2)
    mixed = decoder.generate([[0], [0], [0]], max_new_tokens=8, temperature=[0.0, 0.8, 0.0], top_k=[0, 3, 0], seed=4)
    greedy = decoder.generate([0], max_new_tokens=8, temperature=0.0)
    sampled = decoder.generate([0], max_new_tokens=8, temperature=0.8, top_k=3, seed=4)
    assert [result.token_ids for result in mixed] == [greedy.token_ids, sampled.token_ids, greedy.token_ids]


def test_sampling_is_not_argmax() -> None:
    # cases.md 14: the speculative path returned the argmax.
    target = LawTarget(lambda context: np.array([0.5, 0.3, 0.2]), "abc")
    drafter = LawDrafter(lambda context: np.array([0.2, 0.8]), make_map([b"a", b"c"], "abc"))
    results = SpeculativeDecoder(target, drafter, lookahead=2).generate(
        [[0]] * 100, max_new_tokens=3, seed=[*range(100)]
    )
    assert {token_id for result in results for token_id in result.token_ids} == {0, 1, 2}


def test_a_seed_is_obeyed() -> None:
    # cases.md 55: the seed was ignored.
    decoder = SpeculativeDecoder(*make_pair(), lookahead=2)
    first = decoder.generate([0], max_new_tokens=20, seed=1).token_ids
    torch.manual_seed(99)
    assert decoder.generate([0], max_new_tokens=20, seed=1).token_ids == first
    assert decoder.generate([0], max_new_tokens=20, seed=2).token_ids != first
    assert decoder.generate([0], max_new_tokens=20).token_ids != decoder.generate([0], max_new_tokens=20).token_ids


def test_a_seeded_request_keeps_its_output_beside_an_unseeded_one() -> None:
    # cases.md 56: mixing seeded and unseeded rows broke both.
    decoder = SpeculativeDecoder(*make_pair(), lookahead=2)
    mixed = decoder.generate([[0], [0], [0]], max_new_tokens=20, seed=[1, None, None])
    assert mixed[0].token_ids == decoder.generate([0], max_new_tokens=20, seed=1).token_ids
    assert len({result.token_ids for result in mixed}) == 3


def test_acceptance_is_the_overlap_of_the_laws() -> None:
    # cases.md 42: target [.4 .3 .2 .1] over abcd, drafter [a .5, b .2, x .3]: draft law [.714 .286], overlap .686.
    target = LawTarget(lambda context: np.array([0.4, 0.3, 0.2, 0.1]), "abcd")
    drafter = LawDrafter(lambda context: np.array([0.5, 0.2, 0.3]), make_map([b"a", b"b", b"x"], "abcd"))
    decoder = SpeculativeDecoder(target, drafter, lookahead=1)
    results = decoder.generate([[0]] * 1500, max_new_tokens=2, seed=list(range(1500)))
    first, rate = Counter(result.token_ids[0] for result in results), 0.4 + 0.2 / 0.7
    assert not departs([first[i] for i in range(4)], [0.4, 0.3, 0.2, 0.1])
    assert not departs([decoder.stats.accepted, decoder.stats.proposed - decoder.stats.accepted], [rate, 1 - rate])


def test_a_token_outside_the_intersection_is_spelt_for_the_drafter() -> None:
    # cases.md 42: such a token became UNK, or EOS, in the drafter's context.
    target = LawTarget(law_of_context(5, 1), CHARACTERS)
    target.token_bytes[2] = b"ad"
    vocab_map = VocabMap.from_bytes(target.token_bytes, [*DRAFT_TOKENS, None, None], draft_roles={"unk": 4, "eos": 5})
    drafter = LawDrafter(law_of_context(6, 2), vocab_map)
    prompt, letters = [2, 0, 4, 2], {0: [1], 1: [0], 2: [1, 3], 3: [3], 4: []}
    decoder = SpeculativeDecoder(target, drafter, lookahead=2)
    stream = decoder.pieces([prompt], max_new_tokens=30, seed=3)
    emitted: list[int] = []
    for piece in stream:
        if piece.finish_reason is not None:
            break
        emitted += piece.token_ids
        fed = drafter.opened[0].tokens[0]
        expected = [piece for token_id in prompt + emitted for piece in letters[token_id]]
        assert fed == expected[: len(fed)]
    assert 2 in emitted


def test_the_drafter_is_cut_back_to_what_was_accepted() -> None:
    target, drafter = make_pair()
    decoder = SpeculativeDecoder(target, drafter, lookahead=3)
    for piece in decoder.pieces([[0, 2]], max_new_tokens=25, seed=3):
        if piece.finish_reason is None:
            (opened,) = target.opened
            # All but the newest token is in the target's cache, nothing that was rejected is.
            assert len(opened.tokens[0]) == 2 + decoder.stats.tokens - 1


def test_no_lookahead_leaves_the_drafter_alone() -> None:
    target, drafter = make_pair()
    decoder = SpeculativeDecoder(target, drafter, lookahead=0)
    plain = SpeculativeDecoder(target, method="none").generate([0], max_new_tokens=10, seed=5)
    assert decoder.generate([0], max_new_tokens=10, seed=5).token_ids == plain.token_ids
    assert drafter.opened == []
    assert (decoder.stats.drafter_calls, decoder.stats.proposed, decoder.stats.target_calls) == (0, 0, 10)
    assert decoder.stats.acceptance_rate == 0.0


class SomeRounds(FixedLookahead):
    """Drafts in every third round only, and records what it is told."""

    def __init__(self) -> None:
        super().__init__(2)
        self.round: Counter[int] = Counter()
        self.observed: list[tuple[int, int, int]] = []

    def length(self, request: int) -> int:
        self.round[request] += 1
        return 2 if self.round[request] % 3 == 0 else 0

    def observe(self, request: int, num_draft_tokens: int, num_accepted_tokens: int) -> None:
        self.observed.append((request, num_draft_tokens, num_accepted_tokens))


def test_a_drafter_that_sat_out_catches_up() -> None:
    target, drafter = make_pair()
    lookahead = SomeRounds()
    decoder = SpeculativeDecoder(target, drafter, lookahead=lookahead)
    decoder.generate([0], max_new_tokens=12, seed=5)
    assert [drafted for _, drafted, _ in lookahead.observed[:6]] == [0, 0, 2, 0, 0, 2]
    assert decoder.stats.drafter_calls == sum(drafted for _, drafted, _ in lookahead.observed)


class Recording(ConfidenceLookahead):
    def __init__(self, threshold: float, max_draft_tokens: int) -> None:
        super().__init__(threshold, max_draft_tokens)
        self.probs: list[list[float]] = []

    def wants_more(self, drafted: DraftedToken) -> bool:
        if drafted.depth == 0:
            self.probs.append([])
        self.probs[-1].append(drafted.prob)
        return super().wants_more(drafted)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_confidence_is_the_drafters_probability_and_the_last_token_is_kept(temperature: float) -> None:
    target, drafter = make_pair()
    lookahead = Recording(0.5, 4)
    decoder = SpeculativeDecoder(target, drafter, lookahead=lookahead)
    decoder.generate([0, 2], max_new_tokens=60, temperature=temperature, seed=2)
    # Every token that was asked about was verified, the one that ended its draft included.
    assert decoder.stats.proposed >= sum(len(probs) for probs in lookahead.probs)
    assert any(probs[-1] < 0.5 for probs in lookahead.probs)
    for probs in lookahead.probs:
        assert all(prob >= 0.5 for prob in probs[:-1])
    # At temperature 0 the law drawn from gives its token probability 1; the policy must see the one at temperature 1.
    law = drafter.law((1,))[[0, 1, 3]]
    if temperature == 0.0:
        assert lookahead.probs[0][0] == pytest.approx(law.max() / law.sum(), rel=1e-5)


def test_requests_stop_drafting_one_by_one() -> None:
    target, drafter = make_pair()
    decoder = SpeculativeDecoder(target, drafter, lookahead=ConfidenceLookahead(0.5, 4))
    decoder.generate([[0], [1], [2], [3]], max_new_tokens=10, seed=1)
    widths = {len(call) for call in drafter.opened[0].calls}
    assert {1, 4} <= widths


def test_end_of_text_inside_a_draft_discards_what_follows() -> None:
    target = LawTarget(
        lambda context: np.array([0.0, 0.0, 1.0]) if context[-1] == 1 else np.array([0.0, 1.0, 0.0]), "ab_", [2]
    )
    vocab_map = VocabMap.from_bytes(
        [b"a", b"b", None], [b"b", None, b"a"], target_roles={"eos": 2}, draft_roles={"eos": 1}
    )
    drafter = LawDrafter(lambda context: np.array([0.45, 0.45, 0.1]), vocab_map)
    decoder = SpeculativeDecoder(target, drafter, lookahead=4)
    for seed in range(20):
        result = decoder.generate("a", max_new_tokens=10, seed=seed)
        assert (result.token_ids, result.text, result.finish_reason) == ((1, 2), "b", "eos")
    # The drafter does propose EOS, and drafts nothing behind it.
    assert decoder.generate([[0]] * 20, max_new_tokens=10, seed=list(range(20)))
    assert any(request.accepted == 2 for request in decoder.stats.requests)


def test_tokens_after_an_accepted_end_of_text_are_not_emitted() -> None:
    # A drafter protocol of another make may go on after EOS; here the target accepts all of it.
    target = LawTarget(lambda context: np.array([0.0, 1.0]) if len(context) == 2 else np.array([1.0, 0.0]), "a_", [1])
    vocab_map = VocabMap.from_bytes([b"a", None], [b"a", None], target_roles={"eos": 1}, draft_roles={"eos": 1})
    decoder = SpeculativeDecoder(target, LawDrafter(target.law, vocab_map), lookahead=6)
    result = decoder.generate("a", max_new_tokens=10, temperature=0)
    assert (result.token_ids, result.text, result.finish_reason) == ((0, 1), "a", "eos")
    assert (decoder.stats.tokens, decoder.stats.proposed, decoder.stats.accepted) == (2, 2, 2)


def test_a_draft_longer_than_the_drafters_window_is_cut_to_it() -> None:
    target, other = make_pair()
    drafter = LawDrafter(other.law, other.vocab_map, max_length=8)
    decoder = SpeculativeDecoder(target, drafter, lookahead=10**8)
    result = decoder.generate([0, 1], max_new_tokens=20, temperature=0)
    assert (
        result.token_ids
        == SpeculativeDecoder(target, method="none").generate([0, 1], max_new_tokens=20, temperature=0).token_ids
    )
    assert 0 < decoder.stats.proposed <= 4 * decoder.stats.target_calls


@pytest.mark.parametrize("top_k", [2**31, [2**40, 3]])
def test_a_top_k_beyond_int32_is_off(top_k: int | list[int]) -> None:
    decoder = SpeculativeDecoder(*make_pair(), lookahead=2)
    results = decoder.generate([[0], [0]], max_new_tokens=8, seed=5, top_k=top_k)
    assert results[0].token_ids == decoder.generate([0], max_new_tokens=8, seed=5).token_ids


def spelling(text: str, characters: str) -> tuple[LawTarget, LawDrafter]:
    """A target that writes a fixed text, and a drafter that knows it by heart."""

    def law(context: tuple[int, ...]) -> np.ndarray:
        probs = np.zeros(len(characters))
        probs[characters.index(text[len(context) % len(text)])] = 1.0
        return probs

    target = LawTarget(law, characters)
    return target, LawDrafter(law, make_map([character.encode() for character in characters], characters))


@pytest.mark.parametrize("lookahead", [0, 2, 5])
def test_a_stop_string_across_tokens_and_rounds_ends_the_text(lookahead: int) -> None:
    decoder = SpeculativeDecoder(*spelling("abcabd", "abcd"), lookahead=lookahead)
    result = decoder.generate("a", max_new_tokens=30, seed=1, stop=["abd", "ddd"])
    assert (result.text, result.finish_reason) == ("bc", "stop")
    assert result.token_ids == (1, 2, 0, 1, 3)
    pieces = list(decoder.stream("a", max_new_tokens=30, seed=1, stop="abd"))
    assert "".join(pieces) == "bc"


@pytest.mark.parametrize("lookahead", [0, 1, 4, 9])
@pytest.mark.parametrize("max_new_tokens", [1, 2, 5, 11])
def test_the_number_of_tokens_is_exact(lookahead: int, max_new_tokens: int) -> None:
    decoder = SpeculativeDecoder(*spelling("abcabd", "abcd"), lookahead=lookahead)
    result = decoder.generate("a", max_new_tokens=max_new_tokens, temperature=0)
    assert result.text == "bcabdabcabd"[:max_new_tokens]
    assert (len(result.token_ids), result.finish_reason) == (max_new_tokens, "length")
    assert decoder.stats.tokens == max_new_tokens
    if lookahead:
        rounds = -(-max_new_tokens // (lookahead + 1))
        assert (decoder.stats.target_calls, decoder.stats.acceptance_rate) == (rounds, float(max_new_tokens > 1))
        assert decoder.stats.acceptance_length == max_new_tokens / rounds


def test_finished_requests_leave_the_batch() -> None:
    target = LawTarget(lambda context: np.array([0.0, 1.0]) if len(context) >= 6 else np.array([1.0, 0.0]), "a_", [1])
    vocab_map = VocabMap.from_bytes([b"a", None], [b"a"])
    drafter = LawDrafter(lambda context: np.array([1.0]), vocab_map)
    decoder = SpeculativeDecoder(target, drafter, lookahead=1)
    results = decoder.generate(["a", "aaaaa", "aaa"], max_new_tokens=10, temperature=0)
    assert [len(result.token_ids) for result in results] == [6, 2, 4]
    assert target.opened[0].calls == [[0, 1, 2], [0, 2], [0]]
    assert target.opened[0].tokens == drafter.opened[0].tokens == {}


def test_a_batch_streams_pieces_that_name_their_request() -> None:
    decoder = SpeculativeDecoder(*make_pair(), lookahead=2)
    texts, reasons = ["", ""], []
    for piece in decoder.stream(["ab", "e"], max_new_tokens=7, seed=2):
        texts[piece.request] += piece.text
        reasons += [piece.finish_reason] if piece.finish_reason else []
    assert texts == [decoder.generate(prompt, max_new_tokens=7, seed=2).text for prompt in ("ab", "e")]
    assert reasons == ["length", "length"]


def test_an_empty_batch_gives_nothing() -> None:
    # cases.md 63.
    decoder = SpeculativeDecoder(*make_pair())
    assert decoder.generate([]) == []
    assert decoder.stats.target_calls == 0


def test_disjoint_supports_reject_every_draft_and_still_follow_the_target() -> None:
    # cases.md 66: all drafts rejected.
    target = LawTarget(lambda context: np.array([0.0, 0.0, 0.5, 0.5]), "abcd")
    drafter = LawDrafter(lambda context: np.array([0.5, 0.5]), make_map([b"a", b"b"], "abcd"))
    decoder = SpeculativeDecoder(target, drafter, lookahead=3)
    results = decoder.generate([[0]] * 300, max_new_tokens=4, seed=list(range(300)))
    counted = Counter(token_id for result in results for token_id in result.token_ids)
    assert not departs([counted[i] for i in range(4)], [0.0, 0.0, 0.5, 0.5])
    assert decoder.stats.accepted == 0
    assert decoder.stats.acceptance_length == 1.0


def test_truncation_applies_to_the_drafter_too_unless_told_otherwise() -> None:
    # cases.md 19: a draft outside the target's truncated set is always rejected.
    target = LawTarget(lambda context: np.array([0.4, 0.3, 0.3]), "abc")
    drafter = LawDrafter(lambda context: np.array([0.4, 0.3, 0.3]), make_map([b"a", b"b", b"c"], "abc"))
    decoder = SpeculativeDecoder(target, drafter, lookahead=2)
    decoder.generate([[0]] * 50, max_new_tokens=6, top_k=1, seed=list(range(50)))
    assert decoder.stats.acceptance_rate == 1.0
    results = decoder.generate([[0]] * 50, max_new_tokens=6, top_k=1, seed=list(range(50)), draft_sampling=Sampling())
    assert decoder.stats.acceptance_rate < 0.8
    assert {result.token_ids for result in results} == {(0,) * 6}


def test_a_request_whose_target_row_is_nan_ends_with_an_error_and_alone() -> None:
    def law(context: tuple[int, ...]) -> np.ndarray:
        return np.full(3, np.nan) if context[0] == 2 and len(context) == 4 else np.array([0.5, 0.3, 0.2])

    target = LawTarget(law, "abc")
    drafter = LawDrafter(lambda context: np.array([0.5, 0.5]), make_map([b"a", b"b"], "abc"))
    decoder = SpeculativeDecoder(target, drafter, lookahead=1)
    results = decoder.generate([[0], [2], [1]], max_new_tokens=8, seed=[1, 2, 3])
    assert [result.finish_reason for result in results] == ["length", "error", "length"]
    assert len(results[1].token_ids) <= 3
    assert results[0].token_ids == decoder.generate([0], max_new_tokens=8, seed=1).token_ids


def test_a_drafter_row_without_a_law_proposes_nothing() -> None:
    # The drafter puts all its mass outside the intersection after "b".
    target = LawTarget(lambda context: np.array([0.5, 0.5]), "ab")
    vocab_map = make_map([b"a", b"b", b"x"], "ab")
    drafter = LawDrafter(lambda c: np.array([0.0, 0.0, 1.0]) if c[-1] == 1 else np.array([0.2, 0.8, 0.0]), vocab_map)
    decoder = SpeculativeDecoder(target, drafter, lookahead=3)
    results = decoder.generate([[0]] * 400, max_new_tokens=3, seed=list(range(400)))
    counted = Counter(result.token_ids for result in results)
    assert not departs([counted[ids] for ids in product(range(2), repeat=3)], [0.125] * 8)
    assert decoder.stats.proposed < 3 * decoder.stats.target_steps


def test_a_drafter_whose_window_is_full_goes_on_with_the_newest_tokens() -> None:
    target, drafter = make_pair()
    drafter.max_length = 9
    decoder = SpeculativeDecoder(target, drafter, lookahead=3)
    longest = 0
    for _ in decoder.pieces([[0, 1, 3, 0, 1]], max_new_tokens=40, seed=1):
        longest = max([longest, *map(len, drafter.opened[0].tokens.values())])
    # The last token of a draft is never fed.
    assert longest == 8
    assert decoder.stats.accepted > 0
    counts = counts_of(decoder, [0, 1, 3, 0, 1, 0, 1, 3], length=2, trials=2000)
    assert not departs(counts, exact_law(target.law, (0, 1, 3, 0, 1, 0, 1, 3), 5, 2))


def test_a_prompt_that_the_drafter_cannot_read_is_decoded_plainly() -> None:
    target, drafter = make_pair()
    decoder = SpeculativeDecoder(target, drafter, lookahead=2)
    result = decoder.generate([4, 2], max_new_tokens=4, seed=1)  # "e" and "c" have no spelling
    assert len(result.token_ids) == 4


def test_statistics_add_up() -> None:
    decoder = SpeculativeDecoder(*make_pair(), lookahead=2)
    results = decoder.generate([[0], [1, 2]], max_new_tokens=12, seed=1)
    stats = decoder.stats
    assert [result.stats for result in results] == stats.requests
    for name in ("tokens", "proposed", "accepted", "target_steps", "prompt_tokens"):
        assert getattr(stats, name) == sum(getattr(request, name) for request in stats.requests)
    assert stats.tokens == stats.accepted + stats.target_steps == 24
    assert stats.seconds >= stats.seconds_drafter + stats.seconds_target + stats.seconds_ops > 0.0
    written = stats.as_dict()
    assert written["acceptance_rate"] == stats.accepted / stats.proposed
    assert written["tokens_per_second"] == pytest.approx(24 / stats.seconds)
    assert len(written["requests"]) == 2  # type: ignore[arg-type]


def test_rows_of_ragged_drafts_are_packed_in_order() -> None:
    rows = torch.arange(4 * 3).reshape(4, 3, 1).float()
    assert packed(rows.clone(), [3, 1, 0, 2]).flatten().tolist() == [0, 1, 2, 3, 9, 10]
    assert packed(rows.clone(), [2, 3, 3, 1]).flatten().tolist() == [0, 1, 3, 4, 5, 6, 7, 8, 9]
    full = rows.clone()
    assert packed(full, [3, 3, 3, 3]).data_ptr() == full.data_ptr()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens must be at least 1, got 0"),
        ({"temperature": -1.0}, "temperature must be a finite number of at least 0, got -1.0"),
        ({"temperature": float("nan")}, "temperature must be a finite number"),
        ({"top_k": -2}, "top_k must be at least 0"),
        ({"top_p": 0.0}, r"top_p must be in \(0, 1\], got 0.0"),
        ({"min_p": 1.5}, r"min_p must be in \[0, 1\], got 1.5"),
        ({"temperature": [1.0, 1.0]}, "temperature must be one value or 1 of them, got 2"),
        ({"seed": [1, 2]}, "seed must be one value or 1 of them, got 2"),
        ({"stop": ""}, "stop: strings must not be empty"),
    ],
)
def test_a_bad_argument_is_refused_before_any_work(arguments: dict[str, object], message: str) -> None:
    target, drafter = make_pair()
    decoder = SpeculativeDecoder(target, drafter)
    with pytest.raises(ValueError, match=message):
        decoder.stream("a", **arguments)
    assert target.opened == []


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("", "prompt must hold at least one token, got none"),
        ([[]], "prompt must hold at least one token, got none"),
        ([5], r"prompt must hold ids in \[0, 5\), got 5..5"),
        ([0, -1], "got -1..0"),
    ],
)
def test_a_bad_prompt_is_refused(prompt: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SpeculativeDecoder(*make_pair()).stream(prompt)


def test_a_prompt_that_cannot_fit_is_refused() -> None:
    target, drafter = make_pair()
    target.max_length = 10
    decoder = SpeculativeDecoder(target, drafter)
    with pytest.raises(ValueError, match=r"must fit the target's 10 positions, got 3 \+ 8"):
        decoder.stream("aba", max_new_tokens=8)
    assert len(decoder.generate("aba", max_new_tokens=7, seed=1).token_ids) == 7


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"method": "best"}, ValueError, "method must be one of tli, .*, none, got 'best'"),
        ({"rule": "best"}, ValueError, "rule must be one of token, block, got 'best'"),
        ({"drafter": None}, ValueError, "drafter must be given"),
        ({"drafter": 3}, TypeError, "drafter must be a loaded model"),
        ({"target": 3}, TypeError, "target must be a loaded model"),
        ({"vocab_map": 3}, ValueError, "vocab_map must be None for a Drafter"),
    ],
)
def test_a_decoder_that_cannot_be_is_refused(
    arguments: dict[str, object], error: type[Exception], message: str
) -> None:
    target, drafter = make_pair()
    with pytest.raises(error, match=message):
        SpeculativeDecoder(**{"target": target, "drafter": drafter, **arguments})


def test_maps_of_another_size_are_refused() -> None:
    target, _ = make_pair()
    drafter = LawDrafter(law_of_context(4, 2), make_map(DRAFT_TOKENS, "abcd"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"target_to_draft_ids must be of shape \(5,\), got \(4,\)"):
        SpeculativeDecoder(target, drafter)


def test_sequences_of_the_toy_catch_a_placeholder() -> None:
    # cases.md 47: the engines of these tests refuse a -1, so any of them would have shown one.
    with pytest.raises(AssertionError):
        LawSequences(law_of_context(3, 1), 1).feed([0], [[-1]], [1])
