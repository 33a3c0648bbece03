# SPDX-License-Identifier: Apache-2.0
"""The map. Numbers in test names are those of the project's list of faults seen in other engines."""

import random

import pytest
import torch

from hetero_spec.vocab import EmptyIntersectionError, VocabMap, make_vocabulary, read_vocabulary
from tests.vocab.samples import byte_level_tokenizer, spm_style_tokenizer, tiktoken_data


def test_hand_worked_map():
    vocab_map = VocabMap.from_bytes([b"a", b"b", b"ab", None], [b"b", None, b"a"])
    assert vocab_map.draft_to_target_ids.tolist() == [1, -1, 0]
    assert vocab_map.target_to_draft_ids.tolist() == [2, 0, -1, -1]
    assert vocab_map.target_to_draft_tokens == [(2,), (0,), (2, 0), None]
    assert vocab_map.num_shared == 2
    assert vocab_map.target_tokens == [b"a", b"b", b"ab", None]
    assert vocab_map.draft_tokens == [b"b", None, b"a"]


def test_id_tensors_are_int32_on_the_cpu():
    vocab_map = VocabMap.from_bytes([b"a"], [b"a", b"b"])
    for ids in (vocab_map.draft_to_target_ids, vocab_map.target_to_draft_ids):
        assert ids.dtype == torch.int32 and ids.device.type == "cpu" and ids.is_contiguous()


# -- the list of faults ------------------------------------------------------------------------------------------------


def test_case_38_heads_wider_than_one_tokenizer_map_its_ids_only():
    tokens = [b"a", b"b", b"c", b"d"]
    vocab_map = VocabMap.from_bytes(tokens, tokens, target_vocab_size=6, draft_vocab_size=5)
    assert vocab_map.target_to_draft_ids.tolist() == [0, 1, 2, 3, -1, -1]
    assert vocab_map.draft_to_target_ids.tolist() == [0, 1, 2, 3, -1]
    assert vocab_map.target_tokens == [*tokens, None, None]
    assert vocab_map.draft_tokens == [*tokens, None]
    assert vocab_map.spell_with_drafter(5) is None


def test_case_40_equal_sizes_with_permuted_ids_are_not_the_identity():
    vocab_map = VocabMap.from_bytes([b"a", b"b", b"c"], [b"c", b"a", b"b"])
    assert vocab_map.draft_to_target_ids.tolist() == [2, 0, 1]


def test_case_41_vocabularies_that_differ_in_two_specials_are_mapped_and_the_specials_reported():
    words = [b"a", b"b"]
    vocab_map = VocabMap.from_tokenizers(
        byte_level_tokenizer(words, ("<|im_start|>", "<x>", "<y>")),
        byte_level_tokenizer(words, ("<|im_start|>", "<z>")),
    )
    assert vocab_map.draft_to_target_ids.tolist() == [0, 1, 2, -1]
    report = vocab_map.report()
    assert report.target.unmatched_specials == {"<x>": 3, "<y>": 4}
    assert report.drafter.unmatched_specials == {"<z>": 3}


def test_case_42_restriction_to_the_intersection_and_the_law_that_recovers_it():
    vocab_map = VocabMap.from_bytes([b"a", b"b", b"c", b"d"], [b"a", b"b", b"x"])
    target = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
    drafter = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64)
    shared = vocab_map.draft_to_target_ids >= 0
    restricted = torch.zeros(4, dtype=torch.float64)
    restricted[vocab_map.draft_to_target_ids[shared].long()] = drafter[shared] / drafter[shared].sum()
    accepted = torch.minimum(target, restricted)
    recovery = (target - restricted).clamp(min=0)
    recovery /= recovery.sum()
    assert restricted.tolist() == pytest.approx([0.714, 0.286, 0, 0], abs=5e-4)
    assert float(accepted.sum()) == pytest.approx(0.686, abs=5e-4)
    assert recovery.tolist() == pytest.approx([0, 0.045, 0.636, 0.318], abs=5e-4)
    assert (accepted + (1 - accepted.sum()) * recovery).tolist() == pytest.approx(target.tolist())


def test_case_42_token_outside_the_intersection_is_spelt_and_never_becomes_unknown_or_end():
    vocab_map = VocabMap.from_bytes(
        [b"hello", b"h", b"\xff", None, None],
        [None, None, b"he", b"l", b"o", b"h"],
        target_specials={"<eos>": 3, "<other>": 4},
        target_roles={"eos": 3},
        draft_specials={"<eos>": 0, "<unk>": 1},
        draft_roles={"eos": 0, "unk": 1},
    )
    assert vocab_map.spell_with_drafter(0) == (2, 3, 3, 4)
    assert vocab_map.spell_with_drafter(2) is None
    assert vocab_map.spell_with_drafter(3) == (0,)
    assert vocab_map.spell_with_drafter(4) is None
    assert vocab_map.unspellable_target_ids == [2]


