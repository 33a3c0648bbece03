# SPDX-License-Identifier: Apache-2.0
"""Turns a GGUF file into a transformers folder: config.json, model.safetensors (float32), tokenizer.json and its notes.

Weights become float32: the values that 4-, 5-, 6- and 8-bit blocks stand for (a float16 scale times a small integer,
plus a float16 offset in some) do not fit float16's 11 significant bits.

Source: ggml's tensor names, and what llama.cpp's converter did to the tensors on their way into the file (rotary rows
reordered for Llama, one added to Gemma's norm weights), undone here; checked against transformers' own reader.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetero_spec.models.gguf_reader import GGUFError, GGUFFile
from hetero_spec.models.gguf_tokenizer import build_tokenizer, end_token_ids
from hetero_spec.models.progress import Progress
from hetero_spec.models.registry import ModelError

WEIGHTS = "model.safetensors"
TOKENIZER = "tokenizer.json"

_GLOBAL_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LLAMA_BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_GEMMA3_BLOCK = _LLAMA_BLOCK | {
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_BLOCKS = {"llama": _LLAMA_BLOCK, "gemma3": _GEMMA3_BLOCK}
# Gemma 3: five layers that see a window, then one that sees all; not written in the file. The windowed layers turn
# their rotary angles with their own base.
_GEMMA3_PATTERN = 6
_GEMMA3_LOCAL_ROPE_BASE = 10_000.0


def convert(gguf: GGUFFile, folder: Path, *, extra_eos: tuple[str, ...] = (), progress: Progress) -> None:
    """Write the converted model into `folder`.

    Raises
    ------
    ModelError
        The architecture or the tokenizer is of a kind that is not known here, or a tensor is missing or unknown.
    """
    from safetensors.numpy import save_file

    progress.step("tokenizer")
    tokenizer = build_tokenizer(gguf)
    tokenizer.save(str(folder / TOKENIZER), pretty=False)

    config = _config(gguf, end_token_ids(gguf, extra_eos))
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(_tokenizer_config(gguf), indent=1), encoding="utf-8")

    total = sum(info.num_bytes for info in gguf.tensors.values())
    progress.step(f"weights ({total / 1e6:.0f} MB)", total)
    tensors: dict[str, NDArray[np.float32]] = {}
    for name, info in gguf.tensors.items():
        tensors[_tensor_name(gguf, name)] = _undo_converter(gguf, name, gguf.tensor(name), config)
        progress.advance(info.num_bytes)
    progress.step("writing")
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})


def _architecture(gguf: GGUFFile) -> str:
    architecture = str(gguf.metadata.get("general.architecture"))
    if architecture not in _BLOCKS:
        raise ModelError(f"{gguf.paths[0]}: architecture must be one of {', '.join(_BLOCKS)}, got {architecture}")
    return architecture


def _tensor_name(gguf: GGUFFile, name: str) -> str:
    if name in _GLOBAL_NAMES:
        return _GLOBAL_NAMES[name]
    block, _, rest = name.removeprefix("blk.").partition(".")
    inside = _BLOCKS[_architecture(gguf)].get(rest.removesuffix(".weight"))
    if inside is None or not name.startswith("blk.") or not rest.endswith(".weight"):
        raise ModelError(f"{gguf.paths[0]}: tensor {name} is not known")
    return f"model.layers.{block}.{inside}.weight"


def _undo_converter(
    gguf: GGUFFile, name: str, values: NDArray[np.float32], config: dict[str, Any]
) -> NDArray[np.float32]:
    architecture = _architecture(gguf)
    if architecture == "gemma3" and name.endswith("norm.weight"):
        return values - np.float32(1)
    if architecture == "llama" and name.endswith((".attn_q.weight", ".attn_k.weight")):
        # llama.cpp turns neighbours (2i, 2i + 1) of a head, transformers turns (i, i + half): put the rows back.
        num_heads = config["num_attention_heads" if name.endswith(".attn_q.weight") else "num_key_value_heads"]
        halves = values.reshape(num_heads, -1, 2, values.shape[-1])
        return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(values.shape))
    return values


def _config(gguf: GGUFFile, eos_token_ids: tuple[int, ...]) -> dict[str, Any]:
    architecture = _architecture(gguf)

    def value(key: str, convert_to: Callable[[Any], Any] = int, default: Any = None) -> Any:
        found = gguf.metadata.get(f"{architecture}.{key}", default)
        if found is None:
            raise GGUFError(f"{gguf.paths[0]}: {architecture}.{key} is missing")
        return convert_to(found)

    num_heads = value("attention.head_count")
    hidden_size = value("embedding_length")
    config: dict[str, Any] = {
        "vocab_size": len(gguf.strings("tokenizer.ggml.tokens")),
        "hidden_size": hidden_size,
        "intermediate_size": value("feed_forward_length"),
        "num_hidden_layers": value("block_count"),
        "num_attention_heads": num_heads,
        "num_key_value_heads": value("attention.head_count_kv", default=num_heads),
        "head_dim": value("attention.key_length", default=hidden_size // num_heads),
        "max_position_embeddings": value("context_length"),
        "rms_norm_eps": value("attention.layer_norm_rms_epsilon", _shortest_float32),
        "tie_word_embeddings": "output.weight" not in gguf.tensors,
        "bos_token_id": gguf.metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": list(eos_token_ids),
        "pad_token_id": gguf.metadata.get("tokenizer.ggml.padding_token_id"),
        "dtype": "float32",
        "use_cache": True,
    }
    rope_base = value("rope.freq_base", float, 10_000.0)
    if architecture == "llama":
        return config | {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "rope_parameters": {"rope_type": "default", "rope_theta": rope_base},
        }
    return config | {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": config["head_dim"],
        "sliding_window": value("attention.sliding_window"),
        "layer_types": [
            "sliding_attention" if (layer + 1) % _GEMMA3_PATTERN else "full_attention"
            for layer in range(config["num_hidden_layers"])
        ],
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": rope_base},
            "sliding_attention": {"rope_type": "default", "rope_theta": _GEMMA3_LOCAL_ROPE_BASE},
        },
    }


def _shortest_float32(value: float) -> float:
    """Return the shortest decimal that is the same float32: 1e-05, not 9.999999747378752e-06."""
    return float(str(np.float32(value)))


def _tokenizer_config(gguf: GGUFFile) -> dict[str, Any]:
    tokens = gguf.strings("tokenizer.ggml.tokens")
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": int(gguf.metadata[f"{_architecture(gguf)}.context_length"]),
    }
    for role, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        token_id = gguf.metadata.get(f"tokenizer.ggml.{key}_token_id")
        if token_id is not None:
            config[f"{role}_token"] = tokens[token_id].decode("utf-8")
    if template := gguf.metadata.get("tokenizer.chat_template"):
        config["chat_template"] = template
    return config
