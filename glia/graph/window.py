"""A window record: one window's tokens, the block ids of all its layers, the window before it.

Its name commits to the whole conversation up to here, in every layer.
See spec/4-window.md.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from functools import cached_property

from glia.errors import HashMismatch, MalformedParticle
from glia.graph.group import GroupId
from glia.graph.ids import ID_BYTES, BlockId, ModelId, ProfileId, WindowId, digest, short
from glia.graph.profile import MAX_LAYERS, MAX_POSITION, is_block_size
from glia.graph.tokens import TOKEN_BYTES, pack_tokens, unpack_tokens

_FIXED = struct.Struct("<4sHHHHIQ")  # 24 bytes
_MAGIC = b"GWIN"
_VERSION = 1
_IDS_AT = _FIXED.size
_TOKENS_AT = _IDS_AT + 3 * ID_BYTES

MAX_CLASS_BYTES = 256


@dataclass(frozen=True, slots=True)
class DomainRoot:
    """What the first window of a group's domain follows: `prev` of its record is that, salted."""

    group: GroupId
    after: WindowId


@dataclass(frozen=True)
class WindowRecord:
    """One window in all layers that own K/V.

    Attributes:
        group: whose domain it is in, None of nobody's.
        root: of the first window of a domain.
        is_own: whether it is in that domain, and no member may have it: some of its tokens are
            private. None of the three is a part of the encoding: they are known of a window
            that was sealed or opened here.
    """

    model_id: ModelId
    profile_id: ProfileId
    numerics_class: str
    prev: WindowId
    position_start: int
    tokens: tuple[int, ...]
    blocks: tuple[BlockId, ...]
    proof: bytes = b""
    group: GroupId | None = field(default=None, compare=False)
    root: DomainRoot | None = field(default=None, compare=False)
    is_own: bool = field(default=False, compare=False)

    @property
    def before(self) -> WindowId:
        """The window before it, or genesis, by its own name."""
        return self.prev if self.root is None else self.root.after

    @cached_property
    def encoding(self) -> bytes:
        """The canonical bytes. Raises: ValueError where parse_window would refuse them."""
        name = self.numerics_class.encode()
        if not _fits(self.tokens, self.blocks, name, self.proof, self.position_start):
            raise ValueError(f"not a window record: {self}")
        fixed = _FIXED.pack(
            _MAGIC,
            _VERSION,
            len(name),
            len(self.tokens),
            len(self.blocks),
            len(self.proof),
            self.position_start,
        )
        ids = self.model_id + self.profile_id + self.prev
        return fixed + ids + pack_tokens(self.tokens) + b"".join(self.blocks) + name + self.proof

    @cached_property
    def window_id(self) -> WindowId:
        """BLAKE3-256 of the encoding."""
        return WindowId(digest(self.encoding))

    @property
    def end(self) -> int:
        """The position after the window's last token."""
        return self.position_start + len(self.tokens)


def parse_window(data: bytes | memoryview, expected: WindowId | None = None) -> WindowRecord:
    """Bytes become a window record; strict: re-encoding gives the input.

    Raises:
        HashMismatch: the bytes are not the named ones.
        MalformedParticle: they do not fit the grammar.
    """
    data = bytes(data)
    if expected is not None and digest(data) != expected:
        raise HashMismatch(f"window {short(expected)}: the bytes are not the named ones")
    if len(data) < _TOKENS_AT:
        raise MalformedParticle(f"a window record cannot be {len(data)} bytes")
    magic, version, num_class, num_tokens, num_blocks, num_proof, start = _FIXED.unpack_from(data)
    if (magic, version) != (_MAGIC, _VERSION):
        raise MalformedParticle("not a window record of a known version")
    blocks_at = _TOKENS_AT + TOKEN_BYTES * num_tokens
    class_at = blocks_at + ID_BYTES * num_blocks
    proof_at = class_at + num_class
    if len(data) != proof_at + num_proof:
        raise MalformedParticle("a window record's lengths do not add up")
    tokens = unpack_tokens(data[_TOKENS_AT:blocks_at])
    blocks = tuple(BlockId(data[at : at + ID_BYTES]) for at in range(blocks_at, class_at, ID_BYTES))
    name, proof = data[class_at:proof_at], data[proof_at:]
    if not _fits(tokens, blocks, name, proof, start):
        raise MalformedParticle("a window record's fields are out of range")
    return WindowRecord(
        model_id=ModelId(data[_IDS_AT : _IDS_AT + 32]),
        profile_id=ProfileId(data[_IDS_AT + 32 : _IDS_AT + 64]),
        numerics_class=name.decode(),
        prev=WindowId(data[_IDS_AT + 64 : _TOKENS_AT]),
        position_start=start,
        tokens=tokens,
        blocks=blocks,
    )


def is_numerics_class(name: bytes) -> bool:
    """Whether a class can stand in a record: 1 to 256 bytes of printable ASCII."""
    return 1 <= len(name) <= MAX_CLASS_BYTES and name.isascii() and name.decode().isprintable()


def _fits(
    tokens: tuple[int, ...], blocks: tuple[BlockId, ...], name: bytes, proof: bytes, start: int
) -> bool:
    return (
        is_block_size(len(tokens))
        and 1 <= len(blocks) <= MAX_LAYERS
        and is_numerics_class(name)
        and not proof
        and 0 <= start <= MAX_POSITION
        and start % len(tokens) == 0
    )
