#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the embedded drafter from nothing but its target: prompts, target outputs, vocabulary, training, measurement.

    python tools/train_drafter.py all --work build/drafter

Stages (each writes whole files into the work folder and is skipped, or resumed, when they are there):

    prompts    compose chat prompts; let the target write more of them         -> prompts.json
    generate   sample the target's answers, with the top of every law          -> corpus/*.safetensors
    tokenizer  choose the drafter's vocabulary from the answers                -> tokenizer.json
    refresh    (not in `all`) choose the vocabulary anew while training        -> tokenizer.json, checkpoint.pt
    train      distil the target's laws, mapped as TLI maps them               -> checkpoint.pt
    export     write float16 weights, configuration and tokenizer              -> <output folder>
    evaluate   measure the exported files against the target in float32        -> evaluation.json
    fixture    (not in `all`) store a few held-out answers for the tests       -> tests/models/data/*.json

`generate` can run in several processes at once (--worker i --num-workers n), and beside `train`, which takes in new
batches before every epoch. Seeds are fixed; a corpus is the same batch by batch, its size depends on --minutes.

--own-vocabulary makes a drafter that is foreign to its target instead: a small byte-level BPE of its own (--vocab-size;
259 is bytes), trained on the text of the same answers. Such drafters are not shipped; docs/methods.md measures them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import drafter_corpus as corpus
import drafter_data as data
import drafter_prompts as prompts_of
import drafter_training as training
import torch
from drafter_model import ARCHITECTURE, DrafterModel

from hetero_spec.files import write_whole

SEED = 20240611
TARGET = "smollm2"
USER_HEADER = "<|im_start|>user\n"
ROOT = Path(__file__).resolve().parent.parent
EMBEDDED = ROOT / "hetero_spec" / "models" / "embedded"
FIXTURE = ROOT / "tests" / "models" / "data" / "embedded_heldout.json"


def log(text: str) -> None:
    """One line of progress, with the time of day."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file whole or not at all."""
    write_whole(path, json.dumps(value, ensure_ascii=False))


# ---------------------------------------------------------------------------------------------------------- prompts


def run_prompts(options: argparse.Namespace) -> None:
    """Compose prompts, and let the target write more by continuing the header of a user's turn."""
    path = options.work / "prompts.json"
    if path.exists():
        log(f"prompts: {path} is there")
        return
    target = load_target()
    train, heldout = prompts_of.split_topics(SEED)
    chat = prompts_of.compose_prompts(train, options.num_prompts, SEED)
    result = {
        "train": chat,
        "train_self_written": self_written_prompts(target, options.num_self_written),
        "train_raw": prompts_of.compose_prompts(train, options.num_raw, SEED, templates=prompts_of.OPENINGS),
        "heldout_topics": prompts_of.compose_prompts(heldout, 160, SEED + 1),
        "heldout_free": prompts_of.FREE_HELDOUT,
    }
    # The target may have written a held-out question by itself: it is not trained on then.
    kept_out = {_normalised(text) for text in result["heldout_free"] + result["heldout_topics"]}
    for name in ("train", "train_self_written"):
        result[name] = [text for text in result[name] if _normalised(text) not in kept_out]
    write_json(path, result)
    log("prompts: " + ", ".join(f"{name} {len(texts)}" for name, texts in result.items()))


def _normalised(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", " ", text.lower()).strip()


def self_written_prompts(target: Any, num_prompts: int) -> list[str]:
    """User turns that the chat model itself writes after its own user header, at temperature 1 (the Magpie idea)."""
    sampler = corpus.TargetSampler(target.model)
    tokenizer = target.tokenizer
    prefix, _ = chat_frame(tokenizer)
    generator = torch.Generator().manual_seed(SEED)
    found: dict[str, None] = {}
    header = tokenizer.encode(USER_HEADER, add_special_tokens=False)
    while len(found) < num_prompts:
        rows = sampler.sample(
            prefix[: -len(header)],
            [header] * 128,
            [1.0] * 128,
            48,
            tokenizer.eos_token_ids,
            generator,
            keep_laws=False,
        )
        for row in rows:
            text = tokenizer.decode(row.output_ids[:-1]).strip()
            if row.output_ids[-1] in tokenizer.eos_token_ids and 12 <= len(text) <= 300 and text.isprintable():
                found[text] = None
        log(f"prompts: the target wrote {len(found)} of {num_prompts}")
    return list(found)[:num_prompts]


def load_target() -> Any:
    """The target in float32, through the package."""
    from hetero_spec import models

    return models.load(TARGET)


def chat_frame(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Token ids before and after the user's text in a chat of one question."""
    marker = "XYZZY"
    text = tokenizer.apply_chat_template([{"role": "user", "content": marker}])
    before, after = text.split(marker)
    return tokenizer.encode(before, add_special_tokens=False), tokenizer.encode(after, add_special_tokens=False)


# --------------------------------------------------------------------------------------------------------- generate


def plan_batches(options: argparse.Namespace, tokenizer: Any) -> list[dict[str, Any]]:
    """All batches of the corpus in the order in which they are made: held-out ones, then shuffled training ones."""
    texts = json.loads((options.work / "prompts.json").read_text(encoding="utf-8"))
    prefix, suffix = chat_frame(tokenizer)

    def encode(text: str, raw: bool) -> list[int]:
        ids = tokenizer.encode(text, add_special_tokens=False)
        return ids if raw else ids + suffix

    batches: list[dict[str, Any]] = []

    def add(name: str, prompts: list[str], temperatures: list[float], batch_size: int, *, raw: bool = False) -> None:
        entries = [(encode(text, raw), temperatures[index % len(temperatures)]) for index, text in enumerate(prompts)]
        entries.sort(key=lambda entry: len(entry[0]))  # stable: little padding inside a batch
        for start in range(0, len(entries), batch_size):
            some = entries[start : start + batch_size]
            batches.append(
                {
                    "set": name,
                    "prefix": [] if raw else prefix,
                    "prompts": [ids for ids, _ in some],
                    "temperatures": [temperature for _, temperature in some],
                }
            )

    # Every free question at every temperature; of the composed ones a third each.
    free = [(text, temperature) for text in texts["heldout_free"] for temperature in (0.0, 0.7, 1.0)]
    add("heldout_free", [text for text, _ in free], [temperature for _, temperature in free], options.batch_size)
    add("heldout_topics", texts["heldout_topics"], [0.0, 0.7, 1.0], options.batch_size)
    num_heldout = len(batches)
    # Half at 0.7, the rest greedy and at 1: greedy text repeats itself, and 0.7 lies between the two.
    add("train", texts["train"], [0.7, 0.0, 0.7, 1.0], options.batch_size)
    for temperature in (0.7, 0.0, 1.0):  # the most varied ones, and costly to make: each is answered three times
        add("train", texts["train_self_written"], [temperature], options.batch_size)
    add("train", texts["train_raw"], [0.7, 0.0, 0.7, 1.0], options.batch_size, raw=True)
    rng = random.Random(SEED)
    tail = batches[num_heldout:]
    rng.shuffle(tail)
    batches = batches[:num_heldout] + tail
    for index, batch in enumerate(batches):
        batch["name"] = f"{batch['set']}_{index:05d}"
        batch["max_new_tokens"] = 256 if index % 5 == 4 and batch["set"] == "train" else 128
    return batches


def run_generate(options: argparse.Namespace) -> None:
    """Sample the answers, one file per batch."""
    from safetensors.torch import save_file

    target = load_target()
    sampler, tokenizer = corpus.TargetSampler(target.model), target.tokenizer
    del target  # half a gigabyte of float32 weights that nothing needs any more
    folder = options.work / "corpus"
    folder.mkdir(exist_ok=True)
    batches = plan_batches(options, tokenizer)
    deadline = time.monotonic() + options.minutes * 60
    num_tokens, started = 0, time.monotonic()
    # Workers begin at different places of the same list and go round. Should two ever make the same batch, they make
    # the same file: the seed is the batch's.
    first = len(batches) * options.worker // options.num_workers
    order = [(first + place) % len(batches) for place in range(len(batches))]
    for index in order:
        batch = batches[index]
        path = folder / f"{batch['name']}.safetensors"
        if path.exists():
            continue
        if time.monotonic() > deadline:
            break
        generator = torch.Generator().manual_seed(SEED + index)
        rows = sampler.sample(
            batch["prefix"],
            batch["prompts"],
            batch["temperatures"],
            batch["max_new_tokens"],
            tokenizer.eos_token_ids,
            generator,
        )
        tensors = {
            "num_prompt_tokens": torch.tensor([len(row.prompt_ids) for row in rows], dtype=torch.int32),
            "prompt_ids": torch.tensor([token for row in rows for token in row.prompt_ids], dtype=torch.int32),
            "temperatures": torch.tensor([row.temperature for row in rows]),
            "num_output_tokens": torch.tensor([len(row.output_ids) for row in rows], dtype=torch.int32),
            "output_ids": torch.tensor([token for row in rows for token in row.output_ids], dtype=torch.int32),
            "top_ids": torch.cat([row.top_ids for row in rows]),
            "top_logprobs": torch.cat([row.top_logprobs for row in rows]),
            "log_normalizer_07": torch.cat([row.log_normalizer_07 for row in rows]),
        }
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        save_file(tensors, temporary)
        os.replace(temporary, path)
        num_tokens += len(tensors["output_ids"])
        rate = num_tokens / (time.monotonic() - started)
        log(f"generate: {path.name} {index + 1}/{len(batches)}, {num_tokens} tokens here, {rate:.0f} tokens/s")


# -------------------------------------------------------------------------------------------------------- tokenizer


def run_tokenizer(options: argparse.Namespace) -> None:
    """Choose the pieces by the mass that the target gives them in its own answers."""
    path = options.work / "tokenizer.json"
    if path.exists():
        log(f"tokenizer: {path} is there")
        return
    from safetensors.torch import save_file

    from hetero_spec.models import TextTokenizer
    from hetero_spec.vocab import VocabMap
    from hetero_spec.vocab.tokens import read_vocabulary

    target = load_target()
    conversations = data.read_corpus(options.work / "corpus", "train")
    prompts = json.loads((options.work / "prompts.json").read_text(encoding="utf-8"))["train_self_written"]
    user_ids = [target.tokenizer.encode(f" {text}", add_special_tokens=False) for text in prompts]
    measured = data.token_mass(conversations, target.vocab_size)
    mass = data.smooth_mass(measured, user_ids)
    target_bytes = read_vocabulary(target.tokenizer).tokens
    if options.own_vocabulary:
        texts = [target.tokenizer.decode(conversation.output_ids) for conversation in conversations]
        tokenizer = data.build_own_tokenizer(texts + prompts, options.vocab_size)
    else:
        tokenizer = data.build_tokenizer(mass, target_bytes, options.vocab_size)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    tokenizer.save(str(temporary))
    vocab_map = VocabMap.from_tokenizers(
        target.tokenizer,
        TextTokenizer(tokenizer, bos_token_id=1, eos_token_ids=(2,)),
        target_vocab_size=target.vocab_size,
        draft_vocab_size=tokenizer.get_vocab_size(),
    )
    vocab_map.save(options.work / "vocab_map")
    embedding = target.model.get_input_embeddings().weight.detach()
    start = data.project_embedding(embedding, vocab_map.draft_to_target_ids, ARCHITECTURE["hidden_size"], SEED)
    save_file({"embedding": start}, options.work / "embedding.safetensors")
    os.replace(temporary, path)
    inside = float(measured[vocab_map.target_to_draft_ids >= 0].sum() / measured.sum())
    log(f"tokenizer: {vocab_map!r}, which carry {inside:.4f} of the corpus' mass")
    shares = (measured[mass.argsort(descending=True)] / measured.sum()).cumsum(0)
    log(f"tokenizer: {len(conversations)} conversations, {sum(len(c.output_ids) for c in conversations)} tokens")
    for count in (2048, 4096, 6144, options.vocab_size):
        log(f"tokenizer: the first {count} target tokens carry {float(shares[count - 1]):.4f} of the corpus' mass")


def run_refresh(options: argparse.Namespace) -> None:
    """Choose the pieces again from a corpus that has grown since, and carry the model in training over to them."""
    from hetero_spec.vocab import VocabMap

    work, checkpoint = options.work, options.work / options.checkpoint
    old_map = VocabMap.load(work / "vocab_map")
    state = torch.load(checkpoint, weights_only=True)
    for name in ("tokenizer.json", "vocab_map", options.checkpoint):
        os.replace(work / name, work / f"before_refresh_{name}")
    run_tokenizer(options)
    _, new_map = load_pair(options)
    state["model"]["embed_tokens.weight"] = data.carry_embedding(
        state["model"]["embed_tokens.weight"],
        old_map.draft_to_target_ids,
        new_map.draft_to_target_ids,
        load_target().model.get_input_embeddings().weight.detach(),
        len(data.SPECIALS) + 256,
    )
    state["optimizers"] = []  # their averages belong to the old rows: they start anew
    state["at"] = 10**9  # and so does the epoch, with all of the corpus
    temporary = checkpoint.with_suffix(f".{os.getpid()}.tmp")
    torch.save(state, temporary)
    os.replace(temporary, checkpoint)
    kept = set(old_map.draft_to_target_ids.tolist()) & set(new_map.draft_to_target_ids.tolist())
    log(f"refresh: at step {state['step']}, {len(kept)} of {new_map.draft_vocab_size} pieces kept")


def load_pair(options: argparse.Namespace) -> tuple[Any, Any]:
    """(drafter tokenizer, map from the drafter's vocabulary to the target's), without loading the target."""
    from tokenizers import Tokenizer

    from hetero_spec.models import TextTokenizer
    from hetero_spec.vocab import VocabMap

    backend = Tokenizer.from_file(str(options.work / "tokenizer.json"))
    tokenizer = TextTokenizer(backend, bos_token_id=1, eos_token_ids=(2,))
    return tokenizer, VocabMap.load(options.work / "vocab_map")


# ------------------------------------------------------------------------------------------------------------ train


def run_train(options: argparse.Namespace) -> None:
    """Distil, in one process or in several that share every step."""
    if options.processes == 1:
        train_process(0, options, None)
        return
    meeting_point = options.work / f"meeting.{os.getpid()}"
    # The processes end with this one, also when it is told to stop.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    address = f"file://{meeting_point.resolve()}"
    torch.multiprocessing.spawn(train_process, args=(options, address), nprocs=options.processes, daemon=True)
    meeting_point.unlink(missing_ok=True)


def train_process(rank: int, options: argparse.Namespace, init_method: str | None) -> None:
    """What each process of the training does."""
    torch.set_num_threads(options.threads)
    if init_method is not None:
        torch.distributed.init_process_group(
            "gloo", init_method=init_method, rank=rank, world_size=options.processes, timeout=timedelta(minutes=30)
        )
    from safetensors.torch import load_file

    tokenizer, vocab_map = load_pair(options)
    allowed = torch.zeros(vocab_map.draft_vocab_size)
    if not options.own_vocabulary:
        allowed.masked_fill_(vocab_map.draft_to_target_ids < 0, float("-inf"))
    map_all = data.map_texts if options.own_vocabulary else data.map_conversations
    folder = options.work / "corpus"

    def sequences(prefix: str) -> data.Sequences:
        return map_all(data.read_corpus(folder, prefix), vocab_map, tokenizer, options.max_length)

    heldout = {name: sequences(f"heldout_{name}") for name in ("free", "topics")}
    train_set = map_all([], vocab_map, tokenizer, options.max_length)
    taken: set[str] = set()

    def grow() -> data.Sequences:
        """Take in what `generate` has added since: it may still run beside the training."""
        names = [sorted(path.stem for path in folder.glob("train*.safetensors"))]
        if init_method is not None:
            torch.distributed.broadcast_object_list(names)  # all processes must see the same files
        for name in names[0]:
            if name not in taken:
                taken.add(name)
                train_set.extend(sequences(name))
        num_laws = sum(len(positions) for positions in train_set.positions)
        num_tokens = sum(len(ids) for ids in train_set.ids)
        if rank == 0:
            log(f"train: {len(train_set.ids)} conversations, {num_tokens} drafter tokens, {num_laws} laws")
        return train_set

    model = DrafterModel(vocab_map.draft_vocab_size, ARCHITECTURE, SEED)
    with torch.no_grad():
        model.embed_tokens.weight.copy_(load_file(options.work / "embedding.safetensors")["embedding"])
    if rank == 0:
        log(f"train: {vocab_map!r}, {sum(weight.numel() for weight in model.parameters())} parameters")
    history = training.train(
        model,
        grow,
        heldout,
        allowed,
        options.work / options.checkpoint,
        num_steps=options.steps,
        num_seconds=options.train_minutes * 60,
        tokens_per_batch=options.tokens_per_batch,
        lr=options.lr,
        embedding_lr=options.embedding_lr,
        seed=SEED,
        evaluate_every=options.evaluate_every,
        own_vocabulary=options.own_vocabulary,
        log=log,
    )
    if rank == 0:
        write_json(options.work / "training.json", {"history": history})


# ----------------------------------------------------------------------------------------------------------- export


def run_export(options: argparse.Namespace) -> None:
    """Write a transformers folder: float16 weights, configuration, tokenizer."""
    from safetensors.torch import save_file
    from tokenizers import Tokenizer
    from transformers import LlamaConfig

    target = load_target()
    backend = Tokenizer.from_file(str(options.work / "tokenizer.json"))
    state = torch.load(options.work / options.checkpoint, weights_only=True)
    model = DrafterModel(backend.get_vocab_size(), ARCHITECTURE, SEED)
    model.load_state_dict(state["model"])
    # The drafter reads at most as far as it was trained to read; the orchestrator then slides its window.
    config = LlamaConfig(
        vocab_size=backend.get_vocab_size(),
        max_position_embeddings=options.max_length,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=None,
        **ARCHITECTURE,
    )
    config.architectures = ["LlamaForCausalLM"]
    config.dtype = torch.float16
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "<unk>",
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "clean_up_tokenization_spaces": False,
        "model_max_length": options.max_length,
        "chat_template": target.tokenizer.chat_template,
    }
    folder = options.output
    folder.mkdir(parents=True, exist_ok=True)
    # The logits are linear in the gain of the last norm.
    model.norm.data /= options.softmax_temperature
    weights = {name: weight.half().contiguous() for name, weight in model.transformers_state().items()}
    temporary = folder / f"model.{os.getpid()}.tmp"
    save_file(weights, temporary, metadata={"format": "pt"})
    write_whole(folder / "config.json", config.to_json_string(use_diff=True))
    write_whole(folder / "tokenizer_config.json", json.dumps(settings, indent=2) + "\n")
    write_whole(folder / "tokenizer.json", (options.work / "tokenizer.json").read_text(encoding="utf-8"))
    temporary.chmod(0o644)  # as any other file of the package
    os.replace(temporary, folder / "model.safetensors")
    log(f"export: step {state['step']} to {folder}, {(folder / 'model.safetensors').stat().st_size} bytes of weights")


# --------------------------------------------------------------------------------------------------------- evaluate


@torch.inference_mode()
def run_evaluate(options: argparse.Namespace) -> None:
    """Exact overlap of the exported files with the target, both in float32, full vocabularies."""
    from hetero_spec import models

    target = load_target()
    tokenizer, vocab_map = load_pair(options)
    drafter = models.load(options.output).model
    is_shared = vocab_map.draft_to_target_ids >= 0
    to_target = vocab_map.draft_to_target_ids[is_shared].long()
    result: dict[str, Any] = {}
    for name in ("free", "topics"):
        conversations = data.read_corpus(options.work / "corpus", f"heldout_{name}")
        mapped = data.map_conversations(conversations, vocab_map, tokenizer, options.max_length)
        sums: dict[str, dict[str, float]] = {}
        for index, conversation in enumerate(conversations):
            temperature = conversation.temperature
            entry = sums.setdefault(
                str(temperature), {"answers": 0.0, "positions": 0.0, "acceptance": 0.0, "inside": 0.0}
            )
            if entry["answers"] == options.num_evaluated:
                continue
            entry["answers"] += 1
            positions = mapped.positions[index]
            num_prompt = len(conversation.prompt_ids)
            context = torch.tensor([conversation.prompt_ids + conversation.output_ids[: len(positions) - 1]])
            target_logits = target.model(context, logits_to_keep=len(positions)).logits[0]
            draft_logits = drafter(mapped.ids[index][None]).logits[0][positions][:, is_shared]
            assert context.shape[1] - num_prompt + 1 == len(positions)
            entry["positions"] += len(positions)
            if temperature == 0.0:
                likeliest = target_logits.argmax(-1)
                entry["acceptance"] += float((to_target[draft_logits.argmax(-1)] == likeliest).sum())
                entry["inside"] += float((vocab_map.target_to_draft_ids[likeliest] >= 0).sum())
            else:
                law = (target_logits / temperature).softmax(-1)[:, to_target]
                draft_law = (draft_logits / temperature).softmax(-1)
                entry["acceptance"] += float(torch.minimum(law, draft_law).sum())
                entry["inside"] += float(law.sum())
        result[name] = {
            temperature: {
                "answers": int(entry["answers"]),
                "positions": int(entry["positions"]),
                "acceptance": entry["acceptance"] / entry["positions"],
                "target_mass_inside": entry["inside"] / entry["positions"],
            }
            for temperature, entry in sorted(sums.items())
        }
        log(f"evaluate: {name} {json.dumps(result[name])}")
    write_json(options.work / "evaluation.json", result)


# ---------------------------------------------------------------------------------------------------------- fixture


def run_fixture(options: argparse.Namespace) -> None:
    """Write a few held-out answers as text pieces for tests/models/test_embedded.py."""
    from hetero_spec.vocab.tokens import read_vocabulary

    vocabulary = read_vocabulary(load_target().tokenizer)
    names = {token_id: text for text, token_id in vocabulary.specials.items()}
    pieces: dict[str, int] = {}

    def text_of(token_id: int) -> str | None:
        """Text of a target token, None for a part of a character."""
        token_bytes = vocabulary.tokens[token_id]
        if token_bytes is None:
            return names[token_id]
        try:
            return token_bytes.decode("utf-8")
        except UnicodeDecodeError:
            return None

    def numbers(token_ids: list[int]) -> list[int]:
        """Places of the tokens in the fixture's own list of pieces."""
        texts = [text_of(token_id) for token_id in token_ids]
        return [pieces.setdefault(text, len(pieces)) for text in texts if text is not None]

    cases: list[dict[str, Any]] = []
    wanted = {0.0: 16, 0.7: 5, 1.0: 5}
    for conversation in data.read_corpus(options.work / "corpus", "heldout_free"):
        length = 48 if conversation.temperature == 0.0 else 32
        output = conversation.output_ids[:length]
        is_text = all(text_of(token_id) is not None for token_id in conversation.prompt_ids + output)
        if wanted[conversation.temperature] == 0 or len(output) < length or not is_text:
            continue
        laws: list[list[list[int]]] = []
        if conversation.temperature > 0.0:
            top = conversation.top_logprobs[:length, :10].float() / conversation.temperature
            if conversation.temperature != 1.0:
                top = top - conversation.log_normalizer_07[:length, None].float()
            for ids, probs in zip(conversation.top_ids[:length, :10].tolist(), top.exp().tolist(), strict=True):
                kept = [(token_id, prob) for token_id, prob in zip(ids, probs, strict=True) if text_of(token_id)]
                places = numbers([token_id for token_id, _ in kept])
                laws.append([[place, round(prob * 1e4)] for place, (_, prob) in zip(places, kept, strict=True)])
        case = {"prompt": numbers(conversation.prompt_ids), "output": numbers(output), "laws": laws}
        cases.append({"temperature": conversation.temperature, **case})
        wanted[conversation.temperature] -= 1
    options.fixture.parent.mkdir(parents=True, exist_ok=True)
    write_json(options.fixture, {"pieces": list(pieces), "cases": cases})
    log(f"fixture: {len(cases)} answers, {options.fixture.stat().st_size} bytes")


STAGES = {
    "prompts": run_prompts,
    "generate": run_generate,
    "tokenizer": run_tokenizer,
    "refresh": run_refresh,
    "train": run_train,
    "export": run_export,
    "evaluate": run_evaluate,
    "fixture": run_fixture,
}


def main() -> None:
    """Parse the command line and run the stages asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=["all", *STAGES])
    parser.add_argument("--work", type=Path, required=True, help="folder for everything in between")
    parser.add_argument("--output", type=Path, default=EMBEDDED, help="folder of the finished drafter")
    parser.add_argument("--fixture", type=Path, default=FIXTURE, help="file of the tests")
    parser.add_argument("--threads", type=int, default=1)
    corpus_options = parser.add_argument_group("prompts and generate")
    corpus_options.add_argument("--num-prompts", type=int, default=12000, help="composed of templates and topics")
    corpus_options.add_argument("--num-self-written", type=int, default=900, help="user turns the target writes itself")
    corpus_options.add_argument("--num-raw", type=int, default=600, help="openings without a chat template")
    corpus_options.add_argument("--batch-size", type=int, default=96)
    corpus_options.add_argument("--minutes", type=float, default=25.0, help="stop generating after this long")
    corpus_options.add_argument("--worker", type=int, default=0)
    corpus_options.add_argument("--num-workers", type=int, default=1)
    train_options = parser.add_argument_group("tokenizer and train")
    train_options.add_argument("--vocab-size", type=int, default=8192)
    train_options.add_argument(
        "--own-vocabulary",
        action="store_true",
        help="byte-level BPE trained on the answers' text instead of the target's own pieces; 259 makes it bytes",
    )
    train_options.add_argument("--max-length", type=int, default=384, help="drafter tokens of a conversation")
    train_options.add_argument("--processes", type=int, default=2, help="each takes a batch of every step")
    train_options.add_argument("--steps", type=int, default=10000, help="at most")
    train_options.add_argument(
        "--train-minutes", type=float, default=45.0, help="at most; the schedule fits the sooner"
    )
    train_options.add_argument("--tokens-per-batch", type=int, default=2400, help="per process")
    train_options.add_argument("--lr", type=float, default=4e-3, help="Muon, scaled to the step of AdamW")
    train_options.add_argument("--embedding-lr", type=float, default=1e-3, help="AdamW")
    train_options.add_argument("--evaluate-every", type=int, default=60)
    train_options.add_argument(
        "--softmax-temperature",
        type=float,
        default=0.9,
        help="built into the exported logits; below 1 makes up for the tail of the laws, which training does not see",
    )
    train_options.add_argument("--checkpoint", default="checkpoint.pt", help="file name inside the work folder")
    parser.add_argument("--num-evaluated", type=int, default=25, help="answers per held-out set and temperature")
    options = parser.parse_args()
    if options.own_vocabulary and options.vocab_size < len(data.SPECIALS) + 256:
        parser.error(f"--vocab-size must be at least {len(data.SPECIALS) + 256}, got {options.vocab_size}")
    if options.own_vocabulary and options.stage == "refresh":
        parser.error("stage refresh must be without --own-vocabulary: it carries over the target's own pieces")
    torch.set_num_threads(options.threads)
    options.work.mkdir(parents=True, exist_ok=True)
    every_stage = [name for name in STAGES if name not in ("refresh", "fixture")]
    for stage in every_stage if options.stage == "all" else [options.stage]:
        STAGES[stage](options)


if __name__ == "__main__":
    main()
