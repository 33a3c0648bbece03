# SPDX-License-Identifier: Apache-2.0
"""Reading vocabularies: every style, as an object and as a file."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from hetero_spec.vocab import Vocabulary, make_vocabulary, read_vocabulary
from tests.vocab.samples import (
    byte_level_tokenizer,
    spm_style_tokenizer,
    tekken_json,
    tiktoken_data,
    trained_sentencepiece,
    write_gguf,
)

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


# -- tokenizer.json ----------------------------------------------------------------------------------------------------


def test_byte_level_tokens_are_decoded():
    tokenizer = byte_level_tokenizer([b"\n", b" hello", b"\xc3", b"hello"], ("<|endoftext|>",))
    vocabulary = read_vocabulary(tokenizer)
    assert vocabulary.tokens == [b"\n", b" hello", b"\xc3", b"hello", None]
    assert vocabulary.specials == {"<|endoftext|>": 4}
    assert vocabulary.roles == {"eos": 4}
    assert vocabulary.kind == "byte-level BPE"


@pytest.mark.parametrize("place", ["decoder", "pre_tokenizer", "normalizer"])
def test_byte_level_is_found_wherever_it_is_declared(place):
    tokenizer = Tokenizer(models.BPE({"Ġa": 0}, []))
    step = {
        "decoder": decoders.Sequence([decoders.ByteLevel()]),
        "pre_tokenizer": pre_tokenizers.Sequence([pre_tokenizers.Digits(), pre_tokenizers.ByteLevel()]),
        "normalizer": normalizers.ByteLevel(),
    }[place]
    setattr(tokenizer, place, step)
    assert read_vocabulary(tokenizer).tokens == [b" a"]


def test_every_space_marker_is_a_space_and_fallback_pieces_are_bytes():
    tokenizer = spm_style_tokenizer(["▁▁x▁y", "▁", "hello", "<0x0A>", "<0xE2>", "<0x0>"], ("<s>", "</s>"))
    vocabulary = read_vocabulary(tokenizer)
    assert vocabulary.tokens == [b"  x y", b" ", b"hello", b"\n", b"\xe2", b"<0x0>", None, None]
    assert vocabulary.byte_fallback_ids == {3, 4}
    assert vocabulary.roles == {"bos": 6, "eos": 7}


def test_fallback_form_is_plain_text_without_byte_fallback():
    vocabulary = read_vocabulary(spm_style_tokenizer(["▁a", "<0x0A>"], byte_fallback=False))
    assert vocabulary.tokens == [b" a", b"<0x0A>"]
    assert not vocabulary.byte_fallback_ids


def test_style_is_not_guessed_from_tokens_that_look_like_another_style():
    # The first token looks byte-level, the second SentencePiece, the third byte fallback: the tokenizer is neither.
    tokenizer = Tokenizer(models.BPE({"Ġa": 0, "▁b": 1, "<0x20>": 2}, []))
    assert read_vocabulary(tokenizer).tokens == ["Ġa".encode(), "▁b".encode(), b"<0x20>"]


def test_metaspace_unigram_with_its_own_marker():
    pieces = [("<unk>", 0.0), ("_a", -1.0), ("b_", -2.0), ("▁", -3.0), ("<0x41>", -4.0)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="_")
    tokenizer.decoder = decoders.Metaspace(replacement="_")
    vocabulary = read_vocabulary(tokenizer)
    assert vocabulary.tokens == [None, b" a", b"b ", "▁".encode(), b"A"]
    assert vocabulary.roles["unk"] == 0
    assert vocabulary.byte_fallback_ids == {4}
    assert "Unigram" in vocabulary.kind


def test_metaspace_is_found_without_a_decoder():
    tokenizer = Tokenizer(models.Unigram([("<unk>", 0.0), ("▁a", -1.0)], unk_id=0, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    assert read_vocabulary(tokenizer).tokens == [None, b" a"]


def test_added_token_that_is_not_special_is_literal_text():
    tokenizer = byte_level_tokenizer([b"a"])
    # Both characters are in the byte alphabet, and stand for themselves all the same.
    tokenizer.add_tokens([AddedToken("éĠ", normalized=False)])
    assert read_vocabulary(tokenizer).tokens == [b"a", "éĠ".encode()]


def test_special_token_without_a_role_has_no_bytes():
    vocabulary = read_vocabulary(byte_level_tokenizer([b"a"], ("<tool>",)))
    assert vocabulary.tokens == [b"a", None]
    assert vocabulary.specials == {"<tool>": 1} and not vocabulary.roles


def test_hole_between_ids_has_no_text():
    assert read_vocabulary(Tokenizer(models.BPE({"a": 0, "b": 3}, []))).tokens == [b"a", None, None, b"b"]


@pytest.mark.parametrize(
    "model",
    [
        models.WordPiece({"[UNK]": 0, "##a": 1}, unk_token="[UNK]"),
        models.BPE({"a": 0, "b</w>": 1}, [], end_of_word_suffix="</w>"),
        models.BPE({"a": 0, "@@b": 1}, [], continuing_subword_prefix="@@"),
    ],
)
def test_vocabulary_that_hides_its_spaces_is_refused(model):
    with pytest.raises(ValueError, match="don't carry their spaces"):
        read_vocabulary(Tokenizer(model))


def test_file_object_and_transformers_wrapper_agree(tmp_path):
    from transformers import PreTrainedTokenizerFast

    tokenizer = spm_style_tokenizer(["▁a", "b", "<0x0A>", "[END]"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "[END]"}}))
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="[END]")
    by_folder, by_file = read_vocabulary(tmp_path), read_vocabulary(str(tmp_path / "tokenizer.json"))
    by_wrapper = read_vocabulary(wrapped)
    assert by_folder == by_file == by_wrapper
    assert by_wrapper.roles == {"eos": 3}
    assert by_wrapper.tokens == [b" a", b"b", b"\n", None]
    assert by_folder.encoder("bb") == by_wrapper.encoder("bb") == [1, 1]
    # The bare tokenizer knows no role, so to it [END] is text.
    assert read_vocabulary(tokenizer).tokens[3] == b"[END]"


def test_object_with_a_backend_and_end_tokens_is_read():
    tokenizer = byte_level_tokenizer([b"a"], ("<fin>", "<go>"))
    wrapped = SimpleNamespace(backend=tokenizer, bos_token_id=2, eos_token_ids=(1, 2))
    assert read_vocabulary(wrapped).roles == {"bos": 2, "eos": 1}


# -- slow transformers tokenizers --------------------------------------------------------------------------------------


def test_slow_sentencepiece_tokenizer_agrees_with_its_model(tmp_path):
    import sentencepiece
    from transformers.tokenization_utils_sentencepiece import SentencePieceBackend

    path = tmp_path / "spiece.model"
    path.write_bytes(trained_sentencepiece("unigram"))
    slow = SentencePieceBackend(vocab_file=str(path), eos_token="</s>", unk_token="<unk>", bos_token="<s>")
    direct = read_vocabulary(sentencepiece.SentencePieceProcessor(model_file=str(path)))
    vocabulary = read_vocabulary(slow)
    assert vocabulary.tokens[: len(direct)] == direct.tokens
    assert vocabulary.byte_fallback_ids == direct.byte_fallback_ids
    assert vocabulary.roles["eos"] == direct.roles["eos"] == 2


def test_slow_byte_level_tokenizer_is_decoded():
    texts = ["Ġa", "Ċ", "<eos>", "Ġb"]
    tokenizer = _SlowTokenizer(texts, added={2: SimpleNamespace(special=True), 3: SimpleNamespace(special=False)})
    tokenizer.byte_decoder = {"Ġ": 32}
    vocabulary = read_vocabulary(tokenizer)
    assert vocabulary.tokens == [b" a", b"\n", None, "Ġb".encode()]
    assert vocabulary.specials == {"<eos>": 2}


def test_slow_tiktoken_tokenizer_gives_its_ranks():
    tokenizer = _SlowTokenizer(["?"] * 3, added={})
    tokenizer.mergeable_ranks, tokenizer.special_tokens = {b"a": 0, b"\xff": 1}, {"<|endoftext|>": 2}
    assert read_vocabulary(tokenizer).tokens == [b"a", b"\xff", None]


def test_slow_tokenizer_of_unknown_kind_is_refused():
    with pytest.raises(TypeError, match="must be SentencePiece, byte-level or tiktoken, got _SlowTokenizer"):
        read_vocabulary(_SlowTokenizer(["a"], added={}))


class _SlowTokenizer:
    def __init__(self, texts, added):
        self._texts, self.added_tokens_decoder = texts, added

    def __len__(self):
        return len(self._texts)

    def convert_ids_to_tokens(self, token_id):
        return self._texts[token_id]


# -- SentencePiece -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_sentencepiece_model_file_and_processor_agree_with_the_library(model_type, tmp_path):
    import sentencepiece

    data = trained_sentencepiece(model_type)
    path = tmp_path / "tokenizer.model"
    path.write_bytes(data)
    processor = sentencepiece.SentencePieceProcessor(model_proto=data)
    vocabulary = read_vocabulary(path)
    assert vocabulary == read_vocabulary(processor) == read_vocabulary(tmp_path)
    assert vocabulary.roles == {"unk": 0, "bos": 1, "eos": 2, "pad": 3}
    assert len(vocabulary) == processor.get_piece_size()
    for token_id, token in enumerate(vocabulary.tokens):
        piece = processor.id_to_piece(token_id)
        assert (token_id in vocabulary.byte_fallback_ids) == processor.is_byte(token_id)
        if processor.is_control(token_id) or processor.is_unknown(token_id):
            assert token is None and vocabulary.specials[piece] == token_id
        elif processor.is_byte(token_id):
            assert token == bytes([int(piece[3:5], 16)])
        else:
            assert token == piece.replace("▁", " ").encode()
    assert b"  " in vocabulary.tokens and b"<tag>" in vocabulary.tokens and "[CTRL]" in vocabulary.specials
    # A drafted text is the join of its tokens' bytes; the library puts one space in front.
    text = "the naïve fox 🙂"
    assert b"".join(vocabulary.tokens[token_id] for token_id in vocabulary.encoder(text)) == b" " + text.encode()


def test_sentencepiece_without_escaped_spaces_keeps_the_marker():
    def field(number, value):
        return bytes([number << 3 | 2, len(value)]) + value

    pieces = b"".join(field(1, field(1, text.encode())) for text in ("▁a", " b"))
    # Roles of the message's defaults (<unk> 0, <s> 1) point at ordinary pieces here: no such role.
    escaped = read_vocabulary(SimpleNamespace(serialized_model_proto=lambda: pieces))
    literal = read_vocabulary(SimpleNamespace(serialized_model_proto=lambda: pieces + field(3, b"\x28\x00")))
    assert escaped.tokens == [b" a", b" b"]
    assert literal.tokens == ["▁a".encode(), b" b"]
    assert not escaped.roles


@pytest.mark.parametrize("keep", [1, 10, 1000])
def test_cut_sentencepiece_file_is_an_error(keep, tmp_path):
    path = tmp_path / "cut.model"
    path.write_bytes(trained_sentencepiece("bpe")[:keep])
    with pytest.raises(ValueError, match=r"cut\.model: must be a"):
        read_vocabulary(path)


# -- byte ranks --------------------------------------------------------------------------------------------------------


def test_tiktoken_encoding_is_read_with_its_specials():
    import tiktoken

    ranks = {bytes([byte]): byte for byte in range(256)} | {b"ab": 256}
    encoding = tiktoken.Encoding(
        "mini", pat_str=r"\w+|\W+", mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 260}
    )
    vocabulary = read_vocabulary(encoding)
    assert vocabulary.tokens == [*(bytes([byte]) for byte in range(256)), b"ab", None, None, None, None]
    assert vocabulary.roles == {"eos": 260}
    assert vocabulary.encoder("ab<|endoftext|>")[0] == 256


def test_tiktoken_file_says_that_its_pattern_was_assumed(tmp_path):
    tokens = [bytes([byte]) for byte in range(256)] + [b"ab"]
    path = tmp_path / "mini.tiktoken"
    path.write_bytes(tiktoken_data(tokens))
    vocabulary = read_vocabulary(path)
    assert vocabulary.tokens == tokens
    assert "assumed" in vocabulary.encoder_note
    assert vocabulary.encoder("abc") == [256, ord("c")]


def test_damaged_tiktoken_line_is_named(tmp_path):
    path = tmp_path / "bad.tiktoken"
    path.write_bytes(b"YQ== 0\nYg= 1\n")
    with pytest.raises(ValueError, match="line 2 must be base64 and a rank"):
        read_vocabulary(path)


def test_tekken_puts_specials_first_and_leaves_out_ranks_beyond_its_size(tmp_path):
    tokens = [bytes([byte]) for byte in range(256)] + [b"ab", b"cd"]
    path = tmp_path / "tekken.json"
    path.write_text(tekken_json(tokens, num_specials=20, size=277))
    vocabulary = read_vocabulary(path)
    assert vocabulary.tokens[20:] == tokens[:257]
    assert vocabulary.tokens[:20] == [None] * 20
    assert vocabulary.roles == {"unk": 0, "bos": 1, "eos": 2, "pad": 11}
    assert vocabulary.encoder("ab") == [276]


def test_tekken_names_its_own_specials(tmp_path):
    path = tmp_path / "v11.json"
    named = [{"rank": 0, "token_str": "</s>", "is_control": True}]
    path.write_text(tekken_json([b"a"], num_specials=2, size=3, named=named))
    vocabulary = read_vocabulary(path)
    assert vocabulary.specials == {"</s>": 0, "<SPECIAL_1>": 1}
    assert vocabulary.roles == {"eos": 0}


# -- GGUF --------------------------------------------------------------------------------------------------------------


def test_gguf_sentencepiece_types_decide(tmp_path):
    tokens = [b"<unk>", b"<s>", "▁a▁b".encode(), b"<0x0A>", b"\n", b"<unused0>", b"  ", "▁▁▁".encode()]
    types = [UNKNOWN, CONTROL, NORMAL, BYTE, USER_DEFINED, UNUSED, USER_DEFINED, USER_DEFINED]
    path = write_gguf(tmp_path / "x.gguf", "llama", tokens, types, {"bos": 1, "unknown": 0, "padding": 2**32 - 1})
    vocabulary = read_vocabulary(path)
    assert vocabulary.tokens == [None, None, b" a b", b"\n", b"\n", None, b"  ", b"   "]
    assert vocabulary.byte_fallback_ids == {3}
    assert vocabulary.specials == {"<unk>": 0, "<s>": 1}
    assert vocabulary.roles == {"bos": 1, "unk": 0}


def test_gguf_byte_level_padding_typed_as_text_is_left_out(tmp_path):
    # Qwen's GGUF files fill the model's head with [PADi] typed as user-defined. The same text at another id is text.
    tokens = ["Ġa".encode(), b"<think> ", b"<|end|>", b"[PAD3]", b"[PAD3]", "é".encode()]
    types = [NORMAL, USER_DEFINED, CONTROL, USER_DEFINED, USER_DEFINED, USER_DEFINED]
    vocabulary = read_vocabulary(write_gguf(tmp_path / "x.gguf", "gpt2", tokens, types, {"eos": 2}))
    assert vocabulary.tokens == [b" a", b"<think> ", None, None, b"[PAD3]", "é".encode()]
    assert vocabulary.roles == {"eos": 2}


def test_gguf_end_token_typed_as_text_is_special_all_the_same(tmp_path):
    path = write_gguf(tmp_path / "x.gguf", "gpt2", [b"a", b"<end>"], [NORMAL, USER_DEFINED], {"eos": 1})
    vocabulary = read_vocabulary(path)
    assert vocabulary.tokens == [b"a", None]
    assert vocabulary.specials == {"<end>": 1}


def test_gguf_unigram_and_missing_types(tmp_path):
    assert read_vocabulary(write_gguf(tmp_path / "x.gguf", "t5", ["▁a".encode()], None, {})).tokens == [b" a"]


@pytest.mark.parametrize("style", ["bert", "rwkv"])
def test_gguf_style_without_bytes_is_refused(style, tmp_path):
    with pytest.raises(ValueError, match=rf"tokenizer\.ggml\.model must be one of .*, got '{style}'"):
        read_vocabulary(write_gguf(tmp_path / "x.gguf", style, [b"a"], None, {}))


def test_cut_gguf_is_an_error(tmp_path):
    path = write_gguf(tmp_path / "x.gguf", "gpt2", [b"a"] * 100, None, {})
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(ValueError, match="cut short"):
        read_vocabulary(path)


# -- what all share ----------------------------------------------------------------------------------------------------


def test_missing_path_and_empty_folder_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such vocabulary file"):
        read_vocabulary(tmp_path / "nothing.json")
    with pytest.raises(FileNotFoundError, match=r"must hold one of tokenizer\.json"):
        read_vocabulary(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "an empty file"),
        (b"plain words\n", "must be a tokenizer.json"),
        (b"{", "must be complete JSON"),
        (b'{"a": 1}', r"must be a tokenizer\.json or a tekken json, got JSON with \['a'\]"),
    ],
)
def test_file_of_unknown_kind_is_an_error(content, message, tmp_path):
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_vocabulary(path)


def test_object_of_unknown_kind_is_an_error():
    with pytest.raises(TypeError, match="got int"):
        read_vocabulary(3)


def test_vocabulary_passes_through_and_takes_roles():
    vocabulary = make_vocabulary([b"a", b"<end>"], kind="bytes")
    assert read_vocabulary(vocabulary) is vocabulary
    given = read_vocabulary(vocabulary, roles={"eos": 1})
    assert given.roles == {"eos": 1} and given.tokens == [b"a", None]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"specials": {"<s>": 2}}, ValueError, r"id of special '<s>' must be in \[0, 2\), got 2"),
        ({"roles": {"eos": -1}}, ValueError, r"id of role 'eos' must be in \[0, 2\), got -1"),
        ({"roles": {"end": 1}}, ValueError, "role must be one of eos, bos, pad, unk, got 'end'"),
        ({"tokens": ["a"]}, TypeError, "token 0 must be bytes or None, got str"),
    ],
)
def test_wrong_parts_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        make_vocabulary(**{"tokens": [b"a", b"b"], "kind": "bytes", **arguments})


def test_empty_token_has_no_bytes():
    assert make_vocabulary([b"", b"a"], kind="bytes").tokens == [None, b"a"]


def test_listed_special_loses_the_bytes_it_was_given_with():
    assert make_vocabulary([b"a", b"<x>"], kind="bytes", specials={"<x>": 1}).tokens == [b"a", None]


def test_padding_role_leaves_a_text_token_alone():
    vocabulary = make_vocabulary([b"!", b"a"], kind="bytes", roles={"pad": 0})
    assert vocabulary.tokens == [b"!", b"a"]


def test_hash_tells_vocabularies_apart():
    def sha256(tokens, **parts) -> str:
        return make_vocabulary(tokens, kind="bytes", **parts).sha256

    base = sha256([b"ab", b"c", None])
    assert base == sha256([b"ab", b"c", None])
    others = [
        sha256([b"a", b"bc", None]),
        sha256([b"c", b"ab", None]),
        sha256([b"ab", b"c", None, None]),
        sha256([b"ab", b"c", None], specials={"x": 2}),
        sha256([b"ab", b"c", None], byte_fallback_ids=[1]),
    ]
    assert len({base, *others}) == 6
    assert base == sha256([b"ab", b"c", None], roles={"pad": 1})


def test_representation_is_short():
    assert len(repr(make_vocabulary([b"abc"] * 1000, kind="bytes"))) < 100
    assert isinstance(make_vocabulary([], kind="bytes"), Vocabulary)


def test_reading_a_vocabulary_needs_no_torch(tmp_path):
    byte_level_tokenizer([b"a"]).save(str(tmp_path / "tokenizer.json"))
    program = (
        "import sys; from hetero_spec.vocab import read_vocabulary; "
        f"assert read_vocabulary({str(tmp_path)!r}).tokens == [b'a']; assert 'torch' not in sys.modules"
    )
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", program], check=True, cwd=root)
