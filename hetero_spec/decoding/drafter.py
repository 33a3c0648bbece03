# SPDX-License-Identifier: Apache-2.0
"""A transformers causal language model as a drafter, and the target's tokens in its vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from hetero_spec.decoding.causal_model import CausalModel
from hetero_spec.decoding.target import encode_with
from hetero_spec.vocab import VocabMap


class TransformersDrafter(CausalModel):
    """The drafter of a `SpeculativeDecoder` over a transformers model with a tokenizer of its own.

    How the target's tokens reach the drafter:

    * the prompt is given in the drafter's own segmentation: runs of ordinary target tokens become bytes, then text,
      then the drafter's ids. Special tokens between them become the drafter's token of the same role or string, and
      are left out where there is none. A run that is not valid UTF-8 is spelt token by token;
    * the drafter's BOS stands in front exactly once if its tokenizer puts one there, or if the prompt begins with a
      target token that maps to it; never anywhere else;
    * an emitted target token becomes the shared id, else the fewest drafter tokens of the same bytes. A token without
      a spelling (a byte the drafter lacks, an unmapped special) is left out: the drafter then sees a gap, which costs
      acceptance at worst. UNK and EOS are never put in its place.

    Parameters
    ----------
    model : transformers causal language model
    tokenizer : object with encode(text, add_special_tokens=...) and bos_token_id
    vocab_map : VocabMap
        From this drafter's ids to the target's.
    target_vocab_size : int, optional
        Width of the target's logits where it is less than the map's (padding of the head left out).
    """

    def __init__(self, model: Any, tokenizer: Any, vocab_map: VocabMap, target_vocab_size: int | None = None) -> None:
        super().__init__(model, vocab_map.draft_vocab_size)
        self.tokenizer = tokenizer
        self.vocab_map = vocab_map
        self._token_bytes = vocab_map.target_tokens
        self._bos_token_id: int | None = getattr(tokenizer, "bos_token_id", None)
        self._adds_bos = self._bos_token_id is not None and encode_with(tokenizer, "a")[:1] == [self._bos_token_id]
        self._shared: list[int] = vocab_map.target_to_draft_ids.tolist()
        self._draft_to_target_ids = vocab_map.draft_to_target_ids.to(model.device)
        self._target_to_draft_ids = vocab_map.target_to_draft_ids[:target_vocab_size].to(model.device)

    @property
    def draft_to_target_ids(self) -> Tensor:
        """Target id of each drafter id, -1 where not shared."""
        return self._draft_to_target_ids

    @property
    def target_to_draft_ids(self) -> Tensor:
        """Drafter id of each target id, -1 where not shared."""
        return self._target_to_draft_ids

    @property
    def num_prefix_tokens(self) -> int:
        """1 for a drafter that begins its texts with BOS."""
        return int(self._adds_bos)

    def encode_context(self, target_token_ids: Sequence[int]) -> list[int]:
        """Drafter ids of a prompt given in target ids."""
        draft_ids: list[int] = []
        run: list[int] = []
        for token_id in target_token_ids:
            if self._token_bytes[token_id] is not None:
                run.append(token_id)
                continue
            draft_ids += self._encode_run(run)
            run = []
            draft_ids += self.encode_token(token_id)
        draft_ids += self._encode_run(run)
        if self._bos_token_id is None:
            return draft_ids
        has_bos = self._adds_bos or draft_ids[:1] == [self._bos_token_id]
        while draft_ids[:1] == [self._bos_token_id]:
            del draft_ids[0]
        return [self._bos_token_id, *draft_ids] if has_bos else draft_ids

    def encode_token(self, target_token_id: int) -> Sequence[int]:
        """Drafter ids of one emitted target token; empty when it cannot be written."""
        shared = self._shared[target_token_id]
        return (shared,) if shared >= 0 else self.vocab_map.spell_with_drafter(target_token_id) or ()

    def _encode_run(self, token_ids: Sequence[int]) -> list[int]:
        """Drafter ids of a run of ordinary target tokens."""
        if not token_ids:
            return []
        data = b"".join(self._token_bytes[token_id] or b"" for token_id in token_ids)
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            return [piece for token_id in token_ids for piece in self.encode_token(token_id)]
        return encode_with(self.tokenizer, text, add_special_tokens=False)
