"""Two peers that know each other on a simulated internet, and reach each other on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import trio

from p2p.bulk.client import BulkDialer
from p2p.bulk.keys import Ephemeral
from p2p.bulk.messages import BULK, BulkTicket, OpenBulk, decode_answer
from p2p.bulk.server import BulkLimits, BulkServer
from p2p.frames import Reader, encode_frame
from p2p.host import Address, Connection, Limits, PeerId, Stream
from p2p.messages import encode
from p2p.testing.host import SimHost
from p2p.testing.internet import Internet
from tests.network_parts import read_exactly

ECHO = "/test/echo/1"
LOOPBACK = "127.0.0.1"


class OnLoopback:
    """A simulated host whose peers are said to be on this machine, or behind a relay on it."""

    def __init__(self, host: SimHost, relay: str = "") -> None:
        self._host, self._relay = host, relay

    def __getattr__(self, name: str) -> Any:
        return getattr(self._host, name)

    def connections(self) -> Sequence[Connection]:
        return [
            replace(each, address=Address(f"/ip4/{LOOPBACK}/tcp/4001{self._relay}/p2p/{each.peer}"))
            for each in self._host.connections()
        ]


@dataclass
class Pair:
    """`b` serves; `a` dials. `echoed`: streams that b's handler has answered to the end."""

    net: Internet
    a: SimHost
    b: SimHost
    dialer: BulkDialer
    server: BulkServer
    port: int
    nursery: trio.Nursery
    ephemeral: Ephemeral  # a's, where it asks by hand
    over_libp2p: list[PeerId]
    streams: list[Stream] = field(default_factory=list)
    socks: list[trio.socket.SocketType] = field(default_factory=list)

    async def open(self, protocol: str = ECHO) -> Stream:
        """As a opens it; reset in the end."""
        stream = await self.dialer.open(self.b.peer_id, protocol)
        self.streams.append(stream)
        return stream

    async def dial(self, data: bytes = b"") -> trio.socket.SocketType:
        """A TCP connection to b's port, on which this was sent."""
        sock = trio.socket.socket()
        self.socks.append(sock)
        await sock.connect((LOOPBACK, self.port))
        if data:
            await sock.send(data)
        return sock

    async def end(self) -> None:
        for stream in self.streams:
            await stream.reset()
        for sock in self.socks:
            sock.close()

    async def ask(self, share: bytes | None = None) -> tuple[Stream, BulkTicket]:
        """Negotiate by hand. Returns: the stream that the ticket lives by, and the ticket."""
        control = await self.a.open(self.b.peer_id, BULK)
        question = OpenBulk(ECHO, share or self.ephemeral.share)
        await control.send_all(encode_frame(encode(question)))
        content = await Reader(control).frame(5)
        assert content is not None
        answer = decode_answer(content)
        assert isinstance(answer, BulkTicket)
        return control, answer


async def echo(stream: Stream) -> None:
    while data := await stream.receive_some(65_536):
        await stream.send_all(data)


@asynccontextmanager
async def pair(limits: BulkLimits | None = None) -> AsyncIterator[Pair]:
    """Both ready, a connected to b."""
    async with trio.open_nursery() as nursery:
        net = Internet(nursery)
        a, b = net.host("a", limits=Limits(dial_timeout_s=0.2)), net.host("b")
        server = BulkServer(b, limits)
        server.serve(ECHO, echo)
        over_libp2p = list[PeerId]()

        async def slowly(stream: Stream) -> None:
            over_libp2p.append(stream.peer)
            await echo(stream)

        b.serve(ECHO, slowly)
        port = await server.listen(LOOPBACK)
        nursery.start_soon(server.run)
        await a.connect(b.addresses()[0])
        dialer = BulkDialer(OnLoopback(a), nursery)
        both = Pair(net, a, b, dialer, server, port, nursery, Ephemeral(), over_libp2p)
        try:
            yield both
        finally:
            await both.end()
            nursery.cancel_scope.cancel()


def run(main: Callable[[Pair], Awaitable[None]], limits: BulkLimits | None = None) -> None:
    """`main` on a pair of peers, on the real clock."""

    async def body() -> None:
        with trio.fail_after(90):
            async with pair(limits) as both:
                await main(both)

    trio.run(body)


async def says_echo(stream: Stream, data: bytes = b"hello") -> bool:
    await stream.send_all(data)
    return await read_exactly(stream, len(data)) == data


async def is_closed(sock: trio.socket.SocketType, within_s: float) -> bool:
    """Whether the other side hangs up, and says nothing, in time."""
    with trio.move_on_after(within_s):
        try:
            return not await sock.recv(1)
        except ConnectionError:
            return True
    return False
