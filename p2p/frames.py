"""Frames over a stream: a u32 big-endian length, then so many bytes (spec/exchange.md).

A length is held to its cap before anything is allocated for it, and every read and write
has a deadline. A frame cut short, or late, is PeerLost; one that breaks the rules is
RemoteProtocolError. After either the stream is of no more use.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio

from glia.errors import PeerLost, RemoteProtocolError
from p2p.host import Stream

LENGTH = struct.Struct(">I")
MAX_FRAME_BYTES = 64 * 1024
FRAME_TIMEOUT_S = 5.0  # for a frame that has begun

# a body moves at least so much in so long: 8 KiB/s (SECURITY T26)
PROGRESS_BYTES = 80 * 1024
PROGRESS_S = 10.0

_READ_BYTES = 128 * 1024  # fewer reads, fewer window updates; the C library maps larger ones
_PIECE_BYTES = 200 * 1024  # sent under one deadline
_PIECE_S = PROGRESS_S * _PIECE_BYTES / PROGRESS_BYTES


class Reader:
    """Takes whole things out of a stream; buffers one of them and _READ_BYTES.

    Args:
        took: told the number of bytes of each read, as they come.
    """

    def __init__(self, stream: Stream, took: Callable[[int], None] | None = None) -> None:
        self._stream = stream
        self._took = took
        self._data = b""  # what came last; what is before `_at` was taken
        self._at = 0

    @property
    def num_buffered(self) -> int:
        """Bytes that came and were not taken yet."""
        return len(self._data) - self._at

    async def length(self, timeout_s: float | None = None) -> int | None:
        """The length that a frame or body begins with; None where the stream ended before it.

        Raises: PeerLost.
        """
        if self.num_buffered < LENGTH.size:
            with _within(timeout_s, "said nothing"):
                if not self.num_buffered:
                    self._data, self._at = await self._receive(), 0
                    if not self._data:
                        return None
                return int.from_bytes(await self.exactly(LENGTH.size), "big")
        return int.from_bytes(await self.exactly(LENGTH.size), "big")

    async def frame(self, timeout_s: float | None = None) -> bytes | None:
        """A control frame's content; None where the stream ended before it.

        Args:
            timeout_s: until it begins; from then on it has FRAME_TIMEOUT_S.
        Raises: PeerLost; RemoteProtocolError for an empty frame or one over MAX_FRAME_BYTES.
        """
        length = await self.length(timeout_s)
        return None if length is None else await self.content(length)

    async def content(self, length: int) -> bytes:
        """What follows the length of a control frame. Raises: PeerLost, RemoteProtocolError."""
        if not 1 <= length <= MAX_FRAME_BYTES:
            raise RemoteProtocolError(f"a frame cannot be {length} bytes long")
        with _within(FRAME_TIMEOUT_S, "did not finish a frame"):
            return await self.exactly(length)

    async def exactly(self, num_bytes: int) -> bytes:
        """The next `num_bytes`; the caller has held the number to a cap. Raises: PeerLost."""
        end = self._at + num_bytes
        if end > len(self._data):
            return await self._gathered(num_bytes)
        data = self._data[self._at : end]
        self._at = end
        return data

    async def _gathered(self, num_bytes: int) -> bytes:
        """What comes in several reads."""
        found = bytearray(self._data[self._at :])
        self._data, self._at = b"", 0
        while len(found) < num_bytes:
            self._data = await self._receive()
            if not self._data:
                raise PeerLost("the stream ended in the middle of a frame")
            self._at = min(len(self._data), num_bytes - len(found))
            found += memoryview(self._data)[: self._at]
        return bytes(found)

    async def _receive(self) -> bytes:
        data = await self._stream.receive_some(_READ_BYTES)
        if data and self._took is not None:
            self._took(len(data))
        return data


def encode_frame(content: bytes) -> bytes:
    """Content with its length before it. Raises: ValueError where a peer would refuse it."""
    if not 1 <= len(content) <= MAX_FRAME_BYTES:
        raise ValueError(f"a frame cannot be {len(content)} bytes long")
    return LENGTH.pack(len(content)) + content


async def send_body(stream: Stream, data: bytes) -> None:
    """Send, as long as the other side takes at least 8 KiB/s. Raises: PeerLost."""
    view = memoryview(data)
    for at in range(0, len(view), _PIECE_BYTES):
        with _within(_PIECE_S, "does not read"):
            await stream.send_all(view[at : at + _PIECE_BYTES])


@contextmanager
def _within(timeout_s: float | None, what: str) -> Iterator[None]:
    """A deadline that is the peer's fault."""
    with trio.CancelScope() as scope:
        if timeout_s is not None:
            scope.deadline = trio.current_time() + timeout_s
        yield
    if scope.cancelled_caught:
        raise PeerLost(f"the peer {what} for {timeout_s:g} s")
