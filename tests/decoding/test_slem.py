# SPDX-License-Identifier: Apache-2.0
"""SLEM on laws: exact output law, seeded tokens of plain decoding, ragged batches, and what it proposes."""

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest

from hetero_spec.decoding import ConfidenceLookahead, FixedLookahead, Sampling, SpeculativeDecoder
from hetero_spec.decoding.lookahead import DraftedToken
from hetero_spec.decoding.proposers import Proposer
from hetero_spec.decoding.request import Request
from hetero_spec.decoding.slem import SlemProposer, emitted_tail
from hetero_spec.decoding.stats import DecodingStats
from hetero_spec.decoding.text import TextStream
from hetero_spec.decoding.text_bridge import TextBridge
from hetero_spec.vocab import VocabMap
from tests.decoding.text_toys import (
    DRAFT_EOS,
    DRAFT_TOKENS,
    TARGET_EOS,
    TARGET_TOKENS,
    TextTarget,
    counts_of,
    exact_law,
    text_pair,
    toy_map,
)
from tests.decoding.toys import LawDrafter, LawTarget
from tests.tools.chi_square import departs
from tests.vocab.samples import read_real

PROMPT = [0, 2]
A, B, AB, ABB, C = range(5)
CYCLE_TOKENS: list[bytes | None] = [b"cab", b"ab", b"c", b"b"]


def plain(target: LawTarget) -> SpeculativeDecoder:
    return SpeculativeDecoder(target, method="none")


def make_request(prompt: list[int], sampling: Sampling | None = None, max_new_tokens: int = 20) -> Request:
    sampling = sampling or Sampling()
    return Request(0, prompt, 3, sampling, sampling, TextStream(TARGET_TOKENS), max_new_tokens)


def cycling_pair() -> tuple[TextTarget, LawDrafter]:
    """A target that says c, ab, c, ab ... and a drafter that says the same in its own tokens, "cab" if it can."""

    def target_law(context: tuple[int, ...]) -> np.ndarray:
        law = np.full(len(TARGET_TOKENS), 0.01)
        law[AB if context[-1] == C else C] = 0.94
        return law

    def draft_law(context: tuple[int, ...]) -> np.ndarray:
        law = np.full(len(CYCLE_TOKENS), 0.02)
        law[1 if context[-1] == 2 else 0] = 0.94
        return law

    return TextTarget(target_law, TARGET_TOKENS), LawDrafter(draft_law, toy_map(TARGET_TOKENS, CYCLE_TOKENS))


@pytest.mark.parametrize("lookahead", [FixedLookahead(3), ConfidenceLookahead(0.4, 3)])
def test_the_law_of_the_output_is_the_targets(lookahead: FixedLookahead) -> None:
    target, drafter = text_pair()
    decoder = SpeculativeDecoder(target, drafter, "slem", lookahead)
    counts = counts_of(decoder, PROMPT, 3, 3000)
    assert not departs(counts, exact_law(target.law, tuple(PROMPT), len(TARGET_TOKENS), 3))
    assert 0 < decoder.stats.accepted < decoder.stats.proposed


def test_the_law_test_rejects_drafts_that_are_accepted_too_easily(monkeypatch: pytest.MonkeyPatch) -> None:
    # The negative control: where the target draws something else than the draft, the draft gets a second chance.
    from hetero_spec.decoding import exact, loop

    exact_sample = exact.exact_sample

    def generous(logits, drafts, requests):  # type: ignore[no-untyped-def]
        first = exact_sample(logits, drafts, requests)
        for request in requests:
            request.seed += 1 << 40
        second = exact_sample(logits, drafts, requests)
        for request in requests:
            request.seed -= 1 << 40
        better = second.num_accepted_tokens > first.num_accepted_tokens
        return first._replace(
            output_token_ids=first.output_token_ids.where(~better[:, None], second.output_token_ids),
            num_accepted_tokens=first.num_accepted_tokens.maximum(second.num_accepted_tokens),
        )

    monkeypatch.setattr(loop, "exact_sample", generous)
    target, drafter = text_pair()
    counts = counts_of(SpeculativeDecoder(target, drafter, "slem", 2), PROMPT, 3, 3000)
    assert departs(counts, exact_law(target.law, tuple(PROMPT), len(TARGET_TOKENS), 3))


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("draft_sampling", [None, Sampling(temperature=1.5), Sampling(temperature=0.0)])
def test_seeded_tokens_are_those_of_plain_decoding(temperature: float, draft_sampling: Sampling | None) -> None:
    for pair in (text_pair(), text_pair(5, 6, has_end=True), cycling_pair()):
        target, drafter = pair
        arguments = {"max_new_tokens": 12, "temperature": temperature, "seed": list(range(6))}
        expected = plain(target).generate([PROMPT] * 6, **arguments)
        results = SpeculativeDecoder(target, drafter, "slem", 4).generate(
            [PROMPT] * 6, draft_sampling=draft_sampling, **arguments
        )
        for result, wanted in zip(results, expected, strict=True):
            assert (result.token_ids, result.text) == (wanted.token_ids, wanted.text)
            assert result.finish_reason == wanted.finish_reason


