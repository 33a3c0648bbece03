# SPDX-License-Identifier: Apache-2.0
"""Cutting a drafter's output layer to the tokens that are worth their place in it.

The output layer is the largest matrix of a small model: a step of SmolLM2-135M reads 113 MB of float32 for its 49,152
columns. A drafter does with a few thousand of them; what it then cannot say is the business of the redistributing
kernels of this package. Its input embeddings stay whole, so that any token can stand in its context.

Source
------
FR-Spec (Zhao et al. 2025, arXiv 2502.14856): the head cut to the most frequent tokens of a text.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from hetero_spec.rdk import checks
from hetero_spec.rdk.checks import fail, in_range
from hetero_spec.tensor_file import read_tensor_file, write_tensor_file

if TYPE_CHECKING:
    from hetero_spec.decoding.pruned import PrunedDrafter
    from hetero_spec.vocab import VocabMap

FORMAT = "hetero_spec kept tokens 1"


@dataclass(frozen=True, eq=False)
class PrunedModel:
    """A causal language model with fewer output columns than input embeddings.

    Attributes
    ----------
    model : transformers causal language model
        Shares all weights but the output layer's with the model that it was made from. Its logits are [..., K].
    kept_ids : int64 [K], rising
        Column k of the logits is token kept_ids[k] of the unpruned vocabulary.
    vocab_size : int
        Width of the unpruned logits.
    tokenizer : Any
        The model's, where it was known.
    """

    model: Any
    kept_ids: Tensor
    vocab_size: int
    tokenizer: Any = None

    @property
    def column_of_token(self) -> Tensor:
        """int64 [vocab_size]: column of each token of the unpruned vocabulary, -1 = pruned."""
        columns = torch.full((self.vocab_size,), -1, dtype=torch.int64)
        columns[self.kept_ids] = torch.arange(len(self.kept_ids))
        return columns

    def maps(self, vocab_map: VocabMap | None = None, target_vocab_size: int | None = None) -> tuple[Tensor, Tensor]:
        """Both id maps between the columns and a target's vocabulary.

        Parameters
        ----------
        vocab_map : VocabMap, optional
            Of the target and the *unpruned* drafter. None: the drafter has the target's tokenizer.
        target_vocab_size : int, optional
            Width of the target's logits. Default: the map's, or that of the unpruned drafter.

        Returns
        -------
        draft_to_target_ids : int32 [K], -1 = not shared
        target_to_draft_ids : int32 [target_vocab_size], -1 = not shared

        Raises
        ------
        ValueError   a map of a drafter of another width, or nothing that was kept is shared
        """
        what = "PrunedModel.maps"
        if vocab_map is None:
            size = self.vocab_size if target_vocab_size is None else target_vocab_size
            to_target = self.kept_ids.to(torch.int32)
        else:
            if vocab_map.draft_vocab_size > self.vocab_size:
                expected = f"of a drafter of up to {self.vocab_size} ids"
                fail(ValueError, what, "vocab_map", expected, vocab_map.draft_vocab_size)
            size = vocab_map.target_vocab_size if target_vocab_size is None else target_vocab_size
            # The map may leave out the padding of the head, which stands for nothing.
            unpruned = torch.full((self.vocab_size,), -1, dtype=torch.int32)
            unpruned[: vocab_map.draft_vocab_size] = vocab_map.draft_to_target_ids
            to_target = unpruned[self.kept_ids]
        if size < 1:
            fail(ValueError, what, "target_vocab_size", "at least 1", size)
        to_target = torch.where(to_target < size, to_target, -1)
        shared = (to_target >= 0).nonzero()[:, 0]
        if not len(shared):
            fail(ValueError, what, "kept_ids", "shared with the target in one place or more", "none that is")
        to_draft = torch.full((size,), -1, dtype=torch.int32)
        to_draft[to_target[shared].long()] = shared.to(torch.int32)
        return to_target, to_draft

    def drafter(
        self, vocab_map: VocabMap | None = None, target_vocab_size: int | None = None, *, tokenizer: Any = None
    ) -> PrunedDrafter:
        """Make the drafter of a `SpeculativeDecoder`; arguments as of `maps`.

        `tokenizer` is the drafter's own, needed with a vocab_map unless the model came with one.
        """
        from hetero_spec.decoding.pruned import PrunedDrafter

        return PrunedDrafter(self, vocab_map, target_vocab_size, tokenizer=tokenizer)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write which tokens were kept, not the weights, to a file, whole or not at all; `load_pruned` reads it."""
        description = {
            "format": FORMAT,
            "vocab_size": self.vocab_size,
            "tokenizer_sha256": None if self.tokenizer is None else _sha256_of(self.tokenizer),
        }
        write_tensor_file(path, {"kept_ids": self.kept_ids.numpy()}, description)


