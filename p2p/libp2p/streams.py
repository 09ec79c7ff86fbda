"""Inbound streams: how many, how long, and that what a handler raises stays here."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable

import trio
from libp2p.abc import INetStream
from libp2p.exceptions import BaseLibp2pError
from libp2p.peer.id import ID

from glia.errors import NetworkError, PeerLost, RemoteProtocolError
from p2p.host import Handler, Stream
from p2p.libp2p.stream import LibP2PStream

_LINGER_S = 2.0  # for the peer to finish, once we have
_LINGER_BYTES = 65_536
LIBRARY_ERRORS = (BaseLibp2pError, trio.TooSlowError)  # a peer that is gone, or sends too much
_log = logging.getLogger("gliad.p2p.libp2p")


class InboundStreams:
    """Runs handlers within bounds.

    Attributes:
        counters: `handler_faults`, `streams_refused`, `streams_late`.
    """

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self._under_way: Counter[tuple[ID, str]] = Counter()

    def bounded(
        self,
        protocol: str,
        handler: Callable[[INetStream], Awaitable[None]],
        *,
        max_per_peer: int,
        timeout_s: float,
    ) -> Callable[[INetStream], Awaitable[None]]:
        """A handler of the library's streams that keeps within these, and never raises."""

        async def run(stream: INetStream) -> None:
            place = (stream.muxed_conn.peer_id, protocol)
            if self._under_way[place] >= max_per_peer:
                self.counters["streams_refused"] += 1
                await stream.reset()
                return
            self._under_way[place] += 1
            try:
                await self._run(handler, stream, protocol, timeout_s)
            finally:
                self._under_way[place] -= 1
                if not self._under_way[place]:
                    del self._under_way[place]

        return run

    async def _run(
        self,
        handler: Callable[[INetStream], Awaitable[None]],
        stream: INetStream,
        protocol: str,
        timeout_s: float,
    ) -> None:
        with trio.move_on_after(timeout_s) as scope:
            try:
                await handler(stream)
                return
            except (NetworkError, RemoteProtocolError, *LIBRARY_ERRORS) as error:
                _log.debug("%s of %s: %s", protocol, stream.muxed_conn.peer_id, error)
            except Exception:
                self.counters["handler_faults"] += 1
                _log.exception("a handler of %s failed", protocol)
        self.counters["streams_late"] += scope.cancelled_caught
        await LibP2PStream(stream).reset()


def on_port(handler: Handler) -> Callable[[INetStream], Awaitable[None]]:
    """A handler of the port as one of the library's streams: it need not finish or reset."""

    async def run(stream: INetStream) -> None:
        own = LibP2PStream(stream)
        await handler(own)
        await _end(own)

    return run


async def _end(stream: Stream) -> None:
    """Finish, read to the peer's end or give it up."""
    try:
        await stream.finish()
        with trio.move_on_after(_LINGER_S):
            while await stream.receive_some(_LINGER_BYTES):
                pass
            return
    except PeerLost:
        return
    await stream.reset()
