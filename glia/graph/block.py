"""A block: the K and V of one window in one layer, as header || payload, named by its BLAKE3.

`parse_block` is the only way from foreign bytes to a `Block`. See spec/3-block.md.

    payload: [block_size, kv_heads, 2 * head_dim], K then V in the last dimension,
             storage dtype, little-endian, C order
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from glia.errors import HashMismatch, MalformedParticle
from glia.graph.ids import BlockId, ModelId, ProfileId, digest, short
from glia.graph.profile import HEADER_FIXED_BYTES, MAX_POSITION, LayerShape, PositionMode, Profile
from glia.graph.tokens import pack_tokens, unpack_tokens

_FIXED = struct.Struct("<4sHBBHHHHIIQ")  # 32 bytes
_MAGIC = b"GBLK"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Block:
    """A verified block: its bytes match its name and its header fits its profile.

    `payload` is a view into the particle it was parsed from.
    """

    block_id: BlockId
    model_id: ModelId
    profile_id: ProfileId
    shape: LayerShape
    prev: BlockId
    tokens: tuple[int, ...]
    position_anchor: int
    payload: memoryview


def header_prefix(
    model_id: ModelId, profile: Profile, shape: LayerShape, position_anchor: int = 0
) -> bytes:
    """The first 96 bytes of a header: constant per model, profile and layer in relative mode.

    Args:
        position_anchor: absolute position of the window's first token; 0 in relative mode.
    """
    if not 0 <= position_anchor <= _last_anchor(profile):
        raise ValueError(f"position anchor {position_anchor} in {profile.mode.word} mode")
    fixed = _FIXED.pack(
        _MAGIC,
        _VERSION,
        profile.mode,
        profile.scheme,
        shape.layer,
        profile.block_size,
        shape.kv_heads,
        shape.head_dim,
        profile.payload_bytes(shape),
        0,
        position_anchor,
    )
    return fixed + model_id + profile.profile_id


def encode_header(
    model_id: ModelId,
    profile: Profile,
    shape: LayerShape,
    prev: BlockId,
    tokens: Sequence[int],
    position_anchor: int = 0,
) -> bytes:
    """A whole header, `profile.header_bytes` long."""
    if len(tokens) != profile.block_size:
        raise ValueError(f"a block has {profile.block_size} tokens, not {len(tokens)}")
    return header_prefix(model_id, profile, shape, position_anchor) + prev + pack_tokens(tokens)


def parse_block(
    data: bytes | bytearray | memoryview, profile: Profile, expected: BlockId | None = None
) -> Block:
    """The door: bytes become a block, or an accusation.

    Args:
        data: header || payload, exactly.
        profile: what the block must fit.
        expected: the name it was asked for by; None computes the name.
    Raises:
        HashMismatch: the bytes are not the named ones.
        MalformedParticle: the header does not fit the grammar or the profile.
    """
    name = BlockId(digest(data))
    if expected is not None and name != expected:
        raise HashMismatch(f"block {short(expected)}: the bytes hash to {short(name)}")
    view = memoryview(data).cast("B").toreadonly()
    shape, anchor = _parse_fixed(view, profile)
    body = profile.header_bytes
    if len(view) != body + profile.payload_bytes(shape):
        raise MalformedParticle(f"block {short(name)}: {len(view)} bytes do not fit its header")
    if bytes(view[64:96]) != profile.profile_id:
        raise MalformedParticle(f"block {short(name)}: made for another profile")
    return Block(
        block_id=name,
        model_id=ModelId(bytes(view[32:64])),
        profile_id=profile.profile_id,
        shape=shape,
        prev=BlockId(bytes(view[96:HEADER_FIXED_BYTES])),
        tokens=unpack_tokens(view[HEADER_FIXED_BYTES:body]),
        position_anchor=anchor,
        payload=view[body:],
    )


def _parse_fixed(view: memoryview, profile: Profile) -> tuple[LayerShape, int]:
    if len(view) < profile.header_bytes:
        raise MalformedParticle(f"a block cannot be {len(view)} bytes")
    magic, version, mode, scheme, layer, size, heads, dim, length, reserved, anchor = (
        _FIXED.unpack_from(view)
    )
    if (magic, version, reserved) != (_MAGIC, _VERSION, 0):
        raise MalformedParticle("not a block of a known version")
    shape = LayerShape(layer, heads, dim)
    fits = (
        mode == profile.mode
        and scheme == profile.scheme
        and size == profile.block_size
        and shape in profile.layers
        and length == profile.payload_bytes(shape)
        and anchor <= _last_anchor(profile)
    )
    if not fits:
        raise MalformedParticle("the block's header does not fit its profile")
    return shape, anchor


def _last_anchor(profile: Profile) -> int:
    return 0 if profile.mode is PositionMode.RELATIVE else MAX_POSITION