def test_case_45_narrower_drafter_is_mapped_by_bytes_and_not_by_position():
    vocab_map = VocabMap.from_bytes([b"x", b"y", b"a", b"b"], [b"a", b"b"])
    assert vocab_map.draft_to_target_ids.tolist() == [2, 3]
    assert vocab_map.target_to_draft_ids.tolist() == [-1, -1, 0, 1]


def test_case_49_same_byte_maps_and_same_display_string_does_not():
    # SentencePiece "Ã" is U+00C3, two bytes; the byte-level token shown as "Ã" is the byte C3.
    spm = spm_style_tokenizer(["<0x0A>", "Ã", "a"])
    byte_level = byte_level_tokenizer([b"\xc3", b"\n", b"\xc3\x83", b"a"])
    assert set(byte_level.get_vocab()) >= {"Ã", "Ċ"}
    vocab_map = VocabMap.from_tokenizers(spm, byte_level)
    assert vocab_map.draft_to_target_ids.tolist() == [-1, 0, 1, 2]


def test_case_50_space_markers_of_two_styles_are_the_same_space():
    spm = spm_style_tokenizer(["▁hello", "hello", "▁", "▁▁x", "x▁y"])
    byte_level = byte_level_tokenizer([b"hello", b" hello", b"  x", b" ", b"x y"])
    vocab_map = VocabMap.from_tokenizers(spm, byte_level)
    assert vocab_map.draft_to_target_ids.tolist() == [1, 0, 3, 2, 4]


def test_case_50_specials_stay_whole_where_a_space_is_written_as_a_byte_piece():
    drafter = spm_style_tokenizer(["<0x20>", "a", "<"], ("<s>", "</s>"))
    drafter.normalizer = None  # so that " " is encoded by byte fallback: its token is "<0x20>"
    assert drafter.encode(" ").tokens == ["<0x20>"]
    target = byte_level_tokenizer([b" ", b"a", b"<"], ("</s>", "<s>"))
    vocab_map = VocabMap.from_tokenizers(target, drafter)
    assert vocab_map.draft_to_target_ids.tolist() == [0, 1, 2, 4, 3]
    assert vocab_map.drafter.specials == {"<s>": 3, "</s>": 4}


def test_case_54_end_and_start_are_matched_by_role_and_reported():
    target = byte_level_tokenizer([b"a"], ("<end>", "<begin>", "<|im_end|>"))
    drafter = byte_level_tokenizer([b"a"], ("<|im_start|>", "<|im_end|>"))
    vocab_map = VocabMap(
        read_vocabulary(target, roles={"eos": 1, "bos": 2}),
        read_vocabulary(drafter, roles={"eos": 2, "bos": 1, "pad": 2, "unk": 1}),
    )
    # The drafter's end is the target's end, though the target has another token of the same text.
    assert vocab_map.draft_to_target_ids.tolist() == [0, 2, 1]
    assert [(match.target_text, match.draft_text, match.matched_by) for match in vocab_map.specials] == [
        ("<end>", "<|im_end|>", "eos"),
        ("<begin>", "<|im_start|>", "bos"),
    ]
    roles = vocab_map.report().roles
    assert roles["eos"] == {"target": 1, "drafter": 2, "mapped": True}
    assert roles["pad"] == {"target": None, "drafter": 2, "mapped": False}


# -- specials ----------------------------------------------------------------------------------------------------------


def test_specials_are_never_matched_by_bytes():
    # The target's "</s>" is text, the drafter's is special.
    vocab_map = VocabMap.from_bytes([b"</s>", b"a"], [None, b"a"], draft_specials={"</s>": 0})
    assert vocab_map.draft_to_target_ids.tolist() == [-1, 1]


def test_one_token_in_two_roles_is_mapped_once():
    vocab_map = VocabMap.from_bytes(
        [b"a", None, None], [b"a", None], target_roles={"eos": 1, "bos": 2}, draft_roles={"eos": 1, "bos": 1}
    )
    assert vocab_map.target_to_draft_ids.tolist() == [0, 1, -1]


def test_unknown_and_padding_are_not_matched_by_role():
    vocab_map = VocabMap.from_bytes(
        [b"a", None, None], [b"a", None, None], target_roles={"unk": 1, "pad": 2}, draft_roles={"unk": 1, "pad": 2}
    )
    assert vocab_map.draft_to_target_ids.tolist() == [0, -1, -1]


