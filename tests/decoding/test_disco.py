# SPDX-License-Identifier: Apache-2.0
"""DISCO: its features, its classifier's file and training, and the replay that its threshold is chosen by."""

import itertools
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from hetero_spec.decoding import DraftedToken, FixedLookahead, Sampling, SpeculativeDecoder
from hetero_spec.decoding.disco import NUM_FEATURES, SHIPPED_CLASSIFIER, DiscoClassifier, DiscoLookahead, features_of
from hetero_spec.decoding.disco_training import (
    Costs,
    RecordedDraft,
    RecordingLookahead,
    disco_lengths,
    examples_of,
    fit,
    fixed_length,
    measure_costs,
    oracle_length,
    ranking,
    replay,
    sweep,
    train,
)
from hetero_spec.decoding.lookahead import Lookahead
from hetero_spec.vocab import VocabMap, VocabMismatchError
from tests.decoding.pairs import agreeing_drafter, make_map, make_pair
from tests.decoding.test_lookahead import constant_disco

COSTS = Costs(1.0, (10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0, 17.0, 18.0))
# Drafts as they are drawn: under exact verification the default is greedy ones.
SETTINGS = {"max_new_tokens": 60, "temperature": 1.0, "draft_sampling": Sampling()}


def token(depth: int, request: int = 0) -> DraftedToken:
    return DraftedToken(request, depth, 0.5, 1.0, 0.9, (0.9, 0.1))


def test_features_are_logarithms_the_entropy_of_what_is_seen_and_the_place() -> None:
    features = features_of(DraftedToken(0, 3, 0.25, 0.0, 1.0, (0.5, 0.25)))
    assert features.shape == (NUM_FEATURES,)
    assert features[:3] == pytest.approx(np.log([0.25, 0.5, 0.25]))
    assert features[3:11] == pytest.approx(np.log(1e-6))
    assert features[11] == pytest.approx(1.5 * np.log(2.0))  # a half and two quarters, one of them the rest
    assert features[12] == 3.0


def test_a_draft_ends_when_it_is_no_longer_likely_to_be_accepted_whole() -> None:
    lookahead = constant_disco(0.8, 0.5, 8)
    lookahead.begin(2)
    # 0.8, 0.64, 0.512, 0.4096; the other request's draft has a count of its own.
    assert [lookahead.wants_more(token(depth)) for depth in range(2)] == [True, True]
    assert lookahead.wants_more(token(0, request=1))
    assert [lookahead.wants_more(token(depth)) for depth in range(2, 4)] == [True, False]
    assert lookahead.wants_more(token(0))


@pytest.mark.parametrize("threshold, length", [(-0.1, 4), (1.1, 4), (float("nan"), 4), (0.5, 0)])
def test_parameters_out_of_range_are_refused(threshold: float, length: int) -> None:
    with pytest.raises(ValueError, match=r"lookahead: (threshold|max_draft_tokens) must be"):
        constant_disco(0.8, threshold, length)


def random_classifier(seed: int = 0) -> DiscoClassifier:
    gen = np.random.default_rng(seed)
    return DiscoClassifier(gen.normal(size=(4, NUM_FEATURES)), gen.normal(size=4), gen.normal(size=4), 0.3)


def test_a_saved_classifier_is_the_same_when_it_is_loaded(tmp_path: Path) -> None:
    classifier, path = random_classifier(), tmp_path / "classifier.json"
    DiscoLookahead(classifier, 0.42, 7, {"target": "a"}).save(path, {"why": "test"})
    loaded = DiscoLookahead.load(path)
    features = np.random.default_rng(1).normal(size=(50, NUM_FEATURES))
    assert (loaded.classifier(features) == classifier(features)).all()
    assert (loaded.threshold, loaded.max_draft_tokens, loaded.made_for) == (0.42, 7, {"target": "a"})
    assert [file.name for file in tmp_path.iterdir()] == ["classifier.json"]


