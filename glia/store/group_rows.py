"""Rows of what groups publish. Pure. See spec/22-group-index.md.

g stands for a group's id, which every key begins with behind its kind: so no look-up of one group
finds what is another's.

r + g + window               -> its place in its chain, and its encoding
k + g + alias                -> windows with that prefix key, the newest last
w + g + alias                -> windows that stand for the window of that name
b + g + block + window       -> (empty)
n + g + window before + window -> (empty): what continues a window
a + g + window + link        -> a link that attests the window, and where it begins
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from glia.errors import MalformedParticle
from glia.graph.encrypted import EncryptedWindow, parse_encrypted
from glia.graph.group import GroupId
from glia.graph.ids import ID_BYTES, BlockId, ModelId, PrefixKey, WindowId

GROUP_INDEX_VERSION = 1
MAX_PER_ALIAS = 8

_WINDOW = struct.Struct("<IQ32s32s")
_LINK = struct.Struct("<I32s")


@dataclass(frozen=True, slots=True)
class GroupWindow:
    """An encrypted window that members may have.

    Attributes:
        num_windows: of its chain from genesis on, up to it.
        hold_until_s: not to be announced before, seconds since 1970.
        alias: of its prefix key.
    """

    name: WindowId
    num_windows: int
    hold_until_s: int
    model_id: ModelId
    alias: PrefixKey
    encoding: bytes

    def window(self) -> EncryptedWindow:
        """Verified. Raises: HashMismatch."""
        return parse_encrypted(self.encoding, self.name)

    def encode(self) -> bytes:
        """The row's bytes."""
        fixed = _WINDOW.pack(self.num_windows, self.hold_until_s, self.model_id, self.alias)
        return fixed + self.encoding


@dataclass(frozen=True, slots=True)
class GroupLink:
    """A sealed link.

    Attributes:
        num_before, base: where the windows begin that it attests: how many are before them, and
            the last of those by its encrypted name.
    """

    num_before: int
    base: WindowId
    sealed: bytes

    def encode(self) -> bytes:
        """The row's bytes."""
        return _LINK.pack(self.num_before, self.base) + self.sealed


def decode_group_window(name: WindowId, value: bytes) -> GroupWindow:
    """Raises: MalformedParticle where it cannot be one."""
    if len(value) <= _WINDOW.size:
        raise MalformedParticle("a row of the groups' index is too short")
    num_windows, hold_until_s, model_id, alias = _WINDOW.unpack_from(value)
    return GroupWindow(
        name, num_windows, hold_until_s, ModelId(model_id), PrefixKey(alias), value[_WINDOW.size :]
    )


def decode_group_link(value: bytes) -> GroupLink:
    """Raises: MalformedParticle where it cannot be one."""
    if len(value) <= _LINK.size:
        raise MalformedParticle("a row of the groups' index is too short")
    num_before, base = _LINK.unpack_from(value)
    return GroupLink(num_before, WindowId(base), value[_LINK.size :])


def window_key(group: GroupId, name: WindowId) -> bytes:
    """Key of a window."""
    return b"r" + group + name


def alias_key(group: GroupId, alias: bytes) -> bytes:
    """Key of the windows with a prefix key."""
    return b"k" + group + alias


def stands_key(group: GroupId, alias: bytes) -> bytes:
    """Key of those that stand for one window."""
    return b"w" + group + alias


def block_prefix(group: GroupId, block: BlockId) -> bytes:
    """What the keys of a block's windows begin with."""
    return b"b" + group + block


def next_prefix_of(group: GroupId, name: WindowId) -> bytes:
    """What the keys of a window's continuations begin with."""
    return b"n" + group + name


def attested_prefix(group: GroupId, name: WindowId) -> bytes:
    """What the keys of the links that attest a window begin with."""
    return b"a" + group + name


def kinds_of(group: GroupId) -> list[bytes]:
    """What all keys of a group begin with."""
    return [kind + group for kind in (b"r", b"k", b"w", b"b", b"n", b"a")]


def last_name(key: bytes) -> bytes:
    """The 32-byte name that a key ends in."""
    return key[-ID_BYTES:]