# -- duplicates --------------------------------------------------------------------------------------------------------

_DUPLICATES = {
    "target_tokens": [b"\n", b".", b".", b"\n", b"a"],
    "drafter_tokens": [b".", b"\n", b"\n", b"a", b"."],
    "target_byte_fallback_ids": [0],
    "draft_byte_fallback_ids": [0, 1],
}


def test_normal_piece_wins_over_byte_piece_then_the_lowest_id():
    vocab_map = VocabMap.from_bytes(**_DUPLICATES)
    assert vocab_map.target_to_draft_ids.tolist() == [-1, 4, -1, 2, 3]
    assert vocab_map.draft_to_target_ids.tolist() == [-1, -1, 3, 4, 1]
    assert [(each.token, each.kept_id, each.dropped_ids) for each in vocab_map.target_duplicates] == [
        (b".", 1, (2,)),
        (b"\n", 3, (0,)),
    ]
    assert [(each.token, each.kept_id, each.dropped_ids) for each in vocab_map.draft_duplicates] == [
        (b"\n", 2, (1,)),
        (b".", 4, (0,)),
    ]


def test_dropped_duplicate_is_spelt_with_the_kept_token():
    vocab_map = VocabMap.from_bytes(**_DUPLICATES)
    assert vocab_map.target_to_draft_tokens == [(2,), (4,), (4,), (2,), (3,)]


def test_byte_rule_prefers_byte_pieces():
    vocab_map = VocabMap.from_bytes(**_DUPLICATES, duplicates="byte")
    assert vocab_map.target_to_draft_ids.tolist() == [1, 0, -1, -1, 3]


@pytest.mark.parametrize("rule", ["normal", "byte"])
def test_order_of_three_ids_does_not_change_the_winner(rule):
    for byte_piece in range(3):
        vocab_map = VocabMap.from_bytes([b"x"] * 3, [b"x"], target_byte_fallback_ids=[byte_piece], duplicates=rule)
        expected = byte_piece if rule == "byte" else min({0, 1, 2} - {byte_piece})
        assert vocab_map.draft_to_target_ids.tolist() == [expected]
        (duplicate,) = vocab_map.target_duplicates
        assert sorted([duplicate.kept_id, *duplicate.dropped_ids]) == [0, 1, 2]


def test_wrong_rule_costs_acceptance():
    # A target that writes "." as a normal piece and never as a byte, and a drafter that agrees with it exactly.
    tokens, law = [b".", b".", b"a"], torch.tensor([0.0, 0.6, 0.4])
    drafter_law = torch.tensor([0.6, 0.4])

    def acceptance(rule: str) -> float:
        vocab_map = VocabMap.from_bytes(tokens, [b".", b"a"], target_byte_fallback_ids=[0], duplicates=rule)
        remapped = torch.zeros(3).index_put_((vocab_map.draft_to_target_ids.long(),), drafter_law)
        return float(torch.minimum(law, remapped).sum())

    assert acceptance("normal") == pytest.approx(1.0)
    assert acceptance("byte") == pytest.approx(0.4)


# -- widths ------------------------------------------------------------------------------------------------------------


def test_head_narrower_than_the_tokenizer_leaves_the_rest_out():
    vocab_map = VocabMap.from_bytes(
        [b"a", b"b", None],
        [b"b", b"a", None],
        target_roles={"eos": 2},
        draft_roles={"eos": 2},
        target_vocab_size=1,
        draft_vocab_size=2,
    )
    assert vocab_map.target_to_draft_ids.tolist() == [1]
    assert vocab_map.draft_to_target_ids.tolist() == [-1, 0]
    assert not vocab_map.specials
    report = vocab_map.report()
    assert (report.target.num_cut_off, report.drafter.num_cut_off) == (2, 1)
    assert report.target.num_specials == 0


def test_duplicate_beyond_a_narrow_head_does_not_win():
    vocab_map = VocabMap.from_bytes([b"a", b"a"], [b"a"], target_byte_fallback_ids=[0], target_vocab_size=1)
    assert vocab_map.draft_to_target_ids.tolist() == [0]
    assert not vocab_map.target_duplicates


@pytest.mark.parametrize("name", ["target_vocab_size", "draft_vocab_size"])
@pytest.mark.parametrize("width", [0, -3])
def test_width_must_be_positive(name, width):
    with pytest.raises(ValueError, match=f"{name} must be positive, got {width}"):
        VocabMap.from_bytes([b"a"], [b"a"], **{name: width})


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "drafter"), [([b"a"], [b"b"]), ([None], [None]), ([b"a"], [None]), ([b"a", None], [b"b", None])]
)
def test_empty_intersection_is_an_error_even_with_matching_specials(target, drafter):
    specials = {"<s>": len(target) - 1} if target[-1] is None and drafter[-1] is None else {}
    with pytest.raises(EmptyIntersectionError, match="must share at least one text token"):
        VocabMap.from_bytes(target, drafter, target_specials=specials, draft_specials=specials)


