# SPDX-License-Identifier: Apache-2.0
"""The map between a target's and a drafter's vocabulary: which ids of the two add the same bytes to the text."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hetero_spec.vocab.spelling import Speller
from hetero_spec.vocab.tokens import read_vocabulary
from hetero_spec.vocab.vocabulary import Vocabulary, make_vocabulary

if TYPE_CHECKING:
    from hetero_spec.vocab.report import VocabReport

DUPLICATE_RULES = ("normal", "byte")
"""Which of several ids with the same bytes stands for them: see `VocabMap`."""

_MATCHED_ROLES = ("eos", "bos")
# Sixty times the widest vocabulary there is; a slip of the keyboard must not fill the memory.
_MAX_VOCAB_SIZE = 2**24


class EmptyIntersectionError(ValueError):
    """The two vocabularies share no token that stands for text."""


class VocabMismatchError(ValueError):
    """A map is used with a tokenizer that it was not made for."""


@dataclass(frozen=True)
class SpecialMatch:
    """A special token of the target and the special token of the drafter that means the same.

    Attributes
    ----------
    target_id, draft_id : int
    target_text, draft_text : str
    matched_by : str
        "eos" or "bos" (role), or "text" (identical strings).
    """

    target_id: int
    draft_id: int
    target_text: str
    draft_text: str
    matched_by: str


@dataclass(frozen=True)
class Duplicate:
    """Ids of one vocabulary that add the same bytes; one stands for them, the others are not in the map."""

    token: bytes
    kept_id: int
    dropped_ids: tuple[int, ...]


class VocabMap:
    """Ids of a target and a drafter vocabulary that stand for the same bytes.

    Text tokens are matched by raw bytes. Special tokens are matched by role (EOS to EOS, then BOS to BOS) and then by
    identical string, never by bytes; padding and unknown tokens have no role that could be exchanged and are matched by
    string only. Of several ids with the same bytes one wins and the others are left out, on both sides, so the map is
    injective: a normal piece over a byte fallback piece, then the lowest id.

    Parameters
    ----------
    target, drafter : Vocabulary
    target_vocab_size, draft_vocab_size : int, optional
        Width of the model's logits, where it isn't the tokenizer's size. Ids beyond the tokenizer have no text and are
        never mapped; ids beyond the logits are left out.
    duplicates : "normal" or "byte"
        "byte" prefers byte fallback pieces. It is the wrong rule, and here to measure what it costs: a tokenizer never
        emits the byte piece of what has a piece of its own, so the drafter's "." or newline lands where the target has
        no mass. On Gemma 3 270M with SmolLM2 135M the exact acceptance of token-level intersection falls from .61 to
        .48.

    Attributes
    ----------
    draft_to_target_ids : int32 [draft_vocab_size], CPU
        Target id of each drafter id, -1 = not shared. Injective where it isn't -1.
    target_to_draft_ids : int32 [target_vocab_size], CPU
        The inverse: drafter id of each target id, -1 = not shared.
    target_vocab_size, draft_vocab_size : int
        Widths of the logits.
    target_tokens, draft_tokens : list of bytes or None
        What each id adds to the text, as long as the logits are wide; None: special, unused, or no such token.
    specials : list of SpecialMatch
    target_duplicates, draft_duplicates : list of Duplicate

    Raises
    ------
    EmptyIntersectionError   no text token is shared: such a drafter can propose nothing
    ValueError               a width isn't in [1, 2**24], an unknown duplicate rule

    Notes
    -----
    Both id tensors are shared with the map: don't write to them.

    Source
    ------
    Token-level intersection: Timor et al. 2025, arXiv 2502.05202, Algorithm 4. There tokens are compared as strings;
    bytes are used here because the same string means different bytes in different tokenizers.

    Examples
    --------
    >>> vocab_map = VocabMap.from_bytes([b"a", b"b", b"ab", None], [b"b", None, b"a"])
    >>> vocab_map.draft_to_target_ids.tolist(), vocab_map.target_to_draft_ids.tolist()
    ([1, -1, 0], [2, 0, -1, -1])
    >>> vocab_map.spell_with_drafter(2)
    (2, 0)
    """

    def __init__(
        self,
        target: Vocabulary,
        drafter: Vocabulary,
        *,
        target_vocab_size: int | None = None,
        draft_vocab_size: int | None = None,
        duplicates: str = "normal",
    ) -> None:
        if duplicates not in DUPLICATE_RULES:
            raise ValueError(f"VocabMap: duplicates must be one of {', '.join(DUPLICATE_RULES)}, got {duplicates!r}")
        self.target = target
        self.drafter = drafter
        self.duplicates = duplicates
        self.target_vocab_size = _width(target, target_vocab_size, "target_vocab_size")
        self.draft_vocab_size = _width(drafter, draft_vocab_size, "draft_vocab_size")
        self.target_tokens = _fit(target.tokens, self.target_vocab_size)
        self.draft_tokens = _fit(drafter.tokens, self.draft_vocab_size)

        self._target_id_of_bytes, self.target_duplicates = _index_by_bytes(
            self.target_tokens, target.byte_fallback_ids, duplicates
        )
        self._draft_id_of_bytes, self.draft_duplicates = _index_by_bytes(
            self.draft_tokens, drafter.byte_fallback_ids, duplicates
        )
        shared = self._target_id_of_bytes.keys() & self._draft_id_of_bytes.keys()
        if not shared:
            raise EmptyIntersectionError(
                "VocabMap: target and drafter must share at least one text token, got none of "
                f"{len(self._target_id_of_bytes)} and {len(self._draft_id_of_bytes)}"
            )
        pairs = [(self._target_id_of_bytes[token], self._draft_id_of_bytes[token]) for token in shared]
        self.num_shared = len(pairs)
        self.specials = _match_specials(target, drafter, self.target_vocab_size, self.draft_vocab_size)
        pairs += [(match.target_id, match.draft_id) for match in self.specials]

        paired = np.array(pairs, dtype=np.int64)
        draft_to_target = np.full(self.draft_vocab_size, -1, dtype=np.int32)
        target_to_draft = np.full(self.target_vocab_size, -1, dtype=np.int32)
        draft_to_target[paired[:, 1]] = paired[:, 0]
        target_to_draft[paired[:, 0]] = paired[:, 1]
        self.draft_to_target_ids = torch.from_numpy(draft_to_target)
        self.target_to_draft_ids = torch.from_numpy(target_to_draft)

        self._speller = Speller(self._draft_id_of_bytes)
        self._spellings: dict[int, tuple[int, ...] | None] = {}

    def __repr__(self) -> str:
        """Return sizes and the number of shared tokens."""
        return (
            f"VocabMap(target {self.target_vocab_size} ids, drafter {self.draft_vocab_size} ids, "
            f"{self.num_shared} shared, {len(self.specials)} specials matched)"
        )

    # -- making --------------------------------------------------------------------------------------------------------

    @classmethod
    def from_tokenizers(
        cls,
        target_tokenizer: Any,
        drafter_tokenizer: Any,
        *,
        target_vocab_size: int | None = None,
        draft_vocab_size: int | None = None,
        duplicates: str = "normal",
    ) -> VocabMap:
        """Make the map of two tokenizers, or files of tokenizers: all that `read_vocabulary` takes."""
        return cls(
            read_vocabulary(target_tokenizer),
            read_vocabulary(drafter_tokenizer),
            target_vocab_size=target_vocab_size,
            draft_vocab_size=draft_vocab_size,
            duplicates=duplicates,
        )

    @classmethod
    def from_bytes(
        cls,
        target_tokens: Iterable[bytes | None],
        drafter_tokens: Iterable[bytes | None],
        *,
        target_specials: Mapping[str, int] | None = None,
        draft_specials: Mapping[str, int] | None = None,
        target_roles: Mapping[str, int | None] | None = None,
        draft_roles: Mapping[str, int | None] | None = None,
        target_byte_fallback_ids: Iterable[int] = (),
        draft_byte_fallback_ids: Iterable[int] = (),
        target_vocab_size: int | None = None,
        draft_vocab_size: int | None = None,
        duplicates: str = "normal",
    ) -> VocabMap:
        """Make the map of two vocabularies given as bytes, None for special and unused ids.

        Specials (text to id), roles ("eos", "bos", "pad", "unk" to id) and byte fallback ids are those of
        `hetero_spec.vocab.Vocabulary`.
        """
        return cls(
            make_vocabulary(
                target_tokens,
                kind="bytes",
                specials=target_specials,
                roles=target_roles,
                byte_fallback_ids=target_byte_fallback_ids,
            ),
            make_vocabulary(
                drafter_tokens,
                kind="bytes",
                specials=draft_specials,
                roles=draft_roles,
                byte_fallback_ids=draft_byte_fallback_ids,
            ),
            target_vocab_size=target_vocab_size,
            draft_vocab_size=draft_vocab_size,
            duplicates=duplicates,
        )

    # -- spelling ------------------------------------------------------------------------------------------------------

    def spell_with_drafter(self, target_id: int) -> tuple[int, ...] | None:
        """Drafter ids that stand for a target id in the drafter's context.

        Returns
        -------
        tuple of int, or None
            The mapped id when the token is shared (specials too), else the fewest drafter tokens whose bytes join to
            the token's. None when there are none: the drafter lacks a single byte, or the token is an unmatched
            special, is unused or padded and so has no bytes. Never an unknown or end token in place of something else.

        Raises
        ------
        IndexError   target_id isn't in [0, target_vocab_size)
        """
        if not 0 <= target_id < self.target_vocab_size:
            raise IndexError(f"spell_with_drafter: target_id must be in [0, {self.target_vocab_size}), got {target_id}")
        try:
            return self._spellings[target_id]
        except KeyError:
            pass
        mapped = int(self.target_to_draft_ids[target_id])
        token = self.target_tokens[target_id]
        spelling = (mapped,) if mapped >= 0 else self._speller.spell(token) if token is not None else None
        self._spellings[target_id] = spelling
        return spelling

    @cached_property
    def target_to_draft_tokens(self) -> list[tuple[int, ...] | None]:
        """`spell_with_drafter` of every target id; made at the first use (a second for 100,000 unshared tokens)."""
        return [self.spell_with_drafter(target_id) for target_id in range(self.target_vocab_size)]

    @cached_property
    def unspellable_target_ids(self) -> list[int]:
        """Target ids that have bytes and still cannot be written with the drafter's tokens."""
        return [
            target_id
            for target_id, token in enumerate(self.target_tokens)
            if token is not None and not self._speller.can_spell(token)
        ]

    @property
    def draft_missing_bytes(self) -> list[int]:
        """Bytes for which the drafter has no token of their own."""
        return self._speller.missing_bytes

    # -- reporting, saving ---------------------------------------------------------------------------------------------

    def report(
        self,
        text: str | None = None,
        *,
        target_token_ids: Sequence[int] | None = None,
        target_probs: torch.Tensor | Sequence[float] | None = None,
    ) -> VocabReport:
        """Say what the map covers; see `hetero_spec.vocab.report.VocabReport`.

        Parameters
        ----------
        text : str, optional
            Weighs the coverage by how often each token occurs in this text, encoded by either tokenizer.
        target_token_ids : sequence of int, optional
            The same from ids of the target, where the map knows no tokenizer that could encode.
        target_probs : float [target_vocab_size], optional
            Mean next-token law of the target over some positions: the coverage by probability mass proper, an upper
            bound on the acceptance of token-level intersection there.

        Raises
        ------
        ValueError   text without a tokenizer that can encode it; text and ids at once; ids or probs of the wrong kind
        """
        from hetero_spec.vocab.report import make_report

        return make_report(self, text, target_token_ids=target_token_ids, target_probs=target_probs)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the map with both vocabularies and their hashes to one file, whole or not at all."""
        from hetero_spec.vocab.map_file import write_map

        write_map(self, path)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], target_tokenizer: Any = None, drafter_tokenizer: Any = None
    ) -> VocabMap:
        """Read a map written by `save`.

        Parameters
        ----------
        path : path
        target_tokenizer, drafter_tokenizer : optional
            What `read_vocabulary` takes. When given, it must be the tokenizer that the map was made for, and the map
            can encode with it afterwards.

        Raises
        ------
        VocabMismatchError   a tokenizer isn't the one that the map was made for
        ValueError           not a map, cut short, or altered
        FileNotFoundError    no such file
        """
        from hetero_spec.vocab.map_file import read_map

        return read_map(
            path,
            None if target_tokenizer is None else read_vocabulary(target_tokenizer),
            None if drafter_tokenizer is None else read_vocabulary(drafter_tokenizer),
        )


def _width(vocabulary: Vocabulary, width: int | None, name: str) -> int:
    if width is None:
        width = len(vocabulary)
    if width <= 0:
        raise ValueError(f"VocabMap: {name} must be positive, got {width}")
    if width > _MAX_VOCAB_SIZE:
        raise ValueError(f"VocabMap: {name} must be at most {_MAX_VOCAB_SIZE}, got {width}")
    return width


def _fit(tokens: Sequence[bytes | None], width: int) -> list[bytes | None]:
    """Cut or pad a token list to the width of the logits."""
    return [*tokens[:width], *([None] * (width - len(tokens)))]


def _index_by_bytes(
    tokens: Sequence[bytes | None], byte_fallback_ids: frozenset[int], rule: str
) -> tuple[dict[bytes, int], list[Duplicate]]:
    """Give every byte string its one id, and list the ids that lost."""
    id_of_bytes: dict[bytes, int] = {}
    dropped: dict[bytes, list[int]] = {}
    preferred_is_fallback = rule == "byte"
    for token_id, token in enumerate(tokens):
        if token is None:
            continue
        holder = id_of_bytes.setdefault(token, token_id)
        if holder == token_id:
            continue
        # Ids rise, so the holder is the lowest of its class; it yields only to the first of the preferred class.
        if (holder in byte_fallback_ids) != preferred_is_fallback and (
            token_id in byte_fallback_ids
        ) == preferred_is_fallback:
            id_of_bytes[token] = token_id
            token_id = holder
        dropped.setdefault(token, []).append(token_id)
    duplicates = [Duplicate(token, id_of_bytes[token], tuple(sorted(losers))) for token, losers in dropped.items()]
    return id_of_bytes, sorted(duplicates, key=lambda duplicate: duplicate.kept_id)


def _match_specials(target: Vocabulary, drafter: Vocabulary, target_size: int, draft_size: int) -> list[SpecialMatch]:
    """Match special tokens by role, then by identical string; no id is used twice."""
    target_texts = {token_id: text for text, token_id in target.specials.items()}
    draft_texts = {token_id: text for text, token_id in drafter.specials.items()}
    candidates = [
        (target.roles[role], drafter.roles[role], role)
        for role in _MATCHED_ROLES
        if role in target.roles and role in drafter.roles
    ]
    candidates += [
        (target_id, drafter.specials[text], "text")
        for text, target_id in target.specials.items()
        if text in drafter.specials
    ]
    matches: list[SpecialMatch] = []
    used_targets: set[int] = set()
    used_drafts: set[int] = set()
    for target_id, draft_id, matched_by in candidates:
        if target_id >= target_size or draft_id >= draft_size or target_id in used_targets or draft_id in used_drafts:
            continue
        used_targets.add(target_id)
        used_drafts.add(draft_id)
        matches.append(
            SpecialMatch(
                target_id,
                draft_id,
                target_texts.get(target_id, f"<id {target_id}>"),
                draft_texts.get(draft_id, f"<id {draft_id}>"),
                matched_by,
            )
        )
    return matches
