"""What every implementation of the network port must do, asked of each.

`Nodes` makes hosts of one kind. A kind joins by an entry in KINDS.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from glia.errors import BadRequest, PeerLost, PeerRefused, PeerUnreachable
from p2p.accepting import is_near
from p2p.host import MAX_MESSAGE_BYTES, MAX_VALUE_BYTES, Address, PeerId, Stream
from tests.network_parts import KINDS, LIMITS, Kind, Node, read_all, read_exactly, until

ECHO = "/test/echo/1"
KEY = bytes(range(32))
Body = Callable[..., Awaitable[None]]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


async def echo(stream: Stream) -> None:
    """Gives back what it gets, then finishes."""
    while data := await stream.receive_some(65_536):
        await stream.send_all(data)
    await stream.finish()


async def connect(one: Node, other: Node) -> PeerId:
    """Dial, and see that both sides know of it."""
    peer = await one.host.connect(other.host.addresses()[0])
    await until(lambda: one.host.peer_id in [c.peer for c in other.host.connections()])
    return peer


def test_two_hosts_connect_and_list_each_other(kind: Kind) -> None:
    async def main(one: Node, other: Node) -> None:
        assert await connect(one, other) == other.host.peer_id
        (out,) = one.host.connections()
        (back,) = other.host.connections()
        assert (out.peer, out.direction) == (other.host.peer_id, "out")
        assert (back.peer, back.direction) == (one.host.peer_id, "in")
        assert out.since_s <= trio.current_time()
        assert is_near(out.remote_ip)
        assert is_near(back.remote_ip)

    kind.run(2, main)


def test_an_address_ends_in_the_peer_id(kind: Kind) -> None:
    async def main(one: Node) -> None:
        assert one.host.addresses()
        assert all(a.endswith(f"/p2p/{one.host.peer_id}") for a in one.host.addresses())

    kind.run(1, main)


def test_dialling_twice_is_one_connection(kind: Kind) -> None:
    async def main(one: Node, other: Node) -> None:
        for _ in range(2):
            await connect(one, other)
        assert len(one.host.connections()) == len(other.host.connections()) == 1

    kind.run(2, main)


def test_who_comes_back_says_again_who_it_is(kind: Kind) -> None:
    """It may be of another version now, and have other addresses."""

    async def main(one: Node, other: Node) -> None:
        for _ in range(2):
            peer = await connect(one, other)
            for node in (one, other):
                await until(lambda node=node: all(c.agent for c in node.host.connections()))
            await one.host.disconnect(peer)
            await until(lambda: not (one.host.connections() or other.host.connections()))

    kind.run(2, main)


@pytest.mark.parametrize("address", ["", "nonsense", "/ip4/127.0.0.1/tcp/1", "/ip4/1.2.3/tcp/x"])
def test_a_malformed_address_is_the_callers_fault(kind: Kind, address: str) -> None:
    async def main(one: Node) -> None:
        with pytest.raises(BadRequest):
            await one.host.connect(Address(address))

    kind.run(1, main)


def test_a_host_that_is_gone_cannot_be_dialled(kind: Kind) -> None:
    async def main(one: Node, other: Node) -> None:
        address = other.host.addresses()[0]
        await other.end()
        with pytest.raises(PeerUnreachable):
            await one.host.connect(address)
        assert not one.host.connections()

    kind.run(2, main)


def test_whoever_answers_must_be_who_was_dialled(kind: Kind) -> None:
    async def main(one: Node, other: Node, third: Node) -> None:
        place = other.host.addresses()[0].rpartition("/")[0]
        with pytest.raises(PeerUnreachable):
            await one.host.connect(Address(f"{place}/{third.host.peer_id}"))
        assert not one.host.connections()

    kind.run(3, main)


def test_an_unknown_peer_cannot_be_asked(kind: Kind) -> None:
    async def main(one: Node, other: Node) -> None:
        with pytest.raises(PeerUnreachable):
            await one.host.open(other.host.peer_id, ECHO)
        with pytest.raises(PeerUnreachable):
            await one.host.ping(other.host.peer_id)

    kind.run(2, main)


def test_bytes_come_back_in_order(kind: Kind) -> None:
    async def main(one: Node, other: Node) -> None:
        other.host.serve(ECHO, echo)
        peer = await connect(one, other)
        stream = await one.host.open(peer, ECHO)
        assert stream.peer == peer
        data = bytes(i * 7 % 251 for i in range(300_000))
        for at in range(0, len(data), 50_000):
            await stream.send_all(memoryview(data)[at : at + 50_000])
            assert await read_exactly(stream, 50_000) == data[at : at + 50_000]
        await stream.finish()
        assert await stream.receive_some(1) == b""
        await stream.reset()

    kind.run(2, main)


def test_what_was_sent_before_finish_is_read_before_the_end(kind: Kind) -> None:
    async def main(one: Node, other: Node) -> None:
        asked = []

        async def answer(stream: Stream) -> None:
            asked.append((stream.peer, await read_all(stream)))
            await stream.send_all(b"x" * 100_000)

        other.host.serve(ECHO, answer)
        stream = await one.host.open(await connect(one, other), ECHO)
        await stream.send_all(b"question")
        await stream.finish()
        assert await read_all(stream) == b"x" * 100_000
        assert asked == [(one.host.peer_id, b"question")]

    kind.run(2, main)


def test_receive_some_keeps_to_its_bound(kind: Kind) -> None:
    async def main(one: Node, other: Node) -> None:
        other.host.serve(ECHO, echo)
        stream = await one.host.open(await connect(one, other), ECHO)
        await stream.send_all(b"abcdefgh")
        await stream.finish()
        parts = []
        while part := await stream.receive_some(3):
            parts.append(part)
        assert b"".join(parts) == b"abcdefgh"
        assert all(len(part) <= 3 for part in parts)

    kind.run(2, main)


def test_a_protocol_that_is_not_spoken_is_refused(kind: Kind) -> None:
    async def main(one: Node, other: Node) -> None:
        other.host.serve(ECHO, echo)
        peer = await connect(one, other)
        with pytest.raises(PeerRefused):
            await one.host.open(peer, "/test/other/1")
        stream = await one.host.open(peer, ECHO)  # the connection is as it was
        await stream.send_all(b"hello")
        assert await read_exactly(stream, 5) == b"hello"

    kind.run(2, main)


def test_open_dials_a_peer_that_was_connected_before(kind: Kind) -> None:
    async def main(one: Node, other: Node) -> None:
        other.host.serve(ECHO, echo)
        peer = await connect(one, other)
        await one.host.disconnect(peer)
        await until(lambda: not other.host.connections())
        assert not one.host.connections()
        stream = await one.host.open(peer, ECHO)
        await stream.send_all(b"hello")
        assert await read_exactly(stream, 5) == b"hello"

    kind.run(2, main)


@pytest.mark.fault("F36")
@pytest.mark.parametrize("error", [ValueError("bug"), PeerLost("lost"), EOFError(), KeyError(1)])
def test_a_handler_that_fails_harms_nobody_else(kind: Kind, error: Exception) -> None:
    async def main(one: Node, other: Node) -> None:
        async def fail(stream: Stream) -> None:
            await stream.receive_some(1)
            raise error

        other.host.serve("/test/fail/1", fail)
        other.host.serve(ECHO, echo)
        peer = await connect(one, other)
        healthy = await one.host.open(peer, ECHO)
        for _ in range(3):
            stream = await one.host.open(peer, "/test/fail/1")
            await stream.send_all(b"x")
            with pytest.raises(PeerLost):
                await read_exactly(stream, 1)
        await healthy.send_all(b"hello")
        assert await read_exactly(healthy, 5) == b"hello"
        assert len(one.host.connections()) == 1

    kind.run(2, main)


def test_cancelled_reads_and_writes_tear_no_connection(kind: Kind) -> None:
    async def main(one: Node, other: Node) -> None:
        num_stalled = 0

        async def stall(stream: Stream) -> None:
            nonlocal num_stalled
            num_stalled += 1
            await trio.sleep(0.1)
            num_stalled -= 1

        other.host.serve(ECHO, echo)
        other.host.serve("/test/stall/1", stall)
        peer = await connect(one, other)
        healthy = await one.host.open(peer, ECHO)
        for at in range(10):
            stream = await one.host.open(peer, ECHO)
            with trio.move_on_after(0.005 * at) as reading:
                await stream.receive_some(100)
            assert reading.cancelled_caught
            await stream.reset()
            stream = await one.host.open(peer, "/test/stall/1")
            with trio.move_on_after(0.005 * at) as writing:
                await stream.send_all(bytes(4 * 1024 * 1024))
            assert writing.cancelled_caught
            await stream.reset()
            await until(lambda: not num_stalled)  # there is room for few
            await healthy.send_all(b"hello")
            assert await read_exactly(healthy, 5) == b"hello"
        assert len(one.host.connections()) == len(other.host.connections()) == 1

    kind.run(2, main)


def test_reset_ends_both_directions(kind: Kind) -> None:
    async def main(one: Node, other: Node) -> None:
        ended = trio.Event()

        async def wait(stream: Stream) -> None:
            try:
                while await stream.receive_some(100):
                    pass
            except PeerLost:
                ended.set()
                raise

        other.host.serve(ECHO, wait)
        stream = await one.host.open(await connect(one, other), ECHO)
        await stream.send_all(b"x")
        await stream.reset()
        await stream.reset()
        with trio.fail_after(60):
            await ended.wait()
        with pytest.raises(PeerLost):
            await stream.receive_some(1)
        with pytest.raises(PeerLost):
            await stream.send_all(b"x")

    kind.run(2, main)


def test_a_reader_that_stalls_is_never_sent_all(kind: Kind) -> None:
    async def main(one: Node, other: Node) -> None:
        async def stall(stream: Stream) -> None:
            await trio.sleep_forever()

        other.host.serve(ECHO, stall)
        stream = await one.host.open(await connect(one, other), ECHO)
        is_taken = False
        with trio.move_on_after(1):
            try:
                await stream.send_all(bytes(LIMITS.max_unread_bytes + 1))
                is_taken = True
            except PeerLost:
                pass
        assert not is_taken

    kind.run(2, main)


def test_a_peers_streams_are_limited(kind: Kind) -> None:
    async def main(one: Node, other: Node) -> None:
        num_at_once = 0

        async def wait(stream: Stream) -> None:
            nonlocal num_at_once
            num_at_once += 1
            await stream.send_all(b"x")
            await trio.sleep_forever()

        other.host.serve("/test/wait/1", wait)
        other.host.serve(ECHO, echo)
        peer = await connect(one, other)
        num_answered = 0
        for _ in range(LIMITS.max_streams_per_peer + 3):
            try:
                stream = await one.host.open(peer, "/test/wait/1")
                num_answered += len(await read_exactly(stream, 1))
            except (PeerLost, PeerRefused):
                continue
        assert num_answered == num_at_once == LIMITS.max_streams_per_peer
        stream = await one.host.open(peer, ECHO)  # another protocol has room of its own
        await stream.send_all(b"hello")
        assert await read_exactly(stream, 5) == b"hello"

    kind.run(2, main)


def test_a_handler_over_its_time_is_reset(kind: Kind) -> None:
    async def main(one: Node, other: Node) -> None:
        async def wait(stream: Stream) -> None:
            await trio.sleep_forever()

        other.host.serve(ECHO, wait, timeout_s=0.2)
        stream = await one.host.open(await connect(one, other), ECHO)
        await stream.send_all(b"x")
        with trio.fail_after(60), pytest.raises(PeerLost):
            await stream.receive_some(1)

    kind.run(2, main)


def test_a_ping_takes_some_time(kind: Kind) -> None:
    async def main(one: Node, other: Node) -> None:
        peer = await connect(one, other)
        rtt_s = await one.host.ping(peer)
        assert 0 <= rtt_s < 5
        assert one.host.connections()[0].rtt_s == pytest.approx(rtt_s)

    kind.run(2, main)


def test_a_banned_peer_is_sent_away(kind: Kind) -> None:
    async def main(one: Node, other: Node) -> None:
        other.host.serve(ECHO, echo)
        peer = await connect(one, other)
        other.host.ban(one.host.peer_id, True)
        await until(lambda: not one.host.connections() and not other.host.connections())
        with pytest.raises((PeerUnreachable, PeerLost)):
            await read_exactly(await one.host.open(peer, ECHO), 1)
        with pytest.raises(PeerRefused):
            await other.host.open(one.host.peer_id, ECHO)
        other.host.ban(one.host.peer_id, False)
        stream = await one.host.open(await connect(one, other), ECHO)
        await stream.send_all(b"hello")
        assert await read_exactly(stream, 5) == b"hello"

    kind.run(2, main)


def test_a_peer_that_ends_is_noticed(kind: Kind) -> None:
    async def main(one: Node, other: Node, third: Node) -> None:
        async def wait(stream: Stream) -> None:
            await trio.sleep_forever()

        other.host.serve(ECHO, wait)
        third.host.serve(ECHO, echo)
        stream = await one.host.open(await connect(one, other), ECHO)
        healthy = await one.host.open(await connect(one, third), ECHO)
        await other.end()
        with trio.fail_after(60), pytest.raises(PeerLost):
            await stream.receive_some(1)
        await until(lambda: [c.peer for c in one.host.connections()] == [third.host.peer_id])
        await healthy.send_all(b"hello")
        assert await read_exactly(healthy, 5) == b"hello"

    kind.run(3, main)


def test_a_provider_is_found_by_others_and_not_by_itself(kind: Kind) -> None:
    async def main(*nodes: Node) -> None:
        one, other, third = nodes
        await connect(one, other)
        await connect(third, other)
        await one.directory.provide(KEY)
        found = await third.directory.providers(KEY, 10)
        assert [each.peer for each in found] == [one.host.peer_id]
        assert found[0].addresses
        assert await one.directory.providers(KEY, 10) == []
        assert await third.directory.providers(bytes(32), 10) == []
        one.host.serve(ECHO, echo)
        stream = await third.host.open(one.host.peer_id, ECHO)  # its address is known now
        await stream.send_all(b"hello")
        assert await read_exactly(stream, 5) == b"hello"

    kind.run(3, main)


def test_only_valid_values_are_stored(kind: Kind) -> None:
    async def main(one: Node, other: Node, third: Node) -> None:
        await connect(one, other)
        await connect(third, other)
        await one.directory.put(KEY, b"valid 1")
        assert await third.directory.get(KEY) == [b"valid 1"]
        assert await third.directory.get(bytes(32)) == []
        with pytest.raises(BadRequest):
            await one.directory.put(KEY, b"wrong")
        with pytest.raises(BadRequest):
            await one.directory.put(KEY, b"valid" + bytes(MAX_VALUE_BYTES))
        assert await third.directory.get(KEY) == [b"valid 1"]

    kind.run(3, main)


def test_a_node_that_is_alone_cannot_announce(kind: Kind) -> None:
    async def main(one: Node) -> None:
        with pytest.raises(PeerUnreachable):
            await one.directory.provide(KEY)
        with pytest.raises(PeerUnreachable):
            await one.directory.put(KEY, b"valid 1")
        assert await one.directory.providers(KEY, 10) == []
        assert await one.directory.get(KEY) == []

    kind.run(1, main)


def test_gossip_reaches_who_joined(kind: Kind) -> None:
    async def main(*nodes: Node) -> None:
        heard: dict[int, list[tuple[PeerId, bytes]]] = {0: [], 1: [], 2: []}
        for number, node in enumerate(nodes):
            node.gossip.join("topic", lambda *message, number=number: heard[number].append(message))
        await connect(nodes[0], nodes[1])
        await connect(nodes[1], nodes[2])
        sender = nodes[0].host.peer_id
        with trio.fail_after(60):  # until the topic's peers know each other
            while not heard[2]:
                await nodes[0].gossip.publish("topic", b"hello")
                await trio.sleep(0.2)
        assert set(heard[1]) == set(heard[2]) == {(sender, b"hello")}
        nodes[2].gossip.leave("topic")
        nodes[2].gossip.leave("topic")
        with pytest.raises(BadRequest):
            await nodes[0].gossip.publish("topic", bytes(MAX_MESSAGE_BYTES + 1))

    kind.run(3, main)


def test_a_reader_of_gossip_that_raises_ends_nothing(kind: Kind) -> None:
    async def main(one: Node, other: Node) -> None:
        heard = []

        def take(sender: PeerId, message: bytes) -> None:
            heard.append(message)
            raise ValueError("bug")

        other.gossip.join("topic", take)
        one.gossip.join("topic", lambda *_: None)
        await connect(one, other)
        with trio.fail_after(60):
            while len(heard) < 2:
                await one.gossip.publish("topic", b"hello")
                await trio.sleep(0.2)
        assert 0 <= await one.host.ping(other.host.peer_id) < 5

    kind.run(2, main)
