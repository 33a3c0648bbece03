# SPDX-License-Identifier: Apache-2.0
"""The same text in two tokenizers, kept in step while it grows.

Two directions:

* `TextBridge.extend` brings emitted target tokens into the drafter's context. The drafter may cut its text anew, but
  only within its last `lookback` tokens, so all its cache but the tail stays valid.
* `TextBridge.propose` turns drafted tokens into target tokens that continue the emitted ones. Emitted tokens are never
  rewritten: where the text would be cut differently with more to the right, what is already out stays as it is.

Both encode a short window of old text together with the new one, since tokenizers are not stable under concatenation
("hel" + "lo" is one token, a space belongs to the word after it, digits are grouped from the left), and keep what
stands behind the place where the new text begins, if there is a token boundary at that very byte. All alignment is by
bytes: an id counts as long as the bytes of the ids join to the text that was to be encoded. A tokenizer that drops,
normalises or mangles characters therefore ends a proposal early instead of proposing other text.

Behind a token boundary, BPE and Unigram models cut text as they would cut it alone, so the window is for what comes
before the model: dummy spaces, normalisers, and the splitting into words.

Source
------
String-level exact match, Timor et al. 2025, arXiv 2502.05202, Algorithm 2; alignment by bytes is this package's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from hetero_spec.vocab import VocabMap, Vocabulary
from hetero_spec.vocab.spelling import Speller

Encoder = Callable[[str], Sequence[int]]

# Put before a text whose first token would otherwise get a tokenizer's dummy space. Words do not join across it.
_ANCHOR = b"\n"
# First bytes of a word or a line: a window that begins with one is most likely cut as the whole text is.
_WORD_STARTS = frozenset((b" ", b"\n", b"\t"))


def utf8_split(data: bytes) -> tuple[bytes, bytes, bytes]:
    """Split bytes into (valid UTF-8, an ill-formed sequence, the rest).

    The middle part is empty where everything is valid; then the rest holds the beginning of a character that may still
    be completed, at most three bytes, or nothing.
    """
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data":
            return data[: error.start], b"", data[error.start :]
        return data[: error.start], data[error.start : error.end], data[error.end :]
    return data, b"", b""


def common_prefix_length(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the number of leading ids that two sequences share."""
    length = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        length += 1
    return length


