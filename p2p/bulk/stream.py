"""A stream of sealed records over TCP that keeps the port's Stream.

En- and decrypting is done where it stands, a quarter of a MiB at once at most, which holds
the loop for some 30 us. So there is no thread to be left behind, and nothing that a silent
peer could hold.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import trio

from glia.errors import PeerLost
from p2p.bulk.records import MAX_PLAIN_BYTES, Opener, Sealer
from p2p.host import PeerId

_TURN_BYTES = 512 * 1024  # read or written before others have their turn: 0.3 ms
_RECORD_BYTES = 8 * 1024  # what a record counts for at least: a small one costs as much
_RESET_S = 1.0


class BulkStream:
    """One side. After a cancelled read or write only `reset` is of use.

    Args:
        sock: connected, not blocking; the stream owns it from now on.
        send_key, receive_key: of AES-256-GCM.
        ended: called once, when the stream is reset.
    """

    def __init__(
        self,
        sock: socket.socket,
        send_key: bytes,
        receive_key: bytes,
        peer: PeerId,
        ended: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._sock, self._peer, self._ended = sock, peer, ended
        self._sealer, self._opener = Sealer(send_key), Opener(receive_key)
        self._opened, self._at = b"", 0  # the last record, and what of it was taken
        self._is_ended = self._is_torn = self._is_finished = False
        self._num_unyielded = 0
        self._sending = trio.Lock()  # records leave in the order they were sealed in

    @property
    def peer(self) -> PeerId:
        return self._peer

    async def greet(self) -> None:
        """Say that we have the keys: an empty record. Raises: PeerLost."""
        with self._whole():
            await self._write(self._sealer.seal(b""))

    async def be_greeted(self) -> None:
        """Wait until the peer has said so. The caller sets the deadline. Raises: PeerLost."""
        with self._whole():
            while (plain := self._opener.next()) is None:
                if not await self._fill():
                    raise PeerLost("the peer left before it was known")
        if plain:
            raise PeerLost("the peer did not say first that it has the key")

    async def receive_some(self, max_bytes: int) -> bytes:
        with self._whole():
            if self._at == len(self._opened) and not self._is_ended:
                await self._open_next()
            part = self._opened[self._at : self._at + max_bytes]  # of all of it this is no copy
            self._at += len(part)
            if self._is_ended:
                await trio.lowlevel.checkpoint()
        return part

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data).cast("B")
        with self._whole():
            await self._begin_to_send()
            try:
                if self._is_finished:
                    raise PeerLost("the stream was finished on this side")
                for at in range(0, len(view), MAX_PLAIN_BYTES):
                    await self._write(self._sealer.seal(view[at : at + MAX_PLAIN_BYTES]))
                await self._yield(len(view))
            finally:
                self._sending.release()

    async def finish(self) -> None:
        with self._whole():
            await self._begin_to_send()
            try:
                if not self._is_finished:
                    self._is_finished = True
                    await self._write(self._sealer.seal(b""))
            finally:
                self._sending.release()

    async def reset(self) -> None:
        self._is_torn = True
        if self._sock.fileno() >= 0:
            trio.lowlevel.notify_closing(self._sock)
            self._sock.close()
        ended, self._ended = self._ended, None
        with trio.CancelScope(deadline=trio.current_time() + _RESET_S, shield=True):
            if ended is not None:
                await ended()
            await trio.lowlevel.checkpoint()

    async def _begin_to_send(self) -> None:
        """Have the lock; without a turn of the loop where it is free."""
        try:
            self._sending.acquire_nowait()
        except trio.WouldBlock:
            await self._sending.acquire()

    async def _open_next(self) -> None:
        """The next record; where it is empty, that was the last. Raises: PeerLost."""
        while (plain := self._opener.next()) is None:
            if not await self._fill():
                raise PeerLost("the connection ended and the peer had not finished")
        self._opened, self._at, self._is_ended = plain, 0, not plain
        await self._yield(len(plain))

    async def _fill(self) -> bool:
        """More of the wire; False where it has ended."""
        room = self._opener.room()
        while True:
            try:
                num = self._sock.recv_into(room)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._sock)
                self._num_unyielded = 0
            else:
                self._opener.came(num)
                return num > 0

    async def _write(self, data: memoryview) -> None:
        while data:
            try:
                data = data[self._sock.send(data) :]
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self._sock)
                self._num_unyielded = 0

    async def _yield(self, num_bytes: int) -> None:
        """Let others have their turn, once in a while: after each piece it would cost as much
        as the piece."""
        self._num_unyielded += max(num_bytes, _RECORD_BYTES)
        if self._num_unyielded >= _TURN_BYTES:
            self._num_unyielded = 0
            await trio.lowlevel.checkpoint()

    @contextmanager
    def _whole(self) -> Iterator[None]:
        if self._is_torn:
            raise PeerLost("the stream was reset, or a read or write of it cancelled")
        try:
            yield
        except trio.Cancelled:
            self._is_torn = True
            raise
        except (OSError, trio.ClosedResourceError) as error:
            raise PeerLost(f"the connection broke: {error}") from error


def plain_socket(sock: trio.socket.SocketType) -> socket.socket:
    """The same connection without trio's turn after each call; `sock` is closed."""
    plain = socket.socket(sock.family, sock.type, sock.proto, fileno=sock.detach())
    plain.setblocking(False)
    return plain
