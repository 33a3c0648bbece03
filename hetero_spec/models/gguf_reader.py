# SPDX-License-Identifier: Apache-2.0
"""Reads GGUF files: the key-value header, the tensor index, and tensors as float32.

The header is walked once with `struct`, so a vocabulary of 262,144 strings takes tenths of a second. Tensor data stays
in the memory map until it is asked for. A file that comes in parts is read in place, without putting it together on
disk.

Source: the GGUF specification (ggml, docs/gguf.md), versions 2 and 3, little-endian. De-quantisation is done by the
`gguf` package, whose tables follow ggml's.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_DIMENSIONS = 4  # ggml's own limit; a larger number means that the file is damaged

_STRING, _ARRAY = 8, 9
# GGUF value type -> numpy dtype (little-endian); 8 and 9 are strings and arrays.
_SCALARS = dict(enumerate(("<u1", "<i1", "<u2", "<i2", "<u4", "<i4", "<f4", "?"))) | {10: "<u8", 11: "<i8", 12: "<f8"}


class GGUFError(ValueError):
    """The file is not GGUF, or is damaged."""


@dataclass(frozen=True)
class TensorInfo:
    """Where a tensor lies and how it is stored.

    shape is in row-major order (numpy's and torch's), the reverse of the order in the file.
    """

    name: str
    shape: tuple[int, ...]
    ggml_type: int
    offset: int  # bytes from the start of the file
    num_bytes: int


class SplicedFile:
    """Read-only bytes of one file, or of several that follow each other, as if they were one."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._maps: list[tuple[int, mmap.mmap]] = []  # (start, map), in order
        self.size = 0
        try:
            for path in paths:
                with path.open("rb") as file:
                    num_bytes = path.stat().st_size
                    if num_bytes == 0:  # an empty file cannot be mapped, and adds nothing
                        continue
                    self._maps.append((self.size, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))
                    self.size += num_bytes
        except BaseException:
            self.close()
            raise

    def view(self, start: int, stop: int) -> memoryview | bytes:
        """Bytes [start, stop): a view where they lie in one part, a copy where they cross from one to the next."""
        pieces = []
        for part_start, part in self._maps:
            first, last = max(start, part_start), min(stop, part_start + len(part))
            if first < last:
                pieces.append(memoryview(part)[first - part_start : last - part_start])
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        """Unmap. A map that is still looked at through a view goes when the last view does."""
        for _, part in self._maps:
            try:
                part.close()
            except BufferError:
                continue
        self._maps.clear()


class GGUFFile:
    """A GGUF file, or the parts of one.

    Parameters
    ----------
    paths : Path or sequence of Path
        The file, or its parts in order.
    header_only : bool
        Read the metadata alone and leave `tensors` empty: enough for a vocabulary, needs no package beside numpy, and
        of a file in parts the first one is then enough.

    Attributes
    ----------
    metadata : dict
        Keys as in the file. Numbers and booleans are Python's, arrays of numbers are numpy arrays, arrays of strings
        are `list[bytes]` (vocabularies need not be UTF-8); a single string is `str`.
    tensors : dict[str, TensorInfo]

    Raises
    ------
    GGUFError
        Not GGUF, an unknown version, or a file that ends before what its header announces.
    OSError
        The file cannot be opened.
    """

    def __init__(self, paths: Path | Sequence[Path], *, header_only: bool = False) -> None:
        self.paths = [paths] if isinstance(paths, Path) else list(paths)
        self._bytes = SplicedFile(self.paths)
        self.metadata: dict[str, Any] = {}
        self.tensors: dict[str, TensorInfo] = {}
        try:
            self._read_header(header_only)
        except (struct.error, UnicodeDecodeError, OverflowError, MemoryError, RecursionError) as error:
            self.close()
            raise GGUFError(f"{self.paths[0]}: damaged or cut short: {error}") from None
        except GGUFError:
            self.close()
            raise

    def __enter__(self) -> GGUFFile:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Unmap the file."""
        self.close()

    def close(self) -> None:
        """Unmap the file."""
        self._bytes.close()

    def strings(self, key: str) -> list[bytes]:
        """Return the metadata array of strings under `key`."""
        value = self.metadata.get(key)
        if not isinstance(value, list):
            raise GGUFError(f"{self.paths[0]}: {key} must be an array of strings, got {type(value).__name__}")
        return value

    def tensor(self, name: str) -> NDArray[np.float32]:
        """Return a tensor's values in float32, [shape], as an array of its own."""
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize

        info = self.tensors[name]
        raw = np.frombuffer(self._bytes.view(info.offset, info.offset + info.num_bytes), dtype=np.uint8)
        kind = GGMLQuantizationType(info.ggml_type)
        if kind == GGMLQuantizationType.F32:
            return raw.view("<f4").reshape(info.shape).astype(np.float32, copy=True)
        values = dequantize(raw.reshape(*info.shape[:-1], -1), kind)
        return np.ascontiguousarray(values, dtype=np.float32).reshape(info.shape)

    # -- header --------------------------------------------------------------------------------------------------------

    def _read_header(self, header_only: bool) -> None:
        # The header lies before the data; where the file comes in parts it is in the first one (checked: reading past
        # the end of this buffer raises).
        buffer = self._bytes.view(0, self.paths[0].stat().st_size)
        if len(buffer) < 24 or bytes(buffer[:4]) != MAGIC:
            raise GGUFError(f"{self.paths[0]}: not a GGUF file")
        version, num_tensors, num_values = struct.unpack_from("<IQQ", buffer, 4)
        if version not in VERSIONS:
            raise GGUFError(f"{self.paths[0]}: GGUF version must be one of {VERSIONS}, got {version}")
        cursor = _Cursor(buffer, 24)
        for _ in range(num_values):
            key = cursor.string().decode("utf-8")
            self.metadata[key] = cursor.value(cursor.number("<I"))
        alignment = self.metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment <= 0:
            raise GGUFError(f"{self.paths[0]}: general.alignment must be a positive integer, got {alignment!r}")

        if not header_only:
            self._read_tensor_index(cursor, num_tensors, alignment)

    def _read_tensor_index(self, cursor: _Cursor, num_tensors: int, alignment: int) -> None:
        from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

        relative: list[tuple[str, tuple[int, ...], int, int]] = []
        for _ in range(num_tensors):
            name = cursor.string().decode("utf-8")
            num_dimensions = cursor.number("<I")
            if num_dimensions > MAX_DIMENSIONS:
                raise GGUFError(f"{self.paths[0]}: {name} must have at most 4 dimensions, got {num_dimensions}")
            shape = tuple(cursor.number("<Q") for _ in range(num_dimensions))[::-1]
            relative.append((name, shape, cursor.number("<I"), cursor.number("<Q")))

        data_start = -(-cursor.position // alignment) * alignment
        for name, shape, ggml_type, offset in relative:
            try:
                block_values, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(ggml_type)]
            except (ValueError, KeyError):
                raise GGUFError(f"{self.paths[0]}: {name} is of an unknown type ({ggml_type})") from None
            if shape and shape[-1] % block_values:
                raise GGUFError(f"{self.paths[0]}: rows of {name} must hold {block_values} values or a multiple")
            num_bytes = math.prod(shape) // block_values * block_bytes
            info = TensorInfo(name, shape, ggml_type, data_start + offset, num_bytes)
            if info.offset + info.num_bytes > self._bytes.size:
                raise GGUFError(
                    f"{self.paths[0]}: cut short: {name} ends at byte {info.offset + info.num_bytes}, "
                    f"the file at byte {self._bytes.size}"
                )
            self.tensors[name] = info


