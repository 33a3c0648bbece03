# SPDX-License-Identifier: Apache-2.0
"""Method "auto" in the loop: engines that are plain laws, and a clock that only their calls move."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from torch import Tensor

from hetero_spec.decoding import SpeculativeDecoder
from hetero_spec.decoding import controller as controller_module
from hetero_spec.decoding.auto import AutoProposer
from hetero_spec.decoding.controller import NO_DRAFT, Choice, Controller, Round, Situation, Text
from hetero_spec.decoding.proposers import Draft
from tests.decoding.pairs import CHARACTERS, agreeing_drafter, counts_of, exact_law, make_map, make_pair
from tests.decoding.toys import LawDrafter, LawSequences, LawTarget, law_of_context
from tests.tools.chi_square import departs

# With these a drafter lacks nothing: it knows the target's law everywhere.
ALL_LETTERS: list[bytes | None] = [b"e", b"b", b"a", b"d", b"c"]


class Clock:
    """Seconds that have been spent on purpose."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class TimedSequences(LawSequences):
    def __init__(self, sequences: LawSequences, clock: Clock, first: float, each: float) -> None:
        super().__init__(sequences.law, 0)
        self.tokens, self.clock, self.first, self.each = sequences.tokens, clock, first, each
        self.fed: list[int] = []

    def feed(self, requests: Sequence[int], token_ids: Sequence[Sequence[int]], num_rows: Sequence[int]) -> Tensor:
        self.clock.now += self.first + self.each * max(len(ids) for ids in token_ids)
        self.fed.append(max(len(ids) for ids in token_ids))
        return super().feed(requests, token_ids, num_rows)


def timed(engine: LawTarget | LawDrafter, clock: Clock, first: float, each: float) -> list[TimedSequences]:
    """Let an engine's calls take time; return its sequences as they are opened."""
    opened: list[TimedSequences] = []
    open_plainly = engine.open

    def open_timed(num_requests: int, max_length: int) -> LawSequences:
        opened.append(TimedSequences(open_plainly(num_requests, max_length), clock, first, each))
        return opened[-1]

    engine.open = open_timed  # type: ignore[method-assign]
    return opened


def hopeless_drafter() -> LawDrafter:
    return LawDrafter(lambda context: np.array([0.0, 0.0, 0.0, 1.0]), make_map())


def make_decoder(
    drafter: LawDrafter | None, target: LawTarget, methods: Sequence[str] = ("tli", "ngram"), **arguments: object
) -> tuple[SpeculativeDecoder, Clock, list[TimedSequences], list[TimedSequences]]:
    clock = Clock()
    looks = timed(target, clock, 0.95, 0.05)
    steps = [] if drafter is None else timed(drafter, clock, 0.08, 0.002)
    controller = Controller(methods, clock=clock)
    decoder = SpeculativeDecoder(target, drafter, "auto", 6, controller=controller, **arguments)  # type: ignore[arg-type]
    return decoder, clock, looks, steps


def sharp_target() -> LawTarget:
    """A target that is mostly sure of itself, so that a drafter that agrees is nearly always accepted."""
    law = law_of_context(5, 9)

    def sharp(context: tuple[int, ...]) -> np.ndarray:
        probs = law(context) ** 6
        return np.asarray(probs / probs.sum())

    return LawTarget(sharp, CHARACTERS)


def seconds_per_token(decoder: SpeculativeDecoder, clock: Clock, **arguments: object) -> float:
    start = clock.now
    result = decoder.generate([0, 1, 2], **arguments)  # type: ignore[call-overload]
    return (clock.now - start) / len(result.token_ids)


def test_a_good_drafter_is_used_and_a_hopeless_one_is_not() -> None:
    arguments = {"max_new_tokens": 400, "seed": 3}
    target = sharp_target()
    plain, clock, *_ = make_decoder(None, target, ())
    plain_seconds = seconds_per_token(plain, clock, **arguments)
    good = agreeing_drafter(sharp_target(), ALL_LETTERS)
    decoder, clock, _, _ = make_decoder(good, sharp_target(), ("tli",))
    assert seconds_per_token(decoder, clock, **arguments) < 0.6 * plain_seconds
    assert decoder.stats.rounds_by_method["tli"] > 10 * decoder.stats.rounds_by_method["none"]
    never_d = LawTarget(lambda context: np.array([0.5, 0.5, 0.0, 0.0, 0.0]), CHARACTERS)
    decoder, clock, _, steps = make_decoder(hopeless_drafter(), never_d, ("tli",))
    assert seconds_per_token(decoder, clock, max_new_tokens=1500, seed=3) < plain_seconds / 0.98
    assert decoder.stats.rounds_by_method["none"] > 10 * decoder.stats.rounds_by_method["tli"]
    # Plain rounds leave the drafter alone; when it is asked again it catches up in one call.
    assert len(steps[0].fed) == decoder.stats.drafter_calls < 150
    assert max(steps[0].fed) > 10


