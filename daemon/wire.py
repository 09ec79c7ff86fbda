"""One connection's bytes, on trio: frames in, frames and descriptors out.

What is posted is encoded at once and sent by a task of its own, so that a client that
does not read holds up nobody else: past a bound in bytes it is dropped.
"""

from __future__ import annotations

import array
import socket
import struct
from collections import deque
from dataclasses import dataclass

import trio
from msgspec import Struct

from glia.errors import LocalProtocolError, QuotaExceeded
from glia.local.frames import FrameParser, decode_from_client, encode_frame
from glia.local.messages import ClientMessage

_RECEIVE_BYTES = 256 * 1024
_FULL_BYTES = 8 * 1024 * 1024
_HIGH_BYTES = 1024 * 1024
_JOINED_BYTES = 64 * 1024
_PEER = struct.Struct("3i")


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is on the other side, as the kernel says."""

    pid: int
    uid: int


def peer_of(sock: trio.socket.SocketType) -> Peer:
    """SO_PEERCRED."""
    data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    pid, uid, _ = _PEER.unpack(data)
    return Peer(pid, uid)


class Wire:
    """A connected socket. One task receives, `run_sender` sends.

    Attributes:
        lost: set once nothing is sent any more.
    """

    def __init__(self, sock: trio.socket.SocketType) -> None:
        self._sock = sock
        self._parser = FrameParser()
        self._outbox: deque[tuple[bytes, int | None]] = deque()
        self._waiting_bytes = 0
        self._posted = trio.Event()
        self._sent = trio.Event()
        self.lost = trio.Event()

    async def receive(self) -> list[ClientMessage] | None:
        """Messages that have arrived, at least one; None at the end.

        Raises: RemoteProtocolError.
        """
        while True:
            try:
                data = await self._sock.recv(_RECEIVE_BYTES)
            except OSError:
                return None
            if not data:
                return None
            frames = self._parser.feed(data)
            if frames:
                return [decode_from_client(frame) for frame in frames]

    def post(self, message: Struct, fd: int | None = None) -> None:
        """Send a message soon, with a descriptor that must stay open until `drained`.

        Raises: QuotaExceeded where the other side has not read for too long.
        """
        if self.lost.is_set():
            return
        frame = bytes(encode_frame(message))
        if self._waiting_bytes + len(frame) > _FULL_BYTES:
            raise QuotaExceeded("the client does not read its answers")
        self._outbox.append((frame, fd))
        self._waiting_bytes += len(frame)
        self._posted.set()

    async def ready(self) -> None:
        """Return when what waits to be sent is little."""
        while self._waiting_bytes > _HIGH_BYTES and not self.lost.is_set():
            await self._sent.wait()

    async def drained(self) -> None:
        """Return when everything posted was sent."""
        while self._waiting_bytes and not self.lost.is_set():
            await self._sent.wait()

    def lose(self) -> None:
        """The other side reads no more: what waits, and what is posted, goes nowhere."""
        self.lost.set()
        self._outbox.clear()
        self._sent.set()

    async def run_sender(self) -> None:
        """Send what is posted, for ever. Raises: OSError where the other side is gone."""
        while True:
            while not self._outbox:
                self._posted = trio.Event()
                await self._posted.wait()
            frame, fd = self._outbox.popleft()
            if fd is None:
                frame = self._join(frame)
                await self._send(frame)
            else:
                await self._send_descriptor(frame, fd)
            self._waiting_bytes -= len(frame)
            finished, self._sent = self._sent, trio.Event()
            finished.set()

    def close(self) -> None:
        """Close the socket. Idempotent."""
        self._sock.close()

    def _join(self, frame: bytes) -> bytes:
        """`frame` with the small frames behind it: one system call for many."""
        parts, length = [frame], len(frame)
        while self._outbox and self._outbox[0][1] is None and length < _JOINED_BYTES:
            parts.append(self._outbox.popleft()[0])
            length += len(parts[-1])
        return b"".join(parts)

    async def _send(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[await self._sock.send(rest) :]

    async def _send_descriptor(self, data: bytes, fd: int) -> None:
        rights = array.array("i", [fd]).tobytes()
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)]
        sent = await self._sock.sendmsg([data], ancillary)
        if not sent:
            raise LocalProtocolError("a descriptor was not sent")
        await self._send(data[sent:])
