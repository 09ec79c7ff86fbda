"""What a put will write, decided before a byte is written. Pure.

Given what is known already and where the last segment ends, `plan_put` says which
groups go where and which rows the index gets. Disk and cap are looked at by others.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from glia.errors import MalformedParticle
from glia.graph.encrypted import EncryptedWindow, Record
from glia.graph.ids import ID_BYTES, BlockId, PrefixKey, WindowId, short
from glia.graph.profile import HEADER_FIXED_BYTES, MAX_PAYLOAD_BYTES
from glia.graph.tokens import TOKEN_BYTES
from glia.store.base import Buffer, WindowDown
from glia.store.group import GROUP_ALIGN, GROUPS_AT, encode_head, padded
from glia.store.schema import NOT_KNOWN, Location, Span, WindowRow, runs_of

_PAYLOAD_LENGTH = struct.Struct("<I")
_PAYLOAD_LENGTH_AT = 16  # in a block's header, spec/3-block.md
_BLOCK_ROW_BYTES = 1 + ID_BYTES + 16
_OTHER_ROWS_BYTES = 1 + ID_BYTES + 2 * (1 + 2 * ID_BYTES) + 2 * (1 + ID_BYTES + 8)  # w p n l t
_ALIAS_ROW_BYTES = 1 + 2 * ID_BYTES


class Cursor(NamedTuple):
    """Where the next group goes: `offset` 0 means that the segment does not exist yet."""

    segment: int
    offset: int


@dataclass(frozen=True, slots=True)
class Placed:
    """A group with its place: `pieces` written one after the other are `size` bytes."""

    segment: int
    offset: int
    size: int
    pieces: tuple[Buffer, ...]

    @property
    def span(self) -> Span:
        """The group as bytes of its segment."""
        return Span(self.segment, self.offset, self.size)


@dataclass(frozen=True, slots=True)
class Named:
    """What the index is to say of a window: its row, and where its new blocks lie."""

    record: Record
    row: WindowRow
    fresh: Mapping[BlockId, Location]


@dataclass(slots=True)
class Plan:
    """Groups to write, in order; what names them; what both add to the sizes.

    Attributes:
        whole: windows for which nothing is to be written.
    """

    end: Cursor
    groups: list[Placed] = field(default_factory=list)
    named: list[Named] = field(default_factory=list)
    fresh: dict[BlockId, Location] = field(default_factory=dict)
    whole: list[WindowId] = field(default_factory=list)
    num_segment_bytes: int = 0

    @property
    def num_bytes(self) -> int:
        """Segment and index bytes together, at most: what the cap has to hold."""
        blocks = _BLOCK_ROW_BYTES * len(self.fresh)
        rows = sum(_OTHER_ROWS_BYTES + len(named.row.encode()) for named in self.named)
        num_aliases = sum(isinstance(named.record, EncryptedWindow) for named in self.named)
        return self.num_segment_bytes + blocks + rows + _ALIAS_ROW_BYTES * num_aliases


class Stored(Protocol):
    """What is stored already."""

    def is_whole(self, window_id: WindowId) -> bool:
        """Whether a window needs nothing."""

    def groups_of(self, window_id: WindowId) -> tuple[Span, ...]:
        """What was written for a window before; nothing for one that is not stored."""

    def blocks(self, block_ids: Sequence[BlockId]) -> list[Location | None]:
        """Where blocks lie."""


def plan_put(
    windows: Sequence[WindowDown], stored: Stored, cursor: Cursor, segment_bytes: int
) -> Plan:
    """Place every window that is not whole yet, and of its blocks those not known yet.

    Args:
        windows: with sizes that were checked.
        cursor: the end of the newest segment.
        segment_bytes: no segment grows longer by a second group.
    """
    plan = Plan(end=cursor)
    seen: set[WindowId] = set()
    for window in windows:
        record = window.record
        if record.window_id in seen:
            continue
        seen.add(record.window_id)
        if stored.is_whole(record.window_id):
            plan.whole.append(record.window_id)
            continue
        places = [
            plan.fresh.get(block_id) or where
            for block_id, where in zip(record.blocks, stored.blocks(record.blocks), strict=True)
        ]
        missing = {n: window.particles[n] for n, where in enumerate(places) if where is None}
        before = stored.groups_of(record.window_id)
        place(plan, record, window.prefix_key, before, places, missing, segment_bytes)
    return plan


def place(
    plan: Plan,
    record: Record,
    prefix_key: PrefixKey,
    before: tuple[Span, ...],
    places: Sequence[Location | None],
    particles: Mapping[int, Buffer],
    segment_bytes: int,
) -> Named:
    """Plan one more group of a window.

    Args:
        before: groups of the window that there are already.
        places: per block of the record, where it lies.
        particles: those to be written, by ordinal, ascending.
    """
    fresh: dict[BlockId, int] = {}
    for ordinal in particles:
        fresh.setdefault(record.blocks[ordinal], ordinal)
    entries = [(n, memoryview(particles[n]).nbytes) for n in fresh.values()]
    head = encode_head(record, prefix_key, entries)
    num_bytes = len(head) + sum(length for _, length in entries)
    size = padded(num_bytes, GROUP_ALIGN)
    at = _advance(plan, size, segment_bytes)
    pieces = (head, *(particles[n] for n in fresh.values()), bytes(size - num_bytes))
    plan.groups.append(Placed(at.segment, at.offset, size, pieces))
    offset = at.offset + len(head)
    here: dict[BlockId, Location] = {}
    for ordinal, length in entries:
        here[record.blocks[ordinal]] = Location(at.segment, offset, length)
        offset += length
    found = [
        here.get(block_id) or where or NOT_KNOWN
        for block_id, where in zip(record.blocks, places, strict=True)
    ]
    row = WindowRow(
        groups=(*before, plan.groups[-1].span),
        prefix_key=prefix_key,
        runs=runs_of(found),
        lengths=tuple(where.length for where in found),
        encoding=record.encoding,
    )
    plan.fresh.update(here)
    plan.named.append(Named(record, row, here))
    return plan.named[-1]


def check_sizes(window: WindowDown) -> None:
    """One particle per block, each as long as its own header says; nothing is hashed here.

    Raises: MalformedParticle.
    """
    record = window.record
    if len(window.particles) != len(record.blocks):
        raise MalformedParticle(
            f"window {short(record.window_id)}: {len(window.particles)} particles "
            f"for {len(record.blocks)} blocks"
        )
    for particle in window.particles:
        if not _fits(particle, record):
            raise MalformedParticle(
                f"window {short(record.window_id)}: a particle's size does not fit its header"
            )


def _fits(particle: Buffer, record: Record) -> bool:
    length = memoryview(particle).nbytes
    if isinstance(record, EncryptedWindow):
        return length == record.sealed_bytes
    num = length - HEADER_FIXED_BYTES - TOKEN_BYTES * len(record.tokens)
    if not 0 < num <= MAX_PAYLOAD_BYTES:
        return False
    return bool(_PAYLOAD_LENGTH.unpack_from(particle, _PAYLOAD_LENGTH_AT)[0] == num)


def _advance(plan: Plan, size: int, segment_bytes: int) -> Cursor:
    """Reserve `size` bytes; a segment that would grow too long is left for the next one."""
    segment, offset = plan.end
    if offset > GROUPS_AT and offset + size > segment_bytes:
        segment, offset = segment + 1, 0
    if offset == 0:
        offset = GROUPS_AT
        plan.num_segment_bytes += GROUPS_AT
    plan.num_segment_bytes += size
    plan.end = Cursor(segment, offset + size)
    return Cursor(segment, offset)
