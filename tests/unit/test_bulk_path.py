"""The bulk path on loopback, and everybody who should not get in."""

from __future__ import annotations

import os
import socket
import ssl
from functools import partial
from typing import cast

import pytest
import trio

from glia.errors import PeerLost, PeerRefused, PeerUnreachable, RemoteProtocolError
from p2p.bulk.client import BulkDialer
from p2p.bulk.messages import BULK, Agreement, BulkTicket
from p2p.bulk.server import BulkLimits
from p2p.bulk.stream import BulkStream, plain_socket
from p2p.bulk.tls import Identity, Tunnel
from p2p.frames import Reader, encode_frame
from p2p.host import PeerId, Stream
from p2p.messages import encode
from tests.bulk_parts import (
    ECHO,
    LOOPBACK,
    OnLoopback,
    Pair,
    is_closed,
    run,
    says_echo,
    tls_client,
)
from tests.network_parts import read_all, read_exactly, until
from tests.pace import Stopwatch

DATA = bytes(i * 31 % 253 for i in range(3_000_000))
QUICK = BulkLimits(ticket_s=0.2, ticket_read_s=0.2, handshake_s=0.3)


def test_bytes_go_both_ways_and_over_tcp() -> None:
    async def main(both: Pair) -> None:
        stream = await both.open()
        assert isinstance(stream, BulkStream)
        assert stream.peer == both.b.peer_id

        async def send() -> None:
            await stream.send_all(memoryview(DATA))
            await stream.finish()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            assert await read_all(stream) == DATA
        await stream.reset()
        assert not both.over_libp2p

    run(main)


def test_the_handler_knows_who_asks() -> None:
    async def main(both: Pair) -> None:
        async def name(stream: Stream) -> None:
            await stream.send_all(stream.peer.encode())

        both.server.serve("/test/name/1", name)
        stream = await both.open("/test/name/1")
        assert await read_all(stream) == both.a.peer_id.encode()

    run(main)


def test_what_came_before_finish_is_read_after_it() -> None:
    async def main(both: Pair) -> None:
        async def give(stream: Stream) -> None:
            await stream.send_all(DATA[:100_000])
            assert await read_all(stream) == b"enough"

        both.server.serve("/test/give/1", give)
        stream = await both.open("/test/give/1")
        assert await read_exactly(stream, 10) == DATA[:10]
        await stream.send_all(b"enough")
        await stream.finish()
        await stream.finish()
        with pytest.raises(PeerLost, match="finished"):
            await stream.send_all(b"x")
        assert await read_all(stream) == DATA[10:100_000]
        assert await stream.receive_some(1) == b""

    run(main)


def test_a_wire_that_is_cut_is_no_end() -> None:
    async def main(both: Pair) -> None:
        async def vanish(stream: Stream) -> None:
            await stream.send_all(b"half of it")
            await stream.reset()

        both.server.serve("/test/vanish/1", vanish)
        stream = await both.open("/test/vanish/1")
        assert await read_exactly(stream, 10) == b"half of it"
        with pytest.raises(PeerLost):
            await stream.receive_some(1)

    run(main)


class Rekeyed:
    """A tunnel on which nothing but changes of keys comes: work, and never a byte."""

    num_fed = 0

    def feed(self, data: memoryview) -> None:
        self.num_fed += len(data)

    def decrypt(self, into: memoryview) -> int | None:
        return 0


def test_much_that_says_nothing_ends_a_stream_and_holds_up_nobody() -> None:
    async def main() -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            for each in (ours, theirs):
                each.setblocking(False)
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_000_000)
            assert theirs.send(bytes(180_000)) == 180_000
            tunnel = Rekeyed()
            stream = BulkStream(ours, cast("Tunnel", tunnel), PeerId("flooder"))
            num_turns, most_fed = 0, 0

            async def others() -> None:
                nonlocal num_turns, most_fed
                before = tunnel.num_fed
                while True:
                    await trio.lowlevel.checkpoint()
                    num_turns += 1
                    before, most_fed = tunnel.num_fed, max(most_fed, tunnel.num_fed - before)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(others)
                with trio.fail_after(5), pytest.raises(RemoteProtocolError, match="says nothing"):
                    await stream.receive_some(10)
                nursery.cancel_scope.cancel()
            assert tunnel.num_fed < 100_000
            assert most_fed <= 65_536  # between two turns of others
            assert num_turns >= 1
            await stream.reset()

    trio.run(main)


