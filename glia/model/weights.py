"""Which files hold a model's weights, and the digest of each tensor, whatever the sharding."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
from blake3 import blake3
from msgspec import Meta

from glia.errors import BadModelFile
from glia.model.read import MIB, open_regular, read_bounded
from glia.model.safetensors import Tensor, header_of

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")

_INDEX_BYTES = 16 * MIB
_MAX_SHARDS = 4096
_READ_BYTES = 16 * MIB

Progress = Callable[[int, int], None]
_Name = Annotated[str, Meta(min_length=1, max_length=255)]


class _Index(msgspec.Struct):
    weight_map: dict[str, _Name]


_index = msgspec.json.Decoder(_Index)


@dataclass(frozen=True, slots=True)
class TensorDigest:
    """A tensor's name, dtype, shape and the BLAKE3 of its bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    digest: bytes

    def encode(self) -> bytes:
        """The canonical bytes (spec/6-model-id.md)."""
        name, dtype = self.name.encode(), self.dtype.encode()
        dims = struct.pack(f"<{len(self.shape)}Q", *self.shape)
        head = struct.pack("<HBB", len(name), len(dtype), len(self.shape))
        return head + name + dtype + dims + self.digest


def weight_files(model_dir: Path) -> list[Path]:
    """The safetensors files transformers would load, sorted by name.

    Raises: BadModelFile where there are none, naming pickles where those are what there is.
    """
    if (model_dir / SINGLE).exists():
        return [model_dir / SINGLE]
    if not (model_dir / INDEX).exists():
        raise BadModelFile(f"{model_dir}: {_why_none(model_dir)}", hint=_HINT)
    try:
        index = _index.decode(read_bounded(model_dir / INDEX, _INDEX_BYTES))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadModelFile(f"{model_dir / INDEX}: {error}") from error
    names = set(index.weight_map.values())
    for name in names:
        if "/" in name or "\0" in name or not name.endswith(".safetensors"):
            raise BadModelFile(f"{model_dir / INDEX}: not a safetensors file name: {name[:80]!r}")
    if not 1 <= len(names) <= _MAX_SHARDS:
        raise BadModelFile(f"{model_dir / INDEX}: names {len(names):,} files")
    return [model_dir / name for name in sorted(names)]


_HINT = f"a model directory has {SINGLE} or {INDEX}; convert other formats to safetensors first"


def _why_none(model_dir: Path) -> str:
    try:
        found = sorted(p.name for p in model_dir.iterdir() if p.suffix.lower() in PICKLES)
    except OSError as error:
        return error.strerror or str(error)
    if found:
        return f"{found[0]} is a pickle, which can run code: refused unread"
    return "no safetensors weights here"


def tensor_digests(
    files: Iterable[Path], on_progress: Progress | None = None
) -> list[TensorDigest]:
    """The digests of all tensors of some files, sorted by name.

    Args:
        on_progress: called with (bytes done, bytes in all).
    Raises: BadModelFile; also where two files hold a tensor of one name.
    """
    opened = [(path, _header(path)) for path in files]
    total = sum(t.end - t.start for _, tensors in opened for t in tensors)
    meter = _Meter(total, on_progress)
    digests: dict[str, TensorDigest] = {}
    for path, tensors in opened:
        for digest in _digests_of(path, tensors, meter):
            if digest.name in digests:
                raise BadModelFile(f"{path}: tensor {digest.name!r} is in another file too")
            digests[digest.name] = digest
    return sorted(digests.values(), key=lambda digest: digest.name.encode())


class _Meter:
    def __init__(self, total: int, on_progress: Progress | None) -> None:
        self._done, self._total, self._tell = 0, total, on_progress

    def add(self, size: int) -> None:
        self._done += size
        if self._tell is not None:
            self._tell(self._done, self._total)


def _header(path: Path) -> list[Tensor]:
    with open_regular(path) as file:
        return header_of(file, str(path))


def _digests_of(path: Path, tensors: list[Tensor], meter: _Meter) -> Iterable[TensorDigest]:
    # Read, not mapped: a file that is truncated meanwhile must be an error, not a SIGBUS.
    buffer = memoryview(bytearray(_READ_BYTES))
    with open_regular(path) as file:
        for tensor in tensors:
            hasher = blake3(max_threads=blake3.AUTO)
            at = tensor.start
            file.seek(at)
            while at < tensor.end:
                got = file.readinto(buffer[: min(len(buffer), tensor.end - at)])  # type: ignore[attr-defined]
                if not got:
                    raise BadModelFile(f"{path}: truncated while it was read")
                hasher.update(buffer[:got])
                at += got
                meter.add(got)
            yield TensorDigest(tensor.name, tensor.dtype, tensor.shape, hasher.digest())
