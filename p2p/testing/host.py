"""One host of the world: the port of p2p/host.py, kept in memory."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol

import trio

from glia.errors import BadRequest, PeerLost, PeerRefused, PeerUnreachable
from p2p.host import Address, Connection, Handler, Limits, PeerId, Stream
from p2p.testing.connection import SimConnection
from p2p.testing.gossip import SimGossip
from p2p.testing.names import peer_in
from p2p.testing.records import DEAF_S, Records, SimDirectory, Validate
from p2p.testing.road import Road
from p2p.testing.stream import SimStream, stream_pair

_DIAL_ROUND_TRIPS = 4  # TCP, security, muxer, identify
_log = logging.getLogger("gliad.p2p.testing")


class World(Protocol):
    """What a host needs of the internet it is in."""

    def at(self, peer: PeerId) -> SimHost | None:
        """The host that has this peer id, if it is there."""

    def road(self, start: str, end: str) -> Road:
        """From one host to another."""

    def note(self, kind: str, *details: str | int) -> None:
        """Add an event to the trace."""

    def start(self, work: Callable[..., Awaitable[object]], *args: Any) -> None:
        """Run something beside."""


class SimHost:
    """A host on a simulated internet (`Internet.host`).

    Attributes:
        name: in the world.
        directory, gossip: the other ports.
        counters: what was refused, dropped or failed here.
        records: what it keeps of the directory for others.
    """

    def __init__(
        self,
        world: World,
        name: str,
        peer: PeerId,
        address: Address,
        limits: Limits,
        validate: Validate,
    ) -> None:
        self.name = name
        self.counters = Counter[str]()
        self.records = Records(peer, validate)
        self.directory = SimDirectory(
            peer, address, self.records, self._reach, self._learn, self._note, world.start
        )
        self.gossip = SimGossip(self._spread, self._note)
        self._world, self._peer, self._address, self._limits = world, peer, address, limits
        self._handlers: dict[str, tuple[Handler, float]] = {}
        self._known: dict[PeerId, Address] = {}
        self._connections: dict[PeerId, SimConnection[SimHost]] = {}
        self.records.connected = self._connections.keys
        self._banned: set[PeerId] = set()
        self._under_way = Counter[tuple[PeerId, str]]()
        self._answering: dict[trio.CancelScope, None] = {}

    @property
    def peer_id(self) -> PeerId:
        return self._peer

    def addresses(self) -> Sequence[Address]:
        return (self._address,)

    def connections(self) -> Sequence[Connection]:
        return [connection.listed() for connection in self._connections.values()]

    def serve(self, protocol: str, handler: Handler, *, timeout_s: float | None = None) -> None:
        limit_s = self._limits.handler_timeout_s if timeout_s is None else timeout_s
        self._handlers[protocol] = handler, limit_s

    async def connect(self, address: Address) -> PeerId:
        peer = peer_in(address)
        if peer == self._peer:
            raise BadRequest("that is the address of this node")
        if peer not in self._connections:
            await self._dial(peer, address)
        else:
            await trio.lowlevel.checkpoint()
        return peer

    async def open(self, peer: PeerId, protocol: str) -> Stream:
        if peer in self._banned:
            raise PeerRefused(f"peer {peer} is banned here")
        if peer not in self._connections:
            if peer not in self._known:
                raise PeerUnreachable(f"no address of peer {peer} is known")
            await self._dial(peer, self._known[peer])
        connection = self._connections[peer]
        if not await connection.round_trip(self._limits.dial_timeout_s):
            raise PeerUnreachable(f"peer {peer} does not answer")
        if protocol not in connection.other._handlers:
            raise PeerRefused(f"peer {peer} does not speak {protocol}")
        self._note("open", connection.other.name, protocol)
        return self._stream(connection, protocol)

    async def disconnect(self, peer: PeerId) -> None:
        connection = self._connections.get(peer)
        if connection is not None:
            self.drop(peer)
            connection.other.drop(self._peer)
        await trio.lowlevel.checkpoint()

    async def ping(self, peer: PeerId) -> float:
        connection = self._connections.get(peer)
        if connection is None:
            raise PeerUnreachable(f"peer {peer} is not connected")
        began_s = trio.current_time()
        if not await connection.round_trip(self._limits.dial_timeout_s):
            raise PeerLost(f"peer {peer} does not answer")
        connection.rtt_s = trio.current_time() - began_s
        return connection.rtt_s

    def ban(self, peer: PeerId, is_banned: bool) -> None:
        if not is_banned:
            self._banned.discard(peer)
            return
        self._banned.add(peer)
        connection = self._connections.get(peer)
        if connection is not None:
            self.drop(peer)
            connection.other.drop(self._peer)

    def drop(self, peer: PeerId, *, is_told: bool = True) -> None:
        """This side's end of a connection is gone."""
        connection = self._connections.pop(peer, None)
        if connection is not None:
            self._note("dropped", connection.other.name)
            connection.lose(is_told=is_told)

    def end(self, *, is_told: bool) -> None:
        """The process is gone: its handlers, its connections, all that it remembered."""
        self.directory.end()
        for scope in list(self._answering):
            scope.cancel()
        for peer, connection in list(self._connections.items()):
            self.drop(peer, is_told=is_told)
            if is_told:
                connection.other.drop(self._peer)

    def wake(self) -> None:
        """A road has healed."""
        for connection in self._connections.values():
            connection.wake()

    async def _dial(self, peer: PeerId, address: Address) -> None:
        other = self._world.at(peer)
        there = None if other is None else self._world.road(self.name, other.name)
        limit_s = self._limits.dial_timeout_s
        wait_s = limit_s
        if other is not None and there is not None:
            back = self._world.road(other.name, self.name)
            rtt_s = there.link.latency_s + back.link.latency_s
            wait_s = min(limit_s, _DIAL_ROUND_TRIPS * rtt_s)
        await trio.sleep(wait_s)
        if peer in self._connections:
            return
        is_there = other is not None and self._world.at(peer) is other
        if other is None or there is None or not is_there or other._address != address:
            raise PeerUnreachable(f"peer {peer} does not answer")
        if there.is_cut or wait_s == limit_s:
            await trio.sleep(limit_s - wait_s)
            raise PeerUnreachable(f"peer {peer} does not answer")
        if there.draw(there.link.refuse) or not (self._has_room(peer) and other.admits(self._peer)):
            raise PeerUnreachable(f"peer {peer} does not take the connection")
        self._meet(other)

    def admits(self, peer: PeerId) -> bool:
        """Whether a peer may connect now."""
        if self._has_room(peer):
            return True
        self.counters["connections_refused"] += 1
        return False

    def _has_room(self, peer: PeerId) -> bool:
        return peer not in self._banned and len(self._connections) < self._limits.max_connections

    def _meet(self, other: SimHost) -> None:
        there = self._world.road(self.name, other.name)
        back = self._world.road(other.name, self.name)
        self._connections[other.peer_id] = SimConnection(
            other, other.peer_id, other._address, "out", there, back
        )
        other._connections[self._peer] = SimConnection(
            self, self._peer, self._address, "in", back, there
        )
        self._learn(other.peer_id, other._address)
        other._learn(self._peer, self._address)
        self._note("connected", other.name)
        self.directory.met(other.peer_id)
        other.directory.met(self._peer)

    def _learn(self, peer: PeerId, address: Address) -> None:
        self._known[peer] = address

    def _stream(self, connection: SimConnection[SimHost], protocol: str) -> SimStream:
        other = connection.other
        ours, theirs = stream_pair(
            (self._peer, other._peer),
            (connection.there, connection.back),
            (self._note, other._note),
        )
        connection.keep(ours)
        other._take(self._peer, protocol, theirs)
        return ours

    def _take(self, peer: PeerId, protocol: str, stream: SimStream) -> None:
        """An inbound stream: to its handler, or away with it."""
        key = peer, protocol
        if peer in self._banned or self._under_way[key] >= self._limits.max_streams_per_peer:
            self.counters["streams_refused"] += 1
            stream.lose()
            return
        self._under_way[key] += 1
        self._connections[peer].keep(stream)
        handler, limit_s = self._handlers[protocol]
        scope = trio.CancelScope(deadline=trio.current_time() + limit_s)
        self._answering[scope] = None  # from here on, so that `end` finds it
        self._world.start(self._answer, key, handler, stream, scope)

    async def _answer(
        self,
        key: tuple[PeerId, str],
        handler: Handler,
        stream: SimStream,
        scope: trio.CancelScope,
    ) -> None:
        is_answered = False
        try:
            with scope:
                await handler(stream)
                if not stream.is_torn:
                    await stream.finish()
                    is_answered = True
            if scope.cancelled_caught:
                self.counters["handlers_timed_out"] += 1
        except Exception as error:
            self.counters["handlers_failed"] += 1
            _log.warning("a handler of %s failed: %r", key[1], error)
        finally:
            del self._answering[scope]
            self._under_way[key] -= 1
            if is_answered:
                stream.stop_reading()
            else:
                stream.lose()

    async def _reach(self, peer: PeerId) -> Records:
        """Ask a host of the directory something. Raises: PeerUnreachable."""
        self.counters["directory_messages"] += 1
        self._note("asked", peer)
        other, began_s = self._world.at(peer), trio.current_time()
        if other is not None:
            there = self._world.road(self.name, other.name)
            back = self._world.road(other.name, self.name)
            if not there.is_cut:
                await trio.sleep_until(there.arrival_s(0, began_s))
                await trio.sleep_until(back.arrival_s(0, trio.current_time()))
                if self._world.at(peer) is other and not there.is_cut:
                    return other.records
        await trio.sleep_until(began_s + DEAF_S)
        raise PeerUnreachable(f"peer {peer} does not answer")

    def _spread(self, topic: str, message: bytes) -> None:
        """Word goes from member to connected member; each hears it once, on the first way."""
        told, edge = {self._peer}, [(self, 0.0)]
        while edge:
            sender, after_s = edge.pop(0)
            for peer, connection in sender._connections.items():
                other, road = connection.other, connection.there
                if peer in told or not other.gossip.is_member(topic) or road.is_cut:
                    continue
                if road.draw(road.link.loss):
                    continue
                told.add(peer)
                heard_s = after_s + road.link.latency_s
                edge.append((other, heard_s))
                hear = partial(other.gossip.deliver, topic, self._peer, message)
                self._world.start(_after, heard_s, hear)

    def _note(self, kind: str, *details: str | int) -> None:
        self._world.note(kind, self.name, *details)


async def _after(delay_s: float, call: Callable[[], None]) -> None:
    await trio.sleep(delay_s)
    call()