def test_unknown_rule_is_an_error():
    with pytest.raises(ValueError, match="duplicates must be one of normal, byte, got 'first'"):
        VocabMap.from_bytes([b"a"], [b"a"], duplicates="first")


@pytest.mark.parametrize("target_id", [-1, 2])
def test_spelling_of_an_id_out_of_range_is_an_error(target_id):
    with pytest.raises(IndexError, match=rf"target_id must be in \[0, 2\), got {target_id}"):
        VocabMap.from_bytes([b"a", b"b"], [b"a"]).spell_with_drafter(target_id)


def test_top_level_name_is_the_class():
    import hetero_spec

    assert hetero_spec.VocabMap is VocabMap


# -- properties --------------------------------------------------------------------------------------------------------


def _random_vocabulary(rng: random.Random):
    size = rng.randint(2, 40)
    tokens = [
        None if rng.random() < 0.1 else bytes(rng.choices(b"ab c", k=rng.choice([1, 1, 2, 3]))) for _ in range(size)
    ]
    tokens[0] = b"a"
    free = [token_id for token_id, token in enumerate(tokens) if token is None]
    specials = {f"<{rng.randint(0, 5)}>": token_id for token_id in free if rng.random() < 0.7}
    roles = {role: token_id for role, token_id in zip(("eos", "bos"), free, strict=False) if rng.random() < 0.7}
    fallback = [token_id for token_id, token in enumerate(tokens) if token and len(token) == 1 and rng.random() < 0.4]
    return make_vocabulary(tokens, kind="random", specials=specials, roles=roles, byte_fallback_ids=fallback)


@pytest.mark.parametrize("seed", range(60))
def test_map_is_injective_consistent_and_byte_exact(seed):
    rng = random.Random(seed)
    target, drafter = _random_vocabulary(rng), _random_vocabulary(rng)
    rule = rng.choice(["normal", "byte"])
    vocab_map = VocabMap(
        target,
        drafter,
        target_vocab_size=max(1, len(target) + rng.randint(-2, 3)),
        draft_vocab_size=max(1, len(drafter) + rng.randint(-2, 3)),
        duplicates=rule,
    )
    to_target, to_draft = vocab_map.draft_to_target_ids.tolist(), vocab_map.target_to_draft_ids.tolist()
    assert len(to_target) == len(vocab_map.draft_tokens) == vocab_map.draft_vocab_size
    assert len(to_draft) == len(vocab_map.target_tokens) == vocab_map.target_vocab_size

    mapped = [target_id for target_id in to_target if target_id >= 0]
    assert len(mapped) == len(set(mapped))
    assert all(to_draft[target_id] == draft_id for draft_id, target_id in enumerate(to_target) if target_id >= 0)
    assert all(to_target[draft_id] == target_id for target_id, draft_id in enumerate(to_draft) if draft_id >= 0)

    by_special = {(match.target_id, match.draft_id) for match in vocab_map.specials}
    pairs = [(target_id, draft_id) for draft_id, target_id in enumerate(to_target) if target_id >= 0]
    for target_id, draft_id in pairs:
        token = vocab_map.target_tokens[target_id]
        assert token == vocab_map.draft_tokens[draft_id]
        assert (token is None) == ((target_id, draft_id) in by_special)
    strings = {token for token in vocab_map.target_tokens if token} & {
        token for token in vocab_map.draft_tokens if token
    }
    assert vocab_map.num_shared == len(strings) == len(pairs) - len(by_special)

    for target_id, spelling in enumerate(vocab_map.target_to_draft_tokens):
        assert spelling == vocab_map.spell_with_drafter(target_id)
        token = vocab_map.target_tokens[target_id]
        if token is not None and spelling is not None:
            assert b"".join(vocab_map.draft_tokens[draft_id] for draft_id in spelling) == token
        assert (target_id in vocab_map.unspellable_target_ids) == (token is not None and spelling is None)


def test_any_file_is_taken_as_a_tokenizer(tmp_path):
    path = tmp_path / "x.tiktoken"
    path.write_bytes(tiktoken_data([b"b", b"a"]))
    assert VocabMap.from_tokenizers(str(path), make_vocabulary([b"a"], kind="bytes")).draft_to_target_ids.tolist() == [
        1
    ]
