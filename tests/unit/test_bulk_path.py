"""The bulk path on loopback, and everybody who should not get in."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from glia.errors import PeerLost, PeerRefused, PeerUnreachable
from p2p.bulk.client import BulkDialer
from p2p.bulk.keys import Agreement, Ephemeral
from p2p.bulk.messages import BULK, BulkTicket
from p2p.bulk.records import MAX_PLAIN_BYTES, Sealer
from p2p.bulk.server import BulkLimits
from p2p.bulk.stream import BulkStream, plain_socket
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


KEY, OTHER_KEY = bytes(32), bytes([1]) * 32


@asynccontextmanager
async def receiving() -> AsyncIterator[tuple[socket.socket, BulkStream]]:
    """A socket to write to, and the stream at its other end, which reads records of KEY."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for each in (ours, theirs):
            each.setblocking(False)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_000_000)
        stream = BulkStream(ours, OTHER_KEY, KEY, PeerId("peer"))
        with trio.fail_after(60):
            yield theirs, stream
        await stream.reset()


def records(*plains: bytes) -> list[bytes]:
    sealer = Sealer(KEY)
    return [bytes(sealer.seal(plain)) for plain in plains]


@pytest.mark.parametrize("size", [1, 3, 4, 5, 1000, 10_000_000])
def test_records_come_in_any_pieces(size: int) -> None:
    async def main() -> None:
        num = 200 if size < 1000 else MAX_PLAIN_BYTES
        plains = [DATA[:n] for n in (1, 5, num, 3, num - 1, num // 2, num)]
        wire = b"".join(records(*plains, b""))

        async def send(sock: socket.socket) -> None:
            for at in range(0, len(wire), size):
                view = memoryview(wire)[at : at + size]
                while view:
                    await trio.lowlevel.wait_writable(sock)
                    view = view[sock.send(view) :]

        async with receiving() as (sock, stream), trio.open_nursery() as nursery:
            nursery.start_soon(send, sock)
            assert await read_all(stream) == b"".join(plains)

    trio.run(main)


def test_many_small_records_hold_up_nobody() -> None:
    async def main() -> None:
        async with receiving() as (sock, stream):
            wire = b"".join(records(*[b"x"] * 2_000))
            assert sock.send(wire) == len(wire)
            num_turns = 0

            async def others() -> None:
                nonlocal num_turns
                while True:
                    await trio.lowlevel.checkpoint()
                    num_turns += 1

            async with trio.open_nursery() as nursery:
                nursery.start_soon(others)
                assert await read_exactly(stream, 2_000) == b"x" * 2_000
                nursery.cancel_scope.cancel()
            assert num_turns >= 20

    trio.run(main)


ONE, TWO = records(b"one", b"two")
UNSOUND = {
    "another key": bytes(Sealer(OTHER_KEY).seal(b"one")),
    "altered": ONE[:5] + bytes([ONE[5] ^ 1]) + ONE[6:],
    "altered tag": ONE[:-1] + bytes([ONE[-1] ^ 1]),
    "shortened": (2).to_bytes(4, "big") + ONE[5:],
    "the second first": TWO,
    "the first twice": ONE + ONE,
    "too large": (MAX_PLAIN_BYTES + 1).to_bytes(4, "big") + ONE[4:],
    "huge": b"\xff" * 100,
    "cut": ONE[:-1],
    "cut after a record": ONE,
}


@pytest.mark.parametrize("wire", UNSOUND.values(), ids=UNSOUND)
def test_records_that_are_not_sound_end_the_stream(wire: bytes) -> None:
    async def main() -> None:
        async with receiving() as (sock, stream):
            assert sock.send(wire) == len(wire)
            sock.shutdown(socket.SHUT_WR)
            with pytest.raises(PeerLost):
                await read_all(stream)

    trio.run(main)


def test_a_first_record_that_says_something_is_no_greeting() -> None:
    async def main() -> None:
        async with receiving() as (sock, stream):
            sock.send(ONE)
            with pytest.raises(PeerLost, match="first"):
                await stream.be_greeted()

    trio.run(main)


def test_a_key_is_good_for_so_many_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("p2p.bulk.records.MAX_RECORDS", 3)

    async def main() -> None:
        async with receiving() as (sock, stream):
            for each in records(b"a", b"b", b"c"):
                sock.send(each)
            assert await read_exactly(stream, 3) == b"abc"
            for _ in range(3):
                await stream.send_all(b"x")
            with pytest.raises(PeerLost, match="key"):
                await stream.send_all(b"x")
            sock.send(ONE)
            with pytest.raises(PeerLost, match="key"):
                await stream.receive_some(1)

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
        await open_slowly(both, BulkDialer(relayed, both.nursery))
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


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\xff",
        encode(BulkTicket(1, bytes(32), bytes(32))) + b"x",
        encode(BulkTicket(1, bytes(32), bytes(32))),
    ],
)
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


