"""A profile: everything but the model that two nodes must agree on before blocks can be equal.

block_size, storage scheme, position mode and the shapes of the layers that own
K/V. Its digest goes into every block, window and prefix key. See spec/2-profile.md.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

from glia.errors import ManifestError
from glia.graph.ids import ProfileId, derive
from glia.graph.tokens import TOKEN_BYTES

_CONTEXT = "glia 2026 v1 profile"
_FIXED = struct.Struct("<4sHBBHH")
_LAYER = struct.Struct("<HHH")
_MAGIC = b"GPRF"
_VERSION = 1

MAX_BLOCK_SIZE = 256
MAX_LAYERS = 1024
MAX_KV_HEADS = 1024
MAX_HEAD_DIM = 1024
MAX_PAYLOAD_BYTES = 16 * 1024 * 1024
MAX_POSITION = 2**48
HEADER_FIXED_BYTES = 128


class KvScheme(IntEnum):
    """How K and V are stored. The numbers are in every block: never reuse one."""

    F32 = 1
    F16 = 2
    BF16 = 3

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return 4 if self is KvScheme.F32 else 2

    @property
    def word(self) -> str:
        """As manifests write it: f32, f16, bf16."""
        return self.name.lower()


class PositionMode(IntEnum):
    """Whether K is stored before or after rotation. The numbers are in every block."""

    RELATIVE = 1  # K unrotated, no position hashed
    ABSOLUTE = 2  # K as the engine stores it, with its position anchor

    @property
    def word(self) -> str:
        """As manifests write it: relative, absolute."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class LayerShape:
    """The K/V shape of one layer that owns K/V."""

    layer: int
    kv_heads: int
    head_dim: int


@dataclass(frozen=True)
class Profile:
    """What must agree, besides the model, before two blocks may be equal.

    Raises (on construction): ManifestError for a value outside the limits.
    """

    block_size: int
    scheme: KvScheme
    mode: PositionMode
    layers: tuple[LayerShape, ...]

    def __post_init__(self) -> None:
        _check_limits(self)

    @cached_property
    def profile_id(self) -> ProfileId:
        """The digest that blocks, windows and prefix keys carry."""
        return ProfileId(derive(_CONTEXT, self.encode()))

    def encode(self) -> bytes:
        """The canonical bytes (spec/2-profile.md)."""
        fixed = _FIXED.pack(
            _MAGIC, _VERSION, self.scheme, self.mode, self.block_size, len(self.layers)
        )
        return fixed + b"".join(_LAYER.pack(s.layer, s.kv_heads, s.head_dim) for s in self.layers)

    @property
    def header_bytes(self) -> int:
        """Bytes of a block's header: 128 and the tokens; a multiple of 64."""
        return HEADER_FIXED_BYTES + TOKEN_BYTES * self.block_size

    def payload_bytes(self, shape: LayerShape) -> int:
        """block_size x kv_heads x 2 head_dim x itemsize."""
        return self.block_size * shape.kv_heads * 2 * shape.head_dim * self.scheme.itemsize

    @cached_property
    def payload_sizes(self) -> tuple[int, ...]:
        """payload_bytes of each layer, in order."""
        return tuple(self.payload_bytes(shape) for shape in self.layers)

    @cached_property
    def particle_sizes(self) -> tuple[int, ...]:
        """Header and payload bytes of each layer, in order."""
        return tuple(self.header_bytes + size for size in self.payload_sizes)

    @cached_property
    def window_payload_bytes(self) -> int:
        """All layers' payloads of one window."""
        return sum(self.payload_sizes)

    @cached_property
    def window_particle_bytes(self) -> int:
        """All layers' particles of one window."""
        return sum(self.particle_sizes)


def is_block_size(size: int) -> bool:
    """Whether windows of `size` tokens are in the format."""
    return 16 <= size <= MAX_BLOCK_SIZE and size % 16 == 0


def _check_limits(profile: Profile) -> None:
    size = profile.block_size
    if not is_block_size(size):
        raise ManifestError(
            f"block_size must be a multiple of 16 from 16 to {MAX_BLOCK_SIZE}, not {size}",
            key="block_size",
        )
    if not 1 <= len(profile.layers) <= MAX_LAYERS:
        raise ManifestError(f"a profile has 1 to {MAX_LAYERS} layers", key="layers")
    last = -1
    for shape in profile.layers:
        in_range = (
            last < shape.layer < MAX_LAYERS
            and 1 <= shape.kv_heads <= MAX_KV_HEADS
            and 1 <= shape.head_dim <= MAX_HEAD_DIM
            and profile.payload_bytes(shape) <= MAX_PAYLOAD_BYTES
        )
        if not in_range:
            raise ManifestError(f"layer shape out of range or order: {shape}", key="layers")
        last = shape.layer