def test_window_of_the_drafter_may_be_shorter_than_the_text() -> None:
    target, drafter = cycling_pair()
    drafter.max_length = 7
    result = SpeculativeDecoder(target, drafter, "slem", 2).generate([C, AB], max_new_tokens=40, temperature=0.0)
    assert result.token_ids == (C, AB) * 20
    assert result.stats.acceptance_length > 3


def test_rejection_of_the_same_drafts_keeps_the_law_too() -> None:
    target, drafter = text_pair()
    decoder = SpeculativeDecoder(target, drafter, "slem", 3, verify="rejection")
    counts = counts_of(decoder, PROMPT, 2, 3000, draft_sampling=Sampling(temperature=1.0))
    assert not departs(counts, exact_law(target.law, tuple(PROMPT), len(TARGET_TOKENS), 2))


def test_request_alone_and_in_a_ragged_batch_are_the_same() -> None:
    target, drafter = text_pair(has_end=True)
    decoder = SpeculativeDecoder(target, drafter, "slem", ConfidenceLookahead(0.3, 4))
    prompts = [[A], [C, AB, C], [B, B], [ABB, A]]
    arguments = {"max_new_tokens": 10}
    temperatures, seeds = [0.0, 1.0, 0.7, 1.0], [1, 2, 3, 4]
    together = decoder.generate(prompts, temperature=temperatures, seed=seeds, **arguments)
    for i, result in enumerate(together):
        alone = decoder.generate(prompts[i], temperature=temperatures[i], seed=seeds[i], **arguments)
        assert (alone.token_ids, alone.stats) == (result.token_ids, result.stats)


def test_draft_that_says_what_the_target_says_is_accepted_across_token_boundaries() -> None:
    target, drafter = cycling_pair()
    decoder = SpeculativeDecoder(target, drafter, "slem", 2)
    result = decoder.generate([C, AB], max_new_tokens=10, temperature=0.0)
    assert result.token_ids == (C, AB) * 5
    # cab, cab make four target tokens and the target adds c; then ab, cab make three and it adds ab; the last is plain.
    assert (result.stats.target_steps, result.stats.accepted, result.stats.proposed) == (3, 7, 7)
    # One call per drafted token: what was accepted is in the drafter's cache, in the tokens that it would use itself.
    assert decoder.stats.drafter_calls == 4


def test_lengths_count_drafter_tokens_and_zero_costs_nothing() -> None:
    target, drafter = cycling_pair()
    stats = DecodingStats()
    request = make_request([C, AB])
    proposer = SlemProposer(target, drafter, [request], FixedLookahead(3), 3, stats)
    assert isinstance(proposer, Proposer)
    proposer.begin([request])
    assert proposer.propose([request], [0]).token_ids == [[]] and stats.drafter_calls == 0
    assert proposer.propose([request], [3]).token_ids == [[C, AB] * 3] and stats.drafter_calls == 3
    # Never more than the request may still emit, less the one that the target adds.
    request.max_new_tokens = 3
    proposer.commit(0, 0, [])
    assert proposer.propose([request], [3]).token_ids == [[C, AB]]


def test_drafter_is_greedy_unless_asked() -> None:
    target, drafter = text_pair()
    request = make_request(PROMPT)
    stats = DecodingStats()

    def proposals(**arguments: object) -> set[tuple[int, ...]]:
        found = set()
        for seed in range(20):
            request.seed = seed
            proposer = SlemProposer(target, drafter, [request], FixedLookahead(2), 2, stats, **arguments)  # type: ignore[arg-type]
            found.add(tuple(proposer.propose([request], [2]).token_ids[0]))
        return found

    assert len(proposals()) == 1
    assert len(proposals(draft_temperature=1.0)) > 3
    assert len(proposals(draft_temperature=None)) > 3
    request.draft_sampling = Sampling(temperature=1.5)
    assert len(proposals()) > 3


