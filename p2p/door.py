"""The one door for foreign bytes: they are held to what was asked for, or accuse somebody.

The hash comes first, before anything is looked at. HashMismatch blames who carried the bytes;
MalformedParticle blames who wrote them: rightly named, and not what the chain says they are.

All of a block's header follows from the records, and there is one way to write it. So a block
need not be parsed: its header is the expected one, byte for byte, or it is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from glia.errors import HashMismatch, MalformedParticle
from glia.graph.block import header_prefix
from glia.graph.domain import Salt
from glia.graph.ids import BlockId, ModelId, WindowId, digest, genesis_block, short
from glia.graph.profile import PositionMode, Profile
from glia.graph.tokens import pack_tokens
from glia.graph.window import WindowRecord, parse_window


@dataclass(frozen=True, slots=True)
class Expected:
    """What a block must be, from the record that names it and the one before.

    Attributes:
        header: all of it; the payload is whatever the hash says.
        size_bytes: of the particle.
    """

    block_id: BlockId
    header: bytes
    size_bytes: int


def expected_blocks(
    record: WindowRecord,
    before: WindowRecord | None,
    profile: Profile,
    salt: Salt | None = None,
) -> tuple[Expected, ...]:
    """What the blocks of a window must be, in layer order.

    Args:
        before: the record of the window before; None where `record` is the first of its chain.
        salt: of the group in whose domain it is.
    Raises: MalformedParticle where a block stands in a window twice.
    """
    if len(set(record.blocks)) < len(record.blocks):
        raise MalformedParticle(f"window {short(record.window_id)} has one block in two layers")
    anchor = record.position_start if profile.mode is PositionMode.ABSOLUTE else 0
    tokens = pack_tokens(record.tokens)
    before_these = before.blocks if before else _geneses(record.model_id, profile)
    if salt is not None and record.position_start == salt.start:
        before_these = tuple(map(salt.block, before_these))
    heads = _heads(record.model_id, profile, anchor)
    return tuple(
        Expected(block_id, head + prev + tokens, size_bytes)
        for block_id, head, prev, size_bytes in zip(
            record.blocks, heads, before_these, profile.particle_sizes, strict=True
        )
    )


@lru_cache(maxsize=8)
def _heads(model_id: ModelId, profile: Profile, anchor: int) -> tuple[bytes, ...]:
    """How the headers of each layer begin."""
    return tuple(header_prefix(model_id, profile, shape, anchor) for shape in profile.layers)


def _geneses(model_id: ModelId, profile: Profile) -> tuple[BlockId, ...]:
    return tuple(genesis_block(model_id, profile.profile_id, s.layer) for s in profile.layers)


def take_block(data: bytes | memoryview, expected: Expected) -> None:
    """Raises: HashMismatch, MalformedParticle."""
    if digest(data) != expected.block_id:
        raise HashMismatch(f"block {short(expected.block_id)}: the bytes are not the named ones")
    header = expected.header
    if len(data) != expected.size_bytes or data[: len(header)] != header:
        raise MalformedParticle(f"block {short(expected.block_id)} is not what its window says")


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
