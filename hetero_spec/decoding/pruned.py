# SPDX-License-Identifier: Apache-2.0
"""A drafter whose output layer knows fewer tokens than its input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from hetero_spec.decoding.causal_model import CachedSequences, CausalModel
from hetero_spec.decoding.drafter import TransformersDrafter
from hetero_spec.decoding.target import encode_with

if TYPE_CHECKING:
    from hetero_spec.rdk.prune import PrunedModel
    from hetero_spec.vocab import VocabMap


class PrunedDrafter(CausalModel):
    """The drafter of a `SpeculativeDecoder` over a pruned model.

    Its vocabulary is that of its logits, K ids, one per kept token; that is what a draft is sampled and verified in.
    Its context needs more: tokens that were cut from the output layer still have an embedding. So the ids that its
    sequences take go on where the logits end: K + i is token i of the unpruned vocabulary, kept or not, and the loop
    need not know that there are two kinds. It has no `vocab_map`: methods that read drafts as text (SLEM, SLRS) take an
    unpruned drafter.

    Parameters
    ----------
    pruned : PrunedModel
    vocab_map : VocabMap, optional
        Of the target and the unpruned drafter. None: the drafter has the target's tokenizer, and its context is the
        target's ids as they are.
    target_vocab_size : int, optional
        Width of the target's logits. Default: the map's, or that of the unpruned drafter.
    tokenizer : optional
        The drafter's own, needed with a vocab_map. Default: the pruned model's.

    Attributes
    ----------
    target_sha256, drafter_sha256 : str or None
        Hashes of both tokenizers, for RDK kernels to be compared with; None where they aren't known.

    Raises
    ------
    ValueError   no tokenizer where one is needed, nothing kept is shared, a map of another drafter
    """

    def __init__(
        self,
        pruned: PrunedModel,
        vocab_map: VocabMap | None = None,
        target_vocab_size: int | None = None,
        *,
        tokenizer: Any = None,
    ) -> None:
        super().__init__(pruned.model, len(pruned.kept_ids))
        tokenizer = pruned.tokenizer if tokenizer is None else tokenizer
        to_target, to_draft = pruned.maps(vocab_map, target_vocab_size)
        self._draft_to_target_ids = to_target.to(pruned.model.device)
        self._target_to_draft_ids = to_draft.to(pruned.model.device)
        # Context ids to ids of the embeddings.
        self._embedded: list[int] = [*pruned.kept_ids.tolist(), *range(pruned.vocab_size)]
        self._unpruned: TransformersDrafter | None = None
        self._num_prefix_tokens = 0
        self.target_sha256: str | None = None
        self.drafter_sha256: str | None = None
        if vocab_map is not None:
            if tokenizer is None:
                raise ValueError("PrunedDrafter: tokenizer must be given with a vocab_map, got None")
            self._unpruned = TransformersDrafter(pruned.model, tokenizer, vocab_map, target_vocab_size)
            self._num_prefix_tokens = self._unpruned.num_prefix_tokens
            self.target_sha256, self.drafter_sha256 = vocab_map.target.sha256, vocab_map.drafter.sha256
        elif tokenizer is not None:
            bos = getattr(tokenizer, "bos_token_id", None)
            self._num_prefix_tokens = int(bos is not None and encode_with(tokenizer, "a")[:1] == [bos])

    @property
    def draft_to_target_ids(self) -> Tensor:
        """Target id of each column of the logits, -1 where not shared."""
        return self._draft_to_target_ids

    @property
    def target_to_draft_ids(self) -> Tensor:
        """Column of each target id, -1 where pruned or not shared."""
        return self._target_to_draft_ids

    @property
    def num_prefix_tokens(self) -> int:
        """1 for a drafter that begins its texts with BOS."""
        return self._num_prefix_tokens

    def encode_context(self, target_token_ids: Sequence[int]) -> list[int]:
        """Context ids of a prompt given in target ids."""
        if self._unpruned is None:
            return [context_id for token_id in target_token_ids for context_id in self.encode_token(token_id)]
        return [self.vocab_size + token_id for token_id in self._unpruned.encode_context(target_token_ids)]

    def encode_token(self, target_token_id: int) -> Sequence[int]:
        """Context ids of one target token, kept or not; empty when it cannot be written."""
        if self._unpruned is None:
            num_embedded = len(self._embedded) - self.vocab_size
            return (self.vocab_size + target_token_id,) if target_token_id < num_embedded else ()
        return [self.vocab_size + token_id for token_id in self._unpruned.encode_token(target_token_id)]

    def open(self, num_requests: int, max_length: int) -> CachedSequences:
        """Start a batch of empty sequences, which take context ids."""
        return _TranslatedSequences(self, self._embedded, num_requests, max_length)


class _TranslatedSequences(CachedSequences):
    """Sequences that are fed context ids and hand ids of the embeddings on."""

    def __init__(self, causal_model: CausalModel, embedded: Sequence[int], num_requests: int, max_length: int) -> None:
        super().__init__(causal_model, num_requests, max_length)
        self._embedded = embedded

    def feed(self, requests: Sequence[int], token_ids: Sequence[Sequence[int]], num_rows: Sequence[int]) -> Tensor:
        """Append tokens; see `Sequences.feed`."""
        for ids in token_ids:
            if ids and not (min(ids) >= 0 and max(ids) < len(self._embedded)):
                raise ValueError(f"feed: token_ids must be in [0, {len(self._embedded)}), got {min(ids)}..{max(ids)}")
        translated = [[self._embedded[token_id] for token_id in ids] for ids in token_ids]
        return super().feed(requests, translated, num_rows)
