"""A window of a group as whoever lacks the key can keep it: names of ciphertexts, and one more.

Its blocks, and its record, are sealed under an epoch of the group (glia/graph/group.py). What is
in the clear are the names of the sealed blocks, so that anybody can keep, check and relay the
whole of it, the one before it, and what a member finds it by. See spec/19-encrypted-window.md.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from blake3 import blake3
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from glia.errors import HashMismatch, MalformedParticle
from glia.graph.group import (
    VERSION,
    Epoch,
    EpochId,
    record_bytes,
    seal,
    sealed_bytes,
    unseal,
)
from glia.graph.ids import ID_BYTES, BlockId, PrefixKey, WindowId, digest, short
from glia.graph.profile import MAX_LAYERS, MAX_PAYLOAD_BYTES
from glia.graph.window import WindowRecord, parse_window

HEAD_BYTES = 1 + ID_BYTES  # of a sealed particle: version, epoch id
MAX_RECORD_BYTES = 40 * 1024  # sealed; the largest record has 34,168
MAX_SEALED_BYTES = MAX_PAYLOAD_BYTES + 4096

_FIXED = struct.Struct("<4sHHIII32s32s32s")  # 116 bytes
_MAGIC = b"GENC"
_VERSION = 1
_FIRST = 1
_LENGTH_BYTES = 4
_NONCE = bytes(12)  # fixed: a key encrypts one plaintext only
_RECORD = b"record"


@dataclass(frozen=True)
class EncryptedWindow:
    """One window of a group, sealed.

    Attributes:
        prev: the encrypted window before it; of the first of a domain the public window that it
            follows, or genesis, by its own name.
        is_first: whether it is that.
        alias: the look-up key of the window's own name.
        sealed_bytes: of each of its blocks.
        blocks: names of the sealed blocks, by layer.
        record: the ciphertext of the window's record.
    """

    epoch_id: EpochId
    prev: WindowId
    is_first: bool
    alias: PrefixKey
    sealed_bytes: int
    blocks: tuple[BlockId, ...]
    record: bytes

    @cached_property
    def encoding(self) -> bytes:
        """The canonical bytes. Raises: ValueError where parse_encrypted would refuse them."""
        if not _fits(self):
            raise ValueError("not an encrypted window")
        return self.clear + self.record

    @cached_property
    def clear(self) -> bytes:
        """All but the ciphertext, which is bound to it."""
        fixed = _FIXED.pack(
            _MAGIC,
            _VERSION,
            _FIRST if self.is_first else 0,
            len(self.blocks),
            self.sealed_bytes,
            len(self.record),
            self.epoch_id,
            self.prev,
            self.alias,
        )
        return fixed + b"".join(self.blocks)

    @cached_property
    def window_id(self) -> WindowId:
        """BLAKE3-256 of the encoding: the name that anybody can check."""
        return WindowId(digest(self.encoding))


Record = WindowRecord | EncryptedWindow


def keys_of(record: Record, prefix_key: PrefixKey) -> tuple[PrefixKey, ...]:
    """What a record is found under in a store.

    An encrypted one also by its own alias; and as one of its epoch, so that who keeps it can say
    whether there are any. Args: prefix_key: of an encrypted one the alias of that.
    """
    if isinstance(record, EncryptedWindow):
        return prefix_key, record.alias, PrefixKey(record.epoch_id)
    return (prefix_key,)


@dataclass(frozen=True)
class Encrypted:
    """A window that was sealed: what stands for its record, and for its particles."""

    window: EncryptedWindow
    particles: tuple[bytes, ...]


def alias_of(epoch: Epoch, name: bytes) -> PrefixKey:
    """What a member finds a window by: its own name's, or its prefix key's."""
    return PrefixKey(epoch.lookup_key(name))


def encrypt_window(
    epoch: Epoch,
    record: WindowRecord,
    particles: Sequence[bytes | bytearray | memoryview],
    prev: WindowId,
    size_bytes: int,
) -> Encrypted:
    """Seal a window with its blocks. Equal ones become equal ones, whoever does it.

    Args:
        prev: as EncryptedWindow has it.
        size_bytes: what all blocks of its profile are padded to (group.block_bytes).
    """
    head = bytes((VERSION,)) + epoch.epoch_id
    sealed = tuple(head + seal(epoch, memoryview(particle), size_bytes) for particle in particles)
    bare = EncryptedWindow(
        epoch_id=epoch.epoch_id,
        prev=prev,
        is_first=record.root is not None,
        alias=alias_of(epoch, record.window_id),
        sealed_bytes=HEAD_BYTES + sealed_bytes(size_bytes),
        blocks=tuple(BlockId(digest(particle)) for particle in sealed),
        record=bytes(sealed_bytes(record_bytes(record.encoding))),
    )
    encoding = record.encoding
    plain = len(encoding).to_bytes(_LENGTH_BYTES, "little") + encoding
    plain = plain.ljust(_LENGTH_BYTES + record_bytes(encoding), b"\0")
    cipher = _cipher(epoch, bare)
    return Encrypted(replace(bare, record=cipher.encrypt(_NONCE, plain, bare.clear)), sealed)


def decrypt_window(epoch: Epoch, window: EncryptedWindow) -> WindowRecord:
    """The record that was sealed.

    Raises:
        HashMismatch: of another epoch, or altered: blames whoever carried it.
        MalformedParticle: a member sealed what is no record of these blocks.
    """
    try:
        plain = _cipher(epoch, window).decrypt(_NONCE, window.record, window.clear)
    except InvalidTag:
        what = short(window.window_id)
        raise HashMismatch(f"encrypted window {what}: not sealed with this key") from None
    end = _LENGTH_BYTES + int.from_bytes(plain[:_LENGTH_BYTES], "little")
    record = parse_window(plain[_LENGTH_BYTES:end])
    agrees = (
        not any(plain[end:])
        and alias_of(epoch, record.window_id) == window.alias
        and len(record.blocks) == len(window.blocks)
    )
    if not agrees:
        raise MalformedParticle(f"encrypted window {short(window.window_id)} is of another window")
    return record


def open_block(epoch: Epoch, particle: bytes | memoryview, name: BlockId) -> memoryview:
    """The block in a sealed particle. Raises: HashMismatch, MalformedParticle."""
    if bytes(particle[:HEAD_BYTES]) != bytes((VERSION,)) + epoch.epoch_id:
        raise HashMismatch(f"block {short(name)}: sealed under another epoch")
    return unseal(epoch, particle[HEAD_BYTES:], name)


def parse_encrypted(data: bytes | memoryview, expected: WindowId | None = None) -> EncryptedWindow:
    """Bytes become an encrypted window; strict. No key is needed.

    Raises: HashMismatch, MalformedParticle.
    """
    data = bytes(data)
    if expected is not None and digest(data) != expected:
        raise HashMismatch(f"encrypted window {short(expected)}: the bytes are not the named ones")
    if len(data) < _FIXED.size:
        raise MalformedParticle(f"an encrypted window cannot be {len(data)} bytes")
    magic, version, flags, num_blocks, size, num_record, *names = _FIXED.unpack_from(data)
    if (magic, version) != (_MAGIC, _VERSION) or flags not in (0, _FIRST):
        raise MalformedParticle("not an encrypted window of a known version")
    record_at = _FIXED.size + ID_BYTES * num_blocks
    if len(data) != record_at + num_record:
        raise MalformedParticle("an encrypted window's lengths do not add up")
    epoch_id, prev, alias = names
    starts = range(_FIXED.size, record_at, ID_BYTES)
    window = EncryptedWindow(
        epoch_id=EpochId(epoch_id),
        prev=WindowId(prev),
        is_first=flags == _FIRST,
        alias=PrefixKey(alias),
        sealed_bytes=size,
        blocks=tuple(BlockId(data[at : at + ID_BYTES]) for at in starts),
        record=data[record_at:],
    )
    if not _fits(window):
        raise MalformedParticle("an encrypted window's fields are out of range")
    return window


def parse_record(data: bytes | memoryview, expected: WindowId | None = None) -> Record:
    """A window record of either kind. Raises: HashMismatch, MalformedParticle."""
    parse = parse_encrypted if bytes(data[: len(_MAGIC)]) == _MAGIC else parse_window
    return parse(data, expected)


def _cipher(epoch: Epoch, window: EncryptedWindow) -> ChaCha20Poly1305:
    """One key for each record behind each clear part: two messages under one would tell how to
    forge a third, and a window may be sealed again behind one that has another name since."""
    return ChaCha20Poly1305(blake3(_RECORD + window.clear, key=epoch.k_enc).digest())


def _fits(window: EncryptedWindow) -> bool:
    return (
        1 <= len(window.blocks) <= MAX_LAYERS
        and HEAD_BYTES < window.sealed_bytes <= MAX_SEALED_BYTES
        and _LENGTH_BYTES < len(window.record) <= MAX_RECORD_BYTES
    )
