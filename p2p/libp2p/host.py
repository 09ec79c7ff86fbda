"""The port's host on libp2p."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import trio
from libp2p.custom_types import TProtocol
from libp2p.exceptions import BaseLibp2pError
from libp2p.network.connection.swarm_connection import SwarmConn
from libp2p.peer.id import ID
from libp2p.rcmgr import Direction as LibraryDirection

from glia.errors import BadRequest, PeerRefused, PeerUnreachable, RemoteProtocolError
from p2p.host import Address, Connection, Direction, Found, Handler, Limits, PeerId, Stream
from p2p.libp2p.basic import GuardedHost
from p2p.libp2p.book import AddressBook
from p2p.libp2p.names import address_text, own_addresses, parse_address, peer_object, peer_text
from p2p.libp2p.stream import LibP2PStream
from p2p.libp2p.streams import on_port
from p2p.libp2p.swarm import GuardedSwarm

_ERRORS = (BaseLibp2pError, RemoteProtocolError, OSError, trio.TooSlowError)

OnChange = Callable[[PeerId, bool], None]


@dataclass(frozen=True, slots=True)
class _Seen:
    since_s: float
    rtt_s: float | None = None


class LibP2PHost:
    """Keeps `p2p.host.Host`.

    Args:
        on_change: told of each peer that connects (True) or has no connection left (False).
    """

    def __init__(
        self,
        basic: GuardedHost,
        swarm: GuardedSwarm,
        book: AddressBook,
        limits: Limits,
        on_change: OnChange,
    ) -> None:
        self._basic, self._swarm, self._book, self._limits = basic, swarm, book, limits
        self._on_change = on_change
        self._seen: dict[PeerId, _Seen] = {}
        self._dialling: dict[PeerId, trio.Lock] = {}
        swarm.on_connect, swarm.on_disconnect = self._connected, self._disconnected

    @property
    def peer_id(self) -> PeerId:
        return peer_text(self._basic.get_id())

    def addresses(self) -> Sequence[Address]:
        return own_addresses(self._basic)

    def connections(self) -> Sequence[Connection]:
        return [self._listed(peer) for peer in self._swarm.connections if self._swarm.live(peer)]

    def _listed(self, peer: ID) -> Connection:
        name, first = peer_text(peer), self._swarm.connections[peer][0]
        is_inbound = isinstance(first, SwarmConn) and first.direction is LibraryDirection.INBOUND
        direction: Direction = "in" if is_inbound else "out"
        places = first.get_transport_addresses()
        seen = self._seen.get(name, _Seen(0.0))
        return Connection(
            peer=name,
            address=address_text(places[0], name) if places else Address(""),
            direction=direction,
            since_s=seen.since_s,
            agent=self._basic.identities.agent(name),
            rtt_s=seen.rtt_s,
            remote_ip=_remote_ip(first),
        )

    def serve(self, protocol: str, handler: Handler, *, timeout_s: float | None = None) -> None:
        limit_s = self._limits.handler_timeout_s if timeout_s is None else timeout_s
        self._basic.serve(protocol, on_port(handler), self._limits.max_streams_per_peer, limit_s)

    async def connect(self, address: Address) -> PeerId:
        _, peer = parse_address(address)
        if peer == self.peer_id:
            raise BadRequest("that is the address of this node")
        await self._reach(peer, (address,))
        self._book.learn(Found(peer, (address,)))
        return peer

    async def _reach(self, peer: PeerId, addresses: Sequence[Address]) -> None:
        """Dial, one address after the other, unless there is a connection.

        Raises: PeerUnreachable, PeerRefused.
        """
        found = peer_object(peer)
        if found in self._swarm.banned:
            raise PeerRefused(f"peer {peer} is banned here")
        lock = self._dialling.setdefault(peer, trio.Lock())
        try:
            async with lock:
                if not self._swarm.live(found):
                    await self._dial(found, addresses)
        finally:
            if not lock.statistics().tasks_waiting:
                self._dialling.pop(peer, None)

    async def _dial(self, peer: ID, addresses: Sequence[Address]) -> None:
        why = "no address of it is known"
        for address in addresses:
            try:
                with trio.fail_after(self._limits.dial_timeout_s):
                    await self._swarm.dial_addr(parse_address(address)[0], peer)
                return
            except trio.TooSlowError:
                why = f"{address} does not answer"
            except Exception as error:  # a peer's handshake can make anything of it
                why = f"{address}: {error}"
        raise PeerUnreachable(f"peer {peer} cannot be reached: {why}")

    async def open(self, peer: PeerId, protocol: str) -> Stream:
        found = await self._reached(peer)
        try:
            return await self._open(found, protocol)
        except PeerUnreachable:
            if self._swarm.live(found):
                raise
        await self._reached(peer)  # the connection there was had just ended
        return await self._open(found, protocol)

    async def _open(self, peer: ID, protocol: str) -> Stream:
        """Raises: PeerUnreachable, PeerRefused."""
        try:
            return LibP2PStream(await self._basic.new_stream(peer, [TProtocol(protocol)]))
        except _ERRORS as error:
            raise PeerUnreachable(f"peer {peer} opens no stream: {error}") from error

    async def _reached(self, peer: PeerId) -> ID:
        """Raises: PeerUnreachable, PeerRefused."""
        try:
            found = peer_object(peer)
        except BadRequest as error:
            raise PeerUnreachable(error.message) from error
        await self._reach(peer, self._book.addresses(peer))
        return found

    async def disconnect(self, peer: PeerId) -> None:
        await self._swarm.close_peer(peer_object(peer))

    async def ping(self, peer: PeerId) -> float:
        found = await self._reached(peer)
        try:
            rtt_s = await self._basic.ping(found)
        except _ERRORS as error:
            raise PeerUnreachable(f"peer {peer} answers no ping: {error}") from error
        if peer in self._seen:
            self._seen[peer] = replace(self._seen[peer], rtt_s=rtt_s)
        return rtt_s

    def ban(self, peer: PeerId, is_banned: bool) -> None:
        found = peer_object(peer)
        if not is_banned:
            self._swarm.banned.discard(found)
            return
        self._swarm.banned.add(found)
        if self._swarm.get_connections(found):
            self._swarm.manager.run_task(self.disconnect, peer)

    def _connected(self, peer: ID) -> None:
        name = peer_text(peer)
        self._seen[name] = _Seen(trio.current_time())
        self._on_change(name, True)

    def _disconnected(self, peer: ID) -> None:
        name = peer_text(peer)
        self._basic.identities.forget(name)
        if self._seen.pop(name, None) is not None:
            self._on_change(name, False)


def _remote_ip(connection: object) -> str:
    """Of the socket; what a peer says of itself is no matter."""
    muxed = getattr(connection, "muxed_conn", None)
    remote = muxed.get_remote_address() if muxed is not None else None
    return str(remote[0]) if remote else ""
