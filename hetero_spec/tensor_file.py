# SPDX-License-Identifier: Apache-2.0
"""Arrays and a JSON description in one safetensors file that is whole, unaltered and of the format that was asked for.

A hash over everything is part of the file, so that one that was cut short or altered is an error and not wrong numbers.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from hetero_spec.files import write_whole

_HEADER = "hetero_spec"

Arrays = dict[str, NDArray[Any]]


def write_tensor_file(path: str | os.PathLike[str], arrays: Arrays, description: Mapping[str, Any]) -> None:
    """Write a file whole or not at all; the same content gives the same bytes.

    Parameters
    ----------
    path : path
    arrays : dict of arrays
        Contiguous.
    description : mapping
        JSON values; "format" names the format.

    Raises
    ------
    TypeError, ValueError   the description holds what JSON cannot
    OSError                 the file can't be written
    """
    from safetensors.numpy import save

    text = json.dumps(dict(description), sort_keys=True, allow_nan=False)
    # One entry only: safetensors writes several in no fixed order.
    header = json.dumps({"description": text, "sha256": _digest(arrays, text)})
    write_whole(path, save(arrays, metadata={_HEADER: header}))


def read_tensor_file(path: str | os.PathLike[str], kind: str, expected_format: str) -> tuple[dict[str, Any], Arrays]:
    """Read what `write_tensor_file` wrote: (description, arrays).

    Parameters
    ----------
    path : path
    kind : str
        What the file should be, for messages: "vocabulary map".
    expected_format : str

    Raises
    ------
    FileNotFoundError   no such file
    ValueError          cut short, altered, of another format, or no such file at all
    """
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such {kind}")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            # Looked at before the tensors: a foreign file may be large.
            description, text, sha256 = _parsed(metadata)
            found = description.get("format")
            if found != expected_format:
                raise ValueError(f"{path}: must be of format {expected_format!r}, got {found!r}")
            arrays: Arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except SafetensorError as error:
        raise ValueError(f"{path}: must be a complete {kind} ({error})") from None
    if sha256 != _digest(arrays, text):
        raise ValueError(f"{path}: content must match its hash, got another: the file was altered")
    return description, arrays


def _parsed(metadata: Mapping[str, str]) -> tuple[dict[str, Any], str, str | None]:
    """Description, its text and the hash; an empty description where there is none."""
    try:
        header = json.loads(metadata.get(_HEADER, "{}"))
        text = header["description"]
        description = json.loads(text)
        if isinstance(description, dict):
            return description, text, header.get("sha256")
    except (ValueError, TypeError, KeyError):
        pass
    return {}, "", None


def _digest(arrays: Arrays, description: str) -> str:
    digest = hashlib.sha256(description.encode())
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        digest.update(arrays[name].tobytes())
    return digest.hexdigest()
