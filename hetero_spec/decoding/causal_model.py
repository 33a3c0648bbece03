# SPDX-License-Identifier: Apache-2.0
"""A transformers causal language model as a batch of sequences that can be fed and rolled back."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from hetero_spec.decoding.kv_cache import RaggedCache, visible_slots

_LAYER_TYPES = ("full_attention", "sliding_attention", "chunked_attention")


class CausalModel:
    """What `TransformersTarget` and `TransformersDrafter` share: the model, its masks and its forward signature.

    Parameters
    ----------
    model : transformers causal language model
        In eval mode, with attention implementation "sdpa" or "eager".
    vocab_size : int, optional
        Columns of the logits to use, at most the model's own width: the rest is padding of the head. Default: all.

    Raises
    ------
    ValueError
        The model has layers whose state cannot be rolled back by position (recurrent or convolutional), or an attention
        implementation that takes no prepared mask.
    """

    def __init__(self, model: Any, vocab_size: int | None = None) -> None:
        config = model.config.get_text_config()
        types = getattr(config, "layer_types", None)
        for layer_type in types or ():
            if layer_type not in _LAYER_TYPES:
                raise ValueError(f"model: layer_types must be among {', '.join(_LAYER_TYPES)}, got {layer_type!r}")
        implementation = getattr(config, "_attn_implementation", None) or "eager"
        if implementation not in ("sdpa", "eager"):
            raise ValueError(f"model: attention implementation must be 'sdpa' or 'eager', got {implementation!r}")
        width = int(config.vocab_size)
        if vocab_size is not None and not 1 <= vocab_size <= width:
            raise ValueError(f"model: vocab_size must be in [1, {width}], got {vocab_size}")
        self.model = model
        self._vocab_size = width if vocab_size is None else vocab_size
        self._max_length: int | None = getattr(config, "max_position_embeddings", None)
        self._additive_mask = implementation == "eager"
        # Models with several kinds of layers take a dict of masks keyed by kind, the others one tensor: the rule of
        # transformers' own create_masks_for_generate.
        self._layer_types: list[str] | None = None if types is None else sorted(set(types))
        self._window: int | None = getattr(config, "sliding_window", None)
        self._chunk: int | None = getattr(config, "attention_chunk_size", None)
        parameters = inspect.signature(type(model).forward).parameters
        # `past_key_values` became `cache` in transformers 5; remote and older models still have the first name.
        is_older = "past_key_values" in parameters and "cache" not in parameters
        self._cache_argument = "past_key_values" if is_older else "cache"
        self._takes_logits_to_keep = "logits_to_keep" in parameters
        self._takes_row_mask = self._takes_logits_to_keep and _slices_by_row_mask()

    @property
    def vocab_size(self) -> int:
        """Width of the logits."""
        return self._vocab_size

    @property
    def max_length(self) -> int | None:
        """Number of positions the model was made for."""
        return self._max_length

    def open(self, num_requests: int, max_length: int) -> CachedSequences:
        """Start a batch of empty sequences."""
        return CachedSequences(self, num_requests, max_length)

    @torch.inference_mode()
    def forward(self, token_ids: Tensor, positions: Tensor, keep: Tensor, cache: RaggedCache) -> Tensor:
        """Run the model over one step of a cache.

        Parameters
        ----------
        token_ids, positions : int64 [B, T]
            Padded on the right.
        keep : bool [B, T]
            The tokens whose logits are wanted, a suffix of each row's real tokens.

        Returns
        -------
        logits : [number of True in keep, vocab_size]
            A view of what the model returned wherever it projects only the kept rows.
        """
        device = self.model.device
        arguments: dict[str, Any] = {
            "input_ids": token_ids.to(device),
            "position_ids": positions.to(device),
            "attention_mask": self._masks(positions.to(device), cache.num_slots),
            self._cache_argument: cache,
            "use_cache": True,
        }
        # A single request keeps a suffix, which every version takes as a count.
        if self._takes_logits_to_keep and keep.shape[0] == 1 and bool(keep[0, -1]):
            arguments["logits_to_keep"] = int(keep.sum())
        elif self._takes_row_mask:
            arguments["logits_to_keep"] = keep.to(device)
        logits: Tensor = self.model(**arguments).logits
        if logits.dim() == 3:
            logits = logits.flatten(0, 1) if logits.shape[1] * keep.shape[0] == int(keep.sum()) else logits[keep]
        return logits[:, : self._vocab_size]

    def _masks(self, positions: Tensor, num_slots: int) -> Tensor | dict[str, Tensor]:
        """Prepare 4-dimensional masks in the form the model takes."""
        if self._layer_types is not None:
            return {name: self._mask(positions, num_slots, name) for name in self._layer_types}
        if self._window is not None:
            return self._mask(positions, num_slots, "sliding_attention")
        if self._chunk is not None:
            return self._mask(positions, num_slots, "chunked_attention")
        return self._mask(positions, num_slots, "full_attention")

    def _mask(self, positions: Tensor, num_slots: int, layer_type: str) -> Tensor:
        mask = visible_slots(
            positions,
            num_slots,
            window=self._window if layer_type == "sliding_attention" else None,
            chunk=self._chunk if layer_type == "chunked_attention" else None,
        )
        if not self._additive_mask:
            return mask
        dtype = self.model.dtype
        return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, torch.finfo(dtype).min)


class CachedSequences:
    """A batch of one model's sequences over a `RaggedCache`; satisfies the `Sequences` protocol."""

    def __init__(self, causal_model: CausalModel, num_requests: int, max_length: int) -> None:
        self._causal_model = causal_model
        self._cache = RaggedCache(num_requests, max_length)
        self._row_of = {request: request for request in range(num_requests)}

    def feed(self, requests: Sequence[int], token_ids: Sequence[Sequence[int]], num_rows: Sequence[int]) -> Tensor:
        """Append tokens; see `Sequences.feed`."""
        counts = [len(ids) for ids in token_ids]
        for ids, kept in zip(token_ids, num_rows, strict=True):
            if not 1 <= kept <= len(ids):
                raise ValueError(f"feed: num_rows must be in [1, {len(ids)}], got {kept}")
            # An id outside the vocabulary (a -1 placeholder above all) must never reach an embedding.
            if min(ids) < 0 or max(ids) >= self._causal_model.model.config.get_text_config().vocab_size:
                raise ValueError(f"feed: token_ids must be ids of the model's vocabulary, got {min(ids)}..{max(ids)}")
        positions = self._cache.begin([self._row_of[request] for request in requests], counts)
        padded = torch.zeros(positions.shape, dtype=torch.int64)
        keep = torch.zeros(positions.shape, dtype=torch.bool)
        for row, (ids, kept) in enumerate(zip(token_ids, num_rows, strict=True)):
            padded[row, : len(ids)] = torch.tensor(list(ids))
            keep[row, len(ids) - kept : len(ids)] = True
        logits = self._causal_model.forward(padded, positions, keep, self._cache)
        self._cache.commit()
        return logits

    def truncate(self, request: int, length: int) -> None:
        """Roll a request back; see `Sequences.truncate`."""
        self._cache.truncate(self._row_of[request], length)

    def drop(self, request: int) -> None:
        """Take a request out of the batch; see `Sequences.drop`."""
        row = self._row_of.pop(request)
        self._cache.remove(row)
        self._row_of = {name: other - (other > row) for name, other in self._row_of.items()}


def _slices_by_row_mask() -> bool:
    """Whether this transformers takes a boolean [B, T] as logits_to_keep (5.24 and later)."""
    from transformers import modeling_utils

    return hasattr(modeling_utils, "slice_logits_to_keep")
