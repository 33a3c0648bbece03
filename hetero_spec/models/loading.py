# SPDX-License-Identifier: Apache-2.0
"""From a name or a folder to a model that is ready to run. Nothing is ever fetched, no pickle is ever read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hetero_spec.models.cache import entry_path, get_or_create, is_intact
from hetero_spec.models.gguf_reader import GGUFError, GGUFFile, sha256_of
from hetero_spec.models.progress import Progress, progress_of
from hetero_spec.models.registry import (
    EMBEDDED_FOLDER,
    EMBEDDED_LICENCE,
    EMBEDDED_NAME,
    EMBEDDED_NOTE,
    PACKAGED_MODELS,
    ModelError,
    PackagedModel,
)
from hetero_spec.models.tokenizer import TextTokenizer, read_json

DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class LoadedModel:
    """A causal language model and its tokenizer.

    Attributes
    ----------
    model : transformers.PreTrainedModel
        On the CPU, in float32 or what `load` was asked for, in evaluation mode, parameters without gradients, attention
        "sdpa" (takes a 4-D mask and any cache object).
    tokenizer : TextTokenizer
    name : str
        As asked for; for a folder, its name.
    licence : str
        Of the weights; "unknown" for a folder.
    vocab_size : int
        Width of the logits; the tokenizer may have fewer ids.
    """

    model: Any
    tokenizer: TextTokenizer
    name: str
    licence: str
    vocab_size: int


@dataclass(frozen=True)
class ModelEntry:
    """One row of `available()`."""

    name: str
    is_installed: bool
    licence: str
    note: str
    requirements: tuple[str, ...]


def available() -> list[ModelEntry]:
    """Return the models that `load` knows by name, installed or not."""
    entries = [
        ModelEntry(model.name, model.is_installed(), model.licence, model.note, model.requirements)
        for model in PACKAGED_MODELS.values()
    ]
    has_embedded = (EMBEDDED_FOLDER / "config.json").is_file()
    return [*entries, ModelEntry(EMBEDDED_NAME, has_embedded, EMBEDDED_LICENCE, EMBEDDED_NOTE, ())]


def load(
    name_or_path: str | Path, *, dtype: str = "float32", packed: bool = False, progress: bool | None = None
) -> LoadedModel:
    """Load a model by name or from a local transformers folder.

    A packaged model is converted into the cache the first time (seconds), its file's checksum verified then.

    Parameters
    ----------
    name_or_path : str or Path
        A name of `available()`, or a folder with config.json, *.safetensors and tokenizer.json (or another tokenizer
        that transformers turns into a fast one).
    dtype : str
        "float32" (what tests and reference numbers are made with), "bfloat16" or "float16". Processors with bfloat16
        instructions take about half the time a step in that dtype; others may take many times longer.
    packed : bool
        Keep the linear layers in oneDNN's blocked layout: a step of a few tokens then costs little more than one of one
        token, and results change by float rounding. The layers' weights can no longer be read or changed.
    progress : bool or None
        False: silent. True: a bar on standard error. None: a bar on a terminal, plain lines elsewhere.

    Raises
    ------
    ValueError
        A dtype not listed.
    ModelError
        Unknown name, package not installed (says how to get it), damaged file, folder that is no model.
    """
    if dtype not in DTYPES:
        raise ValueError(f"load: dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
    folder, name, licence = _folder_of(name_or_path, progress)
    model = _load_causal_lm(folder, name, dtype)
    tokenizer = _load_tokenizer(folder, name)
    head = model.get_output_embeddings()
    vocab_size = int(head.weight.shape[0] if head is not None else model.config.get_text_config().vocab_size)
    if packed:
        from hetero_spec.models.packed_linear import pack_linears

        pack_linears(model)
    return LoadedModel(model, tokenizer, name, licence, vocab_size)


def vocabulary_source(name_or_path: str | Path) -> Path:
    """Return the path that holds a model's vocabulary, without loading or converting its weights.

    A .gguf file for a packaged model (of a file that comes in parts the first, which holds the whole header), the
    folder's tokenizer.json for the embedded drafter and for a folder that has one, else the folder. A file is returned
    as it is.
    """
    if isinstance(name_or_path, str) and name_or_path in PACKAGED_MODELS:
        return PACKAGED_MODELS[name_or_path].paths()[0]
    if not _is_embedded(name_or_path) and Path(name_or_path).is_file():
        return Path(name_or_path)
    folder = EMBEDDED_FOLDER if _is_embedded(name_or_path) else _local_folder(name_or_path)
    tokenizer_json = folder / "tokenizer.json"
    return tokenizer_json if tokenizer_json.is_file() else folder


def verify_cache(name: str) -> bool:
    """Whether a packaged model's converted files are there and still have the checksums of the day they were made."""
    if name not in PACKAGED_MODELS:
        raise ModelError(f"verify_cache: name must be one of {', '.join(PACKAGED_MODELS)}, got {name}")
    return is_intact(entry_path(name, PACKAGED_MODELS[name].sha256), checksums=True)


