# SPDX-License-Identifier: Apache-2.0
"""A drafter whose own drafts are verified by a middle model: three plain laws."""

import numpy as np
import pytest

from hetero_spec import ops
from hetero_spec.decoding import ConfidenceLookahead, SpeculativeDecoder, cascade
from hetero_spec.vocab import VocabMap
from tests.decoding.pairs import DRAFT_TOKENS, counts_of, exact_law, make_pair
from tests.decoding.toys import LawDrafter, LawTarget, law_of_context
from tests.tools.chi_square import departs

# The middle model has b, a, x and d; its drafter has letters of the middle model in another order, and one of its own.
SMALL_TOKENS = [b"d", b"y", b"b", b"a"]


def make_small(seed: int = 5) -> LawDrafter:
    return LawDrafter(law_of_context(len(SMALL_TOKENS), seed), VocabMap.from_bytes(DRAFT_TOKENS, SMALL_TOKENS))


def make_decoder(lookahead: object = 3, **arguments: object) -> SpeculativeDecoder:
    target, middle = make_pair()
    return SpeculativeDecoder(target, make_small(), "cascade", lookahead, middle=middle, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("lookahead", [1, 3, ConfidenceLookahead(0.5, 4)])
def test_the_law_of_the_output_is_the_targets(lookahead: object) -> None:
    decoder = make_decoder(lookahead)
    counts = counts_of(decoder, [0, 2], length=4, trials=4000)
    assert not departs(counts, exact_law(decoder.target.law, (0, 2), 5, 4))  # type: ignore[attr-defined]
    assert 0 < decoder.stats.accepted < decoder.stats.proposed
    inner = decoder.stats.inner
    assert inner is not None
    assert inner.tokens >= decoder.stats.proposed
    assert inner.proposed > 0 or lookahead == 1


@pytest.mark.parametrize("rule", ["token", "block"])
def test_the_block_rule_too(rule: str) -> None:
    decoder = make_decoder(3, rule=rule)
    counts = counts_of(decoder, [0, 2], length=2, trials=3000)
    assert not departs(counts, exact_law(decoder.target.law, (0, 2), 5, 2))  # type: ignore[attr-defined]


def drafted_law(decoder: SpeculativeDecoder, monkeypatch: pytest.MonkeyPatch) -> tuple[np.ndarray, np.ndarray]:
    """How often each pair of tokens was drafted first, and how often it should have been."""
    counts = np.zeros((5, 5))
    rejection_sample = ops.rejection_sample

    def recording(logits, ids, cu, *arguments, **keywords):  # type: ignore[no-untyped-def]
        if logits.shape[1] == 5 and len(ids) == 2 * (len(cu) - 1):  # the target's look
            np.add.at(counts, tuple(ids.view(-1, 2).T.tolist()), 1)
        return rejection_sample(logits, ids, cu, *arguments, **keywords)

    monkeypatch.setattr(ops, "rejection_sample", recording)
    for first in range(0, 4000, 250):
        decoder.generate([[0, 3]] * 250, max_new_tokens=3, seed=list(range(first, first + 250)))
    middle = decoder.drafter
    assert isinstance(middle, LawDrafter)
    ids = middle.draft_to_target_ids.tolist()
    shared = np.array([target_id >= 0 for target_id in ids])

    def masked(context: tuple[int, ...]) -> np.ndarray:
        law = np.where(shared, middle.law(context), 0.0)
        return np.asarray(law / law.sum())

    expected = np.zeros((5, 5))
    context = tuple(middle.encode_context([0, 3]))
    for first_id, first_prob in enumerate(masked(context)):
        for second_id, second_prob in enumerate(masked((*context, first_id))):
            if shared[first_id] and shared[second_id]:
                expected[ids[first_id], ids[second_id]] += first_prob * second_prob
    return counts.ravel(), expected.ravel()


def test_drafts_follow_the_middle_models_law_not_the_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    counts, expected = drafted_law(make_decoder(2), monkeypatch)
    assert counts.sum() >= 4000
    assert not departs(counts, expected)


def test_verifying_with_the_inner_drafters_law_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    # Negative control: the inner round accepts everything, so that drafts follow the small model's law.
    exact = ops.rejection_sample

    def credulous(logits, ids, cu, *arguments, **keywords):  # type: ignore[no-untyped-def]
        out = exact(logits, ids, cu, *arguments, **keywords)
        if logits.shape[1] == 4 and len(ids):
            for b, (start, end) in enumerate(zip(cu.tolist(), cu.tolist()[1:], strict=False)):
                out.output_token_ids[b, : end - start] = ids[start:end]
                out.output_token_ids[b, end - start] = int(ids[start]) if end > start else int(out[0][b, 0])
                out.num_accepted_tokens[b] = end - start
        return out

    monkeypatch.setattr(ops, "rejection_sample", credulous)
    decoder = make_decoder(3)
    counts = counts_of(decoder, [0, 2], length=4, trials=4000)
    assert departs(counts, exact_law(decoder.target.law, (0, 2), 5, 4))  # type: ignore[attr-defined]


def test_inner_and_outer_verification_share_no_random_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    # Negative control: with the request's own seed the target tests a draft with the number that the middle model
    # tested it with.
    monkeypatch.setattr(cascade, "inner_seed", lambda seed: seed)
    decoder = make_decoder(3)
    counts = counts_of(decoder, [0, 2], length=4, trials=4000)
    assert departs(counts, exact_law(decoder.target.law, (0, 2), 5, 4))  # type: ignore[attr-defined]


def test_inner_seeds_differ_from_their_seeds_and_from_each_other() -> None:
    seeds = [0, 1, -1, 2**62, -(2**63), 2**63 - 1]
    inner = [cascade.inner_seed(seed) for seed in seeds]
    assert len({*seeds, *inner}) == 2 * len(seeds)
    assert all(-(2**63) <= seed < 2**63 for seed in inner)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("inner", ["model", "ngram"])
def test_a_batch_gives_every_request_what_it_gets_alone(temperature: float, inner: str) -> None:
    target, middle = make_pair()
    drafter = make_small() if inner == "model" else None
    decoder = SpeculativeDecoder(target, drafter, "cascade", ConfidenceLookahead(0.3, 4), middle=middle)
    prompts = [[0, 2], [1], [4, 4, 3, 0, 1], [2, 0, 2]]
    together = decoder.generate(prompts, max_new_tokens=15, temperature=temperature, seed=[5, 6, 7, 8])
    for prompt, seed, result in zip(prompts, [5, 6, 7, 8], together, strict=True):
        alone = decoder.generate(prompt, max_new_tokens=15, temperature=temperature, seed=seed)
        assert (alone.token_ids, alone.stats) == (result.token_ids, result.stats)
    if temperature == 0.0:
        plain = SpeculativeDecoder(target, method="none").generate(prompts, max_new_tokens=15, temperature=0.0)
        assert [result.token_ids for result in together] == [result.token_ids for result in plain]


def test_exact_verification_gives_the_plain_tokens() -> None:
    decoder = make_decoder(3, verify="exact")
    plain = SpeculativeDecoder(decoder.target, method="none")
    for seed in range(5):
        wanted = plain.generate([0, 2], max_new_tokens=20, seed=seed)
        assert decoder.generate([0, 2], max_new_tokens=20, seed=seed).token_ids == wanted.token_ids


@pytest.mark.parametrize("lookahead", [3, ConfidenceLookahead(0.5, 5)])
def test_the_inner_proposer_knows_exactly_what_the_middle_model_has_seen(
    lookahead: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = make_decoder(lookahead)
    made = []
    propose = cascade.CascadeProposer.propose

    def checking(self, requests, lengths):  # type: ignore[no-untyped-def]
        for request in requests:
            context = self._contexts.token_ids(request.index)
            inner = self._inner_requests[request.index]
            assert [*inner.prompt, *inner.tokens] == list(context)
            small = self._inner._contexts
            spelt = [piece for token_id in context for piece in small._drafter.encode_token(token_id)]
            assert small.token_ids(request.index) == tuple(spelt)
            made.append(len(context))
        draft = propose(self, requests, lengths)
        for request, ids in zip(requests, draft.token_ids, strict=True):
            # No two of the target's positions may draw with the same numbers, spelt or not.
            assert self._inner_requests[request.index].position == request.position + len(ids)
        return draft

    monkeypatch.setattr(cascade.CascadeProposer, "propose", checking)
    decoder.generate([[0, 2], [1, 3, 3]], max_new_tokens=60, seed=[1, 2])
    assert len(made) > 20


def test_a_middle_model_with_a_small_window_goes_on() -> None:
    target, other = make_pair()
    middle = LawDrafter(other.law, other.vocab_map, max_length=9)
    small = make_small()
    small.max_length = 7
    decoder = SpeculativeDecoder(target, small, "cascade", 3, middle=middle)
    decoder.generate([0, 1, 3, 0, 1, 0], max_new_tokens=40, seed=1)
    assert decoder.stats.accepted > 0
    counts = counts_of(decoder, [0, 1, 3, 0, 1, 0, 1, 3], length=2, trials=2000)
    assert not departs(counts, exact_law(target.law, (0, 1, 3, 0, 1, 0, 1, 3), 5, 2))


def test_a_draft_ends_at_the_end_of_text() -> None:
    vocab_map = VocabMap.from_bytes([b"a", None], [b"a", None], target_roles={"eos": 1}, draft_roles={"eos": 1})

    def law(context: tuple[int, ...]) -> np.ndarray:
        return np.array([0.0, 1.0]) if len(context) == 4 else np.array([1.0, 0.0])

    target = LawTarget(law, "a_", [1])
    decoder = SpeculativeDecoder(target, LawDrafter(law, vocab_map), "cascade", 6, middle=LawDrafter(law, vocab_map))
    result = decoder.generate("a", max_new_tokens=20, temperature=0)
    assert (result.token_ids, result.finish_reason) == ((0, 0, 0, 1), "eos")
    assert (decoder.stats.proposed, decoder.stats.accepted) == (4, 4)


def test_what_cannot_be_is_refused() -> None:
    target, middle = make_pair()
    with pytest.raises(ValueError, match="middle must be given for method 'cascade', got NoneType"):
        SpeculativeDecoder(target, make_small(), "cascade")
    with pytest.raises(ValueError, match="middle must be None without method 'cascade', got LawDrafter"):
        SpeculativeDecoder(target, make_small(), "tli", middle=middle)
    with pytest.raises(ValueError, match=r"target_to_draft_ids must be of shape \(4,\), got \(5,\)"):
        SpeculativeDecoder(target, middle, "cascade", middle=middle)
