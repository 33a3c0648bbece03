# SPDX-License-Identifier: Apache-2.0
"""From the corpus files to the drafter's tokenizer and to training sequences in its vocabulary."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

SPACE_MARKER = "\u2581"
SPECIALS = ["<unk>", "<|im_start|>", "<|im_end|>"]  # ids 0, 1, 2; im_start is BOS and im_end EOS, as in the target
_PRINTABLE = ["\n", "\t", *(chr(code) for code in range(32, 127))]


@dataclasses.dataclass
class Conversation:
    """One sampled conversation in target ids, as `drafter_corpus.Sampled`, tensors being views of the file's."""

    prompt_ids: list[int]
    output_ids: list[int]
    temperature: float
    top_ids: Tensor
    top_logprobs: Tensor
    log_normalizer_07: Tensor


def read_corpus(folder: Path, prefix: str) -> list[Conversation]:
    """Every conversation of the files whose names begin with `prefix`, in the order of the names."""
    from safetensors.torch import load_file

    conversations = []
    for path in sorted(folder.glob(f"{prefix}*.safetensors")):
        tensors = load_file(path)
        start = 0
        outputs = tensors["output_ids"].tolist()
        prompt_ids = tensors["prompt_ids"].split(tensors["num_prompt_tokens"].tolist())
        for row, length in enumerate(tensors["num_output_tokens"].tolist()):
            part = slice(start, start + length)
            start += length
            conversations.append(
                Conversation(
                    prompt_ids=prompt_ids[row].tolist(),
                    output_ids=outputs[part],
                    temperature=round(float(tensors["temperatures"][row]), 3),
                    top_ids=tensors["top_ids"][part],
                    top_logprobs=tensors["top_logprobs"][part],
                    log_normalizer_07=tensors["log_normalizer_07"][part],
                )
            )
    return conversations


def token_mass(conversations: Sequence[Conversation], vocab_size: int) -> Tensor:
    """Expected count of every target token over all output positions, by the laws at temperature 1, float64 [V]."""
    mass = torch.zeros(vocab_size, dtype=torch.float64)
    for conversation in conversations:
        ids = conversation.top_ids.long().flatten()
        mass.index_add_(0, ids, conversation.top_logprobs.double().exp().flatten())
    return mass


def smooth_mass(mass: Tensor, prompt_ids: Sequence[Sequence[int]]) -> Tensor:
    """Mass of a small corpus, with a fifth of it again by the rank of the id and a tenth by what users write.

    A byte-pair vocabulary is in order of frequency in the target's own training text, which says something about the
    thousands of tokens that a small corpus hardly shows. Both shares were chosen on held-out mass (+0.8 points).
    """
    by_rank = 1.0 / (torch.arange(len(mass), dtype=torch.float64) + 5000.0)
    by_users = torch.zeros_like(mass)
    for ids in prompt_ids:
        by_users.index_add_(0, torch.tensor(ids), torch.ones(len(ids), dtype=torch.float64))
    return mass / mass.sum() + 0.2 * by_rank / by_rank.sum() + 0.1 * by_users / by_users.sum()


