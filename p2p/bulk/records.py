"""Records of a bulk stream: sealed one way, opened the other. No I/O (spec/bulk.md).

    record = u32 big-endian length || AES-256-GCM of so many bytes || tag of 16 bytes

The nonce is the record's number, the length is authenticated with it. Each direction has a
key of its own, so no nonce is used twice. An empty record ends a direction, but for the
first, which is empty, too, and says that the key is there.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from glia.errors import PeerLost

# three blocks of 64 KiB; the C library maps what is much larger (glia/allocator.py)
MAX_PLAIN_BYTES = 200 * 1024
# a key's 2^36 cipher blocks leave an advantage of 2^-57 at most, as TLS 1.3's limit does
MAX_RECORDS = 1 << 22
LENGTH_BYTES, _TAG_BYTES, _NONCE_BYTES = 4, 16, 12
MAX_RECORD_BYTES = LENGTH_BYTES + MAX_PLAIN_BYTES + _TAG_BYTES
_ROOM_BYTES = MAX_RECORD_BYTES + LENGTH_BYTES  # a record, and the length of the next


class _Numbered:
    """A key, and how many records it was used for."""

    def __init__(self, key: bytes) -> None:
        self.aead = AESGCM(key)
        self.num = 0

    def nonce(self) -> bytes:
        """Of the next record. Raises: PeerLost where the key has had all that it is good for."""
        if self.num == MAX_RECORDS:
            raise PeerLost("the stream has carried all that its key may")
        nonce = self.num.to_bytes(_NONCE_BYTES, "big")
        self.num += 1
        return nonce


class Sealer:
    """The side that writes."""

    def __init__(self, key: bytes) -> None:
        self._key = _Numbered(key)
        self._buffer = memoryview(bytearray(LENGTH_BYTES + _TAG_BYTES))

    def seal(self, plain: memoryview | bytes) -> memoryview:
        """A record of up to MAX_PLAIN_BYTES; good until the next one. Raises: PeerLost."""
        size = LENGTH_BYTES + len(plain) + _TAG_BYTES
        if size > len(self._buffer):
            num_bytes = min(MAX_RECORD_BYTES, max(size, 2 * len(self._buffer)))
            self._buffer = memoryview(bytearray(num_bytes))
        self._buffer[:LENGTH_BYTES] = length = len(plain).to_bytes(LENGTH_BYTES, "big")
        record = self._buffer[:size]
        self._key.aead.encrypt_into(self._key.nonce(), plain, length, record[LENGTH_BYTES:])
        return record


class Opener:
    """The side that reads. After an error it is of no more use."""

    def __init__(self, key: bytes) -> None:
        self._key = _Numbered(key)
        self._wire = memoryview(bytearray(_ROOM_BYTES))
        self._at = self._end = 0  # of what came and was not opened

    @property
    def num_unopened(self) -> int:
        """Bytes that came, and are no whole record yet, or were not looked at."""
        return self._end - self._at

    def room(self) -> memoryview:
        """Where to put what comes; then `came`. To be called where `next` gave None.

        It ends with the length of the next record, so that hardly anything is ever moved.
        """
        left = bytes(self._wire[self._at : self._end])
        self._wire[: len(left)] = left
        self._at, self._end = 0, len(left)
        if len(left) < LENGTH_BYTES:
            return self._wire[len(left) :]
        size = int.from_bytes(left[:LENGTH_BYTES], "big")
        return self._wire[len(left) : LENGTH_BYTES + size + _TAG_BYTES + LENGTH_BYTES]

    def came(self, num_bytes: int) -> None:
        """So many bytes were put there."""
        self._end += num_bytes

    def next(self) -> bytes | None:
        """What the next record holds; None where it is not whole.

        Raises: PeerLost, for a record that is too large, or that whoever has the key has not
            written just there, too: anybody on the way may have altered it.
        """
        start = self._at + LENGTH_BYTES
        if start > self._end:
            return None
        length = self._wire[self._at : start]
        size = int.from_bytes(length, "big")
        if size > MAX_PLAIN_BYTES:
            raise PeerLost(f"a record cannot have {size} bytes")
        end = start + size + _TAG_BYTES
        if end > self._end:
            return None
        try:
            plain = self._key.aead.decrypt(self._key.nonce(), self._wire[start:end], length)
        except InvalidTag as error:
            raise PeerLost("a record was altered on the way") from error
        self._at = end
        return plain
