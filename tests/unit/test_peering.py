"""The network of a node: what it knows, whom it keeps, and what its faults end."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Awaitable, Callable
from itertools import cycle
from pathlib import Path

import pytest
import trio

import daemon.believing
import daemon.peering
from daemon.peer_calls import network_value
from daemon.peering import Peering
from glia.errors import NetworkError, PeerUnreachable
from glia.graph.ids import ModelId, PrefixKey
from glia.local.network_values import NetworkValue
from p2p.getter import Close
from p2p.host import Found, PeerId, Stream
from p2p.ledger import Ledger
from p2p.messages import BLOCKS, FIND
from p2p.source import Verdict
from p2p.testing.host import SimHost
from p2p.testing.internet import Internet
from p2p.testing.simulate import simulate
from simulations.virtual.ports import Joined, make_peering

MODEL = ModelId(bytes(32))
OTHER_MODEL = ModelId(b"\1" * 32)
KEY = PrefixKey(bytes(32))


def run(
    main: Callable[[Internet, trio.Nursery], Awaitable[None]],
) -> None:
    async def in_a_world() -> None:
        async with trio.open_nursery() as nursery:
            await main(Internet(nursery), nursery)
            nursery.cancel_scope.cancel()

    simulate(in_a_world)


def is_connected(peering: Peering, host: SimHost) -> bool:
    return host.peer_id in [each.peer for each in peering.host.connections()]


def test_bootstrap_peers_are_dialled_kept_and_pinged(tmp_path: Path) -> None:
    async def main(net: Internet, nursery: trio.Nursery) -> None:
        friend = net.host("friend")
        peering = make_peering(tmp_path, Joined(net, "me"), friend.addresses()[0])
        await nursery.start(peering.run)
        await trio.sleep(1.5)
        assert is_connected(peering, friend)
        await trio.sleep(1.5)
        entry = peering.ledger.entry(friend.peer_id)
        assert entry is not None
        assert entry.rtt_s == pytest.approx(0.001)
        await peering.host.disconnect(friend.peer_id)
        assert not is_connected(peering, friend)
        await trio.sleep(3)
        assert is_connected(peering, friend)

    run(main)


def test_who_was_named_and_answered_is_dialled_after_a_restart_too(tmp_path: Path) -> None:
    """By a flag of the start before. It is dialled, and no more: its word is a stranger's."""

    async def main(net: Internet, nursery: trio.Nursery) -> None:
        friend, gone = net.host("friend"), net.host("gone")
        net.kill("gone")
        named = friend.addresses()[0], gone.addresses()[0]
        await live(make_peering(tmp_path, Joined(net, "me"), *named), friend)
        again = make_peering(tmp_path, Joined(net, "me"))
        assert again.kept.peers() == [friend.peer_id]
        await live(again, friend)
        entry = again.ledger.entry(friend.peer_id)
        assert entry is not None
        assert again.believing.acquaintance.trust_of(friend.peer_id, entry) == "stranger"
        entry.seen_s -= 31 * 86400
        assert again._remembering._file.load(Ledger()) == {friend.peer_id: list(named[:1])}
        again._remembering.save()
        assert again._remembering._file.load(Ledger()) == {}

    async def live(peering: Peering, friend: SimHost) -> None:
        async with trio.open_nursery() as life:
            await life.start(peering.run)
            await trio.sleep(5)
            assert is_connected(peering, friend)
            life.cancel_scope.cancel()
        peering.published.close()
        peering.heard.close()

    run(main)


def test_a_peer_that_is_gone_is_dialled_less_and_less_often(tmp_path: Path) -> None:
    async def main(net: Internet, nursery: trio.Nursery) -> None:
        friend = net.host("friend")
        peering = make_peering(tmp_path, Joined(net, "me"), friend.addresses()[0])
        net.kill("friend")
        dialled: list[float] = []
        await nursery.start(peering.run)
        connect = peering.host.connect

        async def counted(address):  # type: ignore[no-untyped-def]
            dialled.append(trio.current_time())
            return await connect(address)

        peering.host.connect = counted  # type: ignore[method-assign]
        await trio.sleep(600)
        assert 12 <= len(dialled) <= 26
        assert dialled[-1] - dialled[-2] >= 30
        back = net.host("friend")
        await trio.sleep(61)
        assert is_connected(peering, back)

    run(main)


