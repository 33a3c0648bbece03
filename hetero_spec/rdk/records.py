# SPDX-License-Identifier: Apache-2.0
"""Records: what a target and a drafter know at every position of some documents, kept as their last hidden states.

One pass of teacher forcing. A row of logits is the output layer times the hidden state, so hidden states (some
kilobytes a position) stand for the whole laws, exactly, at any temperature and for any part of the vocabulary; top-k
lists would have to be made anew for every kept set. The drafter sees the context as the decoder gives it: the prompt
in its own segmentation, every later target token as the shared id or spelt out, so there is a row at every position.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hetero_spec.files import write_whole

if TYPE_CHECKING:
    from hetero_spec.models import LoadedModel
    from hetero_spec.vocab import VocabMap

MANIFEST = "manifest.json"
FORMAT = 2
# Format 1 had no checksums and larger shards: finished records of it are read, damage to them goes unnoticed.
_FORMATS = (1, FORMAT)
_CHECKSUMS = "checksums"
_TOKENS_PER_BATCH = 4096
# An interruption costs at most so many positions, seconds on a processor.
SHARD_POSITIONS = 1024
# How far head(hidden state) may be from the model's own logits, as a share of the largest of them: rounding, in a
# batch of another shape.
_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.05, torch.float16: 0.01}


class RecordsError(ValueError):
    """Records that cannot be made, read, or used for what is asked."""


@dataclass(frozen=True)
class Document:
    """Target ids; positions from `num_prompt_tokens` on are recorded (at least from 1: the first id has no context)."""

    token_ids: Sequence[int]
    num_prompt_tokens: int = 1


def documents_of_text(
    text: str, tokenizer: Any, *, max_tokens: int = 256, num_prompt_tokens: int = 16
) -> list[Document]:
    """Cut a text into documents of up to `max_tokens` target ids, each behind what the tokenizer puts before a text.

    Parameters
    ----------
    text : str
    tokenizer : TextTokenizer
        The target's.
    max_tokens : int
        Length of a document.
    num_prompt_tokens : int
        So many ids of each piece are context only: a law without context is rare in use.
    """
    whole = tokenizer.encode(text, add_special_tokens=False)
    framed, plain = tokenizer.encode("a"), tokenizer.encode("a", add_special_tokens=False)
    starts = [at for at in range(len(framed)) if framed[at : at + len(plain)] == plain]
    prefix = framed[: starts[0]] if starts else []
    room = max_tokens - len(prefix)
    if room <= num_prompt_tokens:
        least = num_prompt_tokens + len(prefix)
        raise RecordsError(f"documents_of_text: max_tokens must be above {least}, got {max_tokens}")
    pieces = [whole[start : start + room] for start in range(0, len(whole), room)]
    first = len(prefix) + num_prompt_tokens
    return [Document([*prefix, *piece], first) for piece in pieces if len(piece) > num_prompt_tokens]


def collect(
    folder: Path,
    documents: Sequence[Document],
    target: LoadedModel,
    drafter: LoadedModel | None,
    vocab_map: VocabMap | None,
    *,
    on_positions: Callable[[int], None] | None = None,
    shard_positions: int = SHARD_POSITIONS,
) -> Records:
    """Record documents into a folder, shard by shard; finished shards of an earlier, interrupted run are kept.

    Parameters
    ----------
    folder : Path
        Made if missing. One that holds records of something else is refused. Finished records of an earlier format
        are taken as they are.
    documents : sequence of Document
    target, drafter : LoadedModel
        Drafter None: it is the target itself with fewer tokens, and only the target's states are kept.
    vocab_map : VocabMap
        From the drafter's to the target's ids; None with drafter None.
    on_positions : callable, optional
        Hears how many positions have been recorded, or found recorded, since it was last called.
    shard_positions : int
        An interruption costs at most about so many positions.

    Raises
    ------
    RecordsError   no position to record, a folder of other records or with a damaged shard, a model whose logits are
                   not what its output layer makes of its last hidden state, hidden states that are NaN or infinite
    """
    plan = _plan(documents, shard_positions)
    if not plan:
        raise RecordsError("collect: documents must hold a position to record, got none: is the text empty?")
    manifest = _manifest(documents, target, drafter, plan)
    if _claim(folder, manifest) != FORMAT:
        records = Records(folder)
        if on_positions is not None:
            on_positions(len(records))
        return records
    target_side = _Side(target)
    draft_side = None if drafter is None else _DraftSide(drafter, vocab_map)
    for index, (first, last) in enumerate(plan):
        path = folder / _shard_name(index)
        if path.exists():
            with _opened(path, FORMAT) as shard:
                count = shard.checked()
        else:
            tensors = _record_shard(documents[first:last], first, target_side, draft_side)
            count = len(tensors["token_ids"])
            write_whole(path, _shard_bytes(tensors))
        if on_positions is not None:
            on_positions(count)
    return Records(folder)


def num_recorded(folder: Path) -> int:
    """Return how many positions a folder holds, finished or not; shards that cannot be read count as none."""
    from safetensors import SafetensorError, safe_open

    total = 0
    for path in sorted(folder.glob("shard_*.safetensors")):
        with suppress(SafetensorError, OSError), safe_open(path, "pt") as file:
            total += int(file.get_slice("token_ids").get_shape()[0])
    return total


class Records:
    """A folder of finished records.

    Attributes
    ----------
    manifest : dict
        What the folder was made from: names and tokenizer hashes of both models, number of documents.

    Raises
    ------
    RecordsError   no records there, an unknown format, shards missing (the run was interrupted: repeat it); from what
                   reads a shard's contents: one that is cut short or whose checksum is wrong
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = folder / MANIFEST
        if not path.is_file():
            raise RecordsError(f"records: {folder} must hold records, got no {MANIFEST}")
        try:
            self.manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise RecordsError(f"records: {path} must be JSON ({error})") from None
        if self.manifest.get("format") not in _FORMATS:
            raise RecordsError(f"records: {path} must be of format 1 or {FORMAT}, got {self.manifest.get('format')!r}")
        self.paths = [folder / _shard_name(index) for index in range(self.manifest["num_shards"])]
        if missing := [shard.name for shard in self.paths if not shard.is_file()]:
            raise RecordsError(
                f"records: {folder} must hold {len(self.paths)} shards, got {len(self.paths) - len(missing)}: "
                "an interrupted run; the same command goes on with it"
            )

    @cached_property
    def document_ids(self) -> Tensor:
        """Document of every position, int32 [N]."""
        return self._all("document_ids")

    @cached_property
    def token_ids(self) -> Tensor:
        """Target id that followed at every position, int32 [N]."""
        return self._all("token_ids")

    @cached_property
    def target_states(self) -> Tensor:
        """Target's hidden states, float32 [N, hidden]."""
        return self._all("target_states")

    @cached_property
    def draft_states(self) -> Tensor:
        """Drafter's hidden states, float32 [N, hidden]; the target's own where it is its own drafter."""
        return self._all("draft_states") if self.has_drafter else self.target_states

    @property
    def has_drafter(self) -> bool:
        """False where the drafter is the target with fewer tokens."""
        return self.manifest["drafter"] is not None

    def __len__(self) -> int:
        """Number of positions."""
        return len(self.document_ids)

    def _all(self, name: str) -> Tensor:
        parts = []
        for path in self.paths:
            with _opened(path, self.manifest["format"]) as shard:
                parts.append(shard.tensor(name))
        return torch.cat(parts)