def shown_by(both: Pair, ticket: BulkTicket) -> bytes:
    """What the one shows that was given the ticket."""
    return both.ephemeral.keys(ticket.share, agreed(both, ticket)).shown


async def by_hand(
    both: Pair, ticket: BulkTicket, ephemeral: Ephemeral, agreement: Agreement
) -> BulkStream:
    """Greetings with that secret, in that belief. Raises: PeerLost."""
    keys = ephemeral.keys(ticket.share, agreement)
    sock = await both.dial(shown_by(both, ticket))
    stream = BulkStream(plain_socket(sock), keys.of_client, keys.of_server, both.b.peer_id)
    both.streams.append(stream)
    with trio.fail_after(60):
        await stream.greet()
        await stream.be_greeted()
    return stream


def agreed(
    both: Pair, ticket: BulkTicket, client: PeerId | None = None, server: PeerId | None = None
) -> Agreement:
    return Agreement(
        ECHO,
        client or both.a.peer_id,
        server or both.b.peer_id,
        both.ephemeral.share,
        ticket.share,
        ticket.ticket,
    )


def test_a_negotiation_by_hand_works() -> None:
    async def main(both: Pair) -> None:
        _, ticket = await both.ask()
        stream = await by_hand(both, ticket, both.ephemeral, agreed(both, ticket))
        assert await says_echo(stream)
        await stream.reset()

    run(main)


def test_another_secret_than_the_one_told() -> None:
    async def main(both: Pair) -> None:
        _, ticket = await both.ask()
        with pytest.raises(PeerLost):
            await by_hand(both, ticket, Ephemeral(), agreed(both, ticket))
        assert both.server.counters["streams"] == 0
        await assert_serves(both)

    run(main)


@pytest.mark.parametrize("share", [bytes(32), b"\1" + bytes(31)])
def test_a_share_that_makes_no_secret_is_refused(share: bytes) -> None:
    async def main(both: Pair) -> None:
        with pytest.raises(PeerLost):
            await both.ask(share)
        await assert_serves(both)

        async def give(stream: Stream) -> None:
            await Reader(stream).frame(5)
            await stream.send_all(encode_frame(encode(BulkTicket(1, bytes(32), share))))
            await stream.receive_some(1)

        both.b.serve(BULK, give)
        await open_slowly(both)

    run(main)


def test_who_takes_the_connection_for_anothers() -> None:
    """b was made to believe that a's share is another's, or a that b's is."""

    async def main(both: Pair) -> None:
        other = both.net.host("other").peer_id
        for client, server in ((other, None), (None, other)):
            _, ticket = await both.ask()
            with pytest.raises(PeerLost):
                await by_hand(both, ticket, both.ephemeral, agreed(both, ticket, client, server))
        assert both.server.counters["streams"] == 0
        await assert_serves(both)

    run(main)


def test_who_names_a_port_chooses_nothing_of_what_is_sent_there() -> None:
    """It may be another's port at the same address, and say anything to it."""
    chosen = b"GET /reboot HTTP/1.0\r\n\r\n".ljust(32)

    async def main(both: Pair) -> None:
        listener = (await trio.open_tcp_listeners(0, host=LOOPBACK))[0]
        port = listener.socket.getsockname()[1]

        async def give(stream: Stream) -> None:
            answer = BulkTicket(port, chosen, Ephemeral().share)
            await stream.send_all(encode_frame(encode(answer)))
            await stream.receive_some(1)

        both.b.serve(BULK, give)
        heard = b""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(both.open)
            async with await listener.accept() as came:
                while len(heard) < 32:
                    heard += await came.receive_some()
        await listener.aclose()
        assert chosen[:8] not in heard

    run(main)


def test_a_ticket_is_good_once() -> None:
    async def main(both: Pair) -> None:
        _, ticket = await both.ask()
        stream = await by_hand(both, ticket, both.ephemeral, agreed(both, ticket))
        await both.ask()  # so that there is somebody to wait for
        with pytest.raises(PeerLost):
            await by_hand(both, ticket, both.ephemeral, agreed(both, ticket))
        assert both.server.counters["tickets_refused"] == 1
        assert await says_echo(stream)
        await stream.reset()

    run(main)


def test_a_ticket_that_failed_once_is_good_no_more() -> None:
    async def main(both: Pair) -> None:
        _, ticket = await both.ask()
        await both.ask()
        for ephemeral in (Ephemeral(), both.ephemeral):
            with pytest.raises(PeerLost):
                await by_hand(both, ticket, ephemeral, agreed(both, ticket))
        assert both.server.counters["streams"] == 0

    run(main)


def test_a_ticket_is_good_for_a_while() -> None:
    async def main(both: Pair) -> None:
        control, ticket = await both.ask()
        with trio.fail_after(60), pytest.raises(PeerLost):
            await control.receive_some(1)
        with pytest.raises(PeerLost):
            await by_hand(both, ticket, both.ephemeral, agreed(both, ticket))
        assert not both.server._num_streams

    run(main, QUICK)


