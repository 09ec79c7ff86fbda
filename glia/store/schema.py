"""Keys and rows of the index, and the store's format version. Pure. See spec/7-store.md.

b + block id             -> where the particle lies
w + window id            -> where the window lies, and its record
p + prefix key + window  -> (empty)
q + block id             -> where a bad particle lies: not to be used
u + segment number       -> when the segment was last used; that it is indexed at all
state                    -> how far the segments are indexed, counts, clean or not
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from glia.errors import StoreVersion
from glia.graph.ids import ID_BYTES, BlockId, PrefixKey, WindowId

FORMAT_VERSION = 1
_FORMAT_NAME = "glia-store"

BLOCK = b"b"
WINDOW = b"w"
PREFIX = b"p"
QUARANTINE = b"q"
USE = b"u"
STATE = b"state"

NOWHERE = 0  # no segment has this number

_LOCATION = struct.Struct("<IQI")
_USE_KEY = struct.Struct(">I")
_USE = struct.Struct("<Q")
_STATE = struct.Struct("<HHIQIQQQ")
_WINDOW = struct.Struct("<IQHHI32s")
_RUN = struct.Struct("<IQH")


class Location(NamedTuple):
    """Where a particle lies: segment number, byte offset, length in bytes."""

    segment: int
    offset: int
    length: int

    def encode(self) -> bytes:
        """16 bytes."""
        return _LOCATION.pack(*self)


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

    `runs` and `lengths` repeat the block rows, so that a restore needs one row per
    window. Where a run's segment is gone or one of its blocks is quarantined, the
    block rows decide.
    """

    segment: int
    offset: int
    prefix_key: PrefixKey
    runs: tuple[Run, ...]
    lengths: tuple[int, ...]
    encoding: bytes

    def encode(self) -> bytes:
        """The row's bytes."""
        fixed = _WINDOW.pack(
            self.segment,
            self.offset,
            len(self.runs),
            len(self.lengths),
            len(self.encoding),
            self.prefix_key,
        )
        runs = b"".join(_RUN.pack(*run) for run in self.runs)
        return fixed + runs + struct.pack(f"<{len(self.lengths)}I", *self.lengths) + self.encoding


@dataclass(frozen=True, slots=True)
class State:
    """The row that is in every batch: index and segments agree up to `segment`, `offset`.

    `index_bytes` counts keys and values of all rows but this one.
    """

    segment: int = NOWHERE
    offset: int = 0
    next_segment: int = 1
    num_windows: int = 0
    num_blocks: int = 0
    index_bytes: int = 0
    clean: bool = False

    def encode(self) -> bytes:
        """The row's bytes."""
        return _STATE.pack(
            FORMAT_VERSION,
            self.clean,
            self.segment,
            self.offset,
            self.next_segment,
            self.num_windows,
            self.num_blocks,
            self.index_bytes,
        )


def decode_state(value: bytes) -> State | None:
    """The state, or None where the row cannot be one. Raises: StoreVersion."""
    if len(value) != _STATE.size:
        return None
    version, clean, segment, offset, next_segment, windows, blocks, size = _STATE.unpack(value)
    check_version(version)
    return State(segment, offset, next_segment, windows, blocks, size, bool(clean))


def decode_location(value: bytes) -> Location | None:
    """A location, or None where the row cannot be one."""
    return Location._make(_LOCATION.unpack(value)) if len(value) == _LOCATION.size else None


def decode_window(value: bytes) -> WindowRow | None:
    """A window row, or None where the lengths do not fit. The encoding is not verified here."""
    if len(value) < _WINDOW.size:
        return None
    segment, offset, num_runs, num_blocks, num_encoding, key = _WINDOW.unpack_from(value)
    lengths_at = _WINDOW.size + _RUN.size * num_runs
    encoding_at = lengths_at + 4 * num_blocks
    if len(value) != encoding_at + num_encoding:
        return None
    runs = tuple(map(Run._make, _RUN.iter_unpack(value[_WINDOW.size : lengths_at])))
    if sum(run.num for run in runs) != num_blocks:
        return None
    lengths = struct.unpack_from(f"<{num_blocks}I", value, lengths_at)
    return WindowRow(segment, offset, PrefixKey(key), runs, lengths, value[encoding_at:])


def runs_of(locations: Sequence[Location]) -> tuple[Run, ...]:
    """Locations in record order as the fewest runs."""
    runs: list[Run] = []
    end = (NOWHERE, -1)
    for where in locations:
        if (where.segment, where.offset) == end:
            runs[-1] = runs[-1]._replace(num=runs[-1].num + 1)
        else:
            runs.append(Run(where.segment, where.offset, 1))
        end = (where.segment, where.offset + where.length)
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


def block_key(block_id: BlockId) -> bytes:
    """Key of a block row."""
    return BLOCK + block_id


def window_key(window_id: WindowId) -> bytes:
    """Key of a window row."""
    return WINDOW + window_id


def prefix_key_of(key: PrefixKey, window_id: WindowId) -> bytes:
    """Key of a prefix row."""
    return PREFIX + key + window_id


def quarantine_key(block_id: BlockId) -> bytes:
    """Key of a quarantine row."""
    return QUARANTINE + block_id


def use_key(segment: int) -> bytes:
    """Key of a segment's row; ordered by number."""
    return USE + _USE_KEY.pack(segment)


def encode_use(tick: int) -> bytes:
    """Value of a segment's row: a counter that grows with every use."""
    return _USE.pack(tick)


def decode_use(key: bytes, value: bytes) -> tuple[int, int] | None:
    """(segment number, last use), or None where the row cannot be one."""
    if len(key) != 1 + _USE_KEY.size or len(value) != _USE.size:
        return None
    return _USE_KEY.unpack(key[1:])[0], _USE.unpack(value)[0]


def name_at_end(key: bytes) -> bytes:
    """The 32-byte name that a block, window, prefix or quarantine key ends in."""
    return key[-ID_BYTES:]


def check_version(version: int) -> None:
    """Raises: StoreVersion for a version that this code does not know."""
    if version != FORMAT_VERSION:
        raise StoreVersion(
            f"the store has format version {version}, this gliad knows {FORMAT_VERSION}",
            hint="use the gliad that wrote it, or another --data-dir",
        )


def check_format_file(file: Path) -> None:
    """Make the file that says which version a store has, or read it.

    Raises: StoreVersion, OSError.
    """
    try:
        words = file.read_bytes()[:64].decode(errors="replace").split()
    except FileNotFoundError:
        file.touch(mode=0o600)
        file.write_text(f"{_FORMAT_NAME} {FORMAT_VERSION}\n")
        return
    version = words[1] if len(words) == 2 and words[0] == _FORMAT_NAME else ""
    if version.isdecimal():
        check_version(int(version))
