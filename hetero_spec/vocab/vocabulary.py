# SPDX-License-Identifier: Apache-2.0
"""A tokenizer's vocabulary, reduced to what can be compared between tokenizers: the raw bytes of every id."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

ROLES = ("eos", "bos", "pad", "unk")
"""The parts that a special token can play; a tokenizer need not have them all."""

# Ids of these roles are special even where the file types them as text. `pad` isn't here: models without a padding
# token of their own are often given an ordinary one.
_ALWAYS_SPECIAL_ROLES = ("eos", "bos", "unk")


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of one tokenizer as raw bytes. Make it with `make_vocabulary` or `read_vocabulary`.

    Attributes
    ----------
    tokens : list of bytes or None
        Entry i is what id i adds to the text. None: special, control, unused, or no such id.
    specials : dict of str to int
        Special and control tokens, text to id (the lowest id when a text has several). Unused ids aren't listed.
    roles : dict of str to int
        "eos", "bos", "pad", "unk" to id, as far as the source says.
    byte_fallback_ids : frozenset of int
        Ids written ``<0xNN>``: pieces that a SentencePiece-style tokenizer uses only when no other piece fits.
    kind : str
        The style that was found, for people.
    sha256 : str
        Hash of tokens, byte fallback ids and specials, so equal for the same vocabulary read from another kind of file.
        Roles are left out: a lone vocabulary file often doesn't say them.
    encoder : callable or None
        Text to ids without added specials, for counting token frequencies; None when the source can't encode.
    encoder_note : str
        Empty when the encoder is the tokenizer's own, else what had to be assumed.
    """

    tokens: list[bytes | None]
    specials: dict[str, int]
    roles: dict[str, int]
    byte_fallback_ids: frozenset[int]
    kind: str
    sha256: str
    encoder: Callable[[str], Sequence[int]] | None = field(default=None, compare=False, repr=False)
    encoder_note: str = field(default="", compare=False)

    def __len__(self) -> int:
        """Return the tokenizer's own size, which a model's head may exceed or fall short of."""
        return len(self.tokens)

    def __repr__(self) -> str:
        """Return a short description; the tokens would fill the screen."""
        return f"Vocabulary({self.kind}, {len(self)} ids, sha256 {self.sha256[:12]})"


def make_vocabulary(
    tokens: Iterable[bytes | None],
    *,
    kind: str,
    specials: Mapping[str, int] | None = None,
    roles: Mapping[str, int | None] | None = None,
    byte_fallback_ids: Iterable[int] = (),
    encoder: Callable[[str], Sequence[int]] | None = None,
    encoder_note: str = "",
) -> Vocabulary:
    """Check and complete the parts of a vocabulary.

    Specials and the ids of "eos", "bos" and "unk" lose their bytes, and so do empty tokens: none of them may be
    matched by bytes.

    Raises
    ------
    ValueError   an id is outside the vocabulary, or a role is unknown
    """
    own = list(tokens)
    for token_id, token in enumerate(own):
        if token is None:
            continue
        if not isinstance(token, bytes):
            raise TypeError(f"vocabulary: token {token_id} must be bytes or None, got {type(token).__name__}")
        if not token:
            own[token_id] = None
    own_specials = dict(specials or {})
    own_roles = {role: token_id for role, token_id in (roles or {}).items() if token_id is not None}
    for what, names in (("special", own_specials), ("role", own_roles)):
        for name, token_id in names.items():
            if not 0 <= token_id < len(own):
                raise ValueError(f"vocabulary: id of {what} {name!r} must be in [0, {len(own)}), got {token_id}")
    for role, token_id in own_roles.items():
        if role not in ROLES:
            raise ValueError(f"vocabulary: role must be one of {', '.join(ROLES)}, got {role!r}")
        token = own[token_id]
        if role in _ALWAYS_SPECIAL_ROLES and token is not None:
            own_specials.setdefault(token.decode("utf-8", "backslashreplace"), token_id)
            own[token_id] = None
    for token_id in own_specials.values():
        own[token_id] = None
    fallback = frozenset(token_id for token_id in byte_fallback_ids if own[token_id] is not None)
    return Vocabulary(
        tokens=own,
        specials=own_specials,
        roles=own_roles,
        byte_fallback_ids=fallback,
        kind=kind,
        sha256=hash_of(own, fallback, own_specials),
        encoder=encoder,
        encoder_note=encoder_note,
    )


def hash_of(tokens: Sequence[bytes | None], byte_fallback_ids: Iterable[int], specials: Mapping[str, int]) -> str:
    """Hash the parts of a vocabulary that decide a map, in a form that doesn't depend on where they were read from."""
    digest = hashlib.sha256(b"hetero_spec vocabulary 1\0")
    lengths = np.fromiter((-1 if token is None else len(token) for token in tokens), dtype="<i4", count=len(tokens))
    digest.update(np.int64(len(tokens)).astype("<i8").tobytes())
    digest.update(lengths.tobytes())
    digest.update(b"".join(token for token in tokens if token is not None))
    digest.update(np.array(sorted(byte_fallback_ids), dtype="<i4").tobytes())
    digest.update(json.dumps(sorted(specials.items())).encode())
    return digest.hexdigest()