def test_end_of_text_ends_the_draft() -> None:
    def draft_law(context: tuple[int, ...]) -> np.ndarray:
        law = np.full(len(DRAFT_TOKENS), 0.01)
        law[DRAFT_EOS if context[-1] == 0 else 0] = 0.93
        return law

    target, _ = text_pair(has_end=True)
    request = make_request([A])
    stats = DecodingStats()
    proposer = SlemProposer(target, LawDrafter(draft_law, toy_map()), [request], FixedLookahead(5), 5, stats)
    assert proposer.propose([request], [5]).token_ids == [[TARGET_EOS]]
    assert stats.drafter_calls == 1


def test_lookahead_sees_how_sure_a_greedy_drafter_is() -> None:
    target, drafter = cycling_pair()
    seen: list[DraftedToken] = []

    class Watching(FixedLookahead):
        needs_prob = True
        needs_top_probs = True

        def wants_more(self, drafted: DraftedToken) -> bool:
            seen.append(drafted)
            return drafted.depth < 1

    request = make_request([C, AB])
    proposer = SlemProposer(target, drafter, [request], Watching(4), 4, DecodingStats())
    assert len(proposer.propose([request], [4]).token_ids[0]) == 4
    assert [token.depth for token in seen] == [0, 1]
    for token in seen:
        assert token.prob == pytest.approx(0.94) and token.max_prob == 1.0
        assert token.top_probs == pytest.approx([0.94, *[0.02] * 3])


def test_draft_begins_with_the_unfinished_character() -> None:
    """The target has emitted half of a character; the drafter has whole characters only and likes another one best."""
    from hetero_spec.vocab import VocabMap, make_vocabulary
    from tests.decoding.text_toys import encoder_from_the_left

    single: list[bytes | None] = [b"\xc3", b"\xa9", b"a", b"\xa8"]
    whole: list[bytes | None] = ["é".encode(), b"a", "ä".encode()]
    vocab_map = VocabMap(
        make_vocabulary(single, kind="toy", encoder=encoder_from_the_left(single)),
        make_vocabulary(whole, kind="toy", encoder=encoder_from_the_left(whole)),
    )
    law = np.array([0.2, 0.7, 0.1])
    drafter = LawDrafter(lambda context: law, vocab_map)
    target = TextTarget(lambda context: np.full(4, 0.25), single)
    request = make_request([2])
    proposer = SlemProposer(target, drafter, [request], FixedLookahead(2), 2, DecodingStats())
    request.tokens = [0]
    proposer.commit(0, 0, [0])
    assert proposer.propose([request], [2]).token_ids == [[1, 2]]


def test_rows_without_a_law_propose_nothing() -> None:
    target, _ = text_pair()
    drafter = LawDrafter(lambda context: np.full(len(DRAFT_TOKENS), np.nan), toy_map())
    result = SpeculativeDecoder(target, drafter, "slem", 3).generate(PROMPT, max_new_tokens=4, seed=1)
    assert result.token_ids == plain(target).generate(PROMPT, max_new_tokens=4, seed=1).token_ids
    assert result.stats.proposed == 0


def test_drafter_must_be_one_with_a_map() -> None:
    target, drafter = text_pair()
    with pytest.raises(ValueError, match="slem: drafter must be a model, got None"):
        SlemProposer(target, None, [], FixedLookahead(1), 1, DecodingStats())
    del drafter.vocab_map
    with pytest.raises(
        ValueError, match="slem: drafter must have a vocab_map of all that it drafts, got LawDrafter without"
    ):
        SlemProposer(target, drafter, [], FixedLookahead(1), 1, DecodingStats())


def test_tail_of_a_request_crosses_into_its_prompt() -> None:
    request = make_request([1, 2, 3])
    assert [emitted_tail(request, count) for count in (0, 2, 9)] == [[], [2, 3], [1, 2, 3]]
    request.tokens = [4, 5]
    assert [emitted_tail(request, count) for count in (0, 1, 2, 3, 9)] == [[], [5], [4, 5], [3, 4, 5], [1, 2, 3, 4, 5]]


