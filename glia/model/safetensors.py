"""The header of a safetensors file, read as if its author were hostile. Never the tensors.

    u64 little-endian header length | header: JSON | tensor bytes, without gaps

The format has no code in it; what must be checked are lengths: the header is capped
before it is read, and every offset must agree with its dtype and shape and tile the
rest of the file exactly.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec
from msgspec import Meta

from glia.errors import BadModelFile
from glia.model.read import MIB, open_regular

MAX_HEADER_BYTES = 8 * MIB
MAX_NAME_BYTES = 1024
MAX_TENSORS = 65536
MAX_DIMS = 8

DTYPE_BYTES = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E5M2": 1,
    "F8_E4M3": 1,
    "U16": 2,
    "I16": 2,
    "F16": 2,
    "BF16": 2,
    "U32": 4,
    "I32": 4,
    "F32": 4,
    "U64": 8,
    "I64": 8,
    "F64": 8,
}

_Size = Annotated[int, Meta(ge=0, le=2**53)]


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    dtype: Annotated[str, Meta(max_length=16)]
    shape: Annotated[list[_Size], Meta(max_length=MAX_DIMS)]
    data_offsets: tuple[_Size, _Size]


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor: where its bytes stand in the file, [start, end)."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


_outer = msgspec.json.Decoder(dict[str, msgspec.Raw])
_entry = msgspec.json.Decoder(_Entry)
_metadata = msgspec.json.Decoder(dict[str, str])


def read_header(path: Path) -> list[Tensor]:
    """The tensors of a safetensors file, sorted by where they stand.

    Raises: BadModelFile.
    """
    with open_regular(path) as file:
        return header_of(file, str(path))


def header_of(file: BinaryIO, what: str) -> list[Tensor]:
    """As read_header, of an open file at its start."""
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > size - 8:
        raise BadModelFile(f"{what}: truncated: its header does not fit", hint=_HINT)
    if length > MAX_HEADER_BYTES:
        raise BadModelFile(f"{what}: a header of {length:,} bytes, at most {MAX_HEADER_BYTES:,}")
    header = file.read(length)
    try:
        tensors = _parse(header, 8 + length)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise BadModelFile(f"{what}: bad safetensors header: {error}", hint=_HINT) from error
    end = tensors[-1].end if tensors else 8 + length
    if end != size:
        raise BadModelFile(f"{what}: {size:,} bytes, but its header says {end:,}", hint=_HINT)
    return tensors


_HINT = "get the file again: it is not what its author wrote"


def _parse(header: bytes, base: int) -> list[Tensor]:
    raw = _outer.decode(header)
    if "__metadata__" in raw:
        _metadata.decode(raw.pop("__metadata__"))
    if len(raw) > MAX_TENSORS:
        raise ValueError(f"{len(raw):,} tensors, at most {MAX_TENSORS:,}")
    tensors = [_tensor(name, _entry.decode(value), base) for name, value in raw.items()]
    tensors.sort(key=lambda tensor: (tensor.start, tensor.end))
    at = base
    for tensor in tensors:
        if tensor.start != at:
            raise ValueError(f"tensor {tensor.name!r} overlaps another or leaves a gap")
        at = tensor.end
    return tensors


def _tensor(name: str, entry: _Entry, base: int) -> Tensor:
    if not 1 <= len(name.encode()) <= MAX_NAME_BYTES:
        raise ValueError(f"a tensor's name has 1 to {MAX_NAME_BYTES} bytes")
    item = DTYPE_BYTES.get(entry.dtype)
    if item is None:
        raise ValueError(f"tensor {name!r} has the unknown dtype {entry.dtype!r}")
    start, end = entry.data_offsets
    if end - start != prod(entry.shape) * item:
        raise ValueError(f"tensor {name!r}: its offsets do not fit its dtype and shape")
    return Tensor(name, entry.dtype, tuple(entry.shape), base + start, base + end)
