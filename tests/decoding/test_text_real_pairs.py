# SPDX-License-Identifier: Apache-2.0
"""Drafting by text with real models: the tokens are those of plain decoding, greedy and seeded."""

from collections import Counter
from collections.abc import Sequence

import pytest

from hetero_spec.decoding import FixedLookahead, Sampling, SpeculativeDecoder
from hetero_spec.decoding.request import Request
from hetero_spec.decoding.slrs import SlrsProposer
from hetero_spec.decoding.stats import DecodingStats
from hetero_spec.decoding.text import TextStream
from hetero_spec.models import LoadedModel
from tests.decoding.test_real_pairs import CJK, PROMPTS, loaded, needs
from tests.tools.chi_square import departs


def assert_tokens_are_plain(
    target: LoadedModel, drafter: LoadedModel, prompts: Sequence[str], num_tokens: int, method: str = "slem"
) -> SpeculativeDecoder:
    """Compare with plain decoding of the same seeds; only float rounding may tell them apart.

    A pass over one token and one over several sum in another order. Where the logits of the rows that decide agree
    within rounding, either token may come out: greedy, if the two are that close; sampled, if the random number falls
    between the two sums. Any other difference is a fault.
    """
    decoder = SpeculativeDecoder(target, drafter, method, 4, verify="exact")
    plain = SpeculativeDecoder(decoder.target, method="none")
    temperatures, seeds = [0.0, 0.8] * len(prompts), [7 + i for i in range(2 * len(prompts))]
    doubled = [prompt for prompt in prompts for _ in range(2)]
    arguments = {"max_new_tokens": num_tokens, "temperature": temperatures, "seed": seeds}
    expected, results = plain.generate(doubled, **arguments), decoder.generate(doubled, **arguments)
    num_different = 0
    for prompt, temperature, result, wanted in zip(doubled, temperatures, results, expected, strict=True):
        if result.token_ids == wanted.token_ids:
            assert (result.text, result.finish_reason) == (wanted.text, wanted.finish_reason)
            continue
        num_different += 1
        first = next(
            j
            for j, (ours, theirs) in enumerate(zip(result.token_ids, wanted.token_ids, strict=False))
            if ours != theirs
        )
        context = [*decoder.target.encode(prompt), *wanted.token_ids[:first]]
        row = decoder.target.open(1, len(context)).feed([0], [context], [1])[0]
        if temperature == 0.0:
            gap = float((row[result.token_ids[first]] - row[wanted.token_ids[first]]).abs())
            assert gap < 1e-3, f"{prompt!r}: token {first} differs with a logit gap of {gap}"
        else:
            probs = (row.double() / temperature).softmax(0)
            low, high = sorted((result.token_ids[first], wanted.token_ids[first]))
            between = float(probs[low + 1 : high].sum())
            assert between < 1e-5, f"{prompt!r}: token {first} differs with a mass of {between} between the two"
    assert num_different <= 1
    return decoder


@pytest.mark.models
@needs("smollm2", "embedded")
def test_tokens_of_smollm2_are_plain_with_drafts_of_the_embedded_drafter_as_text() -> None:
    prompts = [PROMPTS["recipe"], PROMPTS["code"], CJK]
    decoder = assert_tokens_are_plain(loaded("smollm2"), loaded("embedded"), prompts, 16)
    assert decoder.stats.accepted > 8


@pytest.mark.models
@needs("smollm2", "embedded")
def test_greedy_slrs_on_real_models_accepts_and_stays_plain() -> None:
    decoder = SpeculativeDecoder(loaded("smollm2"), loaded("embedded"), "slrs", 4)
    plain = SpeculativeDecoder(decoder.target, method="none")
    arguments = {"max_new_tokens": 16, "temperature": 0.0}
    prompts = [PROMPTS["recipe"], PROMPTS["facts"]]
    expected = plain.generate(prompts, **arguments)
    assert [result.token_ids for result in decoder.generate(prompts, **arguments)] == [
        wanted.token_ids for wanted in expected
    ]
    assert decoder.stats.accepted > 5
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


@pytest.mark.gemma
@needs("gemma3-270m", "smollm2")
def test_tokens_of_gemma_are_plain_with_drafts_of_smollm2_as_text() -> None:
    prompts = [PROMPTS["story"], PROMPTS["code"], CJK]
    decoder = assert_tokens_are_plain(loaded("gemma3-270m"), loaded("smollm2"), prompts, 16)
    assert decoder.stats.accepted > 20
