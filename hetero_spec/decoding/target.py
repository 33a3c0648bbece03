# SPDX-License-Identifier: Apache-2.0
"""A transformers causal language model as a target."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from hetero_spec.decoding.causal_model import CausalModel


class TransformersTarget(CausalModel):
    """The target of a `SpeculativeDecoder` over a transformers model.

    The head of a model is often wider than its tokenizer (padding to a round number). Those columns have no text; they
    are left out of the law by taking a narrower view of the logits, so that they can never be emitted.

    Parameters
    ----------
    model : transformers causal language model
    tokenizer : object with encode(text, add_special_tokens=...) and eos_token_ids or eos_token_id
        `TextTokenizer` of hetero_spec.models or a transformers tokenizer.
    token_bytes : sequence of bytes or None, optional
        What each id adds to the text. Default: read from the tokenizer.
    """

    def __init__(self, model: Any, tokenizer: Any, token_bytes: Sequence[bytes | None] | None = None) -> None:
        if token_bytes is None:
            from hetero_spec.vocab.tokens import read_vocabulary

            token_bytes = read_vocabulary(tokenizer).tokens
        width = int(model.config.get_text_config().vocab_size)
        super().__init__(model, min(width, len(token_bytes)))
        self.tokenizer = tokenizer
        self._token_bytes = token_bytes
        self._eos_token_ids = frozenset(eos_token_ids_of(tokenizer))

    @property
    def eos_token_ids(self) -> Collection[int]:
        """Ids that end a text."""
        return self._eos_token_ids

    @property
    def token_bytes(self) -> Sequence[bytes | None]:
        """The bytes each id adds to the text."""
        return self._token_bytes

    def encode(self, text: str) -> list[int]:
        """Token ids of a prompt, with BOS where the tokenizer adds one."""
        return encode_with(self.tokenizer, text)


def encode_with(tokenizer: Any, text: str, *, add_special_tokens: bool = True) -> list[int]:
    """Return a tokenizer's ids of a text, be it of hetero_spec.models, transformers or tokenizers."""
    encoded = tokenizer.encode(text, add_special_tokens=add_special_tokens)
    return list(getattr(encoded, "ids", encoded))


def eos_token_ids_of(tokenizer: Any) -> tuple[int, ...]:
    """Return a tokenizer's end-of-text ids, none if it has none."""
    ids = getattr(tokenizer, "eos_token_ids", None)
    if ids is None:
        ids = getattr(tokenizer, "eos_token_id", None)
    if ids is None:
        return ()
    return (ids,) if isinstance(ids, int) else tuple(ids)