def test_a_ticket_ends_with_the_stream_it_came_by() -> None:
    async def main(both: Pair) -> None:
        control, ticket = await both.ask()
        await control.reset()
        await until(lambda: not both.server._grants)
        with pytest.raises(PeerLost):
            await by_hand(both, ticket, both.ephemeral, agreed(both, ticket))

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


@pytest.mark.parametrize("said", [b"", b"x"])
def test_a_client_ends_with_the_stream_it_came_by(said: bytes) -> None:
    """Though its TCP connection stands, and the server serves on."""

    async def main(both: Pair) -> None:
        controls = list[Stream]()
        let_go = trio.Event()

        async def negotiate(stream: Stream) -> None:
            controls.append(stream)
            await both.server._negotiate(stream)

        async def hold(_stream: Stream) -> None:
            with trio.CancelScope(shield=True):
                await let_go.wait()

        both.b.serve(BULK, negotiate)
        both.server.serve("/test/hold/1", hold)
        stream = await both.open("/test/hold/1")
        assert isinstance(stream, BulkStream)
        await (controls[0].send_all(said) if said else controls[0].reset())
        with trio.fail_after(60), pytest.raises(PeerLost):
            await stream.receive_some(1)
        let_go.set()

    run(main)


def test_what_a_server_sent_before_its_end_is_read_after_it() -> None:
    async def main(both: Pair) -> None:
        async def give(stream: Stream) -> None:
            await stream.send_all(DATA[:100_000])

        both.server.serve("/test/give/1", give)
        stream = await both.open("/test/give/1")
        assert isinstance(stream, BulkStream)
        await until(lambda: both.server.counters["streams"] == 1 and not both.server._num_streams)
        assert await read_all(stream) == DATA[:100_000]

    run(main, BulkLimits(linger_s=600))


def test_nobody_watches_for_a_stream_that_is_gone() -> None:
    async def main(both: Pair) -> None:
        before = len(both.nursery.child_tasks)
        streams = [await both.open() for _ in range(3)]
        await trio.testing.wait_all_tasks_blocked()
        assert len(both.nursery.child_tasks) >= before + 3
        for stream in streams:
            await stream.reset()
        await until(lambda: not both.server._num_streams)
        await until(lambda: len(both.nursery.child_tasks) == before)

    run(main)


def test_a_network_that_goes_off_takes_its_streams_along() -> None:
    async def main(both: Pair) -> None:
        async with trio.open_nursery() as nursery:
            dialer = BulkDialer(OnLoopback(both.a), nursery)
            stream = await dialer.open(both.b.peer_id, ECHO)
            assert isinstance(stream, BulkStream)
            nursery.cancel_scope.cancel()
        with pytest.raises(PeerLost):
            await stream.send_all(b"x")
        await open_slowly(both, dialer)

    run(main)


def test_nobody_is_waited_for_where_no_ticket_is_out() -> None:
    async def main(both: Pair) -> None:
        assert await is_closed(await both.dial(), 10)
        assert both.server.counters == {"connections_refused": 1}

    run(main, BulkLimits(ticket_read_s=20))


def test_a_place_is_free_when_the_stream_has_ended() -> None:
    async def main(both: Pair) -> None:
        control, ticket = await both.ask()
        stream = await by_hand(both, ticket, both.ephemeral, agreed(both, ticket))
        await stream.finish()
        assert await stream.receive_some(1) == b""
        assert await control.receive_some(1) == b""
        assert both.server._num_streams
        await control.reset()
        await until(lambda: not both.server._num_streams)

    run(main, BulkLimits(linger_s=600))


def test_a_client_that_does_not_end_has_its_place_for_a_while() -> None:
    async def main(both: Pair) -> None:
        control, ticket = await both.ask()
        stream = await by_hand(both, ticket, both.ephemeral, agreed(both, ticket))
        await stream.finish()
        assert await control.receive_some(1) == b""
        await until(lambda: not both.server._num_streams)
        with trio.fail_after(60), pytest.raises(PeerLost):  # noqa: PT012
            while True:
                await control.send_all(b"x")

    run(main, BulkLimits(linger_s=0.2))


@pytest.mark.parametrize("said", [b"", b"x", b"GET / HTTP/1.1\r\n\r\n", bytes(100)])
def test_strangers_are_shown_the_door(said: bytes) -> None:
    async def main(both: Pair) -> None:
        _, _ = await both.ask()
        sock = await both.dial(said)
        assert await is_closed(sock, 10)
        assert both.server.counters["streams"] == 0

    run(main, BulkLimits(ticket_read_s=0.2))


@pytest.mark.parametrize("said", [b"", b"\0\0\0\0", bytes(20), b"hello, this is no record"])
def test_a_handshake_that_stops_or_is_none(said: bytes) -> None:
    async def main(both: Pair) -> None:
        _, ticket = await both.ask()
        sock = await both.dial(shown_by(both, ticket) + said)
        with trio.fail_after(60):
            assert not await sock.recv(100)
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
            for byte in shown_by(both, ticket):
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
