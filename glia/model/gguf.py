"""The header of a GGUF file, walked as if its author were hostile. Never the tensors.

    "GGUF" | u32 version | u64 tensors | u64 keys
    keys:    string key, u32 type, value
    tensors: string name, u32 dims, u64 each, u32 type, u64 offset
    padding to the alignment | tensor bytes

Every count and length is checked against what is left of the file before it is
believed. What a file must have to be loaded: its tensors inside it.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import BinaryIO

from glia.errors import BadModelFile
from glia.model.read import MIB, open_regular

_VERSIONS = (2, 3)
_MAX_KEYS = 4096
_MAX_TENSORS = 65536
_MAX_NAME_BYTES = 1024
_MAX_DIMS = 4
_MAX_KEPT_BYTES = 4096
_MAX_STRINGS = 2**20
_BUFFER_BYTES = MIB

_STRING, _ARRAY = 8, 9
_SCALARS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?",
    10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip

# type number: (elements of one block, its bytes)
_TENSOR_TYPES = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34),
    9: (32, 40), 10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210),
    15: (256, 292), 16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18),
    21: (256, 110), 22: (256, 82), 23: (256, 136), 24: (1, 1), 25: (1, 2), 26: (1, 4),
    27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2), 34: (256, 54), 35: (256, 66), 39: (32, 17),
    40: (64, 36), 41: (128, 18),
}  # fmt: skip

Value = int | float | bool | str


@dataclass(frozen=True)
class GgufHeader:
    """What a GGUF file says of itself.

    Attributes:
        values: its scalar keys, and strings up to 4 KiB.
        num_tensors: how many tensors it has, all of them inside the file.
        num_weights: their elements together.
    """

    values: dict[str, Value]
    num_tensors: int
    num_weights: int

    @property
    def model_type(self) -> str:
        """general.architecture, "" where it says none."""
        return str(self.values.get("general.architecture", ""))


def read_gguf_header(path: Path) -> GgufHeader:
    """The checked header. Raises: BadModelFile."""
    with open_regular(path) as file:
        walk = _Walk(file, str(path))
        try:
            return _header(walk)
        except struct.error as error:
            raise walk.bad(f"bad header: {error}") from error


class _Walk:
    """A file read forward through one buffer; every read is bounded by what is left."""

    def __init__(self, file: BinaryIO, what: str) -> None:
        self._file, self._what = file, what
        self.size = os.fstat(file.fileno()).st_size
        self._buffer, self._at, self._base = b"", 0, 0

    def bad(self, why: str) -> BadModelFile:
        return BadModelFile(
            f"{self._what}: {why}", hint="get the file again: it is not what its author wrote"
        )

    @property
    def position(self) -> int:
        return self._base + self._at

    def need(self, num_bytes: int) -> None:
        if num_bytes > self.size - self.position:
            raise self.bad(f"truncated: {self.size:,} bytes, its header needs more")

    def take(self, num_bytes: int) -> bytes:
        self.need(num_bytes)
        if self._at + num_bytes > len(self._buffer):
            self._base, rest = self.position, self._buffer[self._at :]
            self._buffer = rest + self._file.read(max(_BUFFER_BYTES, num_bytes) - len(rest))
            self._at = 0
            if num_bytes > len(self._buffer):
                raise self.bad("truncated while it was read")
        data = self._buffer[self._at : self._at + num_bytes]
        self._at += num_bytes
        return data

    def skip(self, num_bytes: int) -> None:
        self.need(num_bytes)
        if self._at + num_bytes <= len(self._buffer):
            self._at += num_bytes
            return
        self._base, self._buffer, self._at = self.position + num_bytes, b"", 0
        self._file.seek(self._base)

    def scalar(self, fmt: str) -> Value:
        value: Value = struct.unpack(fmt, self.take(struct.calcsize(fmt)))[0]
        return value

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def text(self, max_bytes: int) -> str:
        length = self.u64()
        if length > max_bytes:
            raise self.bad(f"a name of {length:,} bytes")
        try:
            return self.take(length).decode()
        except UnicodeDecodeError as error:
            raise self.bad("a name is not UTF-8") from error


def _header(walk: _Walk) -> GgufHeader:
    if walk.take(4) != b"GGUF":
        raise walk.bad("not a GGUF file")
    version = walk.u32()
    if version not in _VERSIONS:
        raise walk.bad(f"GGUF version {version}, known are {_VERSIONS}")
    num_tensors, num_keys = walk.u64(), walk.u64()
    if num_keys > _MAX_KEYS or not 1 <= num_tensors <= _MAX_TENSORS:
        raise walk.bad(f"{num_keys:,} keys and {num_tensors:,} tensors cannot be")
    values = dict(_values(walk, num_keys))
    ends, sizes = zip(*(_tensor(walk) for _ in range(num_tensors)), strict=True)
    alignment = values.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment not in {2**n for n in range(3, 17)}:
        raise walk.bad(f"alignment {alignment!r} cannot be")
    start = -(-walk.position // alignment) * alignment
    if start + max(ends) > walk.size:
        raise walk.bad(f"truncated: {walk.size:,} of {start + max(ends):,} bytes")
    return GgufHeader(values, num_tensors, sum(sizes))


def _values(walk: _Walk, num_keys: int) -> Iterator[tuple[str, Value]]:
    for _ in range(num_keys):
        key, kind = walk.text(_MAX_NAME_BYTES), walk.u32()
        if kind in _SCALARS:
            yield key, walk.scalar(_SCALARS[kind])
        elif kind == _STRING:
            data = _string(walk)
            if data is not None:
                yield key, data
        elif kind == _ARRAY:
            _skip_array(walk)
        else:
            raise walk.bad(f"key {key!r} has the unknown type {kind}")


def _string(walk: _Walk) -> str | None:
    length = walk.u64()
    if length > _MAX_KEPT_BYTES:
        walk.skip(length)
        return None
    return walk.take(length).decode(errors="replace")


def _skip_array(walk: _Walk) -> None:
    kind, count = walk.u32(), walk.u64()
    if kind in _SCALARS:
        walk.skip(count * struct.calcsize(_SCALARS[kind]))
    elif kind == _STRING:
        if count > _MAX_STRINGS:
            raise walk.bad(f"an array of {count:,} strings")
        walk.need(8 * count)
        for _ in range(count):
            walk.skip(walk.u64())
    else:
        raise walk.bad(f"an array of the unknown type {kind}")


def _tensor(walk: _Walk) -> tuple[int, int]:
    """Where a tensor ends, counted from the start of the tensors' bytes, and its elements."""
    name = walk.text(_MAX_NAME_BYTES)
    num_dims = walk.u32()
    if num_dims > _MAX_DIMS:
        raise walk.bad(f"tensor {name!r} has {num_dims} dimensions")
    dims = [walk.u64() for _ in range(num_dims)]
    kind, offset = walk.u32(), walk.u64()
    if kind not in _TENSOR_TYPES:
        raise walk.bad(f"tensor {name!r} has the unknown type {kind}")
    per_block, block_bytes = _TENSOR_TYPES[kind]
    return offset + -(-prod(dims) // per_block) * block_bytes, prod(dims)
