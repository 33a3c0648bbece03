# SPDX-License-Identifier: Apache-2.0
"""Vocabularies that are lists of byte strings already: tiktoken ranks and Mistral's tekken files."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hetero_spec.vocab.vocabulary import Vocabulary, make_vocabulary

# A .tiktoken file holds ranks and no pattern. This is cl100k's, the commonest; Qwen's differs in digits only.
_ASSUMED_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_ASSUMED_NOTE = "the .tiktoken file names no pattern; cl100k's was assumed"

# Names that tekken files older than version 7 leave to the program: ids 0 to 19, then <SPECIAL_i>.
_TEKKEN_SPECIALS = (
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]"),
    *("[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"),
)
_TEKKEN_ROLES = {"unk": "<unk>", "bos": "<s>", "eos": "</s>", "pad": "<pad>"}


def parse_tiktoken(data: bytes, what: str) -> dict[bytes, int]:
    """Parse lines of base64 and rank.

    Raises
    ------
    ValueError   a line is not of that form, names the line
    """
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(data.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            encoded, rank = line.split()
            ranks[binascii.a2b_base64(encoded, strict_mode=True)] = int(rank)
        except ValueError:
            raise ValueError(f"{what}: line {number} must be base64 and a rank, got {line[:40]!r}") from None
    if not ranks:
        raise ValueError(f"{what}: must hold tiktoken ranks, got none")
    return ranks


def vocabulary_from_ranks(
    ranks: Mapping[bytes, int],
    specials: Mapping[str, int] | None = None,
    *,
    roles: Mapping[str, int | None] | None = None,
    kind: str = "tiktoken ranks",
    encoder: Callable[[str], Sequence[int]] | None = None,
    encoder_note: str = "",
) -> Vocabulary:
    """Lay ranks out by id; ids between them that nothing uses have no text."""
    own_specials = dict(specials or {})
    tokens: list[bytes | None] = [None] * (max([*ranks.values(), *own_specials.values()], default=-1) + 1)
    for token, rank in ranks.items():
        tokens[rank] = token
    return make_vocabulary(
        tokens, kind=kind, specials=own_specials, roles=roles, encoder=encoder, encoder_note=encoder_note
    )


def vocabulary_from_tiktoken_data(data: bytes, what: str) -> Vocabulary:
    """Read the content of a .tiktoken file. It has no special tokens: those live in the program that reads it."""
    ranks = parse_tiktoken(data, what)
    return vocabulary_from_ranks(
        ranks, encoder=_lazy_tiktoken(ranks, _ASSUMED_PATTERN, offset=0), encoder_note=_ASSUMED_NOTE
    )


def vocabulary_from_encoding(encoding: Any) -> Vocabulary:
    """Read a `tiktoken.Encoding`."""
    specials: dict[str, int] = dict(encoding._special_tokens)
    end = specials.get("<|endoftext|>", specials.get("<|end_of_text|>"))
    return vocabulary_from_ranks(
        encoding._mergeable_ranks,
        specials,
        roles={"eos": end, "bos": specials.get("<|begin_of_text|>")},
        encoder=lambda text: list(encoding.encode(text, disallowed_special=())),
    )


def vocabulary_from_tekken(definition: Mapping[str, Any]) -> Vocabulary:
    """Read the parsed content of a tekken json: specials come first, then the ranks that fit into the vocabulary."""
    config = definition["config"]
    num_specials, size = int(config["default_num_special_tokens"]), int(config["default_vocab_size"])
    # Only ranks below the vocabulary's size are ids; the file carries more of them.
    ranks = {
        base64.b64decode(item["token_bytes"]): int(item["rank"])
        for item in definition["vocab"]
        if int(item["rank"]) < size - num_specials
    }
    named = definition.get("special_tokens")
    if named is None:
        names = dict(enumerate(_TEKKEN_SPECIALS))
    else:
        names = {int(item["rank"]): str(item["token_str"]) for item in named}
    specials = {names.get(token_id, f"<SPECIAL_{token_id}>"): token_id for token_id in range(num_specials)}
    return vocabulary_from_ranks(
        {token: rank + num_specials for token, rank in ranks.items()},
        specials,
        roles={role: specials.get(text) for role, text in _TEKKEN_ROLES.items()},
        kind="tekken ranks",
        encoder=_lazy_tiktoken(ranks, config["pattern"], offset=num_specials),
    )


def _lazy_tiktoken(ranks: dict[bytes, int], pattern: str, offset: int) -> Callable[[str], Sequence[int]]:
    """Encode with tiktoken, whose tables are built (seconds) at the first call only."""
    built: list[Any] = []

    def encode(text: str) -> Sequence[int]:
        if not built:
            import tiktoken

            built.append(tiktoken.Encoding("ranks", pat_str=pattern, mergeable_ranks=ranks, special_tokens={}))
        return [token_id + offset for token_id in built[0].encode_ordinary(text)]

    return encode