def _is_embedded(name_or_path: str | Path) -> bool:
    return isinstance(name_or_path, str) and name_or_path == EMBEDDED_NAME


def _folder_of(name_or_path: str | Path, progress: bool | None) -> tuple[Path, str, str]:
    """Return (folder, name, licence). A name wins over a folder of the same name: write ./name for the folder."""
    if _is_embedded(name_or_path):
        if not (EMBEDDED_FOLDER / "config.json").is_file():
            raise ModelError(f"{EMBEDDED_NAME}: {EMBEDDED_FOLDER} holds no model; this installation came without it")
        return EMBEDDED_FOLDER, EMBEDDED_NAME, EMBEDDED_LICENCE
    if isinstance(name_or_path, str) and name_or_path in PACKAGED_MODELS:
        packaged = PACKAGED_MODELS[name_or_path]
        return converted_folder(packaged, progress), packaged.name, packaged.licence
    folder = _local_folder(name_or_path)
    return folder, folder.resolve().name, "unknown"


def _local_folder(name_or_path: str | Path) -> Path:
    folder = Path(name_or_path).expanduser()
    if not str(name_or_path) or not folder.is_dir():
        names = ", ".join([*PACKAGED_MODELS, EMBEDDED_NAME])
        raise ModelError(f"load: model must be one of {names}, or a local folder, got {str(name_or_path) or repr('')}")
    return folder


def converted_folder(packaged: PackagedModel, progress: bool | None = None) -> Path:
    """Return the transformers folder of a packaged model, converted now if it has not been yet."""
    entry = entry_path(packaged.name, packaged.sha256)
    if is_intact(entry):
        return entry
    paths = packaged.paths()  # before the cache folder is touched
    with progress_of(packaged.name, progress) as display:
        return get_or_create(entry, lambda folder: _convert_packaged(packaged, paths, folder, display))


def _convert_packaged(packaged: PackagedModel, paths: list[Path], folder: Path, display: Progress) -> dict[str, Any]:
    from hetero_spec.models.conversion import convert

    display.step("verifying", sum(path.stat().st_size for path in paths))
    found = sha256_of(paths, on_bytes=display.advance)
    if found != packaged.sha256:
        raise ModelError(
            f"{packaged.name}: {paths[0]} is damaged: sha256 must be {packaged.sha256}, got {found}; reinstall it"
        )
    try:
        with GGUFFile(paths) as gguf:
            convert(gguf, folder, extra_eos=packaged.extra_eos, progress=display)
    except GGUFError as error:
        raise ModelError(str(error)) from error
    except ImportError as error:
        raise ModelError(
            f"{packaged.name}: conversion needs {error.name}; pip install 'hetero-spec[models]'"
        ) from error
    return {"name": packaged.name, "sha256": packaged.sha256, "licence": packaged.licence}


def _load_causal_lm(folder: Path, name: str, dtype: str) -> Any:
    try:
        import safetensors  # noqa: F401 - transformers does not say which package it lacks
        import torch
        from transformers import AutoModelForCausalLM
    except ImportError as error:
        raise ModelError(f"{name}: loading needs {error.name}; pip install 'hetero-spec[models]'") from error

    if not (folder / "config.json").is_file():
        raise ModelError(f"{name}: {folder} must hold a config.json")
    if not any(folder.glob("*.safetensors")):
        raise ModelError(f"{name}: {folder} must hold the weights as *.safetensors (pickled weights are not read)")
    try:
        with _quiet_transformers():
            model: Any = AutoModelForCausalLM.from_pretrained(
                str(folder),
                dtype=getattr(torch, dtype),
                attn_implementation="sdpa",
                local_files_only=True,
                use_safetensors=True,
            )
    except Exception as error:  # whatever transformers and safetensors raise about a bad folder
        first_line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(f"{name}: {folder} cannot be loaded: {first_line}") from error
    return model.eval().requires_grad_(False)


def _load_tokenizer(folder: Path, name: str) -> TextTokenizer:
    if (folder / "tokenizer.json").is_file():
        return TextTokenizer.from_folder(folder)
    from transformers import AutoTokenizer

    try:
        with _quiet_transformers():
            slow = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
            backend = slow.backend_tokenizer
    except Exception as error:
        raise ModelError(f"{name}: {folder} must hold a tokenizer.json, or a tokenizer that can become one") from error
    eos_token_ids = read_json(folder / "config.json").get("eos_token_id", slow.eos_token_id)
    return TextTokenizer(
        backend,
        bos_token_id=slow.bos_token_id,
        eos_token_ids=eos_token_ids if isinstance(eos_token_ids, list) else [eos_token_ids] if eos_token_ids else [],
        chat_template=slow.chat_template,
        special_tokens={role: text for role, text in slow.special_tokens_map.items() if isinstance(text, str)},
    )


@contextlib.contextmanager
def _quiet_transformers() -> Iterator[None]:
    """Keep transformers' bars and notices off standard error while it loads; put its settings back after."""
    from transformers.utils import logging as transformers_logging

    logging: Any = transformers_logging
    verbosity, had_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if had_bars:
            logging.enable_progress_bar()
