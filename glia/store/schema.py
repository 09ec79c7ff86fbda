"""Rows of the index, under the keys of glia/store/keys.py. Pure. See spec/7-store.md."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from glia.errors import StoreVersion
from glia.graph.ids import PrefixKey

FORMAT_VERSION = 2

NOWHERE = 0  # no segment has this number

_LOCATION = struct.Struct("<IQI")
_NUMBER = struct.Struct("<Q")
_USAGE = struct.Struct("<QI")
_STATE = struct.Struct("<HHIQIQQQQ")
_WINDOW = struct.Struct("<HHHI32s")
_GROUP = struct.Struct("<IQQ")
_RUN = struct.Struct("<IQH")
_CLEAN, _UNSCRUBBED = 1, 2


class Location(NamedTuple):
    """Where a particle lies: segment number, byte offset, length in bytes."""

    segment: int
    offset: int
    length: int

    def encode(self) -> bytes:
        """16 bytes."""
        return _LOCATION.pack(*self)


NOT_KNOWN = Location(NOWHERE, 0, 0)


class Run(NamedTuple):
    """`num` consecutive blocks of a window, side by side in one segment from `offset` on."""

    segment: int
    offset: int
    num: int


class Span(NamedTuple):
    """Bytes of a segment."""

    segment: int
    offset: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class WindowRow:
    """What the index knows of a window.

    `groups` are all that were written for it: one, and one more for each time that blocks
    of it were written again. `runs` and `lengths` repeat the block rows, so that a restore
    needs one row per window. Where a run's segment is gone or one of its blocks is
    quarantined, the block rows decide.
    """

    groups: tuple[Span, ...]
    prefix_key: PrefixKey
    runs: tuple[Run, ...]
    lengths: tuple[int, ...]
    encoding: bytes

    def encode(self) -> bytes:
        """The row's bytes."""
        fixed = _WINDOW.pack(
            len(self.groups),
            len(self.runs),
            len(self.lengths),
            len(self.encoding),
            self.prefix_key,
        )
        groups = b"".join(_GROUP.pack(*group) for group in self.groups)
        runs = b"".join(_RUN.pack(*run) for run in self.runs)
        lengths = struct.pack(f"<{len(self.lengths)}I", *self.lengths)
        return fixed + groups + runs + lengths + self.encoding

    def holds(self, where: Location) -> bool:
        """Whether a particle lies in one of the window's own groups."""
        return any(
            segment == where.segment and start <= where.offset < start + num
            for segment, start, num in self.groups
        )


@dataclass(frozen=True, slots=True)
class Usage:
    """A segment: bytes from its beginning to its end, of these given back, groups not dead."""

    size: int = 0
    num_punched: int = 0
    num_groups: int = 0

    def encode(self) -> bytes:
        """The row's bytes; the file knows its size."""
        return _USAGE.pack(self.num_punched, self.num_groups)


@dataclass(frozen=True, slots=True)
class State:
    """The row that is in every batch: index and segments agree up to `segment`, `offset`.

    `index_bytes` counts keys and values of the rows of windows and blocks (COUNTED).
    `tick` is the last use of any window. `unscrubbed`: windows were forgotten, and the
    index's files have to be written anew.
    """

    segment: int = NOWHERE
    offset: int = 0
    next_segment: int = 1
    num_windows: int = 0
    num_blocks: int = 0
    index_bytes: int = 0
    tick: int = 0
    clean: bool = False
    unscrubbed: bool = False

    def moved(self, segment: int, offset: int) -> State:
        """The state when index and segments agree up to there."""
        following = max(self.next_segment, segment + 1)
        return replace(self, segment=segment, offset=offset, next_segment=following)

    def encode(self) -> bytes:
        """The row's bytes."""
        return _STATE.pack(
            FORMAT_VERSION,
            _CLEAN * self.clean | _UNSCRUBBED * self.unscrubbed,
            self.segment,
            self.offset,
            self.next_segment,
            self.num_windows,
            self.num_blocks,
            self.index_bytes,
            self.tick,
        )


def decode_state(value: bytes) -> State | None:
    """The state, or None where the row is none of this version. Raises: StoreVersion."""
    check_version(int.from_bytes(value[:2], "little"))
    if len(value) != _STATE.size:
        return None
    version, flags, *numbers = _STATE.unpack(value)
    if version != FORMAT_VERSION:
        return None
    state = State(*numbers)
    return replace(state, clean=bool(flags & _CLEAN), unscrubbed=bool(flags & _UNSCRUBBED))


def decode_location(value: bytes) -> Location | None:
    """A location, or None where the row cannot be one."""
    return Location._make(_LOCATION.unpack(value)) if len(value) == _LOCATION.size else None


def decode_window(value: bytes) -> WindowRow | None:
    """A window row, or None where the lengths do not fit. The encoding is not verified here."""
    if len(value) < _WINDOW.size:
        return None
    num_groups, num_runs, num_blocks, num_encoding, key = _WINDOW.unpack_from(value)
    runs_at = _WINDOW.size + _GROUP.size * num_groups
    lengths_at = runs_at + _RUN.size * num_runs
    encoding_at = lengths_at + 4 * num_blocks
    if len(value) != encoding_at + num_encoding:
        return None
    groups = tuple(map(Span._make, _GROUP.iter_unpack(value[_WINDOW.size : runs_at])))
    runs = tuple(map(Run._make, _RUN.iter_unpack(value[runs_at:lengths_at])))
    if sum(run.num for run in runs) != num_blocks:
        return None
    lengths = struct.unpack_from(f"<{num_blocks}I", value, lengths_at)
    return WindowRow(groups, PrefixKey(key), runs, lengths, value[encoding_at:])


def runs_of(locations: Sequence[Location]) -> tuple[Run, ...]:
    """Locations in record order as the fewest runs."""
    runs: list[Run] = []
    segment, start, num, end = NOWHERE, 0, 0, -1
    for where, offset, length in locations:
        if where == segment and offset == end:
            num += 1
        else:
            if num:
                runs.append(Run(segment, start, num))
            segment, start, num = where, offset, 1
        end = offset + length
    if num:
        runs.append(Run(segment, start, num))
    return tuple(runs)


def spans_of(runs: Sequence[Run], lengths: Sequence[int]) -> list[Span]:
    """Runs as what is to be read."""
    if len(runs) == 1:
        return [Span(runs[0].segment, runs[0].offset, sum(lengths))]
    spans = []
    at = 0
    for run in runs:
        spans.append(Span(run.segment, run.offset, sum(lengths[at : at + run.num])))
        at += run.num
    return spans


def decode_usage(value: bytes, size: int) -> Usage | None:
    """Of a segment whose file has `size` bytes; None where the row cannot be one."""
    return Usage(size, *_USAGE.unpack(value)) if len(value) == _USAGE.size else None


def encode_number(number: int) -> bytes:
    """8 bytes: a last use, a length."""
    return _NUMBER.pack(number)


def decode_number(value: bytes) -> int:
    """The number; 0 where the row cannot be one."""
    return int(_NUMBER.unpack(value)[0]) if len(value) == _NUMBER.size else 0


def check_version(version: int, newest: int = FORMAT_VERSION) -> None:
    """Raises: StoreVersion for a version that this code does not know."""
    if version > newest:
        raise StoreVersion(
            f"the store has format version {version}, this gliad knows {newest}",
            hint="use the gliad that wrote it, or another --data-dir",
        )
