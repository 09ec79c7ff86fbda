"""Rows of the published index. Pure. See spec/12-published.md.

r + window id                -> its place in its chain, and its record
p + prefix key               -> window ids with that key, the newest last
b + block id + window id     -> (empty)
n + window before + window   -> (empty): what continues a window
t + model id + window id     -> (empty): tips, which nothing continues
l + link id                  -> the link
a + window id + link id      -> (empty): the links that attest a window
s + signer + base + tip, kind -> link id: what a neuron signed once is not signed again
q + signer                   -> its largest sequence
d + window id                -> when it was last announced
f + window id                -> whether it came from a peer, what it proved to be, who attests it
u + neuron + window id       -> (empty): put aside, as the user takes nothing of the neuron
m, y, o, w, e, x             -> what neurons signed of canonical windows (promises.py)
counts                       -> windows, links
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from glia.errors import MalformedParticle
from glia.graph.ids import ID_BYTES, BlockId, ModelId, PrefixKey, WindowId
from glia.graph.link import Claim
from glia.graph.neuron import NeuronId
from glia.graph.window import WindowRecord, parse_window

PUBLISHED_VERSION = 1
MAX_PER_KEY = 8
COUNTS = b"counts"
TIP = b"t"
FOREIGN = b"f"
ASIDE = b"u"

_ROW = struct.Struct("<IQ32s")
_NUMBER = struct.Struct("<Q")
_COUNTS = struct.Struct("<QQ")


@dataclass(frozen=True, slots=True)
class PublishedWindow:
    """A window that peers may see.

    Attributes:
        num_windows: of its chain, up to it.
        hold_until_s: not to be announced before, seconds since 1970; who asks is answered.
    """

    window_id: WindowId
    num_windows: int
    hold_until_s: int
    prefix_key: PrefixKey
    encoding: bytes

    def record(self) -> WindowRecord:
        """Verified. Raises: HashMismatch."""
        return parse_window(self.encoding, self.window_id)

    def encode(self) -> bytes:
        """The row's bytes."""
        return _ROW.pack(self.num_windows, self.hold_until_s, self.prefix_key) + self.encoding


class Counts(NamedTuple):
    """How many rows there are."""

    num_windows: int = 0
    num_links: int = 0

    def encode(self) -> bytes:
        """The row's bytes."""
        return _COUNTS.pack(*self)


def decode_window(window_id: WindowId, value: bytes) -> PublishedWindow:
    """A row of kind r. Raises: MalformedParticle where it cannot be one."""
    if len(value) <= _ROW.size:
        raise MalformedParticle("a row of the published index is too short")
    num_windows, hold_until_s, key = _ROW.unpack_from(value)
    return PublishedWindow(window_id, num_windows, hold_until_s, PrefixKey(key), value[_ROW.size :])


def decode_counts(value: bytes | None) -> Counts:
    """Zeros where there is no row."""
    return Counts(*_COUNTS.unpack(value)) if value is not None else Counts()


def encode_number(number: int) -> bytes:
    """8 bytes: a time, a sequence."""
    return _NUMBER.pack(number)


def decode_number(value: bytes | None) -> int:
    """0 where there is no row."""
    return int(_NUMBER.unpack(value)[0]) if value is not None else 0


def names_in(value: bytes | None) -> list[WindowId]:
    """The names of a row of kind p."""
    data = value or b""
    return [WindowId(data[at : at + ID_BYTES]) for at in range(0, len(data), ID_BYTES)]


def last_name(key: bytes) -> bytes:
    """The 32-byte name that a key ends in."""
    return key[-ID_BYTES:]


def window_key(window_id: WindowId) -> bytes:
    """Key of a window."""
    return b"r" + window_id


def prefix_row_key(key: PrefixKey) -> bytes:
    """Key of the windows with a prefix key."""
    return b"p" + key


def block_prefix(block_id: BlockId) -> bytes:
    """What the keys of a block's windows begin with."""
    return b"b" + block_id


def next_prefix_of(window_id: WindowId) -> bytes:
    """What the keys of a window's continuations begin with."""
    return b"n" + window_id


def tip_prefix(model_id: ModelId) -> bytes:
    """What the keys of a model's tips begin with."""
    return TIP + model_id


def link_key(link_id: bytes) -> bytes:
    """Key of a link."""
    return b"l" + link_id


def attested_prefix(window_id: WindowId) -> bytes:
    """What the keys of the links that attest a window begin with."""
    return b"a" + window_id


def signed_key(signer: NeuronId, claim: Claim) -> bytes:
    """Key of what a neuron signed."""
    return b"s" + signer + claim.base + claim.tip + bytes([claim.kind])


def sequence_key(signer: NeuronId) -> bytes:
    """Key of a neuron's largest sequence."""
    return b"q" + signer


def announced_key(window_id: WindowId) -> bytes:
    """Key of when a window was announced."""
    return b"d" + window_id


def aside_prefix(neuron: NeuronId) -> bytes:
    """What the keys of windows begin with that are put aside for a neuron's sake."""
    return ASIDE + neuron


def foreign_key(window_id: WindowId) -> bytes:
    """Key of a window that came from a peer."""
    return FOREIGN + window_id