class TextSide:
    """One tokenizer as a function from bytes in the middle of a text to ids.

    Parameters
    ----------
    token_bytes : sequence of bytes or None
        What each id adds to the text; None for special and unused ids.
    encoder : callable
        Text to ids, without added special tokens.

    Attributes
    ----------
    token_bytes : as given
    adds_space : bool
        Whether the tokenizer puts a space in front of a text (SentencePiece's dummy prefix, ByteLevel's prefix space).
    """

    def __init__(self, token_bytes: Sequence[bytes | None], encoder: Encoder) -> None:
        self.token_bytes = token_bytes
        self._encoder = encoder
        self.adds_space = self._joined(encoder("a")) == b" a"

    def bytes_of(self, token_ids: Sequence[int]) -> bytes:
        """Join the bytes of ids; special ids add nothing."""
        return b"".join(self.token_bytes[token_id] or b"" for token_id in token_ids)

    def encode(self, data: bytes) -> tuple[list[int], int]:
        """Encode text that may stand anywhere in a longer text.

        Parameters
        ----------
        data : bytes
            Valid UTF-8.

        Returns
        -------
        token_ids : list of int
            Their bytes are exactly the first `num_bytes` of data; no special ids.
        num_bytes : int
            len(data), unless the tokenizer does not reproduce the text; then less.
        """
        best: tuple[list[int], int] = ([], 0)
        for text, skipped in self._ways_to_encode(data):
            found = self._encode_after(text, skipped, data)
            if found[1] == len(data):
                return found
            best = max(best, found, key=lambda pair: pair[1])
        return best

    def boundary(self, token_ids: Sequence[int], num_bytes: int) -> int | None:
        """Return how many of the ids make up exactly the first `num_bytes` bytes, None if a token straddles them."""
        count = covered = 0
        while covered < num_bytes and count < len(token_ids):
            covered += len(self.token_bytes[token_ids[count]] or b"")
            count += 1
        return count if covered == num_bytes else None

    def _ways_to_encode(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield (what to encode, bytes to skip in the answer) so that a dummy space does no harm."""
        if not self.adds_space:
            yield data, b""
            return
        if data.startswith(b" ") and len(data) > 1:
            yield data[1:], b""
        yield _ANCHOR + data, b" " + _ANCHOR
        # A prefix space is left out where the text has one.
        yield _ANCHOR + data, _ANCHOR
        yield data, b""

    def _encode_after(self, text: bytes, skipped: bytes, data: bytes) -> tuple[list[int], int]:
        """Encode `text`, whose bytes should be skipped + data; return the ids of data up to where that is so."""
        expected = skipped + data
        kept: list[int] = []
        covered = 0
        for token_id in self._encoder(text.decode("utf-8")):
            token = self._bytes(token_id)
            if not token or not expected.startswith(token, covered):
                break
            if covered >= len(skipped):
                kept.append(token_id)
            elif covered + len(token) > len(skipped):
                return [], 0  # A token holds the end of the anchor and the beginning of the text.
            covered += len(token)
        return kept, max(0, covered - len(skipped))

    def _bytes(self, token_id: int) -> bytes | None:
        # A tokenizer may know more ids than the model has logits.
        return self.token_bytes[token_id] if token_id < len(self.token_bytes) else None

    def _joined(self, token_ids: Sequence[int]) -> bytes:
        return b"".join(self._bytes(token_id) or b"" for token_id in token_ids)


class TextBridge:
    """Carries text between a target's and a drafter's tokens.

    Parameters
    ----------
    vocab_map : VocabMap
        Both vocabularies; special tokens are carried over as it matches them.
    lookback : int
        How many old tokens are encoded again with new text, at least 0. Longer windows follow the tokenizer more
        faithfully (long runs of white space, digits grouped from the left) and cost more.
    target_encoder, draft_encoder : callable, optional
        Text to ids without added special tokens. Default: those of the map's vocabularies.

    Raises
    ------
    ValueError   no encoder is given and the map has none (it was loaded without its tokenizers)
    """

    def __init__(
        self,
        vocab_map: VocabMap,
        *,
        lookback: int = 16,
        target_encoder: Encoder | None = None,
        draft_encoder: Encoder | None = None,
    ) -> None:
        if lookback < 0:
            raise ValueError(f"TextBridge: lookback must be at least 0, got {lookback}")
        self.vocab_map = vocab_map
        self.lookback = lookback
        self.target = TextSide(vocab_map.target_tokens, _encoder_of("target_encoder", vocab_map.target, target_encoder))
        self.drafter = TextSide(vocab_map.draft_tokens, _encoder_of("draft_encoder", vocab_map.drafter, draft_encoder))
        self._draft_to_target: list[int] = vocab_map.draft_to_target_ids.tolist()
        self._speller = Speller(_id_of_bytes(vocab_map.draft_tokens, vocab_map.drafter.byte_fallback_ids))

    # -- from the target to the drafter --------------------------------------------------------------------------------

    def extend(self, tokens: Sequence[int], held: bytes, target_ids: Sequence[int]) -> tuple[int, list[int], bytes]:
        """Continue a drafter's context with emitted target tokens.

        Parameters
        ----------
        tokens : drafter ids
            The context so far, without any draft.
        held : bytes
            The beginning of a character that was held back by the call before; b"" at first.
        target_ids : target ids
            What was emitted. Special tokens become the drafter's special token if there is one, else nothing.

        Returns
        -------
        num_kept : int
            The new context is tokens[:num_kept] + tail.
        tail : list of int
            It may begin with ids that were there before: compare before cutting a cache.
        held : bytes
            Bytes of an unfinished character; they are not in the context yet.
        """
        start = max(0, len(tokens) - self.lookback)
        tail = list(tokens[start:])
        starts_text = start == 0
        data = held
        for target_id in target_ids:
            token = self.target.token_bytes[target_id]
            if token is not None:
                data += token
                continue
            tail = self._append(tail, data, starts_text)
            # A special token ends the text before it: an unfinished character will not be finished.
            tail += self._spell(utf8_split(data)[2])
            tail += self.vocab_map.spell_with_drafter(target_id) or ()
            data = b""
        tail = self._append(tail, data, starts_text)
        return start, tail, _unfinished(data)

    def _append(self, tail: list[int], data: bytes, starts_text: bool) -> list[int]:
        """Append text to the drafter's ids, up to the beginning of a character that is not finished."""
        while data:
            text, broken, data = utf8_split(data)
            if text:
                tail = self._append_text(tail, text, starts_text)
            if not broken:
                break
            tail = tail + self._spell(broken)
        return tail

    def _append_text(self, tail: list[int], text: bytes, starts_text: bool) -> list[int]:
        for start, is_start in self._windows(tail, starts_text):
            old = self.drafter.bytes_of(tail[start:])
            ids, num_bytes = self.drafter.encode(old + text)
            # The window must be cut as the whole text is: its first token says so, unless the text begins there.
            if num_bytes > len(old) and (is_start or ids[:1] == tail[start : start + 1]):
                return tail[:start] + ids + self._spell((old + text)[num_bytes:])
        ids, num_bytes = self.drafter.encode(text)
        return tail + ids + self._spell(text[num_bytes:])

    def _windows(self, tail: list[int], starts_text: bool) -> Iterator[tuple[int, bool]]:
        """Yield places at which to begin encoding again, the best first, and whether a text begins there."""
        first = len(tail)
        while first > 0 and self.drafter.token_bytes[tail[first - 1]] is not None:
            first -= 1
        is_start = starts_text or first > 0
        # What was spelt because it is not UTF-8 cannot be encoded again.
        start = len(tail)
        starts: list[int] = []
        for place in range(len(tail) - 1, first - 1, -1):
            text, broken, rest = utf8_split(self.drafter.bytes_of(tail[place:start]))
            if broken and text == b"" and _is_continuation(broken[0]):
                continue  # It begins in the middle of a character.
            if broken or rest:
                break
            starts.append(place)
        if not starts:
            return
        lowest = starts[-1]
        if lowest == first and is_start:
            yield lowest, True
            return
        for place in reversed(starts):
            if (self.drafter.token_bytes[tail[place]] or b"")[:1] in _WORD_STARTS:
                yield place, False
                break
        yield lowest, False

    def _spell(self, data: bytes) -> list[int]:
        """Drafter ids of bytes that its tokenizer cannot encode; what has no spelling is left out."""
        spelling = self._speller.spell(data)
        if spelling is not None:
            return list(spelling)
        singles = (self._speller.spell(data[place : place + 1]) for place in range(len(data)))
        return [token_id for single in singles if single is not None for token_id in single]

    # -- from the drafter to the target --------------------------------------------------------------------------------

    def draft_text(self, draft_ids: Sequence[int]) -> tuple[bytes, int | None]:
        """Return the text of a draft up to its first special token, and the target's token for that one, if any."""
        for count, draft_id in enumerate(draft_ids):
            if self.drafter.token_bytes[draft_id] is None:
                mapped = self._draft_to_target[draft_id]
                return self.drafter.bytes_of(draft_ids[:count]), mapped if mapped >= 0 else None
        return self.drafter.bytes_of(draft_ids), None

    def propose(self, emitted: Sequence[int], draft_ids: Sequence[int], held: bytes = b"") -> list[int]:
        """Return target ids that continue the emitted ones with the text of a draft.

        Parameters
        ----------
        emitted : target ids
            Everything emitted so far, prompt included; the last `lookback` are looked at.
        draft_ids : drafter ids
            Drawn after the context that `extend` keeps.
        held : bytes
            What `extend` holds back. The draft has to begin with it.

        Returns
        -------
        list of int
            Empty where the draft's text cannot be brought behind the emitted tokens. Its last token is what the draft
            has so far; with more text it might be cut differently.
        """
        data, end = self.draft_text(draft_ids)
        if not data.startswith(held):
            return []
        data = data[len(held) :]
        proposed, num_bytes = self._continue(emitted, data) if data else ([], 0)
        if end is not None and num_bytes == len(data):
            proposed.append(end)
        return proposed

    def _continue(self, emitted: Sequence[int], data: bytes) -> tuple[list[int], int]:
        """Target ids of text behind the emitted tokens, and how many of its bytes they hold."""
        tokens = self.target.token_bytes
        start = len(emitted)
        lowest = max(0, start - self.lookback)
        while start > lowest and tokens[emitted[start - 1]] is not None:
            start -= 1
        # A token that would hold both old and new text is avoided by encoding the new text alone, or with no more of
        # the old than the beginning of a character.
        alone = len(emitted)
        while alone > start and _is_continuation((self.target.bytes_of(emitted[alone:]) + data)[0]):
            alone -= 1
        for first in (start, alone):
            old = self.target.bytes_of(emitted[first:])
            # The window may begin in the middle of a character.
            while old and _is_continuation(old[0]):
                old = old[1:]
            found = self._continue_window(old, data)
            if found is not None:
                return found
        return [], 0

    def _continue_window(self, old: bytes, data: bytes) -> tuple[list[int], int] | None:
        """Encode old and new text together; None where no token boundary lies between them."""
        text, _, _ = utf8_split(old + data)
        if len(text) <= len(old):  # Ill-formed text before the draft, or no character of the draft is finished.
            return None
        ids, num_bytes = self.target.encode(text)
        if num_bytes <= len(old):
            return None
        first = self.target.boundary(ids, len(old))
        return None if first is None else (ids[first:], num_bytes - len(old))


def _unfinished(data: bytes) -> bytes:
    """Return the beginning of a character at the end of text that may hold ill-formed sequences."""
    while True:
        _, broken, rest = utf8_split(data)
        if not broken:
            return rest
        data = rest


def _is_continuation(byte: int) -> bool:
    return byte & 0xC0 == 0x80


def _encoder_of(name: str, vocabulary: Vocabulary, encoder: Encoder | None) -> Encoder:
    encoder = encoder or vocabulary.encoder
    if encoder is None:
        raise ValueError(
            f"TextBridge: {name} must be given for a vocabulary without its tokenizer (load the map with both "
            f"tokenizers), got {vocabulary!r}"
        )
    return encoder


def _id_of_bytes(tokens: Sequence[bytes | None], byte_fallback_ids: frozenset[int]) -> dict[bytes, int]:
    """Index tokens by their bytes: normal pieces before byte pieces, then the lowest id."""
    id_of_bytes: dict[bytes, int] = {}
    for fallback in (False, True):
        for token_id, token in enumerate(tokens):
            if token is not None and (token_id in byte_fallback_ids) == fallback:
                id_of_bytes.setdefault(token, token_id)
    return id_of_bytes