# -- falling back -----------------------------------------------------------------------------


async def open_slowly(both: Pair, dialer: BulkDialer | None = None) -> None:
    """A stream is had all the same, over libp2p."""
    before = len(both.over_libp2p)
    stream = await (dialer or both.dialer).open(both.b.peer_id, ECHO)
    assert not isinstance(stream, BulkStream)
    assert await says_echo(stream)
    assert len(both.over_libp2p) == before + 1


def test_a_port_that_does_not_answer_is_remembered() -> None:
    async def main(both: Pair) -> None:
        both.server._port = 1  # nobody is there
        for _ in range(3):
            await open_slowly(both)
        assert both.dialer.counters == {"failed": 1}

    run(main)


def test_a_peer_without_the_bulk_path() -> None:
    async def main(both: Pair) -> None:
        del both.b._handlers[BULK]
        for _ in range(3):
            await open_slowly(both)
        assert both.dialer.counters == {"failed": 1}

    run(main)


def test_a_peer_behind_a_relay() -> None:
    async def main(both: Pair) -> None:
        relayed = OnLoopback(both.a, f"/p2p/{both.a.peer_id}/p2p-circuit")
        await open_slowly(both, BulkDialer(relayed, both.identity))
        assert both.server.counters["tickets_refused"] == both.server.counters["streams"] == 0

    run(main)


def test_a_server_that_is_full() -> None:
    async def main(both: Pair) -> None:
        streams = [await both.open() for _ in range(2)]
        assert all(isinstance(stream, BulkStream) for stream in streams)
        await open_slowly(both)
        assert both.server.counters["refused"] == 1
        await streams[0].reset()
        both.dialer._shut.clear()
        await until(lambda: both.server._num_streams[both.a.peer_id] == 1)
        assert isinstance(await both.open(), BulkStream)

    run(main, BulkLimits(max_streams_per_peer=2))


@pytest.mark.parametrize("answer", [b"", b"\xff", encode(BulkTicket(1, bytes(32), b"x")) + b"x"])
def test_a_server_that_talks_nonsense(answer: bytes) -> None:
    async def main(both: Pair) -> None:
        async def lie(stream: Stream) -> None:
            await stream.receive_some(1)
            await stream.send_all(len(answer).to_bytes(4, "big") + answer)

        both.b.serve(BULK, lie)
        await open_slowly(both)
        assert both.dialer.counters == {"failed": 1}

    run(main)


def test_a_peer_that_is_gone_is_gone_for_both() -> None:
    async def main(both: Pair) -> None:
        both.net.kill("b")
        with pytest.raises(PeerUnreachable), trio.fail_after(10):
            await both.open()

    run(main)


def test_a_protocol_that_nobody_speaks_is_refused() -> None:
    async def main(both: Pair) -> None:
        with pytest.raises(PeerRefused):
            await both.open("/test/other/1")

    run(main)


# -- who should not get in --------------------------------------------------------------------


async def assert_serves(both: Pair) -> None:
    stream = await both.open()
    assert isinstance(stream, BulkStream)
    assert await says_echo(stream)
    await stream.reset()


async def by_hand(
    both: Pair, ticket: BulkTicket, identity: Identity, agreement: Agreement
) -> BulkStream:
    """A handshake with that identity, in that belief. Raises: PeerLost."""
    sock = await both.dial(ticket.ticket)
    tunnel = Tunnel(identity, ticket.certificate, is_server=False)
    stream = BulkStream(plain_socket(sock), tunnel, both.b.peer_id)
    both.streams.append(stream)
    with trio.fail_after(5):
        await stream.shake_hands(agreement.binding("client"), agreement.binding("server"))
    return stream


