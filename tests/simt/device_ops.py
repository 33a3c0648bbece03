# SPDX-License-Identifier: Apache-2.0
"""The ops' CUDA sources on the simulated device, with the arguments of hetero_spec.ops (CPU tensors in and out).

Which build runs is HETERO_SPEC_SIMT_FLAVOUR (plain, asan, tsan, traffic). Arguments are not checked here: that is the
business of hetero_spec.ops.
"""

from __future__ import annotations

import importlib.util
import os
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hetero_spec.ops import RdkFactors
from hetero_spec.ops._low_rank import inverse_map

from .conftest import BUILD, build

DTYPE_CODES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}
_modules: dict[str, ModuleType] = {}


def module(flavour: str | None = None) -> ModuleType:
    """The compiled module of a flavour, built if need be."""
    flavour = flavour or os.environ.get("HETERO_SPEC_SIMT_FLAVOUR", "plain")
    if flavour not in _modules:
        name = f"_simt_{flavour}"
        if "HETERO_SPEC_SIMT_FLAVOUR" not in os.environ:  # a child process finds it built
            build(name)
        spec = importlib.util.spec_from_file_location(name, BUILD / f"{name}.so")
        assert spec is not None and spec.loader is not None
        _modules[flavour] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(_modules[flavour])
    return _modules[flavour]


def array(tensor: Tensor | None) -> Any:
    """A NumPy view, strides and address kept; 16-bit floats as their bits."""
    if tensor is None:
        return None
    return tensor.view(torch.int16).numpy() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor.numpy()


def parameters(temperature: Any, top_k: Any, top_p: Any, min_p: Any) -> tuple[Any, ...]:
    """Arrays (or None) of the four sampling parameters, then their values for all."""
    values = (temperature, top_k, top_p, min_p)
    arrays = tuple(array(value) if isinstance(value, Tensor) else None for value in values)
    off = (1.0, 0, 1.0, 0.0)
    scalars = tuple(
        neutral if value is None or isinstance(value, Tensor) else value
        for value, neutral in zip(values, off, strict=True)
    )
    return (*arrays, *scalars)


def kernel_arrays(kernel: Any) -> Any:
    """An RDK kernel's arrays in the order of RdkTensors, and its constant leak."""
    if kernel is None:
        return None
    *tensors, constant_leak = kernel.tensors(torch.device("cpu"))
    return [array(tensor) for tensor in tensors], constant_leak


def is_low_rank(kernel: Any) -> bool:
    return kernel is not None and isinstance(kernel.tensors(torch.device("cpu")), RdkFactors)


def _tensor(values: Any) -> Tensor:
    return torch.from_numpy(np.asarray(values))


def row_stats(
    logits: Tensor,
    *,
    temperature: Any = None,
    top_k: Any = None,
    top_p: Any = None,
    min_p: Any = None,
    draft_to_target_ids: Tensor | None = None,
    flavour: str | None = None,
) -> Tensor:
    stats = module(flavour).row_stats(
        array(logits),
        DTYPE_CODES[logits.dtype],
        array(draft_to_target_ids),
        parameters(temperature, top_k, top_p, min_p),
    )
    return _tensor(stats)


class RejectionSample(NamedTuple):
    """As hetero_spec.ops.RejectionSample."""

    output_token_ids: Tensor
    num_accepted_tokens: Tensor
    status: Tensor


def rejection_sample(
    target_logits: Tensor,
    draft_token_ids: Tensor,
    cu_num_draft_tokens: Tensor,
    max_draft_tokens: int,
    *,
    draft_logits: Tensor | None = None,
    draft_stats: Tensor | None = None,
    target_to_draft_ids: Tensor | None = None,
    kernel: Any = None,
    draft_leaked_mass: Tensor | None = None,
    temperature: Any = None,
    top_k: Any = None,
    top_p: Any = None,
    min_p: Any = None,
    seeds: Tensor | None = None,
    positions: Tensor | None = None,
    uniform_samples: Tensor | None = None,
    rule: str = "token",
    flavour: str | None = None,
) -> RejectionSample:
    out = module(flavour).rejection_sample(
        array(target_logits),
        DTYPE_CODES[target_logits.dtype],
        array(draft_token_ids),
        array(cu_num_draft_tokens),
        max_draft_tokens,
        array(draft_logits),
        0 if draft_logits is None else DTYPE_CODES[draft_logits.dtype],
        array(draft_stats),
        array(target_to_draft_ids),
        parameters(temperature, top_k, top_p, min_p),
        array(seeds),
        array(positions),
        array(uniform_samples),
        rule == "block",
        kernel_arrays(kernel),
        array(draft_leaked_mass),
    )
    return RejectionSample(*(_tensor(values) for values in out))