def test_a_text_without_a_drafter_still_has_its_n_grams() -> None:
    target = LawTarget(lambda context: np.eye(5)[(context[-1] + 1) % 5], CHARACTERS)
    decoder, clock, _, _ = make_decoder(None, target, ("ngram",))
    assert decoder.controller is not None
    assert decoder.controller.methods == ("ngram",)
    assert seconds_per_token(decoder, clock, max_new_tokens=200, temperature=0) < 0.3
    assert set(decoder.stats.rounds_by_method) == {"ngram", "none"}


@pytest.mark.parametrize(("temperature", "verify"), [(0.0, "rejection"), (0.0, "exact"), (0.9, "exact")])
def test_switching_does_not_change_the_text(temperature: float, verify: str) -> None:
    target, _ = make_pair()
    arguments = {"max_new_tokens": 120, "temperature": temperature, "seed": [1, 2, 3]}
    prompts = [[0, 2], [1], [4, 4, 3, 0, 1]]
    plain = SpeculativeDecoder(target, method="none").generate(prompts, **arguments)
    decoder, *_ = make_decoder(agreeing_drafter(target), make_pair()[0], verify=verify)
    for _ in range(2):
        results = decoder.generate(prompts, **arguments)
        assert [result.token_ids for result in results] == [result.token_ids for result in plain]
        assert len(decoder.stats.rounds_by_method) > 1
        assert decoder.stats.accepted > 0


def test_the_law_of_the_output_is_the_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    # Let so short texts put something at stake.
    monkeypatch.setattr(controller_module, "_SHARE_AT_RISK", 1.0)
    target, _ = make_pair()
    clock = Clock()
    timed(target, clock, 0.95, 0.05)
    # A drafter that knows the target's law, but warmer.
    drafter = agreeing_drafter(LawTarget(lambda context: _warmer(make_pair()[0].law(context)), CHARACTERS), ALL_LETTERS)
    timed(drafter, clock, 0.08, 0.01)
    controller = Controller(("tli", "ngram"), clock=clock)
    decoder = SpeculativeDecoder(target, drafter, "auto", 3, controller=controller)
    counts = counts_of(decoder, [0, 2, 1, 0, 2], length=4, trials=4000)
    assert not departs(counts, exact_law(target.law, (0, 2, 1, 0, 2), 5, 4))
    assert 0 < decoder.stats.accepted < decoder.stats.proposed


def test_the_law_test_rejects_a_choice_made_by_what_was_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    # Negative control: drafts that do not please are taken back, and the target goes on alone.
    monkeypatch.setattr(controller_module, "_SHARE_AT_RISK", 1.0)
    target, _ = make_pair()
    likeliest = int(target.law((0, 2)).argmax())
    propose = AutoProposer.propose

    def choosy(self, requests, lengths):  # type: ignore[no-untyped-def]
        draft = propose(self, requests, lengths)
        if draft.logits is None:
            return draft
        owners = [ids for ids in draft.token_ids for _ in ids]
        kept = [row for row, ids in enumerate(owners) if ids[0] != likeliest]
        token_ids = [[] if ids[:1] == [likeliest] else ids for ids in draft.token_ids]
        return Draft(token_ids, draft.logits[kept], draft.stats[kept], draft.target_to_draft_ids)

    monkeypatch.setattr(AutoProposer, "propose", choosy)
    decoder, *_ = make_decoder(agreeing_drafter(target, ALL_LETTERS), target, ("tli",))
    counts = counts_of(decoder, [0, 2], length=3, trials=4000)
    assert departs(counts, exact_law(target.law, (0, 2), 5, 3))


