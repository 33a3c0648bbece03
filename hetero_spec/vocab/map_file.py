# SPDX-License-Identifier: Apache-2.0
"""The file of a `VocabMap`: safetensors with a JSON description.

Tensors: both id maps (int32), and per vocabulary the tokens' bytes back to back (uint8), their lengths (int32, -1 =
no bytes) and the byte fallback ids (int32). The description holds the rest.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hetero_spec.tensor_file import Arrays, read_tensor_file, write_tensor_file
from hetero_spec.vocab.vocabulary import Vocabulary, hash_of, make_vocabulary

if TYPE_CHECKING:
    from hetero_spec.vocab.vocab_map import VocabMap

FORMAT = "hetero_spec vocabulary map 1"


def write_map(vocab_map: VocabMap, path: str | os.PathLike[str]) -> None:
    """Write a map, whole or not at all; the same map gives the same file."""
    arrays: Arrays = {
        "draft_to_target_ids": vocab_map.draft_to_target_ids.numpy(),
        "target_to_draft_ids": vocab_map.target_to_draft_ids.numpy(),
        **_pack("target", vocab_map.target),
        **_pack("drafter", vocab_map.drafter),
    }
    description = {
        "format": FORMAT,
        "duplicates": vocab_map.duplicates,
        "target_vocab_size": vocab_map.target_vocab_size,
        "draft_vocab_size": vocab_map.draft_vocab_size,
        "target": _describe(vocab_map.target),
        "drafter": _describe(vocab_map.drafter),
    }
    write_tensor_file(path, arrays, description)


def read_map(path: str | os.PathLike[str], target: Vocabulary | None, drafter: Vocabulary | None) -> VocabMap:
    """Read a map and check it: complete, unaltered, made for these vocabularies where they are given."""
    from hetero_spec.vocab.vocab_map import VocabMap, VocabMismatchError

    description, arrays = read_tensor_file(path, "vocabulary map", FORMAT)
    saved = {side: _unpack(side, description[side], arrays, path) for side in ("target", "drafter")}
    vocabularies = dict(saved)
    for side, given in (("target", target), ("drafter", drafter)):
        if given is None:
            continue
        if given.sha256 != saved[side].sha256:
            raise VocabMismatchError(
                f"{path}: {side} tokenizer must be the one that the map was made for (sha256 "
                f"{saved[side].sha256[:12]}, {len(saved[side])} ids), got {given.sha256[:12]}, {len(given)} ids"
            )
        # The saved roles made the map; only the ability to encode is taken over.
        vocabularies[side] = replace(saved[side], encoder=given.encoder, encoder_note=given.encoder_note)
    vocab_map = VocabMap(
        vocabularies["target"],
        vocabularies["drafter"],
        target_vocab_size=description["target_vocab_size"],
        draft_vocab_size=description["draft_vocab_size"],
        duplicates=description["duplicates"],
    )
    for name in ("draft_to_target_ids", "target_to_draft_ids"):
        if not np.array_equal(getattr(vocab_map, name).numpy(), arrays[name]):
            raise ValueError(f"{path}: {name} must follow from the two vocabularies, got another map: make it again")
    return vocab_map


def _describe(vocabulary: Vocabulary) -> dict[str, Any]:
    return {
        "kind": vocabulary.kind,
        "sha256": vocabulary.sha256,
        "specials": vocabulary.specials,
        "roles": vocabulary.roles,
    }


def _pack(side: str, vocabulary: Vocabulary) -> Arrays:
    tokens = vocabulary.tokens
    return {
        f"{side}_bytes": np.frombuffer(b"".join(token for token in tokens if token is not None), dtype=np.uint8),
        f"{side}_lengths": np.array([-1 if token is None else len(token) for token in tokens], dtype=np.int32),
        f"{side}_byte_fallback_ids": np.array(sorted(vocabulary.byte_fallback_ids), dtype=np.int32),
    }


def _unpack(side: str, description: Mapping[str, Any], arrays: Arrays, path: str | os.PathLike[str]) -> Vocabulary:
    data = arrays[f"{side}_bytes"].tobytes()
    tokens: list[bytes | None] = []
    start = 0
    for length in arrays[f"{side}_lengths"].tolist():
        tokens.append(None if length < 0 else data[start : start + length])
        start += max(length, 0)
    fallback = arrays[f"{side}_byte_fallback_ids"].tolist()
    if hash_of(tokens, fallback, description["specials"]) != description["sha256"]:
        raise ValueError(f"{path}: {side} vocabulary must match its hash, got another: make the map again")
    return make_vocabulary(
        tokens,
        kind=description["kind"],
        specials=description["specials"],
        roles=description["roles"],
        byte_fallback_ids=fallback,
    )