def agreed(both: Pair, ticket: BulkTicket, client: PeerId | None = None) -> Agreement:
    return Agreement(
        ECHO,
        client or both.a.peer_id,
        both.b.peer_id,
        both.identity.certificate,
        ticket.certificate,
        ticket.ticket,
    )


def test_a_negotiation_by_hand_works() -> None:
    async def main(both: Pair) -> None:
        _, ticket = await both.ask()
        stream = await by_hand(both, ticket, both.identity, agreed(both, ticket))
        assert await says_echo(stream)
        await stream.reset()

    run(main)


def test_another_key_than_the_one_told() -> None:
    async def main(both: Pair) -> None:
        _, ticket = await both.ask()
        with pytest.raises(PeerLost):
            await by_hand(both, ticket, Identity.new(), agreed(both, ticket))
        assert both.server.counters["streams"] == 0
        await assert_serves(both)

    run(main)


def test_no_certificate() -> None:
    async def main(both: Pair) -> None:
        _, ticket = await both.ask()
        call = partial(tls_client, both.port, ticket.ticket, None, lambda context: None)
        assert await trio.to_thread.run_sync(call) == b""
        assert both.server.counters["streams"] == 0
        await assert_serves(both)

    run(main)


def test_an_older_tls() -> None:
    def older(context: ssl.SSLContext) -> None:
        context.maximum_version = ssl.TLSVersion.TLSv1_2

    async def main(both: Pair) -> None:
        _, ticket = await both.ask()
        call = partial(tls_client, both.port, ticket.ticket, both.identity, older)
        assert await trio.to_thread.run_sync(call) == b""
        _, ticket = await both.ask()  # the same client with TLS 1.3 gets as far as the binding
        call = partial(tls_client, both.port, ticket.ticket, both.identity, lambda context: None)
        assert len(await trio.to_thread.run_sync(call)) == 1
        assert both.server.counters["streams"] == 0
        await assert_serves(both)

    run(main)


def test_a_server_of_an_older_tls_or_another_key_is_refused() -> None:
    async def serve(sock: trio.SocketStream, context: ssl.SSLContext) -> None:
        await read_exactly_of(sock, 32)
        secure = trio.SSLStream(sock, context, server_side=True)
        try:
            await secure.do_handshake()
            assert await secure.receive_some(1) == b""
        except trio.BrokenResourceError:
            pass

    async def main(both: Pair) -> None:
        for is_older in (True, False):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            told = Identity.new()
            if is_older:
                context.maximum_version = ssl.TLSVersion.TLSv1_2
            (told if is_older else Identity.new()).load_into(context)
            (listener,) = await trio.open_tcp_listeners(0, host=LOOPBACK)
            port = listener.socket.getsockname()[1]

            async def lie(stream: Stream, answer: BulkTicket) -> None:
                await Reader(stream).frame(5)
                await stream.send_all(encode_frame(encode(answer)))
                await stream.receive_some(1)

            answer = BulkTicket(port, bytes(32), told.certificate)
            both.b.serve(BULK, partial(lie, answer=answer))
            both.dialer._shut.clear()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(
                    trio.serve_listeners, partial(serve, context=context), [listener]
                )
                await open_slowly(both)
                nursery.cancel_scope.cancel()
        assert both.dialer.counters == {"failed": 2}

    run(main)


async def read_exactly_of(sock: trio.SocketStream, num_bytes: int) -> bytes:
    data = b""
    while len(data) < num_bytes:
        data += await sock.receive_some(num_bytes - len(data))
    return data


