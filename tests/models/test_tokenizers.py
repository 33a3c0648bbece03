# SPDX-License-Identifier: Apache-2.0
"""Tokenizers built from GGUF vocabularies, tiny ones; the real ones are in test_real_models.py."""

import struct
from pathlib import Path

import pytest
import sentencepiece
from tokenizers import Tokenizer, models

from hetero_spec.models import ModelError, TextTokenizer
from hetero_spec.models.gguf_reader import GGUFFile
from hetero_spec.models.gguf_tokenizer import build_tokenizer, end_token_ids
from tests.models import tiny_gguf
from tests.models.sentencepiece_oracle import sentencepiece_from_gguf


@pytest.fixture
def byte_level(tmp_path: Path) -> Tokenizer:
    path = tmp_path / "llama.gguf"
    tiny_gguf.write_llama(path)
    with GGUFFile(path) as file:
        assert end_token_ids(file) == (1,)
        assert end_token_ids(file, ("<|end|>", "<|turn|>", "nothing")) == (1, 0)
        return build_tokenizer(file)


def tokens_of(tokenizer: Tokenizer, text: str) -> list[str]:
    return tokenizer.encode(text).tokens


def test_byte_level_merges_digits_and_control_tokens(byte_level: Tokenizer) -> None:
    assert tokens_of(byte_level, "the the") == ["the", "\u0120the"]
    assert tokens_of(byte_level, "th12 3") == ["th", "1", "2", "\u0120", "3"]
    assert tokens_of(byte_level, "<|turn|>the") == ["<|turn|>", "the"]
    assert tokens_of(byte_level, "é") == ["\u00c3", "\u00a9"]


@pytest.mark.parametrize("text", ["", " the  the\n\n", "日本語 😀 é\t\x00\x7f", "12 the34"])
def test_byte_level_round_trip(byte_level: Tokenizer, text: str) -> None:
    assert byte_level.decode(byte_level.encode(text).ids) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "abc",
        "abcabc",
        " ab",
        "aab x ab",
        "a bc  abc",
        "   a",
        "abc\n\n\nabc",
        "xyz é日😀",
        "<0x41>",
        "bca bc",
        " " * 7 + "abc" + "\n" * 5,
    ],
)
def test_sentencepiece_ids_equal_those_of_the_library(tmp_path: Path, text: str) -> None:
    path = tmp_path / "vocabulary.gguf"
    tiny_gguf.write_sentencepiece_vocabulary(path)
    with GGUFFile(path) as file:
        ours, theirs = build_tokenizer(file), sentencepiece_from_gguf(file)
    assert isinstance(theirs, sentencepiece.SentencePieceProcessor)
    assert ours.encode(text, add_special_tokens=False).ids == theirs.encode(text)
    assert ours.encode(text).ids == [2, *theirs.encode(text)]
    assert ours.decode(ours.encode(text).ids) == text


def test_unknown_kind_of_tokenizer_is_named(tmp_path: Path) -> None:
    path = tmp_path / "llama.gguf"
    tiny_gguf.write_llama(path)
    data = path.read_bytes()
    assert data.count(struct.pack("<Q", 6) + b"smollm") == 1
    path.write_bytes(data.replace(b"smollm", b"qwen35"))
    with GGUFFile(path) as file, pytest.raises(ModelError, match="must be gpt2/smollm or llama, got gpt2/qwen35"):
        build_tokenizer(file)


# -- the wrapper -------------------------------------------------------------------------------------------------------


def words(*texts: str) -> Tokenizer:
    return Tokenizer(models.WordLevel({text: number for number, text in enumerate(texts)}, unk_token=texts[0]))


def test_chat_template_is_rendered_as_transformers_does() -> None:
    template = (
        "{%- for m in messages %}\n    {%- if m.role == 'user' %}\n[{{ m.content }}]{{ eos_token }}\n"
        "    {% endif %}\n{% endfor %}"
    )
    tokenizer = TextTokenizer(words("?"), chat_template=template, special_tokens={"eos_token": "</s>"})
    messages = [{"role": "system", "content": "x"}, {"role": "user", "content": "hi"}]
    from transformers.utils.chat_template_utils import render_jinja_template

    expected, _ = render_jinja_template(
        conversations=[messages], chat_template=template, add_generation_prompt=True, eos_token="</s>"
    )
    assert tokenizer.apply_chat_template(messages) == expected[0]
    assert "[hi]</s>" in expected[0]


def test_chat_template_refuses_with_its_own_words() -> None:
    assert TextTokenizer(words("?")).apply_chat_template([]) is None
    refusing = TextTokenizer(words("?"), chat_template="{{ raise_exception('user must be first') }}")
    with pytest.raises(ModelError, match="chat template: user must be first"):
        refusing.apply_chat_template([])
    broken = TextTokenizer(words("?"), chat_template="{% for %}")
    with pytest.raises(ModelError, match="chat template: cannot be rendered"):
        broken.apply_chat_template([])
    escaping = TextTokenizer(words("?"), chat_template="{{ ''.__class__.__mro__ }}{{ messages.__init__.__globals__ }}")
    with pytest.raises(ModelError, match="unsafe"):
        escaping.apply_chat_template([])


def test_ids_of_roles_come_from_the_fullest_file(tmp_path: Path) -> None:
    words("?", "<s>", "</s>", "<eot>").save(str(tmp_path / "tokenizer.json"))
    settings = tmp_path / "tokenizer_config.json"
    settings.write_text('{"bos_token": {"content": "<s>"}, "eos_token": "</s>"}')
    tokenizer = TextTokenizer.from_folder(tmp_path)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_ids) == (1, (2,))
    (tmp_path / "config.json").write_text('{"eos_token_id": 0, "bos_token_id": 3}')
    tokenizer = TextTokenizer.from_folder(tmp_path)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_ids) == (3, (0,))
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [2, 3]}')
    assert TextTokenizer.from_folder(tmp_path).eos_token_ids == (2, 3)
    settings.write_text("{")
    with pytest.raises(ModelError, match="tokenizer_config.json: cannot be read"):
        TextTokenizer.from_folder(tmp_path)
