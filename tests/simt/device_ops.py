# SPDX-License-Identifier: Apache-2.0
"""The ops of hetero_spec.ops with their CUDA sources on the simulated device behind them (CPU tensors in and out).

The Python side is the package's own; its calls of torch.ops.hetero_spec are what is caught and sent to the simulated
device. Which build runs is HETERO_SPEC_SIMT_FLAVOUR (plain, asan, tsan, traffic) or the argument `flavour`.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from hetero_spec import ops

from .conftest import BUILD, build

DTYPE_CODES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}
NUM_KERNEL_PARTS = 10
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
    tensor = tensor.detach()
    return tensor.view(torch.int16).numpy() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor.numpy()


def arrays(tensors: Sequence[Any]) -> list[Any]:
    return [array(tensor) for tensor in tensors]


def rows(logits: Tensor | None) -> tuple[Any, int]:
    """A matrix of any float type and the number of its type."""
    return array(logits), 0 if logits is None else DTYPE_CODES[logits.dtype]


def parameters(arguments: Sequence[Any]) -> tuple[Any, ...]:
    """The eight sampling arguments of a schema: four optional tensors, four scalars."""
    return (*arrays(arguments[:4]), *arguments[4:])


def kernel(
    tensors: Sequence[Tensor], parts: int, constant_leak: float, factors: Tensor | None, scale: float, lam: float
) -> Any:
    """The six arguments of a schema that are an RDK kernel: a mixture as all its arrays, None where it has none."""
    mixture = None
    if parts >= 0:
        given = iter(tensors)
        mixture = [array(next(given)) if parts >> bit & 1 else None for bit in range(NUM_KERNEL_PARTS)]
    return mixture, constant_leak, array(factors), scale, lam


# How the arguments of each schema (csrc/ops.cpp) become those of csrc/simt/python/<op>.cpp.
def _row_stats(run: Callable[..., Any], logits: Tensor, draft_to_target_ids: Tensor | None, *params: Any) -> Any:
    return run(*rows(logits), array(draft_to_target_ids), parameters(params))


def _remap_probs(run: Callable[..., Any], logits: Tensor, ids: Tensor, target_vocab_size: int, *params: Any) -> Any:
    return run(*rows(logits), array(ids), target_vocab_size, parameters(params))


def _draft_sample(
    run: Callable[..., Any], logits: Tensor, ids: Tensor | None, inverse: Tensor | None, *rest: Any
) -> Any:
    return run(
        *rows(logits), array(ids), parameters(rest[:8]), *arrays(rest[8:11]), kernel(*rest[11:17]), array(inverse)
    )


def _rejection_sample(run: Callable[..., Any], target_logits: Tensor, *rest: Any) -> Any:
    ids, offsets, max_draft_tokens, draft_logits, draft_stats, target_to_draft_ids = rest[:6]
    params, random, rdk, (leaked_mass, rule) = rest[6:14], rest[14:17], rest[17:23], rest[23:]
    return run(
        *rows(target_logits),
        *arrays((ids, offsets)),
        max_draft_tokens,
        *rows(draft_logits),
        *arrays((draft_stats, target_to_draft_ids)),
        parameters(params),
        *arrays(random),
        rule == 1,
        kernel(*rdk),
        array(leaked_mass),
    )


def _rejection_sample_probs(run: Callable[..., Any], *arguments: Any) -> Any:
    *tensors, max_draft_tokens, seeds, positions, uniform_samples, rule = arguments
    return run(*arrays(tensors), max_draft_tokens, *arrays((seeds, positions, uniform_samples)), rule == 1)


def _acceptance_overlap(run: Callable[..., Any], target_logits: Tensor, draft_logits: Tensor, *rest: Any) -> Any:
    stats_and_map, params, rdk = rest[:2], rest[2:10], rest[10:]
    return run(*rows(target_logits), *rows(draft_logits), *arrays(stats_and_map), parameters(params), kernel(*rdk))


def _rdk_redistribute(run: Callable[..., Any], draft_probs: Tensor, *rest: Any) -> Any:
    return run(array(draft_probs), kernel(*rest))


_CALLS = {
    "row_stats": _row_stats,
    "rejection_sample": _rejection_sample,
    "rejection_sample_probs": _rejection_sample_probs,
    "draft_sample": _draft_sample,
    "remap_probs": _remap_probs,
    "acceptance_overlap": _acceptance_overlap,
    "rdk_redistribute": _rdk_redistribute,
}
OPS = tuple(_CALLS)


class OnDevice(TorchDispatchMode):
    """Under it the registered ops run on the simulated device; .out overloads too."""

    def __init__(self, flavour: str | None) -> None:
        super().__init__()
        self.flavour = flavour

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace != "hetero_spec":
            return func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        found = _CALLS[name](getattr(module(self.flavour), name), *args)
        results = [torch.from_numpy(np.asarray(values)) for values in (found if isinstance(found, tuple) else (found,))]
        if not kwargs:
            return tuple(results) if isinstance(found, tuple) else results[0]
        for given, result in zip(kwargs.values(), results, strict=True):
            if given is not None:
                given.copy_(result)
        return None


def _on_device(name: str) -> Callable[..., Any]:
    """The op of hetero_spec.ops; `flavour` chooses the build."""

    def call(*arguments: Any, flavour: str | None = None, **keywords: Any) -> Any:
        with OnDevice(flavour):
            return getattr(ops, name)(*arguments, **keywords)

    return call


row_stats = _on_device("row_stats")
rejection_sample = _on_device("rejection_sample")
rejection_sample_probs = _on_device("rejection_sample_probs")
draft_sample = _on_device("draft_sample")
remap_probs = _on_device("remap_probs")
acceptance_overlap = _on_device("acceptance_overlap")
rdk_redistribute = _on_device("rdk_redistribute")
