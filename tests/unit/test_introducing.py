"""A peer proves which neuron it signs as (p2p/spec/introducing.md)."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

import daemon.introducing
from daemon.peering import Peering
from glia.errors import RemoteProtocolError
from glia.graph.neuron import NeuronId, Signer
from p2p.frames import encode_frame
from p2p.host import PeerId, Stream
from p2p.introducing import INTRODUCTION, introducer, introduction, neuron_in
from p2p.ledger import Ledger
from p2p.testing.internet import Internet
from p2p.testing.simulate import simulate
from simulations.virtual.ports import Joined, make_peering
from tests.architecture import ROOT
from tests.vectors.link_reference import read_introduction

PAGE = (ROOT / "p2p/spec/introducing.md").read_text(encoding="utf-8")
VECTORS = json.loads((ROOT / "tests/vectors/introduction.json").read_text(encoding="utf-8"))
FRIEND = Signer(b"\5" * 32)

Main = Callable[[Internet, trio.Nursery], Awaitable[None]]


def run(main: Main) -> None:
    async def in_a_world() -> None:
        async with trio.open_nursery() as nursery:
            await main(Internet(nursery), nursery)
            nursery.cancel_scope.cancel()

    simulate(in_a_world)


def neuron_of(peering: Peering, peer: PeerId) -> str:
    entry = peering.ledger.entry(peer)
    return "" if entry is None else entry.neuron


def test_the_vectors_are_read_by_both() -> None:
    peer = PeerId(VECTORS["peer"])
    for text in VECTORS["introductions"]:
        said = bytes.fromhex(text)
        assert neuron_in(said, peer) == read_introduction(said, peer)
    made = introduction(Signer(b"\1" * 32), peer)
    assert made.hex() == VECTORS["introductions"][0]


def test_the_page_says_what_is() -> None:
    command, output = re.findall(r"^    \$ python (-c '.*')\n    (.*)$", PAGE, re.MULTILINE)[0]
    words = [sys.executable, *shlex.split(command)]
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == output


def test_a_flipped_bit_or_another_peer_is_refused() -> None:
    peer = PeerId(VECTORS["peer"])
    said = bytes.fromhex(VECTORS["introductions"][0])
    for at in range(0, 8 * len(said), 7):
        changed = bytearray(said)
        changed[at // 8] ^= 1 << at % 8
        with pytest.raises(RemoteProtocolError):
            neuron_in(bytes(changed), peer)
    for bad, who in ((said, PeerId("12D3KooX")), (said[:-1], peer), (said + b"\0", peer)):
        with pytest.raises(RemoteProtocolError):
            neuron_in(bad, who)


def test_who_connects_is_asked_whichever_side_dialled(tmp_path: Path) -> None:
    async def main(net: Internet, nursery: trio.Nursery) -> None:
        friend, caller = net.host("friend"), net.host("caller")
        for host in (friend, caller):
            host.serve(INTRODUCTION, introducer(FRIEND, host.peer_id))
        peering = make_peering(tmp_path, Joined(net, "me"), friend.addresses()[0])
        await nursery.start(peering.run)
        await caller.connect(peering.host.addresses()[0])
        await trio.sleep(11)
        assert neuron_of(peering, friend.peer_id) == FRIEND.neuron.hex()
        assert neuron_of(peering, caller.peer_id) == FRIEND.neuron.hex()
        stream = await caller.open(peering.host.peer_id, INTRODUCTION)
        said = await stream.receive_some(1024)
        assert neuron_in(said[4:], peering.host.peer_id) == peering.signer.neuron

    run(main)


def test_named_peers_make_their_neurons_known_also_after_a_restart(tmp_path: Path) -> None:
    async def main(net: Internet, nursery: trio.Nursery) -> None:
        friend, other = net.host("friend"), net.host("other")
        friend.serve(INTRODUCTION, introducer(FRIEND, friend.peer_id))
        other.serve(INTRODUCTION, introducer(Signer(b"\6" * 32), other.peer_id))
        peering = make_peering(tmp_path / "a", Joined(net, "me"), friend.addresses()[0])
        async with trio.open_nursery() as life:
            await life.start(peering.run)
            await peering.host.connect(other.addresses()[0])
            await trio.sleep(11)
            takes = peering.believing.takes()
            assert takes(FRIEND.neuron)
            assert not takes(Signer(b"\6" * 32).neuron)
            life.cancel_scope.cancel()
        peering.published.close()
        peering.heard.close()
        again = make_peering(tmp_path / "a", Joined(net, "me2"), friend.addresses()[0])
        assert again.believing.takes()(FRIEND.neuron)
        (tmp_path / "b").mkdir()
        (tmp_path / "a/peers.json").rename(tmp_path / "b/peers.json")
        unnamed = make_peering(tmp_path / "b", Joined(net, "me3"))
        assert neuron_of(unnamed, friend.peer_id) == FRIEND.neuron.hex()
        assert not unnamed.believing.takes()(FRIEND.neuron)

    run(main)


def test_what_goes_wrong_with_one_peer_is_no_fault_of_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(net: Internet, nursery: trio.Nursery) -> None:
        bad, friend = net.host("bad"), net.host("friend")
        friend.serve(INTRODUCTION, introducer(FRIEND, friend.peer_id))
        asking = daemon.introducing.ask_neuron

        async def ask(stream: Stream) -> NeuronId:
            if stream.peer == bad.peer_id:
                raise ValueError("what nobody thought of")
            return await asking(stream)

        monkeypatch.setattr(daemon.introducing, "ask_neuron", ask)
        bad.serve(INTRODUCTION, introducer(FRIEND, bad.peer_id))
        peering = make_peering(tmp_path, Joined(net, "me"), bad.addresses()[0])
        await nursery.start(peering.run)
        await trio.sleep(11)
        await peering.host.connect(friend.addresses()[0])
        await trio.sleep(11)
        assert (peering.counters["network_faults"], peering.why_off) == (0, "")
        assert neuron_of(peering, friend.peer_id) == FRIEND.neuron.hex()
        assert neuron_of(peering, bad.peer_id) == ""

    run(main)


def test_peers_that_come_and_go_leave_nothing_behind_and_hold_nobody_up() -> None:
    async def main(net: Internet, nursery: trio.Nursery) -> None:
        me, friend = net.host("me"), net.host("friend")
        ledger = Ledger()
        asking = daemon.introducing.Introducing(me, ledger)

        async def be_silent(stream: Stream) -> None:
            await trio.sleep_forever()

        async with trio.open_nursery() as life:
            life.start_soon(asking.run)
            for number in range(60):
                passer = net.host(f"passer {number}")
                passer.serve(INTRODUCTION, be_silent)
                await passer.connect(me.addresses()[0])
                asking.wake()
                await trio.sleep(0.01)
                if number >= 20:  # the others stay, and say nothing
                    await passer.disconnect(me.peer_id)
            (task,) = life.child_tasks
            assert len(task.child_nurseries[0].child_tasks) <= 8
            friend.serve(INTRODUCTION, introducer(FRIEND, friend.peer_id))
            await friend.connect(me.addresses()[0])
            asking.wake()
            await trio.sleep(20)
            entry = ledger.entry(friend.peer_id)
            assert entry is not None
            assert entry.neuron == FRIEND.neuron.hex()
            life.cancel_scope.cancel()

    run(main)


@pytest.mark.parametrize("fault", ["refused", "forged", "silent", "cut"])
def test_who_does_not_say_it_stays_unknown_and_is_not_pestered(tmp_path: Path, fault: str) -> None:
    num_asked = 0

    async def answer(stream: Stream) -> None:
        nonlocal num_asked
        num_asked += 1
        if fault == "forged":
            await stream.send_all(encode_frame(introduction(FRIEND, PeerId("another"))))
        if fault == "silent":
            await trio.sleep_forever()
        await stream.finish()

    async def main(net: Internet, nursery: trio.Nursery) -> None:
        friend = net.host("friend")
        if fault != "refused":
            friend.serve(INTRODUCTION, answer)
        peering = make_peering(tmp_path, Joined(net, "me"), friend.addresses()[0])
        await nursery.start(peering.run)
        await trio.sleep(300)
        assert neuron_of(peering, friend.peer_id) == ""
        assert num_asked == {"refused": 0, "forged": 1, "silent": 3, "cut": 3}[fault]
        entry = peering.ledger.entry(friend.peer_id)
        assert entry is not None
        assert not entry.num_bad

    run(main)
