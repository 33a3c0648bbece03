# SPDX-License-Identifier: Apache-2.0
"""Loads the compiled module, `hetero_spec/_C.abi3.so`, which registers the ops with torch."""

from pathlib import Path

import torch

MODULE_PATH = Path(__file__).resolve().parent.parent / "_C.abi3.so"

if not MODULE_PATH.exists():
    raise ImportError(
        f"hetero_spec: the compiled module {MODULE_PATH.name} is not beside the package. Build it: "
        "`pip install -e . --no-build-isolation` in the source folder, or reinstall hetero-spec."
    )
torch.ops.load_library(MODULE_PATH)  # type: ignore[no-untyped-call]


def has_cuda() -> bool:
    """Whether CUDA kernels were built and this torch finds a device to run them on."""
    registered = torch._C._dispatch_has_kernel_for_dispatch_key("hetero_spec::row_stats", "CUDA")
    return bool(registered and torch.cuda.is_available())
