# SPDX-License-Identifier: Apache-2.0
"""Real vocabularies of installed packages: counts that were found independently, and the edge cases they brought up."""

import pytest

from hetero_spec.vocab import VocabMap, read_vocabulary
from tests.vocab.samples import real_path

GEMMA = pytest.param("gemma", marks=pytest.mark.gemma)

# Ids, different byte strings, specials, byte strings with several ids, single bytes with a token.
COUNTS = {
    "deepseek": (129_280, 128_050, 1_230, 0, 256),
    "qwen": (151_643, 151_643, 0, 0, 256),
    "qwen3_6": (248_044, 248_044, 0, 0, 256),
    "mistral_v3": (32_768, 31_892, 751, 125, 256),
    "tekken": (131_072, 130_072, 1_000, 0, 256),
    "smollm2": (49_152, 49_135, 17, 0, 235),
    "gemma": (262_144, 255_785, 6_249, 110, 256),
}


@pytest.mark.parametrize("name", [GEMMA if name == "gemma" else name for name in COUNTS])
def test_counts_of_a_vocabulary(real, name):
    vocabulary = real(name)
    strings = {token for token in vocabulary.tokens if token is not None}
    num_tokens = sum(token is not None for token in vocabulary.tokens)
    num_single_bytes = sum(len(token) == 1 for token in strings)
    assert COUNTS[name] == (
        len(vocabulary),
        len(strings),
        len(vocabulary.specials),
        num_tokens - len(strings),
        num_single_bytes,
    )


@pytest.mark.parametrize(
    ("target", "drafter", "num_shared"),
    [
        ("deepseek", "qwen", 84_030),
        ("deepseek", "mistral_v3", 29_220),
        ("tekken", "mistral_v3", 29_163),
        ("qwen3_6", "qwen", 131_586),
        ("qwen", "smollm2", 39_234),
        pytest.param("gemma", "smollm2", 46_145, marks=pytest.mark.gemma),
    ],
)
def test_number_of_shared_tokens(real, target, drafter, num_shared):
    vocab_map = VocabMap(real(target), real(drafter))
    assert vocab_map.num_shared == num_shared
    assert int((vocab_map.draft_to_target_ids >= 0).sum()) == num_shared + len(vocab_map.specials)


@pytest.mark.parametrize(
    ("target", "drafter"),
    [
        ("deepseek", "mistral_v3"),
        ("tekken", "mistral_v3"),
        ("mistral_v3", "tekken"),
        ("qwen", "smollm2"),
        pytest.param("gemma", "smollm2", marks=pytest.mark.gemma),
    ],
)
def test_map_is_injective_and_spells_the_same_bytes(real, target, drafter):
    vocab_map = VocabMap(real(target), real(drafter))
    to_target = vocab_map.draft_to_target_ids
    draft_ids = (to_target >= 0).nonzero().flatten()
    target_ids = to_target[draft_ids]
    assert target_ids.unique().numel() == target_ids.numel()
    assert vocab_map.target_to_draft_ids[target_ids.long()].equal(draft_ids.int())
    for target_id in range(0, vocab_map.target_vocab_size, 41):
        token, spelling = vocab_map.target_tokens[target_id], vocab_map.spell_with_drafter(target_id)
        if token is not None and spelling is not None:
            assert b"".join(vocab_map.draft_tokens[draft_id] for draft_id in spelling) == token


# -- not every byte has a token ----------------------------------------------------------------------------------------

SMOLLM2_MISSING = [0x04, 0x06, 0x13, 0x14, 0x16, 0x1D, 0xC0, 0xC1, 0xF1, 0xF2, *range(0xF5, 0x100)]


def test_bytes_that_the_drafter_lacks_make_target_tokens_unspellable(real):
    vocab_map = VocabMap(real("qwen"), real("smollm2"))
    report = vocab_map.report()
    assert report.draft_missing_bytes == SMOLLM2_MISSING
    unspellable = [vocab_map.target_tokens[target_id] for target_id in report.unspellable_target_ids]
    assert sorted(unspellable) == [bytes([byte]) for byte in SMOLLM2_MISSING]


def test_complete_drafter_spells_every_target_token(real):
    assert VocabMap(real("smollm2"), real("qwen")).unspellable_target_ids == []


@pytest.mark.parametrize("text", ["a\x04b", "a\U00040000b"])
def test_tokenizer_without_a_byte_fails_the_round_trip(real, text):
    vocabulary = real("smollm2")
    joined = b"".join(vocabulary.tokens[token_id] for token_id in vocabulary.encoder(text))
    assert joined != text.encode() and joined.startswith(b"a") and joined.endswith(b"b")


# -- many ids, one byte string -----------------------------------------------------------------------------------------


@pytest.mark.gemma
def test_newline_of_gemma_is_the_normal_piece(real):
    vocab_map = VocabMap(real("gemma"), real("smollm2"))
    newline = next(each for each in vocab_map.target_duplicates if each.token == b"\n")
    assert (newline.kept_id, newline.dropped_ids) == (107, (248,))
    assert vocab_map.spell_with_drafter(248) == vocab_map.spell_with_drafter(107)
    wrong = VocabMap(real("gemma"), real("smollm2"), duplicates="byte")
    assert wrong.spell_with_drafter(248) == vocab_map.spell_with_drafter(107)
    assert int(wrong.target_to_draft_ids[107]) == -1
    # What text is made of: the wrong rule unmaps "." and "," and every digit and letter that stands alone.
    text = "He paid 3, not 4.\nWhy? (No one knew.)"
    right_share = vocab_map.report(text).target.text_coverage
    wrong_share = wrong.report(text).target.text_coverage
    assert right_share == 1.0 and wrong_share < 0.7