@pytest.mark.parametrize(
    "change, reason",
    [
        ({"format": "other"}, "format must be"),
        ({"threshold": 2.0}, "threshold must be in"),
        ({"output_weights": [1.0]}, "of shape"),
        ({"hidden_biases": [float("nan")] * 4}, "finite"),
        ({"threshold": None}, "threshold' is missing"),
    ],
)
def test_what_is_no_classifier_is_refused(change: dict[str, object], reason: str, tmp_path: Path) -> None:
    path = tmp_path / "classifier.json"
    DiscoLookahead(random_classifier(), 0.42, 7).save(path)
    content = {**json.loads(path.read_text()), **change}
    path.write_text(json.dumps({name: value for name, value in content.items() if value is not None}))
    with pytest.raises(ValueError, match=f"classifier.json must be a classifier's file .*{reason}"):
        DiscoLookahead.load(path)


def test_a_file_that_is_not_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "classifier.json"
    path.write_text("{")
    with pytest.raises(ValueError, match="must be a classifier's file"):
        DiscoLookahead.load(path)


def test_the_shipped_classifier_says_what_it_was_made_for() -> None:
    lookahead = DiscoLookahead.load(SHIPPED_CLASSIFIER)
    assert (lookahead.made_for["target"], lookahead.made_for["drafter"]) == ("smollm2", "embedded")
    sure = features_of(DraftedToken(0, 0, 0.98, 0.1, 0.98, (0.98, 0.01, 0.005)))
    unsure = features_of(DraftedToken(0, 0, 0.06, 3.0, 0.08, (0.08, 0.07, 0.06, 0.05, 0.04, 0.03)))
    assert lookahead.classifier(sure) > lookahead.classifier(unsure)


@dataclass
class KnownDrafter:
    """All that `check_pair` looks at."""

    vocab_map: VocabMap | None = None
    target_sha256: str | None = None
    drafter_sha256: str | None = None


def test_a_classifier_is_refused_for_other_tokenizers_than_its_files() -> None:
    own, other = make_map(), make_map(target="abcdef")
    made_for = {
        "target": "big",
        "drafter": "small",
        "target_tokenizer_sha256": own.target.sha256,
        "drafter_tokenizer_sha256": own.drafter.sha256,
    }
    lookahead = DiscoLookahead(random_classifier(), 0.5, 3, made_for)
    lookahead.check_pair(KnownDrafter(own))  # type: ignore[arg-type]
    lookahead.check_pair(KnownDrafter())  # type: ignore[arg-type] # nothing is known of it
    DiscoLookahead(random_classifier(), 0.5, 3).check_pair(KnownDrafter(other))  # type: ignore[arg-type]
    with pytest.raises(VocabMismatchError) as refused:
        lookahead.check_pair(KnownDrafter(other))  # type: ignore[arg-type]
    for words in ("the target's tokenizer", other.target.sha256[:12], own.target.sha256[:12], "big <- small"):
        assert words in str(refused.value)
    # The same target, another drafter; a pruned drafter has no map, but hashes.
    with pytest.raises(VocabMismatchError, match="the drafter's tokenizer"):
        lookahead.check_pair(KnownDrafter(make_map([b"b", b"a"])))  # type: ignore[arg-type]
    with pytest.raises(VocabMismatchError, match="the drafter's tokenizer"):
        lookahead.check_pair(KnownDrafter(None, own.target.sha256, "0" * 64))  # type: ignore[arg-type]


def test_the_decoder_refuses_a_classifier_of_another_pair() -> None:
    target, drafter = make_pair()
    with pytest.raises(VocabMismatchError, match="made for the target's tokenizer .* smollm2 <- embedded"):
        SpeculativeDecoder(target, drafter, lookahead="disco")


