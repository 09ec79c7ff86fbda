"""A stream over TLS over TCP that keeps the port's Stream.

Sockets never block and threads never wait: a worker thread en- or decrypts what is there and
returns, milliseconds later. So a cancelled call leaves no thread behind, and a silent peer
holds none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import trio

from glia.errors import PeerLost
from p2p.bulk.messages import BINDING_BYTES
from p2p.bulk.tls import Tunnel
from p2p.host import PeerId

T = TypeVar("T")

_BUFFER_BYTES = 256 * 1024
_PIECE_BYTES = 1024 * 1024  # encrypted at once
# Less takes no longer here (about 1 ms/MB) than the way to a thread and back.
_INLINE_BYTES = 64 * 1024
_RESET_S = 1.0


class BulkStream:
    """One side. After a cancelled read or write only `reset` is of use.

    Args:
        sock: connected; the stream owns it from now on.
        limiter: how many streams may have a worker thread at once.
        ended: called once, when the stream is reset.
    """

    def __init__(
        self,
        sock: trio.socket.SocketType,
        tunnel: Tunnel,
        peer: PeerId,
        limiter: trio.CapacityLimiter,
        ended: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._sock, self._tunnel, self._peer = sock, tunnel, peer
        self._limiter, self._ended = limiter, ended
        self._wire = memoryview(bytearray(_BUFFER_BYTES))
        self._plain = memoryview(bytearray(_BUFFER_BYTES))
        self._num_fed = 0
        self._early = bytearray()  # decrypted before it was asked for
        self._is_ended = self._is_torn = self._is_finished = False
        self._using_tls = trio.Lock()  # OpenSSL's object bears one thread at a time
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
            await trio.lowlevel.checkpoint()
            while True:
                if self._early:
                    data = bytes(self._early[:max_bytes])
                    del self._early[:max_bytes]
                    return data
                if self._is_ended:
                    return b""
                into = self._plain[:max_bytes]
                num = await self._use_tls(self._num_fed, lambda: self._tunnel.decrypt(into))  # noqa: B023
                self._num_fed = 0
                if num is None:
                    self._is_ended = True
                elif num:
                    return bytes(into[:num])
                else:
                    await self._fill()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data).cast("B")
        with self._whole():
            await trio.lowlevel.checkpoint()
            async with self._sending:
                if self._is_finished:
                    raise PeerLost("the stream was finished on this side")
                for at in range(0, len(view), _PIECE_BYTES):
                    piece = view[at : at + _PIECE_BYTES]
                    await self._write(
                        await self._use_tls(len(piece), lambda: self._tunnel.encrypt(piece))  # noqa: B023
                    )

    async def finish(self) -> None:
        with self._whole():
            async with self._sending:
                if not self._is_finished:
                    self._is_finished = True
                    async with self._using_tls:
                        last = self._say_last()
                    await self._write(last)

    async def reset(self) -> None:
        self._is_torn = True
        self._sock.close()
        ended, self._ended = self._ended, None
        with trio.CancelScope(deadline=trio.current_time() + _RESET_S, shield=True):
            if ended is not None:
                await ended()
            await trio.lowlevel.checkpoint()

    def _say_last(self) -> bytes:
        """OpenSSL closes only when it has decrypted all that was fed."""
        while num := self._tunnel.decrypt(self._plain):
            self._early += self._plain[:num]
        self._is_ended = self._is_ended or num is None
        return self._tunnel.finish()

    async def _use_tls(self, num_bytes: int, work: Callable[[], T]) -> T:
        async with self._using_tls:
            if num_bytes <= _INLINE_BYTES:
                return work()
            return await trio.to_thread.run_sync(work, limiter=self._limiter)

    async def _fill(self) -> None:
        num = await self._sock.recv_into(self._wire)
        async with self._using_tls:
            if num:
                self._tunnel.feed(self._wire[:num])
            else:
                self._tunnel.feed_end()
        self._num_fed = num

    async def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[await self._sock.send(view) :]

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