def _warmer(probs: np.ndarray) -> np.ndarray:
    return np.asarray(probs**0.5 / (probs**0.5).sum())


class Scripted(Controller):
    """Plans what it is told, and remembers what it was told of it and when."""

    def __init__(self, plans: Sequence[Choice]) -> None:
        super().__init__(("tli", "ngram"), clock=Clock())
        self.plans = list(plans)
        self.situations: list[Situation] = []
        self.outcomes: list[tuple[int, Round]] = []
        self.lengths: list[float] = []
        self.watched: list[tuple[float, int, bool]] = []
        self.rests: list[int] = []

    def plan(self, situation: Situation) -> Choice:
        self.situations.append(situation)
        return self.plans.pop(0) if self.plans else NO_DRAFT

    def observe(self, outcome: Round) -> None:
        self.outcomes.append((len(self.situations), outcome))

    def end(self, num_tokens: float) -> None:
        self.lengths.append(num_tokens)

    def rested(self, text: Text, num_rounds: int) -> None:
        self.rests.append(num_rounds)

    def watch(self, text: Text, key: str, confidence: float, depth: int, is_kept: bool) -> None:
        self.watched.append((round(confidence, 2), depth, is_kept))


def test_a_round_is_learnt_from_only_when_its_positions_have_been_passed() -> None:
    """What was drawn behind a rejected token used random numbers that will be used again."""
    target, _ = make_pair()
    controller = Scripted([Choice("tli", 4)])
    decoder = SpeculativeDecoder(target, hopeless_drafter(), "auto", 6, controller=controller)
    seed = next(
        seed
        for seed in range(50)
        if decoder.generate([0, 2], max_new_tokens=1, seed=seed).token_ids != (3,)  # "d" is what it drafts
    )
    controller.__init__([Choice("tli", 4)])  # type: ignore[misc]
    decoder.generate([0, 2], max_new_tokens=9, seed=seed)
    planned, drafted = next(pair for pair in controller.outcomes if pair[1].choice.method == "tli")
    assert (list(drafted.counts), list(drafted.accepted)) == ([4], [0])
    # Four positions were drafted for, of which the round settled one: three plain rounds later it is learnt from.
    assert planned == 4
    plain = [at for at, outcome in controller.outcomes if outcome.choice.method == "none"]
    assert plain[0] == 2 or min(plain) <= 3


def test_a_greedy_round_is_learnt_from_at_once() -> None:
    """Where no random numbers are drawn there are none to be used again."""
    controller = Scripted([Choice("tli", 4)])
    decoder = SpeculativeDecoder(make_pair()[0], hopeless_drafter(), "auto", 6, controller=controller)
    decoder.generate([0, 2], max_new_tokens=9, temperature=0)
    planned, drafted = controller.outcomes[0]
    assert (planned, drafted.choice.method, list(drafted.counts)) == (1, "tli", [4])


def test_the_last_rounds_of_a_text_are_learnt_from_when_it_ends() -> None:
    controller = Scripted([Choice("tli", 3)] * 20)
    decoder = SpeculativeDecoder(*make_pair(), "auto", 6, controller=controller)
    results = decoder.generate([[0, 2], [1]], max_new_tokens=9, seed=1)
    assert len(controller.outcomes) == len(controller.situations)
    assert sum(len(outcome.counts) == 2 for _, outcome in controller.outcomes) > 1
    assert controller.lengths == [9.0, 9.0] == [float(len(result.token_ids)) for result in results]


def test_a_target_that_breaks_down_says_nothing_of_how_long_texts_are() -> None:
    controller = Scripted([])
    broken = LawTarget(lambda context: np.full(5, np.nan if len(context) > 3 else 0.2), CHARACTERS)
    decoder = SpeculativeDecoder(broken, make_pair()[1], "auto", 6, controller=controller)
    results = decoder.generate([[0, 1], [2]], max_new_tokens=2, seed=1)
    assert [result.finish_reason for result in results] == ["length", "length"]
    results = decoder.generate([[0, 1], [2]], max_new_tokens=9, seed=1)
    assert [result.finish_reason for result in results] == ["error", "error"]
    assert controller.lengths == [2.0, 2.0]


