# SPDX-License-Identifier: Apache-2.0
"""What a vocabulary map covers, in numbers: for people as a table, for programs as a dictionary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from rich.table import Table

    from hetero_spec.vocab.vocab_map import Duplicate, SpecialMatch, VocabMap
    from hetero_spec.vocab.vocabulary import Vocabulary

_SHOWN = 12


@dataclass(frozen=True)
class SideReport:
    """One of the two vocabularies.

    Attributes
    ----------
    kind, sha256 : str
        Style and hash of the vocabulary.
    vocab_size, tokenizer_size : int
        Width of the logits, and ids of the tokenizer.
    num_tokens : int
        Ids within the logits that stand for text.
    num_strings : int
        Different byte strings among them; `num_tokens - num_strings` ids are duplicates.
    num_beyond_tokenizer, num_cut_off : int
        Ids of the logits that the tokenizer doesn't have, and ids of the tokenizer that the logits don't have.
    coverage : float
        Shared tokens as a share of `num_strings`.
    text_coverage : float or None
        Share of the text's tokens, encoded by this side's tokenizer, that are shared: each token weighs as often as
        it occurs. Specials count as covered where they are matched.
    num_text_tokens : int or None
        Length of the text in this side's tokens.
    text_note : str
        Empty, or what had to be assumed to encode the text.
    duplicates : list of Duplicate
        Byte strings with several ids: the one kept and those left out.
    num_specials : int
        Special tokens within the logits.
    unmatched_specials : dict of str to int
        Special tokens without a partner, text to id.
    """

    kind: str
    sha256: str
    vocab_size: int
    tokenizer_size: int
    num_tokens: int
    num_strings: int
    num_beyond_tokenizer: int
    num_cut_off: int
    coverage: float
    text_coverage: float | None
    num_text_tokens: int | None
    text_note: str
    duplicates: list[Duplicate]
    num_specials: int
    unmatched_specials: dict[str, int]


@dataclass(frozen=True)
class VocabReport:
    """What a map covers.

    Attributes
    ----------
    target, drafter : SideReport
    duplicate_rule : str
        "normal" or "byte", see `VocabMap`.
    num_shared : int
        Text tokens in the map.
    specials : list of SpecialMatch
        Special tokens in the map, and whether their role or their text matched them.
    roles : dict
        Role to {"target": id or None, "drafter": id or None, "mapped": whether the map takes one to the other}.
    target_mass : float or None
        Share of the given target probabilities that lies on mapped tokens. Drafts from the intersection cannot be
        accepted more often than this on average.
    unspellable_target_ids : list of int
        Target tokens that cannot be written with the drafter's tokens.
    draft_missing_bytes : list of int
        Bytes without a token of their own in the drafter.
    """

    target: SideReport
    drafter: SideReport
    duplicate_rule: str
    num_shared: int
    specials: list[SpecialMatch]
    roles: dict[str, dict[str, int | bool | None]]
    target_mass: float | None
    unspellable_target_ids: list[int]
    draft_missing_bytes: list[int]

    def as_dict(self) -> dict[str, Any]:
        """Return all of it in types that JSON has. Bytes are given in hexadecimal and as text."""
        return {
            "target": _side_as_dict(self.target),
            "drafter": _side_as_dict(self.drafter),
            "duplicate_rule": self.duplicate_rule,
            "num_shared": self.num_shared,
            "specials": [vars(match) for match in self.specials],
            "roles": self.roles,
            "target_mass": self.target_mass,
            "unspellable_target_ids": self.unspellable_target_ids,
            "draft_missing_bytes": self.draft_missing_bytes,
        }

    def table(self) -> Table:
        """Return a table for `rich.print`."""
        from rich.table import Table
        from rich.text import Text

        table = Table(title="Vocabulary overlap", title_justify="left")
        table.add_column()
        table.add_column("target", justify="right", overflow="fold")
        table.add_column("drafter", justify="right", overflow="fold")
        for label, target, drafter in self._rows():
            # Token texts are full of square brackets, which would be read as markup.
            table.add_row(Text(label), Text(target), Text(drafter))
        return table

    def _rows(self) -> list[tuple[str, str, str]]:
        def both(label: str, show: Callable[[SideReport], str]) -> tuple[str, str, str]:
            return label, show(self.target), show(self.drafter)

        rows = [
            both("style", lambda side: side.kind),
            both("ids of the tokenizer", lambda side: f"{side.tokenizer_size:,}"),
            both("width of the logits", lambda side: f"{side.vocab_size:,}"),
            both("text tokens", lambda side: f"{side.num_tokens:,}"),
            both("different byte strings", lambda side: f"{side.num_strings:,}"),
            both("shared", lambda side: f"{self.num_shared:,}"),
            both("coverage by count", lambda side: f"{side.coverage:.1%}"),
        ]
        if self.target.text_coverage is not None or self.drafter.text_coverage is not None:
            rows.append(both("coverage of the text's tokens", lambda side: _percent(side.text_coverage)))
            rows.append(both("tokens of the text", lambda side: _count(side.num_text_tokens)))
        if self.target_mass is not None:
            rows.append(("target mass in the map", f"{self.target_mass:.1%}", ""))
        rows.append(both("ids left out as duplicates", lambda side: f"{side.num_tokens - side.num_strings:,}"))
        rows.append(
            both("specials (unmatched)", lambda side: f"{side.num_specials:,} ({len(side.unmatched_specials):,})")
        )
        for match in self.specials[:_SHOWN]:
            how = "same text" if match.matched_by == "text" else match.matched_by
            rows.append(
                (
                    f"  matched by {how}",
                    f"{match.target_text} {match.target_id}",
                    f"{match.draft_text} {match.draft_id}",
                )
            )
        if len(self.specials) > _SHOWN:
            rows.append((f"  and {len(self.specials) - _SHOWN:,} more", "", ""))
        for role, state in self.roles.items():
            if not state["mapped"]:
                rows.append((f"  {role}: not mapped", _count(state["target"]), _count(state["drafter"])))
        rows.append(("target tokens the drafter cannot spell", f"{len(self.unspellable_target_ids):,}", ""))
        rows.append(("bytes without a token", "", f"{len(self.draft_missing_bytes):,}"))
        rows.append(both("sha256", lambda side: side.sha256[:16]))
        for name, side in (("target", self.target), ("drafter", self.drafter)):
            if side.text_note:
                rows.append((f"note on the {name}: {side.text_note}", "", ""))
        return rows


def make_report(
    vocab_map: VocabMap,
    text: str | None,
    *,
    target_token_ids: Sequence[int] | None = None,
    target_probs: torch.Tensor | Sequence[float] | None = None,
) -> VocabReport:
    """Make the report; see `VocabMap.report`."""
    if text is not None and target_token_ids is not None:
        raise ValueError("report: text and target_token_ids must not both be given")
    target_text_ids = draft_text_ids = None
    if text is not None:
        if vocab_map.target.encoder is None:
            raise ValueError(
                "report: text must be encoded by the target's tokenizer, got a map without one; "
                "pass target_token_ids, or give the tokenizer to VocabMap.load"
            )
        target_text_ids = vocab_map.target.encoder(text)
        draft_text_ids = vocab_map.drafter.encoder(text) if vocab_map.drafter.encoder is not None else None
    elif target_token_ids is not None:
        target_text_ids = target_token_ids

    target_matched = {match.target_id for match in vocab_map.specials}
    draft_matched = {match.draft_id for match in vocab_map.specials}
    roles: dict[str, dict[str, int | bool | None]] = {}
    for role in dict.fromkeys([*vocab_map.target.roles, *vocab_map.drafter.roles]):
        target_id, draft_id = vocab_map.target.roles.get(role), vocab_map.drafter.roles.get(role)
        mapped = any((match.target_id, match.draft_id) == (target_id, draft_id) for match in vocab_map.specials)
        roles[role] = {"target": target_id, "drafter": draft_id, "mapped": mapped}
    return VocabReport(
        target=_side(
            vocab_map.target,
            vocab_map.target_tokens,
            vocab_map.target_to_draft_ids,
            vocab_map.num_shared,
            vocab_map.target_duplicates,
            target_matched,
            target_text_ids,
        ),
        drafter=_side(
            vocab_map.drafter,
            vocab_map.draft_tokens,
            vocab_map.draft_to_target_ids,
            vocab_map.num_shared,
            vocab_map.draft_duplicates,
            draft_matched,
            draft_text_ids,
        ),
        duplicate_rule=vocab_map.duplicates,
        num_shared=vocab_map.num_shared,
        specials=list(vocab_map.specials),
        roles=roles,
        target_mass=None if target_probs is None else _mass(vocab_map, target_probs),
        unspellable_target_ids=list(vocab_map.unspellable_target_ids),
        draft_missing_bytes=vocab_map.draft_missing_bytes,
    )


def _side(
    vocabulary: Vocabulary,
    tokens: list[bytes | None],
    mapped_ids: torch.Tensor,
    num_shared: int,
    duplicates: list[Duplicate],
    matched_specials: set[int],
    text_ids: Sequence[int] | None,
) -> SideReport:
    width = len(tokens)
    num_tokens = sum(token is not None for token in tokens)
    num_strings = num_tokens - sum(len(duplicate.dropped_ids) for duplicate in duplicates)
    specials = {text: token_id for text, token_id in vocabulary.specials.items() if token_id < width}
    return SideReport(
        kind=vocabulary.kind,
        sha256=vocabulary.sha256,
        vocab_size=width,
        tokenizer_size=len(vocabulary),
        num_tokens=num_tokens,
        num_strings=num_strings,
        num_beyond_tokenizer=max(0, width - len(vocabulary)),
        num_cut_off=max(0, len(vocabulary) - width),
        coverage=num_shared / num_strings,
        text_coverage=None if text_ids is None else _frequency_coverage(text_ids, mapped_ids),
        num_text_tokens=None if text_ids is None else len(text_ids),
        text_note="" if text_ids is None else vocabulary.encoder_note,
        duplicates=list(duplicates),
        num_specials=len(specials),
        unmatched_specials={text: token_id for text, token_id in specials.items() if token_id not in matched_specials},
    )


def _frequency_coverage(token_ids: Sequence[int], mapped_ids: torch.Tensor) -> float | None:
    """Share of the occurrences that are mapped; None for a text without tokens. Ids beyond the logits aren't mapped."""
    counts = Counter(token_ids)
    if not counts:
        return None
    if min(counts) < 0:
        raise ValueError(f"report: target_token_ids must be at least 0, got {min(counts)}")
    mapped = mapped_ids.tolist()
    inside = sum(count for token_id, count in counts.items() if token_id < len(mapped) and mapped[token_id] >= 0)
    return inside / counts.total()


def _mass(vocab_map: VocabMap, target_probs: torch.Tensor | Sequence[float]) -> float:
    probs = torch.as_tensor(target_probs, dtype=torch.float64).cpu()
    if probs.shape != (vocab_map.target_vocab_size,):
        raise ValueError(f"report: target_probs must be [{vocab_map.target_vocab_size}], got {list(probs.shape)}")
    total = float(probs.sum())
    if not (bool((probs >= 0).all()) and 0 < total < float("inf")):
        raise ValueError("report: target_probs must be non-negative with a finite sum above 0")
    return float(probs[vocab_map.target_to_draft_ids >= 0].sum()) / total


def _side_as_dict(side: SideReport) -> dict[str, Any]:
    return {
        **vars(side),
        "duplicates": [
            {
                "bytes": duplicate.token.hex(),
                "text": duplicate.token.decode("utf-8", "backslashreplace"),
                "kept_id": duplicate.kept_id,
                "dropped_ids": list(duplicate.dropped_ids),
            }
            for duplicate in side.duplicates
        ],
    }


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
