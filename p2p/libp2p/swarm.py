"""The library's swarm with a doorman, and without its stores of grudges and leaks."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, cast

import trio
from libp2p.abc import IMuxedConn, INetConn, INetStream, IPeerStore
from libp2p.io.abc import ReadWriteCloser
from libp2p.network.auto_connector import AutoConnector
from libp2p.network.config import ConnectionConfig, RetryConfig
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.network.connection.swarm_connection import SwarmConn
from libp2p.network.exceptions import SwarmException
from libp2p.network.stream.net_stream import NetStream
from libp2p.network.swarm import Swarm
from libp2p.peer.id import ID
from libp2p.transport.upgrader import TransportUpgrader
from multiaddr import Multiaddr

from p2p.crowds import crowd_of
from p2p.host import Limits
from p2p.libp2p.banned import Banned
from p2p.libp2p.doorman import Doorman
from p2p.libp2p.listener import GuardedTCP, Listener
from p2p.libp2p.yamux import GuardedYamux

_REDIAL_S = 1.0  # the library does not dial a peer for a minute after it failed once
_log = logging.getLogger("gliad.p2p.libp2p")


class _NoAutoConnector(AutoConnector):
    """Dials nobody: the library's dials whom it has heard of, up to half of the limit."""

    async def start(self) -> None:
        pass

    async def run_background_task(self, nursery: trio.Nursery) -> None:
        pass

    async def maybe_connect(self) -> None:
        pass


class GuardedSwarm(Swarm):
    """Connections.

    Attributes:
        banned: peers whose connections are refused.
        on_connect, on_disconnect: told of a peer's first connection and of its last.
    """

    def __init__(
        self,
        peer_id: ID,
        peerstore: IPeerStore,
        upgrader: TransportUpgrader,
        limits: Limits,
        psk: str | None,
    ) -> None:
        self._doorman = Doorman(limits)
        self._limits = limits
        self.banned = Banned()
        self.on_connect: Callable[[ID], None] = lambda peer: None
        self.on_disconnect: Callable[[ID], None] = lambda peer: None
        super().__init__(
            peer_id,
            peerstore,
            upgrader,
            transports=[GuardedTCP()],
            retry_config=RetryConfig(max_retries=0),
            connection_config=_connection_config(limits),
            psk=psk,
        )
        self._negative_peer_cache._ttl = _REDIAL_S
        self.auto_connector = _NoAutoConnector(self)

    async def _handle_inbound_connection(
        self, read_write_closer: ReadWriteCloser, maddr: Multiaddr
    ) -> None:
        """Its handshake within its time and place; then until it is closed, and no longer."""
        remote = read_write_closer.get_remote_address()
        address = crowd_of(remote[0]) if remote else ""
        with trio.move_on_after(self._limits.handshake_timeout_s) as scope:
            ticket = self._doorman.admit(address, trio.current_time(), scope.cancel)
            if ticket is None:
                return
            try:
                muxed = await self.upgrade_inbound_raw_conn(
                    RawConnection(read_write_closer, False), maddr
                )
                self._doorman.made(ticket, trio.current_time())
            except Exception as error:
                self._doorman.failed(ticket, trio.current_time())
                _log.debug("a handshake from %s failed: %r", address, error)
                return
            finally:
                self._doorman.forget(ticket)
        if scope.cancelled_caught:
            return
        try:
            await muxed.event_closed.wait()  # type: ignore[attr-defined]
        finally:
            self._doorman.ended(address)

    async def add_conn(self, muxed_conn: IMuxedConn, direction: str = "unknown") -> SwarmConn:
        """Raises: SwarmException where the peer is banned, or has enough of them."""
        peer = muxed_conn.peer_id
        if peer in self.banned:
            await muxed_conn.close()
            raise SwarmException(f"peer {peer} is banned")
        if len(self.connections.get(peer, ())) >= self._limits.max_connections_per_peer:
            await muxed_conn.close()
            raise SwarmException(f"peer {peer} has connections enough")
        return await super().add_conn(muxed_conn, direction)

    async def new_stream(self, peer_id: ID) -> INetStream:
        """Raises: SwarmException. The stream is the caller's to reset: the connection's list of
        them, where they would stay until it ends, is not used."""
        connections = self.live(peer_id) or await self.dial_peer(peer_id)
        with trio.CancelScope(shield=True):
            try:
                stream = await connections[0].new_stream()
            except Exception as error:
                raise SwarmException(f"no stream to peer {peer_id}: {error}") from error
            cast(SwarmConn, connections[0]).remove_stream(cast(NetStream, stream))
        return stream

    def live(self, peer: ID) -> list[INetConn]:
        """A peer's connections, without those that are about to end."""
        return [
            each
            for each in self.connections.get(peer, ())
            if not each.is_closed
            and not cast(GuardedYamux, each.muxed_conn).event_shutting_down.is_set()
        ]

    async def shut(self) -> None:
        """Close every socket, without a word: the library's way stops at a cancellation, or
        takes 0.1 s for each connection."""
        with trio.CancelScope(shield=True):
            for listener in self.listeners.values():
                cast(Listener, listener).shut()
            for connection in self.get_connections():
                muxed = cast(GuardedYamux, connection.muxed_conn)
                muxed.event_shutting_down.set()
                await muxed.secured_conn.close()

    async def notify_connected(self, conn: Any) -> None:
        peer = conn.muxed_conn.peer_id
        if len(self.get_connections(peer)) == 1:
            self.on_connect(peer)
        await super().notify_connected(conn)

    async def notify_disconnected(self, conn: Any) -> None:
        peer = conn.muxed_conn.peer_id
        if not self.get_connections(peer):
            self.on_disconnect(peer)
        await super().notify_disconnected(conn)

    async def notify_opened_stream(self, stream: INetStream) -> None:
        """Nobody listens, and the library starts a task for each who does not."""

    async def notify_closed_stream(self, stream: INetStream) -> None:
        """As above."""
        if isinstance(stream, NetStream):
            stream._resource_released = True


def _connection_config(limits: Limits) -> ConnectionConfig:
    return ConnectionConfig(
        max_connections=limits.max_connections,
        min_connections=0,
        low_watermark=0,
        high_watermark=limits.max_connections,
        max_connections_per_peer=limits.max_connections_per_peer,
        dial_timeout=limits.dial_timeout_s,
        inbound_upgrade_timeout=limits.handshake_timeout_s,
        outbound_upgrade_timeout=limits.dial_timeout_s,
        inbound_stream_protocol_negotiation_timeout=limits.handshake_timeout_s,
        outbound_stream_protocol_negotiation_timeout=limits.dial_timeout_s,
    )