def synthetic(num_examples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens that are accepted with their own probability."""
    gen = np.random.default_rng(seed)
    laws = gen.dirichlet(np.full(12, 0.3), size=num_examples)
    chosen = [gen.choice(12, p=law) for law in laws]
    features, labels = [], []
    for law, token_id in zip(laws, chosen, strict=True):
        top = tuple(sorted(law, reverse=True)[:10])
        features.append(features_of(DraftedToken(0, 0, law[token_id], 0.0, top[0], top)))
        labels.append(float(gen.random() < law[token_id]))
    return np.array(features), np.array(labels)


def test_training_ranks_accepted_tokens_above_others_and_repeats_itself() -> None:
    features, labels = synthetic(1500, 0)
    unseen, truth = synthetic(800, 1)
    classifier = train(features, labels, num_steps=200)
    chances = classifier(unseen)
    # The best that can be done, by the very chance that decides, is 0.75.
    assert ranking(chances, truth) > 0.72  # type: ignore[operator]
    # Calibrated too, not only in order.
    assert abs(float(chances.mean() - truth.mean())) < 0.05
    again = train(features, labels, num_steps=200)
    assert (again.hidden_weights == classifier.hidden_weights).all()


def test_training_on_shuffled_labels_stays_at_chance() -> None:
    features, labels = synthetic(1500, 0)
    unseen, truth = synthetic(800, 1)
    classifier = train(features, np.random.default_rng(2).permutation(labels), num_steps=200)
    assert abs(ranking(classifier(unseen), truth) - 0.5) < 0.15  # type: ignore[operator]


def test_training_needs_an_example() -> None:
    with pytest.raises(ValueError, match="labels must hold at least one"):
        train(np.empty((0, NUM_FEATURES)), np.empty(0))


def test_ranking_counts_pairs() -> None:
    # Pairs (accepted, not): .9 > .5, .9 > .2, .5 = .5, .5 > .2.
    assert ranking(np.array([0.9, 0.5, 0.5, 0.2]), np.array([1.0, 1.0, 0.0, 0.0])) == 3.5 / 4
    assert ranking(np.array([0.9, 0.5]), np.array([1.0, 1.0])) is None


def test_examples_end_with_the_first_token_that_was_not_accepted() -> None:
    features = np.arange(4 * NUM_FEATURES, dtype=float).reshape(4, NUM_FEATURES)
    drafts = [RecordedDraft(features, 5, 2), RecordedDraft(features[:2], 3, 3), RecordedDraft(features[:0], 1, 0)]
    rows, labels = examples_of(drafts)
    assert labels.tolist() == [1, 1, 0, 1, 1]
    assert (rows == np.concatenate([features[:3], features[:2]])).all()


def test_replay_of_shorter_drafts_by_hand() -> None:
    drafts = [RecordedDraft(np.zeros((5, NUM_FEATURES)), 6, 4)]
    # a b | c d | ... : two accepted and the third emitted by the target, one accepted and the fifth differs.
    two = replay(drafts, fixed_length(2), COSTS)
    assert (two.tokens, two.rounds, two.drafted, two.accepted, two.seconds) == (5, 2, 4, 3, 2 * (2.0 + 12.0))
    whole = replay(drafts, fixed_length(6), COSTS)
    assert (whole.tokens, whole.rounds, whole.drafted, whole.accepted) == (5, 1, 6, 4)
    oracle = replay(drafts, oracle_length(drafts, 8), COSTS)
    assert (oracle.tokens, oracle.rounds, oracle.drafted, oracle.accepted) == (5, 1, 5, 4)
    assert oracle.tokens_per_second == 5 / (5.0 + 15.0)


def record(seeds: range, length: int = 59) -> list[RecordedDraft]:
    """Drafts that never end before the text does: verified by exact match, so that texts do not depend on them."""
    target, _ = make_pair()
    lookahead = RecordingLookahead(length)
    decoder = SpeculativeDecoder(target, agreeing_drafter(target), lookahead=lookahead, verify="exact")
    drafts = []
    for seed in seeds:
        decoder.generate([0, 2], seed=seed, **SETTINGS)
        drafts += lookahead.drafts
    return drafts


def decoded(lookahead: Lookahead, seeds: range) -> tuple[int, int, int]:
    """Rounds with a draft, tokens drafted, tokens accepted."""
    target, _ = make_pair()
    decoder = SpeculativeDecoder(target, agreeing_drafter(target), lookahead=lookahead, verify="exact")
    drafted = accepted = rounds = 0
    for seed in seeds:
        decoder.generate([0, 2], seed=seed, **SETTINGS)
        drafted += decoder.stats.proposed
        accepted += decoder.stats.accepted
        rounds += decoder.stats.target_steps
    return rounds, drafted, accepted


def rounds_without_a_draft(seeds: range) -> int:
    """The last token of a text is often left to the target alone; such a round is in no record."""
    return sum(1 for _ in seeds)


def test_replay_equals_decoding_with_a_shorter_fixed_length() -> None:
    seeds = range(6)
    drafts = record(seeds)
    for length in (1, 2, 3, 5):
        replayed = replay(drafts, fixed_length(length), COSTS)
        rounds, drafted, accepted = decoded(FixedLookahead(length), seeds)
        assert (replayed.drafted, replayed.accepted) == (drafted, accepted)
        assert 0 <= rounds - replayed.rounds <= rounds_without_a_draft(seeds)


def test_replay_equals_decoding_with_disco() -> None:
    seeds = range(6)
    drafts = record(seeds)
    classifier = train(*examples_of(drafts), num_steps=50)
    lengths_of = disco_lengths(drafts, classifier)
    seen = set()
    for threshold in (0.05, 0.3, 0.6):
        replayed = replay(drafts, lengths_of(threshold, 8), COSTS)
        rounds, drafted, accepted = decoded(DiscoLookahead(classifier, threshold, 8), seeds)
        assert (replayed.drafted, replayed.accepted) == (drafted, accepted)
        assert 0 <= rounds - replayed.rounds <= rounds_without_a_draft(seeds)
        seen.add(drafted)
    assert len(seen) == 3  # the threshold matters


def test_the_best_of_the_sweep_is_the_quickest() -> None:
    drafts = record(range(4))
    classifier = train(*examples_of(drafts), num_steps=50)
    best, replays = sweep(drafts, classifier, COSTS, 3, thresholds=(0.0, 0.4, 0.9))
    assert len(replays) == 9
    assert replays[best].tokens_per_second == max(result.tokens_per_second for result in replays.values())
    # Without a threshold only the length decides.
    for longest in (1, 2, 3):
        assert replays[0.0, longest] == replay(drafts, fixed_length(longest), COSTS)
    assert replays[0.4, 3].drafted < replays[0.0, 3].drafted


def test_a_fit_compares_with_the_best_fixed_length_and_the_oracle() -> None:
    costs = Costs(0.1, COSTS.verify)  # drafting pays
    _, threshold, longest, report = fit(record(range(5)), record(range(5, 8)), costs, 8)
    speeds = {name: result["tokens_per_second"] for name, result in report["replays"].items()}
    best = report["best_fixed_length"]
    assert list(speeds) == ["plain", f"fixed {best}", "disco", "oracle"]
    assert speeds[f"fixed {best}"] == max(entry["tokens_per_second"] for entry in report["fixed"])
    by_threshold = {entry["threshold"]: entry["tokens_per_second"] for entry in report["thresholds"]}
    assert speeds["disco"] == by_threshold[threshold] == max(by_threshold.values())
    assert 1 <= longest <= 8
    assert speeds["disco"] >= speeds[f"fixed {best}"]
    # Nothing needs fewer target calls than the oracle; a policy that spares more drafted tokens may still be quicker.
    assert report["replays"]["oracle"]["block_efficiency"] == max(
        result["block_efficiency"] for result in report["replays"].values()
    )
    assert report["ranking_held_out"] > 0.55
    json.dumps(report)
    with pytest.raises(ValueError, match="held_out must hold drafts"):
        fit(record(range(1)), [], COSTS, 8)


def test_recorded_drafts_survive_json() -> None:
    draft = max(record(range(1)), key=lambda draft: len(draft.features))
    again = RecordedDraft.from_dict(json.loads(json.dumps(draft.as_dict())))
    assert (again.num_draft_tokens, again.num_accepted_tokens) == (draft.num_draft_tokens, draft.num_accepted_tokens)
    assert len(again.features) == draft.num_draft_tokens - 1 > 0
    np.testing.assert_allclose(again.features, draft.features, rtol=1e-4)


def test_costs_are_the_least_that_the_clock_says() -> None:
    target, drafter = make_pair()
    # Every step takes one tick more than the one before, so that medians and lengths can be told apart.
    ticks = itertools.chain.from_iterable((0.0, float(number)) for number in itertools.count())
    steps: list[int] = []
    costs = measure_costs(
        target, drafter, [0, 3, 1], 2, num_repeats=3, clock=lambda: next(ticks), on_step=lambda: steps.append(1)
    )
    # Six steps a repeat, target and drafter in turns; the first repeat is thrown away, the second is the quickest.
    assert costs.verify == (6.0, 8.0, 10.0)
    assert costs.draft == 7.0
    assert (costs.of(0), costs.of(1), costs.of(5)) == (6.0, 15.0, 45.0)
    assert len(steps) == 4