def test_who_takes_the_connection_for_anothers() -> None:
    """b was made to believe that a's certificate is another's, or a that b's is."""

    async def main(both: Pair) -> None:
        _, ticket = await both.ask()
        other = both.net.host("other").peer_id
        with pytest.raises(PeerLost):
            await by_hand(both, ticket, both.identity, agreed(both, ticket, client=other))
        assert both.server.counters["streams"] == 0
        await assert_serves(both)

    run(main)


def test_a_ticket_is_good_once() -> None:
    async def main(both: Pair) -> None:
        _, ticket = await both.ask()
        stream = await by_hand(both, ticket, both.identity, agreed(both, ticket))
        await both.ask()  # so that there is somebody to wait for
        with pytest.raises(PeerLost):
            await by_hand(both, ticket, both.identity, agreed(both, ticket))
        assert both.server.counters["tickets_refused"] == 1
        assert await says_echo(stream)
        await stream.reset()

    run(main)


def test_a_ticket_that_failed_once_is_good_no_more() -> None:
    async def main(both: Pair) -> None:
        _, ticket = await both.ask()
        await both.ask()
        for identity in (Identity.new(), both.identity):
            with pytest.raises(PeerLost):
                await by_hand(both, ticket, identity, agreed(both, ticket))
        assert both.server.counters["streams"] == 0

    run(main)


def test_a_ticket_is_good_for_a_while() -> None:
    async def main(both: Pair) -> None:
        control, ticket = await both.ask()
        with trio.fail_after(60), pytest.raises(PeerLost):
            await control.receive_some(1)
        with pytest.raises(PeerLost):
            await by_hand(both, ticket, both.identity, agreed(both, ticket))
        assert not both.server._num_streams

    run(main, QUICK)


def test_a_ticket_ends_with_the_stream_it_came_by() -> None:
    async def main(both: Pair) -> None:
        control, ticket = await both.ask()
        await control.reset()
        await until(lambda: not both.server._grants)
        with pytest.raises(PeerLost):
            await by_hand(both, ticket, both.identity, agreed(both, ticket))

    run(main)


def test_a_ban_ends_the_tcp_connection() -> None:
    async def main(both: Pair) -> None:
        stream = await both.open()
        assert await says_echo(stream)
        both.b.ban(both.a.peer_id, True)
        with trio.fail_after(60), pytest.raises(PeerLost):
            await stream.receive_some(1)
        await until(lambda: not both.server._num_streams)

    run(main)


def test_nobody_is_waited_for_where_no_ticket_is_out() -> None:
    async def main(both: Pair) -> None:
        assert await is_closed(await both.dial(), 10)
        assert both.server.counters == {"connections_refused": 1}

    run(main, BulkLimits(ticket_read_s=20))


def test_a_place_is_free_when_the_stream_has_ended() -> None:
    async def main(both: Pair) -> None:
        control, ticket = await both.ask()
        stream = await by_hand(both, ticket, both.identity, agreed(both, ticket))
        await stream.finish()
        assert await stream.receive_some(1) == b""
        await until(lambda: not both.server._num_streams)
        with pytest.raises(PeerLost):
            await control.receive_some(1)

    run(main)


@pytest.mark.parametrize("said", [b"", b"x", b"GET / HTTP/1.1\r\n\r\n", bytes(100)])
def test_strangers_are_shown_the_door(said: bytes) -> None:
    async def main(both: Pair) -> None:
        _, _ = await both.ask()
        sock = await both.dial(said)
        assert await is_closed(sock, 10)
        assert both.server.counters["streams"] == 0

    run(main, BulkLimits(ticket_read_s=0.2))


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01\x02\x00", b"hello, this is no TLS"])
def test_a_handshake_that_stops_or_is_none(said: bytes) -> None:
    async def main(both: Pair) -> None:
        _, ticket = await both.ask()
        sock = await both.dial(ticket.ticket + said)
        with trio.fail_after(60):
            while await sock.recv(100):  # TLS may say why
                pass
        assert both.server.counters["streams"] == 0
        await until(lambda: not both.server._num_pending)  # nor what is left of it
        await assert_serves(both)

    run(main, BulkLimits(handshake_s=1.0))


