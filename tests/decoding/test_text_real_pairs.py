# SPDX-License-Identifier: Apache-2.0
"""Real models: the tokens are those of plain decoding, greedy and seeded, on texts of every kind."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from _pytest.mark import ParameterSet

from hetero_spec.decoding import FixedLookahead, Generation, Sampling, SpeculativeDecoder
from hetero_spec.decoding.disco import SHIPPED_CLASSIFIER, DiscoLookahead
from hetero_spec.decoding.request import Request
from hetero_spec.decoding.slrs import SlrsProposer
from hetero_spec.decoding.stats import DecodingStats
from hetero_spec.decoding.target import TransformersTarget
from hetero_spec.decoding.text import TextStream
from hetero_spec.models import LoadedModel
from hetero_spec.vocab import VocabMap, VocabMismatchError
from tests.decoding.pairs import TEXTS, RecordedTarget
from tests.decoding.test_real_pairs import PROMPTS, loaded, needs
from tests.tools.chi_square import departs

NUM_TOKENS = 12


@dataclass
class RealPair:
    """A real target whose rows are recorded, its drafter, and what plain decoding makes of every text.

    Attributes
    ----------
    greedy, sampled : list of Generation
        In the order of TEXTS, at temperatures 0 and 0.8; the latter with the text's number as seed.
    """

    target: RecordedTarget
    drafter: LoadedModel
    vocab_map: VocabMap
    greedy: list[Generation]
    sampled: list[Generation]

    def decoder(self, method: str) -> SpeculativeDecoder:
        return SpeculativeDecoder(self.target, self.drafter, method, 4, self.vocab_map)


def real_pair(*names: str, tolerance: float, marks: pytest.MarkDecorator) -> ParameterSet:
    return pytest.param((*names, tolerance), marks=(marks, needs(*names)), id=" <- ".join(names))


# Rounding between passes of different shapes was at most .0003 in logits of SmolLM2 and .0011 in logits of Gemma.
REAL_PAIRS = (
    real_pair("smollm2", "embedded", tolerance=0.003, marks=pytest.mark.models),
    real_pair("gemma3-270m", "smollm2", tolerance=0.01, marks=pytest.mark.gemma),
)


@pytest.fixture(scope="module", params=REAL_PAIRS)
def pair(request: pytest.FixtureRequest) -> RealPair:
    target_name, draft_name, tolerance = request.param
    model, drafter = loaded(target_name), loaded(draft_name)
    vocab_map = VocabMap.from_tokenizers(
        model.tokenizer, drafter.tokenizer, target_vocab_size=model.vocab_size, draft_vocab_size=drafter.vocab_size
    )
    target = RecordedTarget(TransformersTarget(model.model, model.tokenizer, vocab_map.target.tokens), tolerance)
    temperatures, seeds = [0.0] * len(TEXTS) + [0.8] * len(TEXTS), [*range(len(TEXTS))] * 2
    plain = SpeculativeDecoder(target, method="none").generate(
        [*TEXTS.values()] * 2, max_new_tokens=NUM_TOKENS, temperature=temperatures, seed=seeds
    )
    target.is_recording = False
    return RealPair(target, drafter, vocab_map, plain[: len(TEXTS)], plain[len(TEXTS) :])


def said(results: Sequence[Generation]) -> dict[str, tuple[tuple[int, ...], str, str]]:
    return {
        name: (result.token_ids, result.text, result.finish_reason) for name, result in zip(TEXTS, results, strict=True)
    }


def test_the_texts_are_twenty_and_differ() -> None:
    assert len(set(TEXTS.values())) == len(TEXTS) == 20


@pytest.mark.parametrize("method", ["tli", "slem"])
def test_greedy_text_is_the_targets_own(pair: RealPair, method: str) -> None:
    decoder = pair.decoder(method)
    compared = pair.target.num_compared
    results = decoder.generate([*TEXTS.values()], max_new_tokens=NUM_TOKENS, temperature=0.0)
    assert said(results) == said(pair.greedy)
    assert decoder.stats.accepted > len(TEXTS)
    # Every emitted token was drawn from a row that agrees with plain decoding's.
    assert pair.target.num_compared - compared >= sum(len(result.token_ids) for result in results)


def test_greedy_text_of_slrs_is_the_targets_own(pair: RealPair) -> None:
    decoder = pair.decoder("slrs")
    num_tokens = NUM_TOKENS // 2  # it asks the drafter some twenty times for each target call
    results = decoder.generate([*TEXTS.values()], max_new_tokens=num_tokens, temperature=0.0)
    assert [result.token_ids for result in results] == [plain.token_ids[:num_tokens] for plain in pair.greedy]
    assert decoder.stats.accepted > len(TEXTS)


def test_seeded_text_of_slem_is_plain_seeded_text_token_for_token(pair: RealPair) -> None:
    decoder = pair.decoder("slem")
    results = decoder.generate([*TEXTS.values()], max_new_tokens=NUM_TOKENS, temperature=0.8, seed=[*range(len(TEXTS))])
    assert said(results) == said(pair.sampled) != said(pair.greedy)
    assert decoder.stats.accepted > len(TEXTS)


def test_another_seed_is_another_text(pair: RealPair) -> None:
    """The comparison above can fail: with each seed moved on by one few texts agree."""
    some, plain = [*TEXTS.values()][:8], pair.sampled[:8]
    results = pair.decoder("slem").generate(some, max_new_tokens=4, temperature=0.8, seed=[*range(1, 9)])
    assert sum(mine.token_ids == other.token_ids[:4] for mine, other in zip(results, plain, strict=True)) < 4


def test_the_shipped_classifier_is_for_smollm2_and_the_embedded_drafter_only(pair: RealPair) -> None:
    lookahead, drafter = DiscoLookahead.load(SHIPPED_CLASSIFIER), pair.decoder("tli").drafter
    assert drafter is not None
    if pair.drafter.name == "embedded":
        lookahead.check_pair(drafter)
    else:
        with pytest.raises(VocabMismatchError, match="of smollm2 <- embedded"):
            lookahead.check_pair(drafter)


@pytest.mark.models
@needs("smollm2", "embedded")
def test_sampled_slrs_on_real_models_repeats_itself() -> None:
    decoder = SpeculativeDecoder(loaded("smollm2"), loaded("embedded"), "slrs", 4)
    prompts = [PROMPTS["recipe"], PROMPTS["facts"]]
    sampled = decoder.generate(prompts, max_new_tokens=8, temperature=0.8, seed=[1, 2])
    assert sampled == decoder.generate(prompts, max_new_tokens=8, temperature=0.8, seed=[1, 2])
    assert all(len(result.token_ids) == 8 and result.finish_reason == "length" for result in sampled)


@pytest.mark.models
@needs("smollm2", "embedded")
def test_psi_of_real_tokenizers_is_how_often_candidates_are_drawn() -> None:
    """400 drafts of one prompt: the first target token of each, against psi of the likely ones."""
    target_model, drafter_model = loaded("smollm2"), loaded("embedded")
    decoder = SpeculativeDecoder(target_model, drafter_model, "slrs", 3)
    prompt = list(decoder.target.encode(PROMPTS["summary"]))
    sampling = Sampling(temperature=1.0)
    requests = [
        Request(index, prompt, index, sampling, sampling, TextStream(decoder.target.token_bytes), 8)
        for index in range(400)
    ]
    proposer = SlrsProposer(
        decoder.target, decoder.drafter, requests, FixedLookahead(3), 3, DecodingStats(), num_branches=1
    )
    counts = Counter(ids[0] for ids in proposer.propose(requests, [3] * len(requests)).token_ids)
    start = proposer._starts[0][0]
    candidates = [token_id for token_id, count in counts.items() if count > 2]
    psi = dict(zip(candidates, proposer.laws([(start, token_id) for token_id in candidates]), strict=True))
    # Outcomes are chosen by their law and not by their counts; a token of psi .02 is among the candidates for certain.
    likely = [token_id for token_id in candidates if psi[token_id] > 0.02]
    # Some are put together from several draws, in more than one way.
    assert len(likely) > 2 and proposer.num_ways > proposer.num_laws
    observed = [counts[token_id] for token_id in likely]
    law = [psi[token_id] for token_id in likely]
    assert not departs([*observed, 400 - sum(observed)], [*law, 1.0 - sum(law)])
