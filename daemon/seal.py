"""Sealing: raw payloads in a client's staging become particles in the arena, and get their names.

Runs in a worker thread. A payload is copied once, and only that copy is hashed and
kept: what the client does to its staging meanwhile can change what the name names,
never whether the name is true.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from blake3 import blake3

from daemon.binding import Binding
from glia.graph.domain import Salt
from glia.graph.ids import BlockId, PrefixKey, WindowId, next_prefix
from glia.graph.tokens import pack_tokens
from glia.graph.window import WindowRecord


@dataclass(frozen=True, slots=True)
class Anchor:
    """The window that is continued, or genesis.

    Attributes:
        position: where the next window starts.
    """

    window_id: WindowId
    blocks: tuple[BlockId, ...]
    key: PrefixKey
    position: int

    def salted(self, salt: Salt) -> Anchor:
        """What a domain's first window names instead of this."""
        blocks = tuple(map(salt.block, self.blocks))
        return Anchor(salt.window(self.window_id), blocks, salt.key(self.key), self.position)


@dataclass(frozen=True, slots=True)
class Sealed:
    """A window that stands in the arena at `offset`, named."""

    offset: int
    record: WindowRecord
    key: PrefixKey

    @property
    def end(self) -> Anchor:
        """Where the next window continues."""
        record = self.record
        return Anchor(record.window_id, record.blocks, self.key, record.end)


def seal_windows(
    binding: Binding,
    anchor: Anchor,
    tokens: Sequence[int],
    staging: memoryview,
    arena: memoryview,
    offsets: Sequence[int],
    salt: Salt | None = None,
) -> list[Sealed]:
    """Name the windows that follow `anchor`.

    Args:
        tokens: of all windows, block_size each.
        staging: [len(offsets) * window_payload_bytes], raw payloads, [windows][layers].
        offsets: where in `arena` each window's particles go.
        salt: of the domain that these windows are in, or come to.
    """
    profile = binding.profile
    size, step = profile.block_size, profile.window_payload_bytes
    sealed: list[Sealed] = []
    for index, offset in enumerate(offsets):
        root = None
        if salt is not None and salt.start == anchor.position:
            root, anchor = salt.root(anchor.window_id), anchor.salted(salt)
        window_tokens = tuple(tokens[index * size : (index + 1) * size])
        token_bytes = pack_tokens(window_tokens)
        blocks = _seal_blocks(
            binding,
            anchor,
            token_bytes,
            staging[index * step : (index + 1) * step],
            arena[offset : offset + profile.window_particle_bytes],
        )
        record = WindowRecord(
            model_id=binding.model_id,
            profile_id=profile.profile_id,
            numerics_class=binding.numerics_class,
            prev=anchor.window_id,
            position_start=anchor.position,
            tokens=window_tokens,
            blocks=blocks,
            group=salt.group if salt is not None and salt.start <= anchor.position else None,
            root=root,
            is_own=salt is not None and salt.is_own(anchor.position + size),
        )
        sealed.append(Sealed(offset, record, next_prefix(anchor.key, token_bytes)))
        anchor = sealed[-1].end
    return sealed


def _seal_blocks(
    binding: Binding, anchor: Anchor, token_bytes: bytes, source: memoryview, target: memoryview
) -> tuple[BlockId, ...]:
    """Copy one window's payloads behind their headers and name the copies."""
    header_bytes = binding.profile.header_bytes
    prefixes = binding.header_prefixes(anchor.position)
    read = start = 0
    blocks: list[BlockId] = []
    for prefix, prev, length in zip(
        prefixes, anchor.blocks, binding.profile.payload_sizes, strict=True
    ):
        body, end = start + header_bytes, start + header_bytes + length
        target[start:body] = prefix + prev + token_bytes
        target[body:end] = source[read : read + length]
        blocks.append(BlockId(blake3(target[start:end]).digest()))
        read, start = read + length, end
    return tuple(blocks)
