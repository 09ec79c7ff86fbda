"""Keys of the index. Pure. See spec/7-store.md.

b + block id               -> where the particle lies
w + window id              -> where the window lies, and its record
p + prefix key + window    -> (empty)
n + window before + window -> (empty): what continues a window
l + window                 -> when it was last used
t + last use + window      -> (empty): windows that nothing continues, oldest use first
q + block id               -> where a bad particle lies: not to be used
u + segment number         -> how much of a segment was given back, how many groups live
d + segment + offset       -> length of a range that no row names: to be erased
state                      -> how far the segments are indexed, counts, clean or not
"""

from __future__ import annotations

import struct

from glia.graph.ids import ID_BYTES, BlockId, PrefixKey, WindowId

BLOCK = b"b"
WINDOW = b"w"
PREFIX = b"p"
NEXT = b"n"
LAST_USE = b"l"
LEAF = b"t"
QUARANTINE = b"q"
USAGE = b"u"
DEAD = b"d"
STATE = b"state"
COUNTED = frozenset(BLOCK + WINDOW + PREFIX + NEXT + LAST_USE + LEAF)  # in State.index_bytes


_SEGMENT_KEY = struct.Struct(">I")
_DEAD_KEY = struct.Struct(">IQ")
_LEAF_KEY = struct.Struct(">Q")


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


def next_key(before: WindowId, window_id: WindowId) -> bytes:
    """Key of the row that says what continues a window."""
    return NEXT + before + window_id


def last_use_key(window_id: WindowId) -> bytes:
    """Key of a window's last use."""
    return LAST_USE + window_id


def leaf_key(tick: int, window_id: WindowId) -> bytes:
    """Key of a window that nothing continues; ordered by last use."""
    return LEAF + _LEAF_KEY.pack(tick) + window_id


def leaf_of(key: bytes) -> tuple[int, WindowId]:
    """(last use, window) of such a key."""
    return _LEAF_KEY.unpack_from(key, len(LEAF))[0], WindowId(name_at_end(key))


def usage_key(segment: int) -> bytes:
    """Key of a segment's row; ordered by number."""
    return USAGE + _SEGMENT_KEY.pack(segment)


def segment_of(key: bytes) -> int:
    """The segment number of a usage key."""
    return int.from_bytes(key[len(USAGE) :], "big")


def dead_key(segment: int, offset: int) -> bytes:
    """Key of a range to be erased."""
    return DEAD + _DEAD_KEY.pack(segment, offset)


def name_at_end(key: bytes) -> bytes:
    """The 32-byte name that a key of a block or window ends in."""
    return key[-ID_BYTES:]


def dead_range_of(key: bytes) -> tuple[int, int] | None:
    """(segment, offset) of such a key, or None where it cannot be one."""
    if len(key) != len(DEAD) + _DEAD_KEY.size:
        return None
    segment, offset = _DEAD_KEY.unpack_from(key, len(DEAD))
    return segment, offset