def test_a_cut_that_heals(tmp_path: Path) -> None:
    async def main(net: Internet, nursery: trio.Nursery) -> None:
        friend = net.host("friend")
        peering = make_peering(tmp_path, Joined(net, "me"), friend.addresses()[0])
        await nursery.start(peering.run)
        await trio.sleep(2)
        net.cut("me", "friend")
        await trio.sleep(60)
        assert not is_connected(peering, friend)
        net.heal("me", "friend")
        await trio.sleep(62)
        assert is_connected(peering, friend)

    run(main)


@pytest.mark.parametrize(("pattern", "is_kept"), [("xx", False), ("x.", True), ("..", True)])
def test_who_misses_two_pings_in_a_row_is_let_go(
    pattern: str, is_kept: bool, tmp_path: Path
) -> None:
    async def main(net: Internet, nursery: trio.Nursery) -> None:
        friend = net.host("friend")
        peering = make_peering(tmp_path, Joined(net, "me"))
        answers = cycle(pattern)
        pinged: list[float] = []

        async def ping(peer: PeerId) -> float:
            pinged.append(trio.current_time())
            if next(answers) == "x":
                raise PeerUnreachable("no answer")
            return 0.01

        await nursery.start(peering.run)
        peering.host.ping = ping  # type: ignore[method-assign]
        await friend.connect(peering.host.addresses()[0])
        await trio.sleep(200)
        assert is_connected(peering, friend) is is_kept
        assert len(pinged) == (7 if is_kept else 2)

    run(main)


@pytest.mark.fault("F36")
def test_a_fault_of_the_network_ends_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(net: Internet, nursery: trio.Nursery) -> None:
        join = Joined(net, "me")
        join.faults = [NetworkError("the port is taken"), RuntimeError("broken")]
        peering = make_peering(tmp_path, join)
        ups: list[int] = []
        peering.on_up.append(lambda: ups.append(len(join.made)))
        await nursery.start(peering.run)  # started, though off
        assert peering.why_off == "the port is taken"
        await trio.sleep(3)
        assert peering.why_off == "RuntimeError('broken')"
        await trio.sleep(5)
        assert (peering.why_off, ups) == ("", [3])
        join.made[-1].fail(ExceptionGroup("deep", [ExceptionGroup("deeper", [OSError(5, "oh")])]))
        await trio.sleep(0.1)
        assert peering.why_off == "OSError(5, 'oh')"
        await trio.sleep(60)
        assert (peering.why_off, ups) == ("", [3, 4])
        assert peering.host is join.made[-1].host
        join.made[-1].fail(None)
        await trio.sleep(0.1)
        assert peering.why_off == "the network ended by itself"
        assert peering.counts()["network_faults"] == 4

    with caplog.at_level(logging.ERROR):
        run(main)
    assert [record.message for record in caplog.records] == [
        "the network is off: the port is taken",
        "the network is off: RuntimeError('broken')",
        "the network is off: OSError(5, 'oh')",
        "the network is off: the network ended by itself",
    ]


@pytest.mark.fault("F36")
def test_ports_that_cannot_be_made_are_a_fault_too(tmp_path: Path) -> None:
    async def main(net: Internet, nursery: trio.Nursery) -> None:
        join = Joined(net, "me")
        peering = make_peering(tmp_path, join)
        await nursery.start(peering.run)

        def broken(on_change):  # type: ignore[no-untyped-def]
            raise ValueError("no ports")

        peering._join = broken
        join.made[-1].fail(RuntimeError())
        await trio.sleep(600)
        assert peering.why_off == "ValueError('no ports')"
        assert peering.counts()["network_faults"] >= 8
        peering._join = join
        await trio.sleep(61)
        assert peering.why_off == ""

    run(main)


def test_before_it_is_on_it_says_so_and_does_nothing(tmp_path: Path) -> None:
    async def main(net: Internet, nursery: trio.Nursery) -> None:
        peering = make_peering(tmp_path, Joined(net, "me"))
        peering.serve(object())  # type: ignore[arg-type]
        assert (peering.counts(), peering.settled.is_set()) == ({}, False)
        assert network_value(peering) == NetworkValue("", [], 0, "it is being joined")
        with pytest.raises(NetworkError, match="it is being joined"):
            peering.peers_of(MODEL)
        await nursery.start(peering.run)
        assert peering.settled.is_set()
        found = network_value(peering)
        assert found is not None
        assert (found.peer_id, found.why_off, found.mdns) == (peering.host.peer_id, "", "off")

    run(main)


