"""A stream over TLS over TCP that keeps the port's Stream.

En- and decrypting is done where it stands, a quarter of a MiB at once at most, which holds
the loop for some 0.2 ms. Worker threads were measured: the way there and back costs more
than half of what they take off (spec/bulk.md). So there is no thread to be left behind, and
nothing that a silent peer could hold.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import trio

from glia.errors import PeerLost, RemoteProtocolError
from p2p.bulk.messages import BINDING_BYTES
from p2p.bulk.tls import Tunnel
from p2p.host import PeerId

_BUFFER_BYTES = 256 * 1024
_TURN_BYTES = 512 * 1024  # read or written before others have their turn: 1 ms
_FED_BYTES = 32 * 1024  # at once: OpenSSL works off 1,200 changes of keys in so many, 60 ms
_MAX_MUTE_BYTES = 64 * 1024  # of the wire that bring nothing; the largest record has 16,640
_MUTE_RATIO = 8  # or so much to each byte that they bring
_RESET_S = 1.0


class BulkStream:
    """One side. After a cancelled read or write only `reset` is of use.

    Beside what a Stream raises, reading raises RemoteProtocolError where the peer sends what
    costs work and says nothing: changes of keys without end, which TLS allows.

    Args:
        sock: connected, not blocking; the stream owns it from now on.
        ended: called once, when the stream is reset.
    """

    def __init__(
        self,
        sock: socket.socket,
        tunnel: Tunnel,
        peer: PeerId,
        ended: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._sock, self._tunnel, self._peer, self._ended = sock, tunnel, peer, ended
        self._wire = memoryview(bytearray(_BUFFER_BYTES))
        self._plain = memoryview(bytearray(_BUFFER_BYTES))
        self._unfed = self._wire[:0]
        self._early = bytearray()  # decrypted before it was asked for
        self._is_ended = self._is_torn = self._is_finished = False
        self._num_unyielded = self._num_mute = 0
        self._sending = trio.Lock()  # records leave in the order they were encrypted in

    @property
    def peer(self) -> PeerId:
        return self._peer

    async def shake_hands(self, ours: bytes, theirs: bytes) -> None:
        """TLS's handshake, then the bindings, ours and the one expected of the peer.

        The caller sets the deadline. Raises: PeerLost.
        """
        with self._whole():
            while not self._tunnel.handshake():
                await self._write(self._tunnel.encrypt(memoryview(b"")))
                await self._fill()
        await self.send_all(ours)
        said = b""
        while len(said) < BINDING_BYTES:
            part = await self.receive_some(BINDING_BYTES - len(said))
            if not part:
                raise PeerLost("the peer left before it was known")
            said += part
        if said != theirs:
            raise PeerLost("the peer takes this connection for another")

    async def receive_some(self, max_bytes: int) -> bytes:
        with self._whole():
            while (data := self._decrypted(max_bytes)) is None:
                await self._fill()
            if not data:
                await trio.lowlevel.checkpoint()
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data).cast("B")
        with self._whole():
            await self._begin_to_send()
            try:
                if self._is_finished:
                    raise PeerLost("the stream was finished on this side")
                for at in range(0, len(view), _BUFFER_BYTES):
                    await self._write(self._tunnel.encrypt(view[at : at + _BUFFER_BYTES]))
                await self._yield(len(view))
            finally:
                self._sending.release()

    async def finish(self) -> None:
        with self._whole():
            await self._begin_to_send()
            try:
                if not self._is_finished:
                    self._is_finished = True
                    await self._write(self._say_last())
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

    def _decrypted(self, max_bytes: int) -> bytes | None:
        """Up to so many bytes, or b"" for the end; None where more must come first."""
        if self._early:
            data = bytes(self._early[:max_bytes])
            del self._early[:max_bytes]
            return data
        if self._is_ended:
            return b""
        into = self._plain[:max_bytes]
        at = num = self._take(into)
        while self._unfed and num and not self._is_ended and at < len(into):
            self._feed()
            num = self._take(into[at:])
            at += num
        return bytes(into[:at]) if at or self._is_ended else None

    def _take(self, into: memoryview) -> int:
        num = self._tunnel.decrypt(into)
        self._is_ended = num is None
        self._num_mute = max(0, self._num_mute - _MUTE_RATIO * (num or 0))
        return num or 0

    def _feed(self) -> None:
        """Some of what came, to OpenSSL. Raises: RemoteProtocolError."""
        part, self._unfed = self._unfed[:_FED_BYTES], self._unfed[_FED_BYTES:]
        self._num_mute += len(part)
        if self._num_mute > _MAX_MUTE_BYTES + _FED_BYTES:
            raise RemoteProtocolError("the peer sends much and says nothing")
        self._tunnel.feed(part)

    def _say_last(self) -> bytes:
        """OpenSSL closes only when it has decrypted all that was fed."""
        num = None if self._is_ended else self._tunnel.decrypt(self._plain)
        while num:
            self._early += self._plain[:num]
            num = self._tunnel.decrypt(self._plain)
        self._is_ended = num is None
        return self._tunnel.finish()

    async def _fill(self) -> None:
        while not self._unfed:
            try:
                num = self._sock.recv_into(self._wire)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._sock)
                self._num_unyielded = 0
                continue
            if not num:
                self._tunnel.feed_end()
                return
            self._unfed = self._wire[:num]
            await self._yield(num)
        if self._num_mute >= _FED_BYTES:  # changes of keys, perhaps, which take long
            await trio.lowlevel.checkpoint()
        self._feed()

    async def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[self._sock.send(view) :]
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self._sock)

    async def _yield(self, num_bytes: int) -> None:
        """Let others have their turn, once in a while: after each piece it would cost as much
        as the piece."""
        self._num_unyielded += num_bytes
        if not num_bytes or self._num_unyielded >= _TURN_BYTES:
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
