# SPDX-License-Identifier: Apache-2.0
"""Builds a `tokenizers.Tokenizer` from the vocabulary inside a GGUF file.

Two families: byte-level BPE ("gpt2"), whose merges are in the file and whose way of cutting text into words is named by
`tokenizer.ggml.pre`; and SentencePiece BPE with byte fallback ("llama"), whose merges are implied by the pieces'
scores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetero_spec.models.gguf_reader import GGUFFile
from hetero_spec.models.registry import ModelError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# llama.cpp's token types, which are SentencePiece's, as far as they matter here.
_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5
SPACE_MARK = "\u2581"


def build_tokenizer(gguf: GGUFFile) -> Tokenizer:
    """Return the tokenizer; a BOS token is put in front where the file asks for one.

    Raises
    ------
    ModelError
        The tokenizer is of a kind not known here.
    """
    from tokenizers import processors

    kind, pre = gguf.metadata.get("tokenizer.ggml.model"), gguf.metadata.get("tokenizer.ggml.pre")
    tokens = [token.decode("utf-8") for token in gguf.strings("tokenizer.ggml.tokens")]
    if kind == "gpt2" and pre == "smollm":
        tokenizer = _byte_level(gguf, tokens)
    elif kind == "llama":
        tokenizer = _sentencepiece(gguf, tokens)
    else:
        raise ModelError(f"{gguf.paths[0]}: tokenizer must be gpt2/smollm or llama, got {kind}/{pre}")
    _add_tokens(gguf, tokenizer, tokens)
    if gguf.metadata.get("tokenizer.ggml.add_bos_token", kind == "llama"):
        bos_token_id = int(gguf.metadata["tokenizer.ggml.bos_token_id"])
        bos = tokens[bos_token_id]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, bos_token_id)]
        )
    return tokenizer


def end_token_ids(gguf: GGUFFile, extra: tuple[str, ...] = ()) -> tuple[int, ...]:
    """Return the ids that end a text: the end-of-sequence token of the file, then those of `extra` that it has."""
    tokens = gguf.strings("tokenizer.ggml.tokens")
    ids = [int(gguf.metadata["tokenizer.ggml.eos_token_id"])]
    for text in extra:
        token = text.encode("utf-8")
        if token in tokens and tokens.index(token) not in ids:
            ids.append(tokens.index(token))
    return tuple(ids)


def _byte_level(gguf: GGUFFile, tokens: list[str]) -> Tokenizer:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    merges = [merge.decode("utf-8").split(" ") for merge in gguf.strings("tokenizer.ggml.merges")]
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab, [(left, right) for left, right in merges]))
    # "smollm": every digit on its own, then GPT-2's words. A byte without a token is dropped, as the original does.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(gguf: GGUFFile, tokens: list[str]) -> Tokenizer:
    from tokenizers import Tokenizer, decoders, models, normalizers

    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    unknown = tokens[int(gguf.metadata["tokenizer.ggml.unknown_token_id"])]
    tokenizer = Tokenizer(
        models.BPE(
            vocab, _merges_from_scores(gguf, tokens, vocab), unk_token=unknown, fuse_unk=True, byte_fallback=True
        )
    )
    steps: list[normalizers.Normalizer] = [normalizers.Replace(" ", SPACE_MARK)]
    decoder_steps: list[decoders.Decoder] = [
        decoders.Replace(SPACE_MARK, " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
    ]
    if gguf.metadata.get("tokenizer.ggml.add_space_prefix", True):
        steps.insert(0, normalizers.Prepend(SPACE_MARK))
        decoder_steps.append(decoders.Strip(" ", 1, 0))
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.decoder = decoders.Sequence(decoder_steps)
    return tokenizer


def _merges_from_scores(gguf: GGUFFile, tokens: list[str], vocab: dict[str, int]) -> list[tuple[str, str]]:
    """Recover the merges of a SentencePiece BPE vocabulary.

    SentencePiece joins the two neighbours whose joint piece has the highest score, whatever the two are. So every split
    of a piece into two pieces is a merge, ranked by the piece's score; among splits of one piece the order does not
    matter to SentencePiece (all have one score, the leftmost pair wins), and is fixed here by the halves' ids.
    """
    scores = gguf.metadata["tokenizer.ggml.scores"].tolist()
    types = gguf.metadata["tokenizer.ggml.token_type"].tolist()
    ranked: list[tuple[float, int, int, int]] = []
    for token_id, token in enumerate(tokens):
        # Control tokens and byte tokens are never put together from text that happens to spell them.
        if types[token_id] not in (_NORMAL, _USER_DEFINED, _UNUSED) or len(token) < 2:
            continue
        score = -scores[token_id]
        for cut in range(1, len(token)):
            left = vocab.get(token[:cut])
            if left is not None:
                right = vocab.get(token[cut:])
                if right is not None:
                    ranked.append((score, token_id, left, right))
    ranked.sort()
    return [(tokens[left], tokens[right]) for _, _, left, right in ranked]


def _add_tokens(gguf: GGUFFile, tokenizer: Tokenizer, tokens: list[str]) -> None:
    """Register the tokens that are found in a text before anything is merged: control and user-defined ones."""
    from tokenizers import AddedToken

    types = gguf.metadata["tokenizer.ggml.token_type"].tolist()
    control = [token for token, kind in zip(tokens, types, strict=True) if kind == _CONTROL]
    user_defined = [token for token, kind in zip(tokens, types, strict=True) if kind == _USER_DEFINED]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    # Runs of spaces are written with spaces, not marks, in the file: they are found in the text as it was typed.
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in user_defined])