class _Cursor:
    """Walks the header. Whatever runs past the end raises struct.error."""

    def __init__(self, buffer: memoryview | bytes, position: int) -> None:
        self.buffer = buffer
        self.position = position

    def number(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self.buffer, self.position)
        self.position += struct.calcsize(form)
        return int(value)

    def take(self, num_bytes: int) -> memoryview | bytes:
        stop = self.position + num_bytes
        if stop > len(self.buffer):
            raise struct.error(f"{num_bytes} bytes announced at byte {self.position}, {len(self.buffer)} in all")
        piece = self.buffer[self.position : stop]
        self.position = stop
        return piece

    def string(self) -> bytes:
        return bytes(self.take(self.number("<Q")))

    def strings(self, count: int) -> list[bytes]:
        # The one hot loop: locals only, one unpack and one slice per string.
        buffer, position, unpack = self.buffer, self.position, struct.Struct("<Q").unpack_from
        size = len(buffer)
        result = []
        for _ in range(count):
            stop = position + 8 + unpack(buffer, position)[0]
            if stop > size:
                raise struct.error(f"a string ends at byte {stop}, {size} in all")
            result.append(bytes(buffer[position + 8 : stop]))
            position = stop
        self.position = position
        return result

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string().decode("utf-8")
        if kind == _ARRAY:
            item_kind, count = self.number("<I"), self.number("<Q")
            if item_kind == _STRING:
                return self.strings(count)
            if item_kind == _ARRAY:
                return [self.value(_ARRAY) for _ in range(count)]
            return self._numbers(item_kind, count)
        return self._numbers(kind, 1)[0].item()

    def _numbers(self, kind: int, count: int) -> NDArray[Any]:
        if kind not in _SCALARS:
            raise struct.error(f"unknown value type {kind} at byte {self.position}")
        dtype = np.dtype(_SCALARS[kind])
        return np.frombuffer(bytes(self.take(count * dtype.itemsize)), dtype=dtype)


def file_blocks(paths: Sequence[Path], block_bytes: int = 1 << 22) -> Iterator[bytes]:
    """Yield the bytes of the files, one after the other, in blocks."""
    for path in paths:
        with path.open("rb") as file:
            while block := file.read(block_bytes):
                yield block


def sha256_of(paths: Sequence[Path], on_bytes: Callable[[int], None] | None = None) -> str:
    """Return the sha256 (hexadecimal) of the files taken as one; `on_bytes` hears how many bytes each block had."""
    digest = hashlib.sha256()
    for block in file_blocks(paths):
        digest.update(block)
        if on_bytes is not None:
            on_bytes(len(block))
    return digest.hexdigest()
