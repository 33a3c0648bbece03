# SPDX-License-Identifier: Apache-2.0
"""The file of a kernel: safetensors with a JSON description.

Tensors: the kernel's parameters, by kind. The description holds kind, width, scalar parameters, the hashes of both
tokenizers and the facts of its calibration.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from hetero_spec.rdk.checks import fail
from hetero_spec.rdk.kernels import DenseSoftmaxKernel, DiagonalKernel, Kernel, LowRankKernel, MixKernel
from hetero_spec.rdk.sparse import SparseKernel
from hetero_spec.tensor_file import read_tensor_file, write_tensor_file

FORMAT = "hetero_spec rdk kernel 1"

Tensors = dict[str, Tensor]
Scalars = dict[str, float]


def save_kernel(kernel: Kernel, path: str | os.PathLike[str]) -> None:
    """Write a kernel to one file, whole or not at all; the same kernel gives the same bytes.

    Parameters
    ----------
    kernel : Kernel
        Its `target_sha256`, `drafter_sha256` and `calibration` are saved with it.
    path : path

    Raises
    ------
    TypeError    a kernel of unknown class, or a calibration that isn't made of JSON values
    OSError      the file can't be written
    """
    if type(kernel) not in _PARTS:
        known = ", ".join(sorted(cls.__name__ for cls in _PARTS))
        fail(TypeError, "save_kernel", "kernel", f"one of {known}", type(kernel).__name__)
    try:
        json.dumps(kernel.calibration, allow_nan=False)
    except (TypeError, ValueError) as error:
        fail(TypeError, "save_kernel", "calibration", "made of JSON values", error)
    tensors, scalars = _PARTS[type(kernel)](kernel)
    description = {
        "format": FORMAT,
        "kind": kernel.kind,
        "vocab_size": kernel.vocab_size,
        "parameters": scalars,
        "target_sha256": kernel.target_sha256,
        "drafter_sha256": kernel.drafter_sha256,
        "calibration": kernel.calibration,
        "clamped_mass": kernel.clamped_mass,
    }
    write_tensor_file(path, {name: tensor.cpu().numpy() for name, tensor in tensors.items()}, description)


def load_kernel(path: str | os.PathLike[str], target_tokenizer: Any = None, drafter_tokenizer: Any = None) -> Kernel:
    """Read a kernel written by `save_kernel`.

    Parameters
    ----------
    path : path
    target_tokenizer, drafter_tokenizer : optional
        What `hetero_spec.vocab.read_vocabulary` takes. When given, it must be the tokenizer that the kernel was made
        for: its ids would stand for other tokens, or its strength would be another drafter's.

    Raises
    ------
    VocabMismatchError   a tokenizer isn't the one that the kernel was made for, or the kernel doesn't say which one
    ValueError           not a kernel, cut short, altered, or of a kind that this version doesn't know
    FileNotFoundError    no such file
    """
    description, arrays = read_tensor_file(path, "rdk kernel", FORMAT)
    for side, tokenizer in (("target", target_tokenizer), ("drafter", drafter_tokenizer)):
        if tokenizer is not None:
            _check_made_for(path, side, tokenizer, description[f"{side}_sha256"])
    kind = description["kind"]
    if kind not in _MAKERS:
        raise ValueError(f"{path}: kind must be one of {', '.join(sorted(_MAKERS))}, got {kind!r}")
    kernel = _MAKERS[kind]({name: torch.from_numpy(array) for name, array in arrays.items()}, description["parameters"])
    if kernel.vocab_size != description["vocab_size"]:
        raise ValueError(f"{path}: kernel must be {description['vocab_size']} ids wide, got {kernel.vocab_size}")
    kernel.target_sha256, kernel.drafter_sha256 = description["target_sha256"], description["drafter_sha256"]
    kernel.calibration = description["calibration"]
    kernel.clamped_mass = description["clamped_mass"]
    return kernel


def _check_made_for(path: str | os.PathLike[str], side: str, tokenizer: Any, saved: str | None) -> None:
    from hetero_spec.vocab import VocabMismatchError, read_vocabulary

    given = read_vocabulary(tokenizer).sha256
    if given != saved:
        known = "an unknown one" if saved is None else f"sha256 {saved[:12]}"
        raise VocabMismatchError(
            f"{path}: {side} tokenizer must be the one that the kernel was made for ({known}), got {given[:12]}"
        )


def _present(**tensors: Tensor | None) -> Tensors:
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def _mix_parts(kernel: MixKernel) -> tuple[Tensors, Scalars]:
    assert kernel.leak is not None
    is_constant = kernel.constant_leak == kernel.constant_leak
    return _present(lam=kernel.leak[:1] if is_constant else kernel.leak, prior=kernel.prior), {}


def _mix(tensors: Tensors, scalars: Scalars) -> Kernel:
    lam = tensors["lam"]
    return MixKernel(float(lam[0]) if len(lam) == 1 else lam, tensors["prior"])


def _sparse_parts(kernel: SparseKernel) -> tuple[Tensors, Scalars]:
    names = ("row_offsets", "column_ids", "weights", "spread", "leak", "prior")
    return _present(**{name: getattr(kernel, name) for name in names}), {}


_PARTS: dict[type[Kernel], Callable[[Any], tuple[Tensors, Scalars]]] = {
    MixKernel: _mix_parts,
    DiagonalKernel: lambda kernel: ({"variance": kernel.variance}, {"tau": kernel.tau}),
    SparseKernel: _sparse_parts,
    LowRankKernel: lambda kernel: ({"factors": kernel.factors}, {"tau": kernel.tau, "lam": kernel.lam}),
    DenseSoftmaxKernel: lambda kernel: ({"affinity": kernel.affinity}, {"tau": kernel.tau}),
}
_MAKERS: dict[str, Callable[[Tensors, Scalars], Kernel]] = {
    "mix": _mix,
    "diagonal": lambda tensors, scalars: DiagonalKernel(tensors["variance"], scalars["tau"]),
    "sparse": lambda tensors, scalars: SparseKernel(**tensors),  # type: ignore[arg-type]
    "low_rank": lambda tensors, scalars: LowRankKernel.from_factors(tensors["factors"], scalars["tau"], scalars["lam"]),
    "dense_softmax": lambda tensors, scalars: DenseSoftmaxKernel(tensors["affinity"], scalars["tau"]),
}