def head_weight(model: LoadedModel) -> Tensor:
    """Return a model's output layer, float32 [vocab_size, hidden]: logits are hidden states times its transpose."""
    weight: Tensor = model.model.get_output_embeddings().weight
    return weight.detach()[: model.vocab_size].float()


def tokenizer_sha256(model: LoadedModel) -> str:
    """Return the hash by which records and kernels know a tokenizer."""
    from hetero_spec.vocab.tokens import read_vocabulary

    return read_vocabulary(model.tokenizer).sha256


# ---- making records ------------------------------------------------------------------------------------------------


def _plan(documents: Sequence[Document], shard_positions: int) -> list[tuple[int, int]]:
    """Ranges of documents with about `shard_positions` positions each."""
    ranges, first, count = [], 0, 0
    for index, document in enumerate(documents):
        count += max(0, len(document.token_ids) - max(1, document.num_prompt_tokens))
        if count >= shard_positions or (index + 1 == len(documents) and count):
            ranges.append((first, index + 1))
            first, count = index + 1, 0
    return ranges


def _manifest(
    documents: Sequence[Document],
    target: LoadedModel,
    drafter: LoadedModel | None,
    plan: Sequence[tuple[int, int]],
) -> dict[str, Any]:
    digest = hashlib.sha256()
    for document in documents:
        digest.update(json.dumps([document.num_prompt_tokens, *map(int, document.token_ids)]).encode())

    def side(model: LoadedModel) -> dict[str, Any]:
        return {
            "name": model.name,
            "tokenizer_sha256": tokenizer_sha256(model),
            "vocab_size": model.vocab_size,
            "dtype": str(next(model.model.parameters()).dtype).removeprefix("torch."),
        }

    return {
        "format": FORMAT,
        "target": side(target),
        "drafter": None if drafter is None else side(drafter),
        "num_documents": len(documents),
        "documents_sha256": digest.hexdigest(),
        "num_shards": len(plan),
    }