def test_the_controller_is_told_how_sure_n_grams_are_in_each_text() -> None:
    controller = Scripted([NO_DRAFT, Choice("ngram", 4)])
    target = LawTarget(lambda context: np.eye(5)[(context[-1] + 1) % 5], CHARACTERS)
    decoder = SpeculativeDecoder(target, make_pair()[1], "auto", 6, controller=controller)
    decoder.generate([[0, 1, 2, 3, 4, 0, 1, 2], [0, 1]], max_new_tokens=4, temperature=0)
    assert [situation.confidences[1] for situation in controller.situations[:2]] == [0.0, 0.0]
    first, second = (situation.confidences[0] for situation in controller.situations[:2])
    assert 0.5 < first < second < 1.0
    _, drafted = next(pair for pair in controller.outcomes if pair[1].choice.method == "ngram")
    assert list(drafted.counts) == [2, 0]
    assert decoder.stats.rounds_by_method["ngram"] == 1


@pytest.mark.parametrize(
    ("plans", "places"),
    [
        ([], range(13)),
        # Where a draft is kept, the places inside it are never looked from.
        ([NO_DRAFT] * 5 + [Choice("ngram", 3)], [0, 1, 2, 3, 4, 5, 9, 10, 11, 12]),
    ],
)
def test_n_grams_are_watched_whoever_drafts(plans: list[Choice], places: Sequence[int]) -> None:
    """Every proposal is followed token by token until it fails, has come whole or the text ends."""
    script = [3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 4, 4, 3]  # emitted after the prompt
    prompt = [0, 1, 2]
    target = LawTarget(lambda context: np.eye(5)[script[len(context) - len(prompt)]], CHARACTERS)
    controller = Scripted(plans)
    decoder = SpeculativeDecoder(target, make_pair()[1], "auto", 6, controller=controller)
    assert list(decoder.generate(prompt, max_new_tokens=len(script), temperature=0).token_ids) == script
    # Of each place, the place that is copied from: the latest that follows the same two tokens.
    text = [*prompt, *script]
    expected = []
    for place in places:
        end = len(prompt) + place
        source = next((at for at in range(end - 1, 1, -1) if text[at - 2 : at] == text[end - 2 : end]), None)
        if source is None:
            continue
        copied = (text[:end] + [text[source + i % (end - source)] for i in range(8)])[end:]
        assert copied[: end - source] == text[source:end][:8]
        for depth, (token, come) in enumerate(zip(copied, text[end:], strict=False)):
            expected.append((depth, token == come))
            if token != come:
                break
    assert sorted((depth, is_kept) for _, depth, is_kept in controller.watched) == sorted(expected)
    assert (7, True) not in expected  # nothing came whole; the last proposals ended with the text
    assert {is_kept for _, is_kept in expected} == {True, False}


def test_a_proposal_is_watched_for_eight_tokens() -> None:
    target = LawTarget(lambda context: np.eye(5)[(context[-1] + 1) % 5], CHARACTERS)
    controller = Scripted([])
    decoder = SpeculativeDecoder(target, make_pair()[1], "auto", 6, controller=controller)
    decoder.generate([0, 1, 2, 3, 4, 0, 1], max_new_tokens=12, temperature=0)
    depths = [depth for _, depth, is_kept in controller.watched if is_kept]
    assert len(depths) == len(controller.watched)
    assert [depths.count(depth) for depth in range(9)] == [12, 11, 10, 9, 8, 7, 6, 5, 0]


def test_in_rounds_of_rest_the_controller_is_not_asked_unless_n_grams_have_something_to_propose() -> None:
    script = [3, 1, 4, 2, 2, 0, 1, 3, 4, 4, 0, 3]  # "0 1" comes back after seven tokens
    target = LawTarget(lambda context: np.eye(5)[script[len(context) - 2]], CHARACTERS)
    controller = Scripted([NO_DRAFT, replace(NO_DRAFT, rest=2), Choice("tli", 1), replace(NO_DRAFT, rest=30)])
    decoder = SpeculativeDecoder(target, make_pair()[1], "auto", 6, controller=controller)
    result = decoder.generate([0, 1], max_new_tokens=len(script), temperature=0)
    assert list(result.token_ids) == script
    asked = [len(script) - situation.remaining for situation in controller.situations]
    # Two rounds of rest behind the second plan; the long rest ends where n-grams have something to propose.
    assert asked[:5] == [0, 1, 4, 5 + decoder.stats.accepted, 7]
    assert controller.situations[4].confidences[0] > 0.0
    # Every round is told, each with its own verdict, or counted.
    rounds = sum(decoder.stats.rounds_by_method.values())
    assert len(controller.outcomes) + sum(controller.rests) == rounds == len(script) - decoder.stats.accepted
    assert [list(outcome.accepted) for _, outcome in controller.outcomes if outcome.choice.method == "none"] == [
        [0]
    ] * (len(controller.outcomes) - 1)


