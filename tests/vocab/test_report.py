# SPDX-License-Identifier: Apache-2.0
import io
import json
from dataclasses import replace

import pytest
import torch
from rich.console import Console

from hetero_spec.vocab import VocabMap, make_vocabulary


def _vocabulary(*tokens, encoder=None, **parts):
    return make_vocabulary(tokens, kind="letters", encoder=encoder, **parts)


def _by_letter(*tokens):
    """Encode letter by letter; letters without a token are dropped."""
    return lambda text: [tokens.index(letter.encode()) for letter in text if letter.encode() in tokens]


@pytest.fixture
def vocab_map():
    target, drafter = (b"a", b"b", b"c", b"d"), (b"b", b"x", b"a")
    return VocabMap(
        _vocabulary(*target, None, encoder=_by_letter(*target), specials={"[/s]": 4}, roles={"eos": 4}),
        _vocabulary(*drafter, None, encoder=_by_letter(*drafter), specials={"<e>": 3}, roles={"eos": 3}),
        target_vocab_size=8,
    )


def test_coverage_by_count_is_of_different_strings():
    report = VocabMap.from_bytes([b"a", b"b", b"b", b"c", None], [b"b", b"z"]).report()
    assert report.num_shared == 1
    assert report.target.num_tokens == 4 and report.target.num_strings == 3
    assert report.target.coverage == pytest.approx(1 / 3)
    assert report.drafter.coverage == pytest.approx(1 / 2)


def test_case_43_coverage_of_a_text_weighs_tokens_by_frequency(vocab_map):
    report = vocab_map.report("aaaabbcdx")
    # Target: a, b shared, c, d not: 6 of 8. Drafter: 6 of 7, x is not shared.
    assert report.target.text_coverage == pytest.approx(6 / 8)
    assert report.drafter.text_coverage == pytest.approx(6 / 7)
    assert (report.target.num_text_tokens, report.drafter.num_text_tokens) == (8, 7)
    assert report.target.coverage == pytest.approx(2 / 4)


def test_coverage_of_given_ids_needs_no_tokenizer():
    vocab_map = VocabMap.from_bytes([b"a", b"b"], [b"b"])
    report = vocab_map.report(target_token_ids=[0, 1, 1, 1, 7])
    assert report.target.text_coverage == pytest.approx(3 / 5)
    assert report.drafter.text_coverage is None


def test_matched_special_counts_as_covered(vocab_map):
    assert vocab_map.report(target_token_ids=[4, 2]).target.text_coverage == pytest.approx(0.5)


def test_text_without_tokens_has_no_coverage(vocab_map):
    assert vocab_map.report("").target.text_coverage is None


def test_mass_of_the_target_is_exact(vocab_map):
    probs = [0.1, 0.2, 0.3, 0.15, 0.05, 0.1, 0.06, 0.04]
    assert vocab_map.report(target_probs=probs).target_mass == pytest.approx(0.1 + 0.2 + 0.05)
    # A sum over positions instead of a mean gives the same share.
    assert vocab_map.report(target_probs=torch.tensor(probs) * 50).target_mass == pytest.approx(0.35)
    assert vocab_map.report().target_mass is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"text": "a", "target_token_ids": [0]}, "must not both be given"),
        ({"target_probs": [0.5, 0.5]}, r"target_probs must be \[8\], got \[2\]"),
        ({"target_probs": [-0.1, 1.1, 0, 0, 0, 0, 0, 0]}, "must be non-negative"),
        ({"target_probs": [0.0] * 8}, "finite sum above 0"),
        ({"target_probs": [float("nan")] + [1.0] * 7}, "must be non-negative"),
        ({"target_token_ids": [0, -1]}, "target_token_ids must be at least 0, got -1"),
    ],
)
def test_wrong_arguments_are_refused(vocab_map, arguments, message):
    with pytest.raises(ValueError, match=message):
        vocab_map.report(**arguments)


def test_text_without_an_encoder_is_an_error():
    with pytest.raises(ValueError, match="pass target_token_ids, or give the tokenizer to VocabMap.load"):
        VocabMap.from_bytes([b"a"], [b"a"]).report("a")


def test_assumption_about_the_encoder_is_reported(vocab_map):
    vocab_map.target = replace(vocab_map.target, encoder_note="a guess")
    assert vocab_map.report("a").target.text_note == "a guess"
    assert vocab_map.report().target.text_note == ""


def test_report_says_what_was_left_out(vocab_map):
    report = vocab_map.report()
    assert report.target.num_beyond_tokenizer == 3 and report.drafter.num_beyond_tokenizer == 0
    assert report.unspellable_target_ids == [2, 3]
    assert len(report.draft_missing_bytes) == 253
    assert [match.matched_by for match in report.specials] == ["eos"]
    assert report.target.unmatched_specials == {}
    assert report.target.sha256 == vocab_map.target.sha256 != report.drafter.sha256


def test_dictionary_survives_json():
    vocab_map = VocabMap.from_bytes(
        [b"\xff", b"\xff", b"a"], [b"\xff"], duplicates="byte", target_byte_fallback_ids=[1]
    )
    content = json.loads(json.dumps(vocab_map.report(target_token_ids=[0]).as_dict()))
    assert content["duplicate_rule"] == "byte"
    assert content["target"]["duplicates"] == [{"bytes": "ff", "text": "\\xff", "kept_id": 1, "dropped_ids": [0]}]
    assert content["target"]["text_coverage"] == 0.0
    assert set(content["target"]) == set(content["drafter"])


def test_table_shows_the_numbers_and_does_not_read_tokens_as_markup(vocab_map):
    output = io.StringIO()
    Console(width=100, file=output).print(vocab_map.report("aab", target_probs=[1.0] * 8).table())
    for expected in ("[/s] 4", "<e> 3", "matched by eos", "coverage of the text's tokens", "100.0%", "37.5%"):
        assert expected in output.getvalue()