def rejection_sample_probs(
    target_probs: Tensor,
    draft_probs: Tensor | None,
    draft_token_ids: Tensor,
    cu_num_draft_tokens: Tensor,
    max_draft_tokens: int,
    *,
    seeds: Tensor | None = None,
    positions: Tensor | None = None,
    uniform_samples: Tensor | None = None,
    rule: str = "token",
    flavour: str | None = None,
) -> RejectionSample:
    out = module(flavour).rejection_sample_probs(
        array(target_probs),
        array(draft_probs),
        array(draft_token_ids),
        array(cu_num_draft_tokens),
        max_draft_tokens,
        array(seeds),
        array(positions),
        array(uniform_samples),
        rule == "block",
    )
    return RejectionSample(*(_tensor(values) for values in out))


class DraftSample(NamedTuple):
    """As hetero_spec.ops.DraftSample."""

    target_token_ids: Tensor
    draft_token_ids: Tensor
    probs: Tensor
    stats: Tensor
    entropy: Tensor
    max_prob: Tensor
    leaked_mass: Tensor | None = None


def draft_sample(
    draft_logits: Tensor,
    draft_to_target_ids: Tensor | None = None,
    *,
    temperature: Any = None,
    top_k: Any = None,
    top_p: Any = None,
    min_p: Any = None,
    kernel: Any = None,
    target_to_draft_ids: Tensor | None = None,
    seeds: Tensor | None = None,
    positions: Tensor | None = None,
    uniform_samples: Tensor | None = None,
    flavour: str | None = None,
) -> DraftSample:
    if kernel is not None and draft_to_target_ids is not None and target_to_draft_ids is None:
        target_to_draft_ids = inverse_map(draft_to_target_ids, kernel.vocab_size)
    out = module(flavour).draft_sample(
        array(draft_logits),
        DTYPE_CODES[draft_logits.dtype],
        array(draft_to_target_ids),
        parameters(temperature, top_k, top_p, min_p),
        array(seeds),
        array(positions),
        array(uniform_samples),
        kernel_arrays(kernel),
        array(target_to_draft_ids),
    )
    *sample, leaked_mass = (_tensor(values) for values in out)
    return DraftSample(*sample, None if kernel is None else leaked_mass)


def remap_probs(
    draft_logits: Tensor,
    draft_to_target_ids: Tensor,
    target_vocab_size: int,
    *,
    temperature: Any = None,
    top_k: Any = None,
    top_p: Any = None,
    min_p: Any = None,
    flavour: str | None = None,
) -> Tensor:
    return _tensor(
        module(flavour).remap_probs(
            array(draft_logits),
            DTYPE_CODES[draft_logits.dtype],
            array(draft_to_target_ids),
            target_vocab_size,
            parameters(temperature, top_k, top_p, min_p),
        )
    )


def acceptance_overlap(
    target_logits: Tensor,
    draft_logits: Tensor,
    *,
    draft_stats: Tensor | None = None,
    target_to_draft_ids: Tensor | None = None,
    kernel: Any = None,
    temperature: Any = None,
    top_k: Any = None,
    top_p: Any = None,
    min_p: Any = None,
    flavour: str | None = None,
) -> Tensor:
    return _tensor(
        module(flavour).acceptance_overlap(
            array(target_logits),
            DTYPE_CODES[target_logits.dtype],
            array(draft_logits),
            DTYPE_CODES[draft_logits.dtype],
            array(draft_stats),
            array(target_to_draft_ids),
            parameters(temperature, top_k, top_p, min_p),
            kernel_arrays(kernel),
        )
    )


def rdk_redistribute(draft_probs: Tensor, kernel: Any, *, flavour: str | None = None) -> Tensor:
    low_rank: tuple[Any, ...] = (None, 0.0, 0.0)
    mixture = kernel
    if is_low_rank(kernel):
        parts = kernel.tensors(torch.device("cpu"))
        low_rank, mixture = (array(parts.factors), parts.scale, parts.lam), None
    return _tensor(module(flavour).rdk_redistribute(array(draft_probs), kernel_arrays(mixture), *low_rank))


OPS = (
    "row_stats",
    "rejection_sample",
    "rejection_sample_probs",
    "draft_sample",
    "remap_probs",
    "acceptance_overlap",
    "rdk_redistribute",
)