def test_a_byte_at_a_time_is_too_slow() -> None:
    async def main(both: Pair) -> None:
        _, ticket = await both.ask()
        sock = await both.dial()
        watch = Stopwatch()
        with pytest.raises(OSError):  # noqa: PT011, PT012
            for byte in ticket.ticket:
                await sock.send(bytes([byte]))
                await trio.sleep(0.05)
        assert watch.took_s() < 1
        assert both.server.counters["tickets_refused"] == 1

    run(main, BulkLimits(ticket_read_s=0.2))


def test_a_crowd_without_tickets_keeps_nobody_out() -> None:
    async def main(both: Pair) -> None:
        control, _ = await both.ask()
        crowd = [await both.dial() for _ in range(40)]
        await until(lambda: both.server.counters["tickets_refused"] >= 36)
        assert both.server._num_pending.total() <= 4
        await assert_serves(both)
        await control.reset()
        for sock in crowd:
            sock.close()

    run(main, BulkLimits(ticket_read_s=20))


# -- nothing is left behind -------------------------------------------------------------------


def sockets() -> int:
    names = (os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
             if os.path.islink(f"/proc/self/fd/{fd}"))  # fmt: skip
    return sum(name.startswith("socket:") for name in names)


@pytest.mark.parametrize("after_s", [0.0, 0.002, 0.005, 0.01, 0.05])
def test_cancelling_leaves_nothing_behind(after_s: float) -> None:
    async def main(both: Pair) -> None:
        async def flood(stream: Stream) -> None:
            while True:
                await stream.send_all(DATA)

        both.server.serve("/test/flood/1", flood)
        before = sockets()
        with trio.move_on_after(after_s):
            stream = await both.open("/test/flood/1")
            try:
                while True:
                    await stream.receive_some(262_144)
            finally:
                await stream.reset()
        await until(lambda: not both.server._num_streams)
        await until(lambda: sockets() == before)
        await assert_serves(both)

    run(main)


def test_a_cancelled_stream_is_of_no_more_use() -> None:
    async def main(both: Pair) -> None:
        stream = await both.open()
        with trio.move_on_after(0.01):
            await stream.receive_some(1)
        for use in (stream.receive_some(1), stream.send_all(b"x"), stream.finish()):
            with pytest.raises(PeerLost, match="cancelled"):
                await use
        await stream.reset()
        await stream.reset()

    run(main)


def test_a_reset_ends_a_call_under_way() -> None:
    async def main(both: Pair) -> None:
        stream = await both.open()

        async def read() -> None:
            with pytest.raises(PeerLost):
                await stream.receive_some(1)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await trio.testing.wait_all_tasks_blocked(0.05)
            await stream.reset()

    run(main)


@pytest.mark.fault("F36")
def test_a_handler_that_fails_ends_its_stream_alone() -> None:
    async def main(both: Pair) -> None:
        async def fail(stream: Stream) -> None:
            await stream.receive_some(1)
            raise ValueError("bug")

        both.server.serve("/test/fail/1", fail)
        healthy = await both.open()
        stream = await both.open("/test/fail/1")
        await stream.send_all(b"x")
        with pytest.raises(PeerLost):
            await stream.receive_some(1)
        await until(lambda: both.server.counters["handlers_failed"] == 1)
        assert await says_echo(healthy)

    run(main)


def test_a_stalled_reader_is_not_buffered_for() -> None:
    async def main(both: Pair) -> None:
        async def stall(stream: Stream) -> None:
            await trio.sleep_forever()

        both.server.serve("/test/stall/1", stall)
        stream = await both.open("/test/stall/1")
        with trio.move_on_after(0.5) as sending:
            await stream.send_all(bytes(64 * 1024 * 1024))
        assert sending.cancelled_caught

    run(main)
