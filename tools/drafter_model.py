# SPDX-License-Identifier: Apache-2.0
"""The drafter as a training module: a small Llama without the generality, under transformers' weight names."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ARCHITECTURE: dict[str, Any] = {
    "hidden_size": 256,
    "intermediate_size": 544,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
}


class DrafterLayer(nn.Module):
    """Attention and gated MLP, both behind an RMS norm."""

    def __init__(self, architecture: dict[str, Any]) -> None:
        super().__init__()
        hidden = architecture["hidden_size"]
        self.eps = architecture["rms_norm_eps"]
        self.head_dim = hidden // architecture["num_attention_heads"]
        kv_size = self.head_dim * architecture["num_key_value_heads"]
        self.input_layernorm = nn.Parameter(torch.ones(hidden))
        self.post_attention_layernorm = nn.Parameter(torch.ones(hidden))
        self.q_proj = nn.Linear(hidden, hidden, bias=False)
        self.k_proj = nn.Linear(hidden, kv_size, bias=False)
        self.v_proj = nn.Linear(hidden, kv_size, bias=False)
        self.o_proj = nn.Linear(hidden, hidden, bias=False)
        self.gate_proj = nn.Linear(hidden, architecture["intermediate_size"], bias=False)
        self.up_proj = nn.Linear(hidden, architecture["intermediate_size"], bias=False)
        self.down_proj = nn.Linear(architecture["intermediate_size"], hidden, bias=False)

    def forward(self, hidden: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """One layer over hidden states [batch, length, hidden]."""
        batch_size, length, size = hidden.shape
        normed = F.rms_norm(hidden, (size,), self.input_layernorm, self.eps)

        def heads(states: Tensor) -> Tensor:
            return states.view(batch_size, length, -1, self.head_dim).transpose(1, 2)

        def rotate(states: Tensor) -> Tensor:
            first, second = states.chunk(2, dim=-1)
            return states * cos + torch.cat([-second, first], dim=-1) * sin

        query, key = rotate(heads(self.q_proj(normed))), rotate(heads(self.k_proj(normed)))
        value = heads(self.v_proj(normed))
        mixed = F.scaled_dot_product_attention(
            query.to(value.dtype), key.to(value.dtype), value, is_causal=True, enable_gqa=True
        )
        hidden = hidden + self.o_proj(mixed.transpose(1, 2).reshape(batch_size, length, size))
        normed = F.rms_norm(hidden, (size,), self.post_attention_layernorm, self.eps)
        return hidden + self.down_proj(F.silu(self.gate_proj(normed)) * self.up_proj(normed))


class DrafterModel(nn.Module):
    """Tied embeddings, layers, final norm. `forward` stops before the head: only some positions need logits."""

    def __init__(self, vocab_size: int, architecture: dict[str, Any], seed: int, max_length: int = 1024) -> None:
        super().__init__()
        self.architecture = architecture
        hidden, num_layers = architecture["hidden_size"], architecture["num_hidden_layers"]
        self.embed_tokens = nn.Embedding(vocab_size, hidden)
        self.layers = nn.ModuleList(DrafterLayer(architecture) for _ in range(num_layers))
        self.norm = nn.Parameter(torch.ones(hidden))
        generator = torch.Generator().manual_seed(seed)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                # The last matrix of each branch starts smaller: the sum over the branches keeps its size.
                is_output = name.endswith(("o_proj.weight", "down_proj.weight"))
                std = 0.02 / (2 * num_layers) ** 0.5 if is_output else 0.02
                nn.init.normal_(weight, std=std, generator=generator)
        head_dim = hidden // architecture["num_attention_heads"]
        inverse = architecture["rope_theta"] ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
        angles = torch.arange(max_length, dtype=torch.float64)[:, None] * inverse
        self.register_buffer("cos", torch.cat([angles.cos()] * 2, dim=-1).float(), persistent=False)
        self.register_buffer("sin", torch.cat([angles.sin()] * 2, dim=-1).float(), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        """Final hidden states [batch, length, hidden] of ids [batch, length]."""
        length = ids.shape[1]
        hidden = self.embed_tokens(ids)
        for layer in self.layers:
            hidden = layer(hidden, self.cos[:length], self.sin[:length])
        return F.rms_norm(hidden, (hidden.shape[-1],), self.norm, self.architecture["rms_norm_eps"])

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits [..., vocab] of hidden states [..., hidden]."""
        return F.linear(hidden, self.embed_tokens.weight)

    def transformers_state(self) -> dict[str, Tensor]:
        """The weights under the names of transformers' LlamaForCausalLM (the tied head is left out)."""
        state: dict[str, Tensor] = {}
        for name, weight in self.named_parameters():
            name = name.replace(".weight", "")
            for part in ("q_proj", "k_proj", "v_proj", "o_proj"):
                name = name.replace(f".{part}", f".self_attn.{part}")
            for part in ("gate_proj", "up_proj", "down_proj"):
                name = name.replace(f".{part}", f".mlp.{part}")
            state[f"model.{name}.weight"] = weight.detach()
        return state
