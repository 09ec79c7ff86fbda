"""The side that is dialled: gives tickets over libp2p, and takes TCP connections for them.

What a connection may cost before its ticket is known: one of a few places, two seconds, no
buffers. A ticket is good once, for ten seconds, and only together with the key that its
peer alone can have.
"""

from __future__ import annotations

import logging
import math
import secrets
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field

import trio

from glia.errors import GliaError, PeerLost
from p2p.bulk.keys import Agreement, Ephemeral, Keys
from p2p.bulk.messages import BULK, TICKET_BYTES, BulkRefused, BulkTicket, decode_open
from p2p.bulk.stream import BulkStream, plain_socket
from p2p.crowds import crowd_of
from p2p.frames import Reader, encode_frame
from p2p.host import Handler, Host, PeerId, Stream
from p2p.messages import encode

_log = logging.getLogger("gliad.p2p.bulk")


@dataclass(frozen=True, slots=True)
class BulkLimits:
    """What peers, and whoever else finds the port, may use."""

    max_streams: int = 64  # given a ticket for, or under way
    max_streams_per_peer: int = 4
    max_pending: int = 16  # connections whose handshake is not done
    max_pending_per_address: int = 4
    ticket_s: float = 10.0
    ticket_read_s: float = 2.0
    handshake_s: float = 5.0
    linger_s: float = 2.0  # for the client to see that a stream was served to its end
    stream_s: float = 3600.0


@dataclass(eq=False)
class _Grant:
    """A ticket that was given, and the stream it becomes. Either scope ends the other."""

    control: Stream
    agreement: Agreement
    keys: Keys
    handler: Handler
    asked: trio.CancelScope = field(default_factory=trio.CancelScope)
    served: trio.CancelScope = field(default_factory=trio.CancelScope)