def _claim(folder: Path, manifest: dict[str, Any]) -> int:
    """Write the manifest, or make sure that what lies there was begun from the same things; return its format."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / MANIFEST
    if not path.exists():
        write_whole(path, json.dumps(manifest, indent=1) + "\n")
        return FORMAT
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RecordsError(f"records: {path} must be JSON ({error})") from None
    is_older = found.get("format") == 1
    differing = [key for key in manifest if found.get(key) != manifest[key]]
    if is_older:
        differing = [key for key in differing if key not in ("format", "num_shards")]
    if differing:
        raise RecordsError(
            f"records: {folder} must be empty or hold the beginning of this very run, got records with another "
            f"{', '.join(differing)}"
        )
    if is_older and not all((folder / _shard_name(index)).is_file() for index in range(found["num_shards"])):
        raise RecordsError(
            f"records: {folder} must be of format {FORMAT} to be gone on with, got the beginning of a run of format 1: "
            "delete it to have everything read anew"
        )
    return int(found["format"])


class _Side:
    """The target: documents to hidden states."""

    def __init__(self, model: LoadedModel) -> None:
        self.name = model.name
        self._model = model.model
        self._head = model.model.get_output_embeddings()
        self._is_checked = False

    def encode(self, document: Document) -> tuple[list[int], list[int]]:
        """Return (ids, index of the state that predicts each recorded position; -1 = none)."""
        first = max(1, document.num_prompt_tokens)
        return list(document.token_ids), list(range(first - 1, len(document.token_ids) - 1))

    @torch.inference_mode()
    def states(self, sequences: Sequence[tuple[list[int], list[int]]]) -> list[Tensor]:
        """Hidden states [positions, hidden] of each sequence; NaN rows where it has no context."""
        order = sorted(range(len(sequences)), key=lambda index: len(sequences[index][0]))
        results: list[Tensor] = [torch.empty(0)] * len(sequences)
        for batch in _batches(order, [len(ids) for ids, _ in sequences]):
            longest = len(sequences[batch[-1]][0])
            padded = torch.zeros(len(batch), longest, dtype=torch.long)
            for row, index in enumerate(batch):
                padded[row, : len(sequences[index][0])] = torch.tensor(sequences[index][0])
            # Padding stands behind the text, where causal attention never looks.
            hidden = self._forward(padded)
            for row, index in enumerate(batch):
                at = torch.tensor(sequences[index][1])
                states = hidden[row, at.clamp_min(0)].float()
                states[at < 0] = math.nan
                results[index] = states
        return results

    def _forward(self, ids: Tensor) -> Tensor:
        body = getattr(self._model, self._model.base_model_prefix)
        hidden: Tensor = body(input_ids=ids, use_cache=False).last_hidden_state
        if not self._is_checked:
            expected = self._model(input_ids=ids[:1, :8], use_cache=False).logits.float()
            difference = float((self._head(hidden[:1, :8]).float() - expected).abs().max())
            if not difference <= _TOLERANCE.get(hidden.dtype, 1e-4) * float(expected.abs().max()):
                raise RecordsError(
                    f"{self.name}: logits must be what the output layer makes of the last hidden state, got a "
                    f"difference of {difference:.3g}: records cannot stand for this model's laws"
                )
            self._is_checked = True
        return hidden


class _DraftSide(_Side):
    """The drafter: the same documents in its own ids, as the decoder shows them to it."""

    def __init__(self, model: LoadedModel, vocab_map: VocabMap | None) -> None:
        super().__init__(model)
        from hetero_spec.decoding.drafter import TransformersDrafter

        if vocab_map is None:
            raise RecordsError("collect: vocab_map must be given with a drafter, got None")
        self._drafter = TransformersDrafter(model.model, model.tokenizer, vocab_map)

    def encode(self, document: Document) -> tuple[list[int], list[int]]:
        first = max(1, document.num_prompt_tokens)
        ids = list(self._drafter.encode_context(document.token_ids[:first]))
        limit = self._drafter.max_length or 1 << 30
        places = []
        for token_id in document.token_ids[first:]:
            places.append(len(ids) - 1 if len(ids) <= limit else -1)
            ids += self._drafter.encode_token(token_id)
        return ids[:limit], places


def _batches(order: Sequence[int], lengths: Sequence[int]) -> Iterator[list[int]]:
    batch: list[int] = []
    for index in order:
        if batch and lengths[index] * (len(batch) + 1) > _TOKENS_PER_BATCH:
            yield batch
            batch = []
        if lengths[index]:
            batch.append(index)
    if batch:
        yield batch


def _record_shard(
    documents: Sequence[Document], first_document: int, target: _Side, drafter: _DraftSide | None
) -> dict[str, Tensor]:
    sequences = [target.encode(document) for document in documents]
    tensors = {
        "document_ids": torch.tensor(
            [first_document + index for index, (_, places) in enumerate(sequences) for _ in places], dtype=torch.int32
        ),
        "token_ids": torch.tensor([ids[at + 1] for ids, places in sequences for at in places], dtype=torch.int32),
        "target_states": torch.cat([part for part in target.states(sequences) if part.numel()]),
    }
    if drafter is not None:
        draft_sequences = [drafter.encode(document) for document in documents]
        tensors["draft_states"] = torch.cat([part for part in drafter.states(draft_sequences) if part.numel()])
        has_context = torch.tensor([at >= 0 for _, places in draft_sequences for at in places])
        tensors = {name: tensor[has_context].contiguous() for name, tensor in tensors.items()}
    for name in ("target_states", "draft_states"):
        if name in tensors and not bool(tensors[name].isfinite().all()):
            raise RecordsError(f"collect: {name} must be finite, got NaN or infinity: the model is damaged")
    return tensors


def _shard_name(index: int) -> str:
    return f"shard_{index:05d}.safetensors"


class _Shard:
    """An open shard; every tensor is held against its checksum when it is read."""

    def __init__(self, path: Path, file: Any, has_checksums: bool) -> None:
        self._path = path
        self._file = file
        self._checksums: dict[str, str] | None = None
        if has_checksums:
            self._checksums = json.loads((file.metadata() or {}).get(_CHECKSUMS, "{}"))

    def tensor(self, name: str) -> Tensor:
        tensor: Tensor = self._file.get_tensor(name)
        if self._checksums is not None and self._checksums.get(name) != _checksum(tensor):
            raise _damaged(self._path, f"the checksum of {name} is wrong")
        return tensor

    def checked(self) -> int:
        """Look at everything in it; return its number of positions."""
        return len([self.tensor(name) for name in sorted({*self._file.keys(), *(self._checksums or ())})][0])


@contextmanager
def _opened(path: Path, format_of_records: int) -> Iterator[_Shard]:
    """Open a shard; one that is cut short or is none is told by name."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            yield _Shard(path, file, format_of_records != 1)
    except (SafetensorError, json.JSONDecodeError) as error:
        raise _damaged(path, str(error)) from None


def _damaged(path: Path, what: str) -> RecordsError:
    return RecordsError(f"records: {path} must be a whole shard ({what}); delete it to have it read anew")


def _checksum(tensor: Tensor) -> str:
    """SHA-256 of what a tensor is: its type, its shape and its bytes."""
    return hashlib.sha256(f"{tensor.dtype} {list(tensor.shape)} ".encode() + tensor.numpy().tobytes()).hexdigest()


def _shard_bytes(tensors: dict[str, Tensor]) -> bytes:
    from safetensors.torch import save

    # One entry: safetensors keeps several in no order, and the same records are the same bytes.
    checksums = json.dumps({name: _checksum(tensors[name]) for name in sorted(tensors)})
    return save(tensors, metadata={_CHECKSUMS: checksums})
