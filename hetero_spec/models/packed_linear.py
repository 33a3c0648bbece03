# SPDX-License-Identifier: Apache-2.0
"""Linear layers whose weights are kept in the blocked layout of the CPU library (oneDNN).

Decoding multiplies a handful of rows by large matrices, so a step should cost one reading of the weights, whether it is
for one new token or for the nine rows that verify a draft. torch's own linear reorders the weights inside every call
from two rows on, which costs more than the reading; with weights reordered once it does not.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

PACKED_DTYPES = (torch.float32, torch.bfloat16)


class PackedLinear(nn.Module):
    """What `linear` computes, up to float rounding (sums run in another order). Inference only.

    The packed weights are neither a parameter nor in the state dict: pack a model after loading it, and load it again
    to change it.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.bias = None if linear.bias is None else linear.bias.detach()
        # The number of rows that the layout is made for is a hint; it serves 1 to 16 rows alike.
        self._packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach().contiguous(), 1)

    def forward(self, rows: Tensor) -> Tensor:
        """Return rows @ weight.T + bias, [..., out_features]."""
        result: Tensor = torch.ops.mkldnn._linear_pointwise(rows, self._packed, self.bias, "none", [], "")
        return result

    def extra_repr(self) -> str:
        """Return what torch prints about the layer."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


def can_pack() -> bool:
    """Whether this torch and this processor have the packed layer."""
    ops: Any = torch.ops.mkldnn
    has_ops = hasattr(ops, "_reorder_linear_weight") and hasattr(ops, "_linear_pointwise")
    library: Any = torch.backends.mkldnn
    return bool(library.is_available()) and has_ops


def pack_linears(model: nn.Module) -> int:
    """Replace a CPU model's linear layers by packed ones, in place; return how many.

    Layers of a dtype that is not packed (float16) or on another device are left alone, and so is everything where
    `can_pack` says no. An output layer that shares the embedding's weights gets a packed copy of its own.
    """
    if not can_pack():
        return 0
    num_packed = 0
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear and child.weight.device.type == "cpu" and child.weight.dtype in PACKED_DTYPES:
                setattr(parent, name, PackedLinear(child))
                num_packed += 1
    return num_packed
