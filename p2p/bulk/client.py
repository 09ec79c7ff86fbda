"""The side that dials: a bulk stream where there can be one, else a stream of libp2p."""

from __future__ import annotations

import logging
import re
from collections import Counter
from contextlib import suppress

import trio

from glia.errors import GliaError, PeerLost, PeerRefused, PeerUnreachable
from p2p.bulk.keys import Agreement, Ephemeral
from p2p.bulk.messages import BULK, BulkRefused, OpenBulk, decode_answer
from p2p.bulk.stream import BulkStream, plain_socket
from p2p.frames import Reader, encode_frame
from p2p.host import Host, PeerId, Stream
from p2p.messages import encode

_PLACE = re.compile(r"/ip[46]/([0-9A-Fa-f.:]+)/tcp/[0-9]+(?:/p2p/[1-9A-Za-z]+)?")
_OPEN_S = 5.0  # all of it
_CONNECT_S = 2.0
_RESET_S = 1.0
_SHUT_S = 600.0  # how long it is remembered that there is no bulk path to a peer,
_BUSY_S = 30.0  # or not just now
_MAX_SHUT = 1024
_log = logging.getLogger("gliad.p2p.bulk")


class BulkDialer:
    """Opens streams to peers, the fast way where it works.

    Args:
        nursery: the libp2p streams that theirs live by are watched in it.

    Attributes:
        counters: streams opened that way, and tries that failed.
    """

    def __init__(self, host: Host, nursery: trio.Nursery) -> None:
        self.counters = Counter[str]()
        self._host, self._nursery = host, nursery
        self._shut: dict[PeerId, float] = {}

    async def open(self, peer: PeerId, protocol: str) -> Stream:
        """A stream that speaks `protocol`, as `Host.open`; over TCP where it can be.

        Where it cannot, that is tried again later, after ten minutes at most.
        Raises: PeerUnreachable, PeerRefused.
        """
        if not self._is_shut(peer):
            stream = await self._try(peer, protocol)
            if stream is not None:
                self.counters["streams"] += 1
                return stream
        return await self._host.open(peer, protocol)

    async def _try(self, peer: PeerId, protocol: str) -> Stream | None:
        try:
            control = await self._host.open(peer, BULK)
        except PeerRefused:
            self._shut_out(peer, _SHUT_S, "it does not speak it")
            return None
        stream: Stream | None = None
        try:
            with trio.move_on_after(_OPEN_S):
                stream = await self._negotiate(control, protocol)
            if stream is None:
                self._shut_out(peer, _BUSY_S, "it took too long")
        except (PeerLost, PeerRefused) as error:
            self._shut_out(peer, _BUSY_S, str(error))
        except GliaError as error:
            self._shut_out(peer, _SHUT_S, str(error))
        finally:
            if stream is None:
                with trio.CancelScope(deadline=trio.current_time() + _RESET_S, shield=True):
                    await control.reset()
        return stream

    async def _negotiate(self, control: Stream, protocol: str) -> Stream:
        """Raises: PeerLost, PeerRefused, PeerUnreachable, RemoteProtocolError."""
        ip = self._place(control.peer)
        ephemeral = Ephemeral()
        question = OpenBulk(protocol, ephemeral.share)
        await control.send_all(encode_frame(encode(question)))
        content = await Reader(control).frame(_OPEN_S)
        if content is None:
            raise PeerLost("the peer left")
        answer = decode_answer(content)
        if isinstance(answer, BulkRefused):
            raise PeerRefused("it has no room")
        agreement = Agreement(
            protocol=protocol,
            client=self._host.peer_id,
            server=control.peer,
            client_share=ephemeral.share,
            server_share=answer.share,
            ticket=answer.ticket,
        )
        keys = ephemeral.keys(answer.share, agreement)
        sock = await _connect(ip, answer.port)
        try:
            await _show(sock, keys.shown)
        except BaseException:
            sock.close()
            raise
        watched = _Watched(control)
        stream = BulkStream(
            plain_socket(sock), keys.of_client, keys.of_server, control.peer, watched.end
        )
        try:
            await stream.greet()
            await stream.be_greeted()
            self._watch(watched, stream)
        except BaseException:
            await stream.reset()
            raise
        return stream

    def _watch(self, watched: _Watched, stream: BulkStream) -> None:
        """Raises: PeerLost where the network goes off: nobody would watch."""
        if self._nursery.cancel_scope.cancel_called:
            raise PeerLost("the network is going off")
        self._nursery.start_soon(watched.watch, stream)

    def _place(self, peer: PeerId) -> str:
        """The IP address that our connection to the peer goes to. Raises: PeerUnreachable."""
        for connection in self._host.connections():
            found = _PLACE.fullmatch(connection.address)
            if connection.peer == peer and found is not None:
                return found[1]
        raise PeerUnreachable("no TCP connection goes straight to it")

    def _is_shut(self, peer: PeerId) -> bool:
        return trio.current_time() < self._shut.get(peer, 0)

    def _shut_out(self, peer: PeerId, time_s: float, why: str) -> None:
        self.counters["failed"] += 1
        _log.info("no bulk path to %s: %s", peer, why)
        self._shut.pop(peer, None)
        self._shut[peer] = trio.current_time() + time_s
        if len(self._shut) > _MAX_SHUT:
            del self._shut[next(iter(self._shut))]


class _Watched:
    """The libp2p stream that a bulk stream lives by: it was lost, and so is that."""

    def __init__(self, control: Stream) -> None:
        self._control = control
        self._watching = trio.CancelScope()

    async def watch(self, stream: BulkStream) -> None:
        """Until it ends. Where the server finished it, what was sent can still be read."""
        with self._watching:
            is_finished = False
            try:
                with suppress(PeerLost):
                    is_finished = not await self._control.receive_some(1)
            finally:
                await (self._control if is_finished else stream).reset()

    async def end(self) -> None:
        """The bulk stream was reset here."""
        self._watching.cancel()
        await self._control.reset()


async def _connect(ip: str, port: int) -> trio.socket.SocketType:
    """Raises: PeerUnreachable."""
    family = trio.socket.AF_INET6 if ":" in ip else trio.socket.AF_INET
    sock = trio.socket.socket(family, trio.socket.SOCK_STREAM)
    try:
        with trio.fail_after(_CONNECT_S):
            await sock.connect((ip, port))
        sock.setsockopt(trio.socket.IPPROTO_TCP, trio.socket.TCP_NODELAY, 1)
    except (OSError, trio.TooSlowError) as error:
        sock.close()
        raise PeerUnreachable(f"its port {port} does not answer") from error
    except BaseException:
        sock.close()
        raise
    return sock


async def _show(sock: trio.socket.SocketType, shown: bytes) -> None:
    """Raises: PeerLost."""
    view = memoryview(shown)
    try:
        while view:
            view = view[await sock.send(view) :]
    except OSError as error:
        raise PeerLost(f"the connection broke: {error}") from error