def build_tokenizer(mass: Tensor, target_bytes: Sequence[bytes | None], vocab_size: int) -> Any:
    """A Unigram tokenizer in SentencePiece's style: `U+2581` for a space, byte fallback, no dummy leading space.

    Pieces: specials, 256 bytes, every printable ASCII character, then the texts of the target's tokens that carry the
    most probability mass in its own outputs. The score of a piece is its log share of that mass, so that the likeliest
    segmentation is nearly always the target's.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

    total = float(mass.sum())
    floor = 1e-7 * total  # of a forced character that the corpus does not show
    weight_of: dict[str, float] = {}
    for token_id in mass.argsort(descending=True, stable=True).tolist():
        data = target_bytes[token_id]
        if data is None:
            continue
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            continue  # half a character: left to byte fallback
        if SPACE_MARKER not in text:
            weight_of.setdefault(text, float(mass[token_id]))
    pieces = dict.fromkeys(_PRINTABLE)
    room = vocab_size - len(SPECIALS) - 256
    for text in weight_of:
        if len(pieces) == room:
            break
        pieces[text] = None
    scored = [
        (text.replace(" ", SPACE_MARKER), float(torch.log(torch.tensor(max(weight_of.get(text, 0.0), floor) / total))))
        for text in pieces
    ]
    # A byte piece must never be cheaper than the characters `<`, `0`, `x`, ... of its own name in a text; nor <unk>.
    byte_pieces = [(f"<0x{byte:02X}>", -1000.0) for byte in range(256)]
    vocabulary = [(text, -1000.0) for text in SPECIALS] + byte_pieces + scored
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=0, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", SPACE_MARKER)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE_MARKER, " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIALS[1:]])
    return tokenizer


def build_own_tokenizer(texts: Iterable[str], vocab_size: int) -> Any:
    """A byte-level BPE tokenizer that owes the target's vocabulary nothing: specials, 256 bytes, then learnt merges.

    With a vocabulary of len(SPECIALS) + 256 it has no merges: a drafter of bytes.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[AddedToken(text, special=True, normalized=False) for text in SPECIALS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def project_embedding(embedding: Tensor, draft_to_target_ids: Tensor, hidden_size: int, seed: int) -> Tensor:
    """First embeddings of the drafter, float32 [Vd, hidden]: the target's own of shared tokens, on their main axes.

    The target's embedding knows which tokens are alike; learning that anew would take most of a short training.
    """
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(len(draft_to_target_ids), hidden_size, generator=generator) * 0.01
    is_shared = draft_to_target_ids >= 0
    rows = embedding[draft_to_target_ids[is_shared].long()].double()
    rows = rows - rows.mean(0)
    axes = torch.linalg.eigh(rows.T @ rows).eigenvectors[:, -hidden_size:]
    projected = (rows @ axes).float()
    # A random rotation spreads the variance evenly over the dimensions, hence over the attention heads.
    rotation = torch.linalg.qr(torch.randn(hidden_size, hidden_size, generator=generator)).Q
    projected = projected @ rotation
    start[is_shared] = projected * (0.05 / projected.square().mean().sqrt())
    return start


def carry_embedding(
    old: Tensor, old_target_ids: Tensor, target_ids: Tensor, target_embedding: Tensor, num_fixed: int
) -> Tensor:
    """A trained embedding [Vd, hidden] carried over to a newly chosen vocabulary of the same size.

    The first `num_fixed` ids (specials, bytes) are the same in both. Tokens that are in both keep their rows; new ones
    get the row that a ridge regression from the target's embedding to the trained rows predicts.
    """
    is_old, is_new = old_target_ids >= 0, target_ids >= 0
    known = target_embedding[old_target_ids[is_old].long()].double()
    gram = known.T @ known
    gram += 0.01 * gram.diagonal().mean() * torch.eye(len(gram), dtype=torch.float64)
    weights = torch.linalg.solve(gram, known.T @ old[is_old].double())
    result = torch.zeros_like(old)
    result[:num_fixed] = old[:num_fixed]
    result[is_new] = (target_embedding[target_ids[is_new].long()].double() @ weights).float()
    row_of = {int(target_id): row for row, target_id in enumerate(old_target_ids.tolist()) if target_id >= 0}
    for row, target_id in enumerate(target_ids.tolist()):
        if target_id in row_of:
            result[row] = old[row_of[target_id]]
    return result


@dataclasses.dataclass
class Sequences:
    """Training sequences in the drafter's vocabulary; `conversations` and `predictions` are back to back.

    A prediction belongs to the position before a target token, where TLI asks the drafter. Its law holds the kept
    target tokens that the drafter shares; unshared ones have id -1.
    """

    ids: list[Tensor]  # int64, one per conversation
    positions: list[Tensor]  # int64: which positions of it predict
    draft_ids: list[Tensor]  # int16 [predictions, NUM_KEPT], -1 = not shared
    logprobs: list[Tensor]  # float16 [predictions, NUM_KEPT], the target's, at temperature 1
    log_normalizers_07: list[Tensor]  # float16 [predictions]
    next_draft_ids: list[Tensor]  # int16 [predictions]: the token that followed, -1 if not shared
    inner_positions: list[Tensor]  # int64: positions inside the spelling of an unshared token
    temperatures: list[float]

    def extend(self, other: Sequences) -> None:
        """Append another set's conversations."""
        for field in dataclasses.fields(self):
            getattr(self, field.name).extend(getattr(other, field.name))


def encode_prompt(prompt_ids: Sequence[int], vocab_map: Any, tokenizer: Any) -> list[int]:
    """A prompt in drafter ids: runs of ordinary tokens through the drafter's own tokenizer, specials mapped."""
    ids: list[int] = []
    run = b""
    for token_id in [*prompt_ids, None]:
        data = vocab_map.target_tokens[token_id] if token_id is not None else None
        if data is not None:
            run += data
            continue
        ids += tokenizer.encode(run.decode("utf-8"), add_special_tokens=False)
        run = b""
        if token_id is not None:
            shared = int(vocab_map.target_to_draft_ids[token_id])
            ids += [shared] if shared >= 0 else []
    return ids


def map_conversations(
    conversations: Sequence[Conversation], vocab_map: Any, tokenizer: Any, max_length: int
) -> Sequences:
    """Turn conversations into the drafter's view of them, cut to `max_length` drafter tokens."""
    target_to_draft = vocab_map.target_to_draft_ids.to(torch.int16)
    spellings = [tuple(spelling) if spelling else () for spelling in vocab_map.target_to_draft_tokens]
    spellings = [
        (shared,) if shared >= 0 else spelling
        for shared, spelling in zip(vocab_map.target_to_draft_ids.tolist(), spellings, strict=True)
    ]
    result = Sequences([], [], [], [], [], [], [], [])
    for conversation in conversations:
        ids = encode_prompt(conversation.prompt_ids, vocab_map, tokenizer)
        positions, inner = [], []
        for token_id in conversation.output_ids:
            if len(ids) >= max_length:
                break
            positions.append(len(ids) - 1)
            ids += spellings[token_id]
            inner += range(positions[-1] + 1, len(ids) - 1)
        count = len(positions)
        result.ids.append(torch.tensor(ids[:max_length]))
        result.positions.append(torch.tensor(positions))
        result.draft_ids.append(target_to_draft[conversation.top_ids[:count].long()])
        result.logprobs.append(conversation.top_logprobs[:count])
        result.log_normalizers_07.append(conversation.log_normalizer_07[:count])
        result.next_draft_ids.append(target_to_draft[torch.tensor(conversation.output_ids[:count])])
        result.inner_positions.append(torch.tensor([at for at in inner if at + 1 < max_length], dtype=torch.long))
        result.temperatures.append(conversation.temperature)
    return result


def map_texts(conversations: Sequence[Conversation], vocab_map: Any, tokenizer: Any, max_length: int) -> Sequences:
    """Turn conversations into what a drafter with a vocabulary of its own sees: their text, encoded by its tokenizer.

    Wherever both tokenizers have a boundary, the law is that of the first drafter token of the text of each of the
    kept target tokens (an id may stand in a row several times); every other position learns what follows it.
    """
    first_ids = _first_pieces(vocab_map, tokenizer)
    result = Sequences([], [], [], [], [], [], [], [])
    for conversation in conversations:
        ids = encode_prompt(conversation.prompt_ids, vocab_map, tokenizer)
        positions, kept, inner = [], [], []
        for start, stop in _runs(conversation.output_ids, vocab_map):
            tokens = [vocab_map.target_tokens[token_id] for token_id in conversation.output_ids[start:stop]]
            if tokens[0] is None:
                own = [int(vocab_map.target_to_draft_ids[conversation.output_ids[start]])]
                ends = {0: 0}
            else:
                # A character that the cut has left unfinished is left out.
                own = tokenizer.encode(b"".join(tokens).decode("utf-8", "ignore"), add_special_tokens=False)
                ends = _boundaries([vocab_map.draft_tokens[token_id] for token_id in own])
            at, of_own = 0, {}
            for number, token in enumerate(tokens):
                if at in ends and ends[at] < len(own):
                    of_own[ends[at]] = start + number
                at += len(token or b"")
            for number in range(len(own)):
                if number in of_own:
                    positions.append(len(ids) - 1)
                    kept.append(of_own[number])
                else:
                    inner.append(len(ids) - 1)
                ids.append(own[number])
        fitting = sum(position + 1 < max_length for position in positions)
        chosen = torch.tensor(kept[:fitting])
        result.ids.append(torch.tensor(ids[:max_length]))
        result.positions.append(torch.tensor(positions[:fitting]))
        result.draft_ids.append(first_ids[conversation.top_ids[chosen].long()])
        result.logprobs.append(conversation.top_logprobs[chosen])
        result.log_normalizers_07.append(conversation.log_normalizer_07[chosen])
        result.next_draft_ids.append(first_ids[torch.tensor(conversation.output_ids)[chosen]])
        result.inner_positions.append(torch.tensor([at for at in inner if at + 1 < max_length], dtype=torch.long))
        result.temperatures.append(conversation.temperature)
    return result


def _first_pieces(vocab_map: Any, tokenizer: Any) -> Tensor:
    """First drafter id of every target token's text, int16 [V]; -1 where there is none."""
    first_ids = vocab_map.target_to_draft_ids.to(torch.int16)
    for token_id, token in enumerate(vocab_map.target_tokens):
        if token:
            try:
                first_ids[token_id] = tokenizer.encode(token.decode("utf-8"), add_special_tokens=False)[0]
            except UnicodeDecodeError:  # half a character: its bytes are spelt
                spelling = vocab_map.target_to_draft_tokens[token_id]
                first_ids[token_id] = spelling[0] if spelling else -1
    return first_ids


def _runs(token_ids: Sequence[int], vocab_map: Any) -> Iterator[tuple[int, int]]:
    """Bounds of the runs of ordinary tokens, and of every special token that the drafter shares."""
    start = 0
    for at, token_id in enumerate(token_ids):
        if vocab_map.target_tokens[token_id] is None:
            if start < at:
                yield start, at
            if int(vocab_map.target_to_draft_ids[token_id]) >= 0:
                yield at, at + 1
            start = at + 1
    if start < len(token_ids):
        yield start, len(token_ids)


def _boundaries(tokens: Sequence[bytes | None]) -> dict[int, int]:
    """Number of tokens before each byte offset at which a token begins."""
    ends, covered = {}, 0
    for number, token in enumerate(tokens):
        ends[covered] = number
        covered += len(token or b"")
    return ends


@dataclasses.dataclass
class Batch:
    """Padded ids, and everything about the predicting positions, flattened over the batch."""

    ids: Tensor  # int64 [batch, length]
    at: Tensor  # int64 [P]: index of a predicting position in the flattened batch
    draft_ids: Tensor  # int64 [P, NUM_KEPT], -1 = not shared
    logprobs: Tensor  # float32 [P, NUM_KEPT]
    log_normalizers_07: Tensor  # float32 [P]
    next_draft_ids: Tensor  # int64 [P]
    temperatures: Tensor  # float32 [P]
    inner_at: Tensor  # int64 [Q]


def make_batch(sequences: Sequences, chosen: Sequence[int]) -> Batch:
    """Pad the chosen conversations on the right; causal attention never looks there."""
    length = max(len(sequences.ids[index]) for index in chosen)
    ids = torch.zeros(len(chosen), length, dtype=torch.long)
    at, inner_at, temperatures = [], [], []
    for row, index in enumerate(chosen):
        ids[row, : len(sequences.ids[index])] = sequences.ids[index]
        at.append(sequences.positions[index] + row * length)
        inner_at.append(sequences.inner_positions[index] + row * length)
        temperatures.append(torch.full((len(at[-1]),), sequences.temperatures[index]))
    return Batch(
        ids=ids,
        at=torch.cat(at),
        draft_ids=torch.cat([sequences.draft_ids[index] for index in chosen]).long(),
        logprobs=torch.cat([sequences.logprobs[index] for index in chosen]).float(),
        log_normalizers_07=torch.cat([sequences.log_normalizers_07[index] for index in chosen]).float(),
        next_draft_ids=torch.cat([sequences.next_draft_ids[index] for index in chosen]).long(),
        temperatures=torch.cat(temperatures),
        inner_at=torch.cat(inner_at),
    )


def plan_epoch(sequences: Sequences, tokens_per_batch: int, seed: int) -> list[list[int]]:
    """Batches of similar length and about `tokens_per_batch` padded tokens, in random order."""
    rng = random.Random(seed)
    order = list(range(len(sequences.ids)))
    rng.shuffle(order)
    # Sorting by a noisy length keeps batches tight, yet different in every epoch.
    order.sort(key=lambda index: len(sequences.ids[index]) + rng.uniform(0, 12))
    batches: list[list[int]] = []
    current: list[int] = []
    longest = 0
    for index in order:
        longest_now = max(longest, len(sequences.ids[index]))
        if current and longest_now * (len(current) + 1) > tokens_per_batch:
            batches.append(current)
            current, longest_now = [], len(sequences.ids[index])
        current.append(index)
        longest = longest_now
    batches.append(current)
    rng.shuffle(batches)
    return batches