# -- odd texts in real tokenizers --------------------------------------------------------------------------------------

TEXT = "Hello  world!\n\n\tdef f(x):\n        return 12345678 \U0001f642 \u65e5\u672c\u8a9e caf\u00e9\u0004   \n  end"


@cache
def map_of(target_name: str, drafter_name: str) -> VocabMap:
    return VocabMap(read_real(target_name), read_real(drafter_name))


def said_by(token_ids: Sequence[int], prompts: Sequence[Sequence[int]], vocab_map: VocabMap) -> TextTarget:
    """A target that says these tokens after any of the prompts."""
    script = {tuple(prompt) for prompt in prompts}

    def law(context: tuple[int, ...]) -> np.ndarray:
        begun = max(len(prompt) for prompt in script if context[: len(prompt)] == prompt)
        return np.eye(1, vocab_map.target_vocab_size, token_ids[(len(context) - begun) % len(token_ids)])[0]

    target = TextTarget(law, vocab_map.target_tokens)
    target.vocab_size = vocab_map.target_vocab_size
    return target


bridge_over = cache(TextBridge)


def drafts_of(kind: str, vocab_map: VocabMap, text: bytes) -> LawDrafter:
    """A drafter that says the text as it should, or nothing but special tokens, white space or one half character."""
    tokens = vocab_map.draft_tokens
    chosen = {
        "special": [token_id for token_id, token in enumerate(tokens) if token is None][:3],
        "white space": [token_id for token_id, token in enumerate(tokens) if token and not token.strip()][:9],
        "half a character": [tokens.index(b"\xf0")] if b"\xf0" in tokens else [],
    }
    own = bridge_over(vocab_map).drafter

    def law(context: tuple[int, ...]) -> np.ndarray:
        if kind == "text":
            said = own.bytes_of(context)
            rest = text[len(said) :] if text.startswith(said) else b""
            ids = own.encode(rest.decode("utf-8", "ignore").encode())[0]
            following = ids[0] if ids else 0  # it cannot write what comes next
        else:
            following = chosen[kind][len(context) % len(chosen[kind])]
        return np.eye(1, len(tokens), following)[0]

    return LawDrafter(law, vocab_map)


@pytest.mark.parametrize("method", ["slem", "slrs"])
@pytest.mark.parametrize("kind", ["text", "special", "white space", "half a character"])
@pytest.mark.parametrize(("target_name", "drafter_name"), [("smollm2", "mistral_v3"), ("mistral_v3", "smollm2")])
def test_odd_texts_of_real_tokenizers_come_out_as_they_are(
    target_name: str, drafter_name: str, kind: str, method: str
) -> None:
    vocab_map = map_of(target_name, drafter_name)
    tokens = vocab_map.target_tokens
    encoder = vocab_map.target.encoder
    assert encoder is not None
    # A character in four tokens of a byte each, a special token in the middle, then text of all kinds.
    bytewise = [tokens.index(bytes([byte])) for byte in "\U0001f999".encode()]
    token_ids = [*bytewise, tokens.index(None), *encoder(TEXT)[:10], *bytewise, *encoder(TEXT)[10:]]
    text = b"".join(tokens[token_id] or b"" for token_id in token_ids)
    # White space alone; the end of a character; a text of its own. Their ends come at different times.
    prompts = [[tokens.index(b" ")] * 3, bytewise[2:], list(encoder("Say:"))]
    target = said_by(token_ids, prompts, vocab_map)
    drafter = drafts_of(kind, vocab_map, text)
    # The prompts' own text is not in what the drafter counts.
    drafter.encode_context = lambda ids: []  # type: ignore[method-assign]
    decoder = SpeculativeDecoder(target, drafter, method, 4)
    for arguments in (
        {"max_new_tokens": len(token_ids), "stop": ["678", "nowhere"]},
        {"max_new_tokens": 1},
        {"max_new_tokens": 9, "temperature": 0.0},
    ):
        expected = plain(target).generate(prompts, seed=1, **arguments)
        for result, wanted in zip(decoder.generate(prompts, seed=1, **arguments), expected, strict=True):
            assert (result.token_ids, result.text) == (wanted.token_ids, wanted.text)
            assert result.finish_reason == wanted.finish_reason
        if kind == "text" and arguments["max_new_tokens"] > 10:
            assert decoder.stats.accepted > decoder.stats.tokens // 2
