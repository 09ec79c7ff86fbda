"""What comes from one peer, cut into the particles that it owes. Sans-IO.

A length is held to what the peer is to send next before anything is kept for it. What came
whole is looked at where it lies; only a particle of which a part came is copied.
"""

from __future__ import annotations

from collections.abc import Callable

from glia.errors import RemoteProtocolError
from p2p.frames import LENGTH

_HEAD = LENGTH.size


class Incoming:
    """Of one stream.

    Args:
        expects: the size of the particle that is to come next; None where none is owed.
        take: has the next particle; it is good until this returns; an empty one is absent.
    """

    def __init__(
        self, expects: Callable[[], int | None], take: Callable[[memoryview], None]
    ) -> None:
        self._expects, self._take = expects, take
        self._part = bytearray()  # of a body that came in part

    @property
    def is_between(self) -> bool:
        """Whether nothing came in part."""
        return not self._part

    def took(self, data: bytes) -> None:
        """Bytes came. Raises: RemoteProtocolError for what was not asked for."""
        rest = self._continued(memoryview(data))
        at, end = 0, len(rest)
        while end - at >= _HEAD:
            start = at + _HEAD
            stop = start + self._length(rest[at:start])
            if stop > end:
                break
            self._take(rest[start:stop])
            at = stop
        self._part += rest[at:]

    def _continued(self, data: memoryview) -> memoryview:
        """What follows the body that came in part."""
        if not self._part:
            return data
        data = self._filled(data, _HEAD)
        if len(self._part) < _HEAD:
            return data
        size = _HEAD + self._length(self._part[:_HEAD])
        data = self._filled(data, size)
        if len(self._part) == size:
            body, self._part = memoryview(self._part), bytearray()
            self._take(body[_HEAD:])
        return data

    def _filled(self, data: memoryview, size: int) -> memoryview:
        """What is left when so many are there, or all of it."""
        num = max(0, size - len(self._part))
        self._part += data[:num]
        return data[num:]

    def _length(self, head: memoryview | bytearray) -> int:
        length, size = int.from_bytes(head, "big"), self._expects()
        if size is None:
            raise RemoteProtocolError("bytes that nobody asked for")
        if length not in (0, size):
            raise RemoteProtocolError(f"{length} bytes where a block has {size}")
        return length
