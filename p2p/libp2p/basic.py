"""The library's host with bounded handlers, and with identify and ping of ours."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from contextlib import suppress

import trio
from libp2p.abc import INetStream
from libp2p.custom_types import StreamHandlerFn, TProtocol
from libp2p.host.basic_host import BasicHost
from libp2p.host.ping import ID as PING_PROTOCOL
from libp2p.peer.id import ID
from libp2p.pubsub.gossipsub import PROTOCOL_ID_V11 as GOSSIP_PROTOCOL
from libp2p.utils.address_validation import expand_wildcard_address
from multiaddr import Multiaddr

from glia.errors import NetworkError, PeerLost, RemoteProtocolError
from p2p.host import Stream
from p2p.libp2p import caps
from p2p.libp2p.identify import PROTOCOL as IDENTIFY_PROTOCOL
from p2p.libp2p.identify import PUSH_PROTOCOL, Identities
from p2p.libp2p.metering import crowd_behind
from p2p.libp2p.names import peer_text
from p2p.libp2p.opening import agree
from p2p.libp2p.stream import LibP2PStream
from p2p.libp2p.streams import LIBRARY_ERRORS, InboundStreams, on_port
from p2p.libp2p.swarm import GuardedSwarm
from p2p.rates import Rates

PING_BYTES = 32
_IDENTIFY_S = 10.0
_PING_S = 600.0
_FOREVER_S = float("inf")
_FEW = 2
_BOUNDS = {  # streams of one peer at once, seconds
    IDENTIFY_PROTOCOL: (4, _IDENTIFY_S),
    PUSH_PROTOCOL: (_FEW, _IDENTIFY_S),
    PING_PROTOCOL: (_FEW, _PING_S),
    GOSSIP_PROTOCOL: (_FEW, _FOREVER_S),
    caps.KAD_PROTOCOL: (caps.MAX_KAD_STREAMS_PER_PEER, caps.KAD_STREAM_S),
}
_ALL = (("/ip4/0.0.0.0/", "/ip4/127.0.0.1/"), ("/ip6/::/", "/ip6/::1/"))
_log = logging.getLogger("gliad.p2p.libp2p")


class GuardedHost(BasicHost):
    """Attributes:
    inbound: the bounds of its streams, and what was refused by them.
    identities: what peers said of themselves.
    """

    def __init__(
        self, swarm: GuardedSwarm, inbound: InboundStreams, identities: Identities
    ) -> None:
        self.inbound, self.identities = inbound, identities
        self._swarm = swarm
        self._openings = Rates(
            peer=caps.STREAMS_PEER,
            crowd=caps.STREAMS_CROWD,
            sure=caps.STREAMS_SURE,
            shared=caps.STREAMS_SHARED,
        )
        super().__init__(
            swarm, addrs_factory=_without_wildcards, disable_identify_address_discovery=True
        )
        self.multiselect.handlers.pop(None, None)
        identify = self.multiselect.handlers[IDENTIFY_PROTOCOL]
        assert identify is not None  # noqa: S101 - the library sets it
        self.set_stream_handler(IDENTIFY_PROTOCOL, identify)
        self.set_stream_handler(PUSH_PROTOCOL, on_port(identities.receive))
        self.set_stream_handler(PING_PROTOCOL, on_port(_pong))

    def set_stream_handler(self, protocol_id: TProtocol, stream_handler: StreamHandlerFn) -> None:
        """A protocol of the library's own, within its bounds."""
        max_per_peer, timeout_s = _BOUNDS[protocol_id]
        self.serve(protocol_id, stream_handler, max_per_peer, timeout_s)

    def serve(
        self, protocol: str, handler: StreamHandlerFn, max_per_peer: int, timeout_s: float
    ) -> None:
        """Answer a protocol's streams, so many of a peer at once and so long each."""
        bounded = self.inbound.bounded(
            protocol, handler, max_per_peer=max_per_peer, timeout_s=timeout_s
        )
        self.multiselect.add_handler(TProtocol(protocol), bounded)

    async def _swarm_stream_handler(self, net_stream: INetStream) -> None:
        """What a peer makes fail while a protocol is agreed on ends that stream alone.

        Who opens them too often is not asked which protocol it wants: that is most of the cost.
        """
        connection = net_stream.muxed_conn
        peer, crowd = peer_text(connection.peer_id), crowd_behind(connection)
        if not self._openings.admits(peer, crowd, trio.current_time()):
            self.inbound.counters["streams_refused"] += 1
            with suppress(Exception):
                await net_stream.reset()
            return
        try:
            await super()._swarm_stream_handler(net_stream)
        except Exception as error:
            _log.debug("no protocol was agreed on with a peer: %r", error)
            with suppress(Exception):
                await net_stream.reset()

    async def new_stream(self, peer_id: ID, protocol_ids: Sequence[TProtocol]) -> INetStream:
        """A stream of the first protocol.

        Raises: SwarmException, PeerRefused, RemoteProtocolError, and what a stream raises.
        """
        stream = await self._swarm.new_stream(peer_id)
        is_open = False
        try:
            with trio.fail_after(self._swarm.connection_config.dial_timeout):
                await agree(stream, protocol_ids[0])
            is_open = True
        finally:
            if not is_open:
                await LibP2PStream(stream).reset()
        stream.set_protocol(protocol_ids[0])
        return stream

    def _schedule_identify(self, peer_id: ID, *, reason: str) -> None:
        """Ask a peer who it is, in a task that the host owns: the library's is the system's.

        Once a connection: the library asks whoever was here before no more, and then knows
        nothing of other addresses that it has.
        """
        if peer_id not in self._identify_inflight and peer_id not in self._identified_peers:
            self._identify_inflight.add(peer_id)
            self._swarm.manager.run_task(self._identify, peer_id)

    async def _identify(self, peer: ID) -> None:
        try:
            with trio.move_on_after(_IDENTIFY_S):
                stream = LibP2PStream(await self.new_stream(peer, [IDENTIFY_PROTOCOL]))
                try:
                    await self.identities.receive(stream)
                    if self._swarm.live(peer):
                        self._identified_peers[peer] = ""
                finally:
                    await stream.reset()
        except (NetworkError, RemoteProtocolError, *LIBRARY_ERRORS) as error:
            _log.debug("peer %s does not say who it is: %s", peer, error)
        finally:
            self._identify_inflight.discard(peer)

    async def ping(self, peer: ID) -> float:
        """Round trip, seconds. Raises: as new_stream, PeerLost, RemoteProtocolError."""
        stream = LibP2PStream(await self.new_stream(peer, [PING_PROTOCOL]))
        try:
            sent = secrets.token_bytes(PING_BYTES)
            start_s = trio.current_time()
            await stream.send_all(sent)
            if await _exactly(stream, PING_BYTES) != sent:
                raise RemoteProtocolError(f"peer {peer} answers a ping with something else")
            return trio.current_time() - start_s
        finally:
            await stream.reset()


async def _pong(stream: Stream) -> None:
    while True:
        try:
            data = await _exactly(stream, PING_BYTES)
        except PeerLost:
            return
        await stream.send_all(data)


async def _exactly(stream: Stream, num_bytes: int) -> bytes:
    """Raises: PeerLost."""
    data = b""
    while len(data) < num_bytes:
        part = await stream.receive_some(num_bytes - len(data))
        if not part:
            raise PeerLost("the stream ended")
        data += part
    return data


def _without_wildcards(addresses: list[Multiaddr]) -> list[Multiaddr]:
    """Each interface's address in place of "all of them"; loopback where there is no other."""
    found = []
    for address in addresses:
        local = next((one for all_, one in _ALL if str(address).startswith(all_)), None)
        if local is None:
            found.append(address)
            continue
        each = [text for text in map(str, expand_wildcard_address(address)) if not _is_all(text)]
        port = address.value_for_protocol("tcp")
        found += map(Multiaddr, each or [f"{local}tcp/{port}"])
    return found


def _is_all(text: str) -> bool:
    return text.startswith(tuple(all_ for all_, _ in _ALL))