def test_duplicates_of_mistral_are_a_normal_and_a_byte_piece(real):
    vocabulary = real("mistral_v3")
    duplicates = VocabMap(vocabulary, vocabulary).target_duplicates
    assert len(duplicates) == 125
    for duplicate in duplicates:
        assert duplicate.kept_id not in vocabulary.byte_fallback_ids
        assert all(token_id in vocabulary.byte_fallback_ids for token_id in duplicate.dropped_ids)


# -- specials, unused ids, wide heads ----------------------------------------------------------------------------------


def test_end_and_start_are_matched_by_role(real):
    vocab_map = VocabMap(real("deepseek"), real("mistral_v3"))
    assert [(match.target_text, match.draft_text, match.matched_by) for match in vocab_map.specials] == [
        ("<｜end▁of▁sentence｜>", "</s>", "eos"),
        ("<｜begin▁of▁sentence｜>", "<s>", "bos"),
    ]
    assert len(vocab_map.report().drafter.unmatched_specials) == 749


def test_specials_of_two_mistral_tokenizers_are_matched_by_text(real):
    vocab_map = VocabMap(real("tekken"), real("mistral_v3"))
    by_text = {match.target_text for match in vocab_map.specials if match.matched_by == "text"}
    assert {"[INST]", "[/INST]", "[TOOL_CALLS]", "<unk>"} <= by_text


@pytest.mark.gemma
def test_unused_ids_of_gemma_are_control_and_its_tags_are_text(real):
    vocabulary = real("gemma")
    assert vocabulary.tokens[vocabulary.specials["<unused0>"]] is None
    assert b"<table>" in vocabulary.tokens and b"   " in vocabulary.tokens
    assert vocabulary.roles == {"eos": 1, "bos": 2, "pad": 0, "unk": 3}


def test_head_wider_than_the_tokenizer(real):
    vocab_map = VocabMap(real("deepseek"), real("qwen"), draft_vocab_size=151_936)
    assert vocab_map.draft_to_target_ids.shape == (151_936,)
    assert bool((vocab_map.draft_to_target_ids[151_643:] == -1).all())
    assert vocab_map.draft_tokens[151_643:] == [None] * 293
    assert vocab_map.report().drafter.num_beyond_tokenizer == 293


# -- text --------------------------------------------------------------------------------------------------------------

TEXT = "def f(x):\n\treturn x[0] * 3.5  # naïve café\n\n你好，世界 🙂 and so on"


@pytest.mark.parametrize("name", ["deepseek", "qwen", "tekken", "smollm2", GEMMA])
def test_tokens_of_a_text_join_to_the_text(real, name):
    vocabulary = real(name)
    assert b"".join(vocabulary.tokens[token_id] for token_id in vocabulary.encoder(TEXT)) == TEXT.encode()


def test_mistral_v3_adds_a_leading_space(real):
    vocabulary = real("mistral_v3")
    assert b"".join(vocabulary.tokens[token_id] for token_id in vocabulary.encoder(TEXT)) == b" " + TEXT.encode()


@pytest.mark.parametrize(
    ("name", "pieces"),
    [
        ("deepseek", [b"123", b"456", b"78"]),
        ("qwen", [b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"8"]),
        ("smollm2", [b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"8"]),
        ("mistral_v3", [b" ", b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"8"]),
        pytest.param("gemma", [b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"8"], marks=pytest.mark.gemma),
    ],
)
def test_digits_are_grouped_as_the_tokenizer_does(real, name, pieces):
    vocabulary = real(name)
    assert [vocabulary.tokens[token_id] for token_id in vocabulary.encoder("12345678")] == pieces


def test_coverage_by_mass_exceeds_coverage_by_count(real):
    report = VocabMap(real("deepseek"), real("mistral_v3")).report(TEXT)
    assert report.target.coverage == pytest.approx(29_220 / 128_050)
    assert report.drafter.coverage == pytest.approx(29_220 / 31_892)
    assert report.target.text_coverage > 2 * report.target.coverage


# -- one vocabulary, several sources -----------------------------------------------------------------------------------


def test_transformers_tokenizer_and_its_file_have_one_hash(real):
    from transformers import PreTrainedTokenizerFast

    wrapped = PreTrainedTokenizerFast(tokenizer_file=str(real_path("deepseek")))
    assert read_vocabulary(wrapped).sha256 == real("deepseek").sha256


def test_sentencepiece_processor_and_its_file_have_one_hash(real):
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_file=str(real_path("mistral_v3")))
    assert read_vocabulary(processor) == real("mistral_v3")


@pytest.mark.parametrize("name", ["smollm2", GEMMA])
def test_tokenizer_built_from_a_gguf_file_has_its_hash(real, name):
    from hetero_spec.models.gguf_reader import GGUFFile
    from hetero_spec.models.gguf_tokenizer import build_tokenizer

    with GGUFFile(real_path(name), header_only=True) as file:
        tokenizer = build_tokenizer(file)
    vocabulary = read_vocabulary(tokenizer)
    assert vocabulary.tokens == real(name).tokens
    assert vocabulary.sha256 == real(name).sha256


def test_saved_map_of_real_tokenizers_is_checked_against_them(real, tmp_path):
    vocab_map = VocabMap(real("qwen"), real("smollm2"), target_vocab_size=151_936)
    vocab_map.save(tmp_path / "m")
    loaded = VocabMap.load(tmp_path / "m", real("qwen"), real_path("smollm2"))
    assert loaded.draft_to_target_ids.equal(vocab_map.draft_to_target_ids)
    with pytest.raises(ValueError, match="target tokenizer must be the one"):
        VocabMap.load(tmp_path / "m", real("deepseek"))