class BulkServer:
    """Serves on TCP what its host's peers ask for over /glia/bulk/3.

    The libp2p stream stays open as long as the TCP connection: with the libp2p connection,
    or a ban, that ends too.

    Attributes:
        counters: what was served, refused, dropped.
    """

    def __init__(self, host: Host, limits: BulkLimits | None = None) -> None:
        self.counters = Counter[str]()
        self._host = host
        self._limits = limits or BulkLimits()
        self._handlers: dict[str, Handler] = {}
        self._listeners: list[trio.SocketListener] = []
        self._port: int | None = None
        self._grants: dict[bytes, _Grant] = {}  # by what is to be shown, until it is
        self._num_streams = Counter[PeerId]()
        self._pending: dict[trio.CancelScope, str] = {}  # and the address; without a ticket yet
        self._num_pending = Counter[str]()
        host.serve(BULK, self._negotiate, timeout_s=self._limits.stream_s)

    def serve(self, protocol: str, handler: Handler) -> None:
        """Answer bulk streams of a protocol; the handler is as one of the host's."""
        self._handlers[protocol] = handler

    async def listen(self, ip: str, port: int = 0) -> int:
        """Open a port on one address. Returns: the port. Raises: OSError."""
        self._listeners = await trio.open_tcp_listeners(port, host=ip)
        self._port = int(self._listeners[0].socket.getsockname()[1])
        return self._port

    async def run(self) -> None:
        """Take connections, for ever."""
        try:
            await trio.serve_listeners(self._take, self._listeners)
        finally:
            self._port = None

    # -- over libp2p ----------------------------------------------------------------------

    async def _negotiate(self, stream: Stream) -> None:
        content = await Reader(stream).frame(self._limits.ticket_read_s)
        if content is None:
            raise PeerLost("nothing was asked")
        question = decode_open(content)
        handler = self._handlers.get(question.protocol)
        if self._port is None or handler is None or not self._has_room(stream.peer):
            self.counters["refused"] += 1
            await stream.send_all(encode_frame(encode(BulkRefused())))
            await stream.finish()
            return
        ephemeral = Ephemeral()
        agreement = Agreement(
            protocol=question.protocol,
            client=stream.peer,
            server=self._host.peer_id,
            client_share=question.share,
            server_share=ephemeral.share,
            ticket=secrets.token_bytes(TICKET_BYTES),
        )
        keys = ephemeral.keys(question.share, agreement)
        await self._grant(_Grant(stream, agreement, keys, handler), self._port)

    async def _grant(self, grant: _Grant, port: int) -> None:
        """Give the ticket; stay until the stream that it is for has ended, or is not wanted."""
        stream = grant.control
        self._num_streams[stream.peer] += 1
        self._grants[grant.keys.shown] = grant
        grant.asked.deadline = trio.current_time() + self._limits.ticket_s
        try:
            agreed = grant.agreement
            answer = BulkTicket(port, agreed.ticket, agreed.server_share)
            with grant.asked:
                await stream.send_all(encode_frame(encode(answer)))
                await stream.receive_some(1)
        finally:
            self._grants.pop(grant.keys.shown, None)
            self._num_streams -= Counter((stream.peer,))
            grant.served.cancel()
        if grant.asked.cancelled_caught:
            await stream.reset()

    def _has_room(self, peer: PeerId) -> bool:
        return (
            self._num_streams.total() < self._limits.max_streams
            and self._num_streams[peer] < self._limits.max_streams_per_peer
        )

    # -- over TCP -------------------------------------------------------------------------

    async def _take(self, connection: trio.SocketStream) -> None:
        """One connection; nothing but cancellation leaves here."""
        sock = connection.socket
        try:
            address = crowd_of(str(sock.getpeername()[0]))
            if self._admits(address):
                await self._serve(sock, address)
            else:
                self.counters["connections_refused"] += 1
        except (GliaError, OSError, trio.TooSlowError) as error:
            self.counters["connections_dropped"] += 1
            _log.debug("a bulk connection ended: %r", error)
        except Exception as error:
            self.counters["handlers_failed"] += 1
            _log.warning("a bulk stream failed: %r", error)
        finally:
            sock.close()

    def _admits(self, address: str) -> bool:
        """Whether there is a place; of those without a ticket the oldest gives way."""
        if not self._grants:
            return False
        is_full_here = self._num_pending[address] >= self._limits.max_pending_per_address
        if not is_full_here and self._num_pending.total() < self._limits.max_pending:
            return True
        for scope, waiting in self._pending.items():
            if waiting == address or not is_full_here:
                scope.cancel()
                del self._pending[scope]
                return True
        return False

    async def _serve(self, sock: trio.socket.SocketType, address: str) -> None:
        with ExitStack() as place:
            self._num_pending[address] += 1
            place.callback(self._forget_pending, address)
            grant = await self._read_ticket(sock, address)
            if grant is None:
                self.counters["tickets_refused"] += 1
                return
            linger_s = -math.inf
            try:
                with grant.served:
                    await self._serve_granted(sock, grant, place)
                    await grant.control.finish()  # a reset would take back what was sent
                    linger_s = self._limits.linger_s
            finally:
                grant.asked.deadline = trio.current_time() + linger_s

    async def _serve_granted(
        self, sock: trio.socket.SocketType, grant: _Grant, place: ExitStack
    ) -> None:
        """Whoever has the key is who the ticket was given to; then its handler."""
        keys = grant.keys
        stream = BulkStream(
            plain_socket(sock), keys.of_server, keys.of_client, grant.agreement.client
        )
        try:
            with trio.fail_after(self._limits.handshake_s):
                await stream.be_greeted()
                await stream.greet()
            grant.asked.deadline = math.inf
            place.close()
            self.counters["streams"] += 1
            await grant.handler(stream)
            await stream.finish()
        finally:
            await stream.reset()

    def _forget_pending(self, address: str) -> None:
        """Keep nothing of it: whoever has a network has addresses without number."""
        self._num_pending -= Counter((address,))

    async def _read_ticket(self, sock: trio.socket.SocketType, address: str) -> _Grant | None:
        """The grant whose ticket is shown, which is good no more."""
        shown = b""
        with trio.move_on_after(self._limits.ticket_read_s) as scope:
            self._pending[scope] = address
            try:
                while len(shown) < TICKET_BYTES:
                    part = await sock.recv(TICKET_BYTES - len(shown))
                    if not part:
                        break
                    shown += part
            finally:
                self._pending.pop(scope, None)
        return self._grants.pop(shown, None)
