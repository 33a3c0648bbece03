# SPDX-License-Identifier: Apache-2.0
"""Tiny GGUF models with random weights, written by the gguf package's own writer."""

from pathlib import Path

import gguf
import numpy as np
from tokenizers import pre_tokenizers

from hetero_spec.models.gguf_reader import sha256_of
from hetero_spec.models.registry import PackagedModel

HIDDEN, HEADS, KV_HEADS, INNER, LAYERS = 32, 4, 2, 64, 2
CONTROL, USER_DEFINED, BYTE, NORMAL = 3, 4, 6, 1


def write_llama(path: Path, *, quantization: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.Q8_0) -> None:
    """Llama with grouped heads and a byte-level vocabulary of 256 bytes, four merges and two control tokens."""
    tokens = ["<|end|>", "<|turn|>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "th", "the", "\u0120the", "12"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(5000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([CONTROL, CONTROL] + [NORMAL] * (len(tokens) - 2))
    writer.add_token_merges(["t h", "th e", "\u0120 the", "1 2"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_add_bos_token(False)
    writer.add_chat_template("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:")
    head = HIDDEN // HEADS
    shapes = {"token_embd": (len(tokens), HIDDEN), "output_norm": (HIDDEN,)}
    for layer in range(LAYERS):
        shapes |= {
            f"blk.{layer}.attn_norm": (HIDDEN,),
            f"blk.{layer}.ffn_norm": (HIDDEN,),
            f"blk.{layer}.attn_q": (HIDDEN, HIDDEN),
            f"blk.{layer}.attn_k": (KV_HEADS * head, HIDDEN),
            f"blk.{layer}.attn_v": (KV_HEADS * head, HIDDEN),
            f"blk.{layer}.attn_output": (HIDDEN, HIDDEN),
            f"blk.{layer}.ffn_gate": (INNER, HIDDEN),
            f"blk.{layer}.ffn_up": (INNER, HIDDEN),
            f"blk.{layer}.ffn_down": (HIDDEN, INNER),
        }
    for number, (name, shape) in enumerate(shapes.items()):
        values = np.random.default_rng(number).standard_normal(shape).astype(np.float32)
        if name.endswith(("attn_q", "attn_k")):
            values = turn_neighbours(values, HEADS if name.endswith("attn_q") else KV_HEADS)
        if len(shape) == 1:
            writer.add_tensor(f"{name}.weight", values)
        else:
            data = gguf.quants.quantize(values, quantization)
            writer.add_tensor(f"{name}.weight", data, raw_dtype=quantization)
    _finish(writer)


def turn_neighbours(values: np.ndarray, num_heads: int) -> np.ndarray:
    """Reorder the rows of a head from (i, i + half) pairs to neighbours, as llama.cpp's converter does."""
    head = values.shape[0] // num_heads
    order = [
        start + half * (head // 2) + pair
        for start in range(0, values.shape[0], head)
        for pair in range(head // 2)
        for half in range(2)
    ]
    return values[order]


def write_sentencepiece_vocabulary(path: Path) -> None:
    """A vocabulary alone: SentencePiece style with byte fallback, runs of spaces and newlines user-defined."""
    pieces = [("<pad>", 0.0, CONTROL), ("<eos>", 0.0, CONTROL), ("<bos>", 0.0, CONTROL), ("<unk>", 0.0, CONTROL)]
    pieces += [("\n\n", -1000.0, USER_DEFINED), ("  ", -1000.0, USER_DEFINED)]
    pieces += [(f"<0x{byte:02X}>", 0.0, BYTE) for byte in range(256)]
    # Scores as SentencePiece's BPE trainer gives them: minus the rank. "abc" can be made as ab+c only: bc is worse.
    ranked = ["ab", "bc", "\u2581a", "abc", "\u2581abc", "<0", "x4", "<0x4", "<0x41"]
    ranked += ["a", "b", "c", "\u2581", "<", "0", "x", "4", "1", ">"]
    pieces += [(piece, -float(rank), NORMAL) for rank, piece in enumerate(ranked)]
    writer = gguf.GGUFWriter(path, "gemma3")
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([piece for piece, _, _ in pieces])
    writer.add_token_scores([score for _, score, _ in pieces])
    writer.add_token_types([kind for _, _, kind in pieces])
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(1)
    writer.add_unk_token_id(3)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)
    _finish(writer)


def _finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def packaged(path: Path, *, sha256: str | None = None) -> PackagedModel:
    """A table row whose one file is `path`, as if its folder were a package."""
    return PackagedModel(
        name="tiny",
        files=((path.parent.name, path.name),),
        sha256=sha256 or sha256_of([path]),
        requirements=("tiny-model==1.0",),
        licence="Apache-2.0",
        note="a test's own",
        extra_eos=("<|end|>", "<|not there|>"),
    )