def prune_vocabulary(model: Any, keep: Sequence[int] | Tensor, *, tokenizer: Any = None) -> PrunedModel:
    """Cut a drafter's output layer to some of its tokens.

    Parameters
    ----------
    model : transformers causal language model, or LoadedModel
        Left as it is. Tied weights are untied: the embeddings stay whole, the new output layer is a copy of its rows.
    keep : int [K]
        Ids to keep, in any order, none twice: `frequent_tokens`, `variant_tokens`, `from_eagle_t2d`, or your own.
    tokenizer : optional
        Kept with the result; that of a LoadedModel by default.

    Returns
    -------
    PrunedModel

    Raises
    ------
    TypeError    no output layer, or one that isn't linear
    ValueError   ids out of range or twice, none at all; a packed layer without tied embeddings (load the model
                 unpacked, prune it, then pack it)

    Notes
    -----
    Everything after the output layer (a bias, Gemma's capping of logits) acts on each column alone and stays. The
    result can't be saved as a transformers folder, whose configuration has one vocabulary size; `PrunedModel.save`
    writes which tokens were kept.
    """
    from hetero_spec.models import LoadedModel
    from hetero_spec.models.packed_linear import PackedLinear

    if isinstance(model, LoadedModel):
        model, tokenizer = model.model, model.tokenizer if tokenizer is None else tokenizer
    what = "prune_vocabulary"
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    weight, bias = _weights_of(what, model, head)
    ids = checks.as_tensor(what, "keep", keep, torch.int64)
    if ids.dim() != 1 or not len(ids):
        fail(ValueError, what, "keep", "one id or more, of shape [K]", f"shape {list(ids.shape)}")
    width = weight.shape[0]
    in_range(what, "keep", ids, width)
    kept = ids.sort().values
    if bool((kept.diff() == 0).any()):
        fail(ValueError, what, "keep", "ids that are all different", f"{int(kept[:-1][kept.diff() == 0][0])} twice")

    rows = kept.to(weight.device)
    new: Any = nn.Linear(weight.shape[1], len(kept), bias=bias is not None, device="meta")
    new.weight = nn.Parameter(weight.detach()[rows].clone(), requires_grad=weight.requires_grad)
    if bias is not None:
        new.bias = nn.Parameter(bias.detach()[rows].clone(), requires_grad=bias.requires_grad)
    if isinstance(head, PackedLinear):
        new = PackedLinear(new)
    pruned = _with_head(model, new)
    if model.get_output_embeddings() is not head:
        raise TypeError(f"{what}: model must hold its output layer itself, got {type(model).__name__}")
    return PrunedModel(pruned.train(model.training), kept, width, tokenizer)


def load_pruned(path: str | os.PathLike[str], model: Any, *, tokenizer: Any = None) -> PrunedModel:
    """Prune a model as `PrunedModel.save` noted it.

    Parameters
    ----------
    path : path
    model, tokenizer : as of `prune_vocabulary`

    Raises
    ------
    VocabMismatchError   the tokenizer isn't the one that the tokens were chosen with
    ValueError           not such a file, cut short or altered; a model of another width; as `prune_vocabulary`
    FileNotFoundError    no such file
    """
    from hetero_spec.vocab import VocabMismatchError

    description, arrays = read_tensor_file(path, "list of kept tokens", FORMAT)
    pruned = prune_vocabulary(model, torch.from_numpy(arrays["kept_ids"]), tokenizer=tokenizer)
    if pruned.vocab_size != description["vocab_size"]:
        raise ValueError(f"{path}: model must be {description['vocab_size']} ids wide, got {pruned.vocab_size}")
    saved = description["tokenizer_sha256"]
    if saved is not None and pruned.tokenizer is not None and (given := _sha256_of(pruned.tokenizer)) != saved:
        raise VocabMismatchError(
            f"{path}: tokenizer must be the one that tokens were chosen with (sha256 {saved[:12]}), got {given[:12]}"
        )
    return pruned


