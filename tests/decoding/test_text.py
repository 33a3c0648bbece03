# SPDX-License-Identifier: Apache-2.0
"""Text appears as soon as it is certain, and never depends on how it was cut into tokens."""

import random

import pytest

from hetero_spec.decoding.text import TextStream

EMOJI = "🦙"


def stream(tokens: list[bytes | None], stop: tuple[str, ...] = ()) -> tuple[list[str], bool]:
    """Pieces of text by token, the last one from finish."""
    text = TextStream(tokens, stop)
    pieces = [text.push(i) for i in range(len(tokens)) if not text.stopped]
    return [*pieces, text.finish()], text.stopped


def test_an_emoji_split_over_four_tokens_comes_out_whole_with_its_last_byte() -> None:
    data = EMOJI.encode()
    assert stream([b"a", *(data[i : i + 1] for i in range(4)), b"b"])[0] == ["a", "", "", "", EMOJI, "b", ""]


def test_an_unfinished_character_becomes_a_replacement_at_the_end() -> None:
    assert stream([b"a", EMOJI.encode()[:3]])[0] == ["a", "", "�"]


def test_a_byte_that_is_no_utf8_becomes_a_replacement() -> None:
    assert "".join(stream([b"a\xff", b"b"])[0]) == "a�b"


def test_a_special_token_adds_nothing_and_ends_an_unfinished_character() -> None:
    data = EMOJI.encode()
    assert stream([data[:2], None, data[2:], b"x"])[0][1] == "�"
    assert stream([b"x", None, b"y"])[0] == ["x", "", "y", ""]


def test_an_id_beyond_the_tokenizer_adds_nothing() -> None:
    assert TextStream([b"a"]).push(5) == ""


def test_text_that_may_begin_a_stop_string_is_held_back_until_it_cannot() -> None:
    assert stream([b"one\n", b"\n", b"two"], ("\n\nUser",))[0] == ["one", "", "\n\ntwo", ""]


def test_a_stop_string_over_several_tokens_ends_the_text_before_it() -> None:
    assert stream([b"yes E", b"N", b"D of", b"x"], ("END",)) == (["yes ", "", "", ""], True)


def test_what_was_held_back_comes_out_at_the_end_if_it_was_no_stop_string() -> None:
    assert stream([b"yes EN"], ("END",)) == (["yes ", "EN"], False)


def test_the_stop_string_whose_end_comes_first_wins_in_any_cut() -> None:
    assert "".join(stream([b"ab", b"c"], ("abc", "b"))[0]) == "a"
    assert "".join(stream([b"abc"], ("abc", "b"))[0]) == "a"
    assert "".join(stream([b"xabc"], ("abc", "bc"))[0]) == "x"


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ValueError, match="stop: strings must not be empty"):
        TextStream([b"a"], ("",))


def test_text_does_not_depend_on_where_it_is_cut() -> None:
    source = f"aab{EMOJI}aé, abab{EMOJI}c aabab"
    gen = random.Random(3)
    for stop in ((), ("abc",), ("bab", "ab" + EMOJI), (EMOJI + "c",)):
        texts = set()
        for _ in range(40):
            data, tokens = source.encode(), []
            while data:
                length = gen.randint(1, 5)
                tokens.append(data[:length])
                data = data[length:]
            texts.add("".join(stream(tokens, stop)[0]))
        assert len(texts) == 1
        (text,) = texts
        assert source.startswith(text)
        assert all(string not in text for string in stop)
