"""The one door for foreign bytes: they are held to what was asked for, or accuse somebody.

The hash comes first, before anything is parsed. HashMismatch blames who carried the bytes;
MalformedParticle blames who wrote them: rightly named, and not what the chain says they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from glia.errors import MalformedParticle
from glia.graph.block import Block, parse_block
from glia.graph.ids import BlockId, ModelId, WindowId, genesis_block, short
from glia.graph.profile import LayerShape, PositionMode, Profile
from glia.graph.window import WindowRecord, parse_window


@dataclass(frozen=True, slots=True)
class Expected:
    """What a block must be, from the record that names it and the one before."""

    block_id: BlockId
    model_id: ModelId
    shape: LayerShape
    prev: BlockId
    tokens: tuple[int, ...]
    position_anchor: int
    size_bytes: int  # of the particle


def expected_blocks(
    record: WindowRecord, before: WindowRecord | None, profile: Profile
) -> tuple[Expected, ...]:
    """What the blocks of a window must be, in layer order.

    Args:
        before: the record of the window before; None where `record` is the first of its chain.
    Raises: MalformedParticle where a block stands in a window twice.
    """
    if len(set(record.blocks)) < len(record.blocks):
        raise MalformedParticle(f"window {short(record.window_id)} has one block in two layers")
    anchor = record.position_start if profile.mode is PositionMode.ABSOLUTE else 0
    return tuple(
        Expected(
            block_id=block_id,
            model_id=record.model_id,
            shape=shape,
            prev=before.blocks[at]
            if before
            else genesis_block(record.model_id, record.profile_id, shape.layer),
            tokens=record.tokens,
            position_anchor=anchor,
            size_bytes=size_bytes,
        )
        for at, (block_id, shape, size_bytes) in enumerate(
            zip(record.blocks, profile.layers, profile.particle_sizes, strict=True)
        )
    )


def take_block(data: bytes, expected: Expected, profile: Profile) -> Block:
    """Raises: HashMismatch, MalformedParticle."""
    block = parse_block(data, profile, expected.block_id)
    agrees = (
        block.model_id == expected.model_id
        and block.shape == expected.shape
        and block.prev == expected.prev
        and block.tokens == expected.tokens
        and block.position_anchor == expected.position_anchor
    )
    if not agrees:
        raise MalformedParticle(f"block {short(expected.block_id)} is not what its window says")
    return block


def take_record(
    data: bytes, expected: WindowId, model_id: ModelId, profile: Profile
) -> WindowRecord:
    """Raises: HashMismatch, MalformedParticle."""
    record = parse_window(data, expected)
    agrees = (
        record.model_id == model_id
        and record.profile_id == profile.profile_id
        and len(record.tokens) == profile.block_size
        and len(record.blocks) == len(profile.layers)
    )
    if not agrees:
        raise MalformedParticle(f"window {short(expected)} is of another model or profile")
    return record