def test_an_offer_is_served_again_on_new_ports(tmp_path: Path) -> None:
    async def main(net: Internet, nursery: trio.Nursery) -> None:
        join = Joined(net, "me")
        peering = make_peering(tmp_path, join)
        peering.serve(object())  # type: ignore[arg-type]
        await nursery.start(peering.run)
        for _ in range(2):
            friend = net.host("friend")
            await friend.connect(peering.host.addresses()[0])
            stream: Stream = await friend.open(peering.host.peer_id, BLOCKS)
            await stream.reset()
            join.made[-1].fail(RuntimeError())
            await trio.sleep(61)

    run(main)


def test_whom_to_ask(tmp_path: Path) -> None:
    async def main(net: Internet, nursery: trio.Nursery) -> None:
        peering = make_peering(tmp_path, Joined(net, "me"))
        await nursery.start(peering.run)
        slow, fast, there = (net.host(name) for name in ("slow", "fast", "there"))
        for host, speed in ((slow, 1.0), (fast, 9.0)):
            peering.done(Close(host.peer_id, Verdict.DONE, 2, 10, speed), MODEL)
        await peering.meet(Found(there.peer_id, (there.addresses()[0],)))
        assert peering.peers_of(MODEL) == [fast.peer_id, slow.peer_id, there.peer_id]
        assert peering.peers_of(OTHER_MODEL) == [there.peer_id]
        assert not await peering.meet(Found(there.peer_id, (there.addresses()[0],)))
        await peering.part(there.peer_id)
        assert await peering.meet(Found(there.peer_id, (there.addresses()[0],)))
        for _ in range(3):
            peering.done(Close(fast.peer_id, Verdict.LIED, 0, 0, None), MODEL)
        assert peering.peers_of(MODEL) == [slow.peer_id, there.peer_id]
        with pytest.raises(PeerUnreachable):
            await peering.meet(Found(PeerId("nobody"), ()))

    run(main)


def test_streams_are_opened_before_a_prompt_needs_them(tmp_path: Path) -> None:
    async def main(net: Internet, nursery: trio.Nursery) -> None:
        friend = net.host("friend")

        async def serve(stream: Stream) -> None:
            await trio.sleep_forever()

        friend.serve(FIND, serve)
        peering = make_peering(tmp_path, Joined(net, "me"), friend.addresses()[0])
        await nursery.start(peering.run)
        await trio.sleep(1.5)
        peering.prepare()
        await trio.sleep(1.0)
        now_s = trio.current_time()
        stream = await peering.open_stream(friend.peer_id, FIND)
        assert trio.current_time() == now_s
        await stream.reset()
        stream = await peering.open_stream(friend.peer_id, FIND)
        assert trio.current_time() > now_s
        await stream.reset()

    run(main)


@pytest.mark.parametrize(
    ("policy", "passes_on"), [("lan", [True, False]), ("known", [False, False])]
)
def test_who_is_near_is_taken_at_its_word_but_not_through_a_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, passes_on: list[bool]
) -> None:
    async def main(net: Internet, nursery: trio.Nursery) -> None:
        near, behind = net.host("near"), net.host("behind")
        gateway = behind.addresses()[0].split("/")[2]
        monkeypatch.setattr(daemon.believing, "gateways", lambda: frozenset({gateway}))
        peering = make_peering(tmp_path, Joined(net, "me"), accept=policy)
        await nursery.start(peering.run)
        for each in (near, behind):
            await each.connect(peering.host.addresses()[0])
        assert [peering.believing.passes_on(each.peer_id) for each in (near, behind)] == passes_on
        await near.disconnect(peering.host.peer_id)
        await trio.sleep(1.0)
        assert not peering.believing.passes_on(near.peer_id)

        def unreadable() -> frozenset[str]:
            raise PermissionError

        monkeypatch.setattr(daemon.believing, "gateways", unreadable)
        await near.connect(peering.host.addresses()[0])
        assert not peering.believing.passes_on(near.peer_id)

    run(main)