def test_a_round_that_waits_for_its_numbers_is_not_told_the_verdicts_of_rounds_of_rest() -> None:
    controller = Scripted([Choice("tli", 4), replace(NO_DRAFT, rest=9)])
    never_d = LawTarget(lambda context: np.array([0.5, 0.5, 0.0, 0.0, 0.0]), CHARACTERS)
    decoder = SpeculativeDecoder(never_d, hopeless_drafter(), "auto", 6, controller=controller)
    num_told = itertools.count()
    observe = AutoProposer.observe

    def numbering(self: AutoProposer, request: int, num_draft_tokens: int, num_accepted_tokens: int) -> None:
        observe(self, request, num_draft_tokens, next(num_told))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AutoProposer, "observe", numbering)
        decoder.generate([4], max_new_tokens=3, seed=3)
    assert [list(outcome.accepted) for _, outcome in controller.outcomes] == [[0], [1]]
    assert (next(num_told), controller.rests) == (3, [1])


def test_every_proposer_hears_of_every_token_whoever_drafted(monkeypatch: pytest.MonkeyPatch) -> None:
    target, _ = make_pair()
    drafter = agreeing_drafter(target)
    plans = [Choice("tli", 3), Choice("ngram", 3), NO_DRAFT, Choice("ngram", 3), Choice("tli", 2)] * 5
    decoder = SpeculativeDecoder(target, drafter, "auto", 6, controller=Scripted(plans))
    seen = []
    propose = AutoProposer.propose

    def checking(self, requests, lengths):  # type: ignore[no-untyped-def]
        for method, proposer in self._proposers.items():
            for request in requests:
                text = [*request.prompt, *request.tokens]
                if method == "ngram":
                    assert proposer._histories[request.index].tokens == text
                else:
                    assert list(proposer._contexts.token_ids(request.index)) == drafter.encode_context(text)
                seen.append(method)
        return propose(self, requests, lengths)

    monkeypatch.setattr(AutoProposer, "propose", checking)
    decoder.generate([[0, 2, 0, 2], [1, 1]], max_new_tokens=25, seed=[1, 2])
    assert {"tli", "ngram"} <= set(seen)


def test_requests_that_end_earlier_leave_proposers_made_later_alone() -> None:
    target = LawTarget(lambda c: np.array([0.0, 1.0]) if len(c) >= 6 else np.array([1.0, 0.0]), "a_", [1])
    drafter = LawDrafter(lambda context: np.array([1.0]), make_map([b"a"], "a_"))
    plans = [NO_DRAFT, NO_DRAFT, Choice("tli", 2), Choice("ngram", 2)]
    decoder = SpeculativeDecoder(target, drafter, "auto", 4, controller=Scripted(plans))
    results = decoder.generate(["a", "aaaaa", "aaa"], max_new_tokens=10, temperature=0)
    assert [len(result.token_ids) for result in results] == [6, 2, 4]


def test_pending_counts_what_a_drafter_has_not_seen() -> None:
    target, drafter = make_pair()
    controller = Scripted([NO_DRAFT, NO_DRAFT, Choice("tli", 1)])
    decoder = SpeculativeDecoder(target, drafter, "auto", 6, controller=controller)
    decoder.generate([0, 2, 1], max_new_tokens=8, seed=1)
    pending = [situation.pending["tli"] for situation in controller.situations]
    assert pending[:3] == [3, 4, 5]
    assert pending[3] in (1, 2)
    assert controller.situations[0].max_length == 6
    assert controller.situations[0].remaining == 8


def test_the_methods_are_those_the_pair_allows() -> None:
    decoder = SpeculativeDecoder(*make_pair(), "auto")
    assert decoder.controller is not None
    assert decoder.controller.methods[:2] == ("tli", "ngram")
    own = Controller(("ngram",))
    assert SpeculativeDecoder(*make_pair(), "auto", controller=own).controller is own