def token_counts(tokenizer: Any, texts: Iterable[str], vocab_size: int) -> Tensor:
    """How often each id occurs in some texts, without added specials; int64 [vocab_size]."""
    from hetero_spec.decoding.target import encode_with

    if isinstance(texts, str):
        fail(TypeError, "token_counts", "texts", "a sequence of texts", "one text")
    counts = torch.zeros(vocab_size, dtype=torch.int64)
    for text in texts:
        ids = torch.tensor(encode_with(tokenizer, text, add_special_tokens=False), dtype=torch.int64)
        in_range("token_counts", "the tokenizer's ids", ids, vocab_size)
        counts += torch.bincount(ids, minlength=vocab_size)
    return counts


def frequent_tokens(tokenizer: Any, texts: Iterable[str], count: int, *, vocab_size: int | None = None) -> Tensor:
    """Ids to keep by frequency: those that end a text, then the most frequent ones of some texts.

    Parameters
    ----------
    tokenizer : the drafter's; with `encode`, and `eos_token_ids` or `eos_token_id` if it has any
    texts : iterable of str
        Of the kind that will be decoded; the target's own answers are best.
    count : int
        K. Ids that never occur fill up from the lowest on: tokenizers made by merging have their frequent tokens first.
    vocab_size : int, optional
        Width of the drafter's logits. Default: the tokenizer's size.

    Returns
    -------
    kept_ids : int64 [count], rising

    Raises
    ------
    ValueError   count outside [1, vocab_size]
    """
    from hetero_spec.decoding.target import eos_token_ids_of
    from hetero_spec.vocab import read_vocabulary

    size = len(read_vocabulary(tokenizer)) if vocab_size is None else vocab_size
    _check_count("frequent_tokens", count, size)
    counts = token_counts(tokenizer, texts, size).double()
    for token_id in eos_token_ids_of(tokenizer):
        counts[token_id] = torch.inf  # a drafter that cannot end a text drafts past every end
    return _largest(counts, count)


def variant_tokens(variance: Tensor, count: int) -> Tensor:
    """Ids to keep by the variance of their target probability: those whose place a fixed prior could least take.

    Parameters
    ----------
    variance : float [V]
        In the drafter's ids; ties go to the lowest ids.
    count : int

    Returns
    -------
    kept_ids : int64 [count], rising

    Raises
    ------
    ValueError   count outside [1, V], negative or NaN variance
    """
    own = checks.non_negative("variant_tokens", "variance", checks.vector("variant_tokens", "variance", variance))
    _check_count("variant_tokens", count, len(own))
    return _largest(own, count)


def _sha256_of(tokenizer: Any) -> str:
    from hetero_spec.vocab import read_vocabulary

    return read_vocabulary(tokenizer).sha256


def _check_count(what: str, count: int, size: int) -> None:
    if isinstance(count, bool) or not isinstance(count, int):
        fail(TypeError, what, "count", "a whole number", type(count).__name__)
    if not 1 <= count <= size:
        fail(ValueError, what, "count", f"in [1, {size}]", count)


def _largest(values: Tensor, count: int) -> Tensor:
    return torch.argsort(values, descending=True, stable=True)[:count].sort().values


def _weights_of(what: str, model: Any, head: Any) -> tuple[Tensor, Tensor | None]:
    """Rows and bias of an output layer; a packed one is read from the embeddings that it was tied to."""
    from hetero_spec.models.packed_linear import PackedLinear

    if isinstance(head, nn.Linear):
        return head.weight, head.bias
    if not isinstance(head, PackedLinear):
        fail(
            TypeError, what, "model", "a causal language model with a linear output layer", type(head or model).__name__
        )
    if not model.config.get_text_config().tie_word_embeddings:
        fail(ValueError, what, "model", "unpacked, or of tied embeddings", "a packed output layer of its own")
    return model.get_input_embeddings().weight, head.bias


def _with_head(model: Any, head: nn.Module) -> Any:
    """Copy a model, sharing everything, and give the copy another output layer."""
    pruned = copy.copy(model)
    # A shallow copy shares the dict of submodules, which must not change for the original.
    pruned._modules = dict(model._modules)
    pruned.config = copy.deepcopy(model.config)
    pruned.config.tie_word_embeddings = False
    pruned.config.get_text_config().tie_word_embeddings = False
    pruned.set_output_embeddings(head)
    return pruned