def test_who_said_to_have_it_is_asked_in_turn_with_who_gave_before(tmp_path: Path) -> None:
    async def main(net: Internet, nursery: trio.Nursery) -> None:
        peering = make_peering(tmp_path, Joined(net, "me"))
        await nursery.start(peering.run)
        one, two, said, liar = (PeerId(name) for name in ("one", "two", "said", "liar"))
        for peer in (one, two):
            peering.done(Close(peer, Verdict.DONE, 2, 10, 1.0 + len(peer)), MODEL)
        for _ in range(3):
            peering.done(Close(liar, Verdict.LIED, 0, 0, None), MODEL)
        for peer in (liar, said, two):
            peering.hints.said(peer, KEY)
        assert set(peering.peers_of(MODEL)) == {one, two}
        assert peering.peers_of(MODEL, [KEY])[0] == two
        assert set(peering.peers_of(MODEL, [KEY])) == {one, two, said}
        assert peering.directory.is_proven(one)
        assert not peering.directory.is_proven(said)

    run(main)


def test_whom_the_user_named_is_told_and_asked_of_every_key(tmp_path: Path) -> None:
    async def main(net: Internet, nursery: trio.Nursery) -> None:
        named, other = net.host("named"), net.host("other")
        peering = make_peering(tmp_path, Joined(net, "me"), named.addresses()[0])
        await nursery.start(peering.run)
        await peering.meet(Found(other.peer_id, (other.addresses()[0],)))
        await trio.sleep(5)
        assert peering.directory.rendezvous() == [named.peer_id]
        assert peering.counts()["keys_crowded"] == 0
        await peering.host.disconnect(named.peer_id)
        assert peering.directory.rendezvous() == []

    run(main)


def test_who_lied_is_banned_also_on_new_ports_and_after_a_restart(tmp_path: Path) -> None:
    async def main(net: Internet, nursery: trio.Nursery) -> None:
        liar = net.host("liar")
        join = Joined(net, "me")
        peering = make_peering(tmp_path, join, liar.addresses()[0])
        async with trio.open_nursery() as life:
            await life.start(peering.run)
            await trio.sleep(2)
            assert is_connected(peering, liar)
            for _ in range(3):
                peering.lied(liar.peer_id)
            await trio.sleep(61)
            assert not is_connected(peering, liar)
            join.made[-1].fail(RuntimeError())
            await trio.sleep(10)
            with pytest.raises(PeerUnreachable):
                await liar.connect(peering.host.addresses()[0])
            life.cancel_scope.cancel()
        peering.published.close()
        peering.heard.close()
        again = make_peering(tmp_path, Joined(net, "me"))
        await nursery.start(again.run)
        assert again.ledger.is_banned(liar.peer_id)
        with pytest.raises(PeerUnreachable):
            await liar.connect(again.host.addresses()[0])

    run(main)


def test_what_is_known_is_saved_every_minute_where_it_changed(tmp_path: Path) -> None:
    async def main(net: Internet, nursery: trio.Nursery) -> None:
        peering = make_peering(tmp_path, Joined(net, "me"))
        await nursery.start(peering.run)
        file = tmp_path / "peers.json"
        peering.done(Close(PeerId("gave"), Verdict.DONE, 2, 10, 5.0), MODEL)
        await trio.sleep(59)
        assert not file.exists()
        await until_there(file)
        assert json.loads(file.read_text())["peers"]["gave"]["blocks_in"] == 2
        before = file.stat().st_ino
        await trio.sleep(120)
        assert file.stat().st_ino == before

    async def until_there(file: Path) -> None:
        for _ in range(1000):
            if file.exists():
                return
            await trio.to_thread.run_sync(time.sleep, 0.01)  # it is written in a thread

    run(main)


def test_what_is_known_is_saved_at_the_end(tmp_path: Path) -> None:
    async def main(net: Internet, nursery: trio.Nursery) -> None:
        peering = make_peering(tmp_path, Joined(net, "me"))
        async with trio.open_nursery() as life:
            await life.start(peering.run)
            peering.lied(PeerId("liar"))
            life.cancel_scope.cancel()
        saved = json.loads((tmp_path / "peers.json").read_text())
        assert saved["peers"]["liar"]["num_bad"] == 1

    run(main)
