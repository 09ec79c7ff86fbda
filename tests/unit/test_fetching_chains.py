"""A chain, or a particle, by its name from peers: verified, attested, whole or as before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import trio

from daemon.binding import Binding
from daemon.chain_fetching import ChainFetching, Got
from daemon.particle_finding import find_particle
from glia.errors import NotFound, PeerLost, QuotaExceeded, StoreBroken, StoreFull
from glia.graph.ids import BlockId
from p2p.host import Stream
from p2p.messages import FIND, PARTICLE
from p2p.testing.internet import Internet
from tests.builders import CLASS, Chain
from tests.exchange_parts import serve
from tests.resolver_parts import Node, Shop, chain_of, head, run
from tests.store_parts import sealed

Run = Callable[..., None]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    return partial(run, monkeypatch, tmp_path)


async def fetch(node: Node, chain: Chain) -> Got:
    found = await find_particle(node.peering, chain.tip)
    assert found.particle == chain.records[-1].encoding
    binding = Binding(chain.model_id, chain.profile, CLASS)
    told: list[tuple[str, int, int]] = []
    got = await ChainFetching(
        node.peering,
        node.memory,
        binding,
        chain.records[-1],
        found.peers,
        0.0,
        lambda *each: told.append(each),
    ).run()
    if got.num_fetched:
        assert told[-1] == ("fetching", 16 * got.num_fetched, 16 * got.num_fetched)
    return got


def test_a_chain_is_had_whole_durable_and_offered_to_others(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        chain = chain_of(40)
        await node.meets("peer", chain)
        got = await fetch(node, chain)
        assert (got.num_windows, got.num_fetched) == (40, 40)
        assert [(each.blocks, each.end) for each in got.sources] == [(80, "done")]
        assert all(node.store.get(name) for name in chain.window_ids)
        published = node.peering.published
        assert published.record(chain.tip) is not None
        assert all(published.foreign.flags(chain.window_ids))
        assert await node.matched(chain) == 40
        again = await fetch(node, chain)
        assert (again.num_windows, again.num_fetched, again.sources) == (40, 0, [])

    world(main)


def test_what_is_here_is_not_fetched_again(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        chain = chain_of(40)
        offer = await node.meets("peer", chain)
        assert (await fetch(node, head(chain, 32))).num_fetched == 32
        reads = offer.num_reads
        got = await fetch(node, chain)
        assert (got.num_windows, got.num_fetched, offer.num_reads - reads) == (40, 8, 16)

    world(main)


@pytest.mark.parametrize("is_shown", [True, False])
def test_what_is_shown_to_nobody_is_not_offered_with_what_continues_it(
    world: Run, is_shown: bool
) -> None:
    async def main(node: Node, net: Internet) -> None:
        chain = chain_of(40)
        ours, published = head(chain, 32), node.peering.published
        node.store.put(sealed(ours))
        if is_shown:
            published.put(ours.records)
        await node.meets("peer", chain)
        assert (await fetch(node, chain)).num_fetched == 8
        assert await node.matched(chain) == 40
        assert (published.record(ours.tip) is not None) is is_shown
        assert (published.record(chain.tip) is not None) is is_shown

    world(main)


def test_what_another_body_of_the_soul_gave_is_not_offered_with_what_continues_it(
    world: Run,
) -> None:
    async def main(node: Node, net: Internet) -> None:
        chain = chain_of(40)
        ours, published = head(chain, 32), node.peering.published
        published.foreign.expect(ours.window_ids)
        node.store.put(sealed(ours))
        published.foreign.settle(ours.window_ids, ours.window_ids)
        await node.meets("peer", chain)
        assert (await fetch(node, chain)).num_fetched == 8
        assert published.record(ours.tip) is published.record(chain.tip) is None

    world(main)


def test_a_tip_that_says_to_be_of_an_endless_chain_is_not_walked(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        chain = chain_of(4)
        endless = replace(chain.records[-1], position_start=16 * 2**40)
        peer = net.host("peer")
        asked: list[Stream] = []

        async def hear(stream: Stream) -> None:
            asked.append(stream)

        peer.serve(FIND, hear)
        await node.peering.host.connect(peer.addresses()[0])
        binding = Binding(chain.model_id, chain.profile, CLASS)
        peers, tell = [peer.peer_id], lambda *_: None
        fetching = ChainFetching(node.peering, node.memory, binding, endless, peers, 0.0, tell)
        with pytest.raises(QuotaExceeded, match="of its chain"):
            await fetching.run()
        assert not asked

    world(main)


def test_what_strangers_attest_is_not_kept(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        chain = chain_of(40)
        await node.meets("peer", chain)
        with pytest.raises(NotFound, match="0 are attested"):
            await fetch(node, chain)
        assert await node.matched(chain) == 0
        (connection,) = node.peering.host.connections()
        node.peering.ledger.trust(connection.peer, "known", 0.0)
        assert (await fetch(node, chain)).num_fetched == 40

    world(main, accept="known")


def test_a_peer_with_flipped_bytes_is_replaced_and_remembered(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        chain = chain_of(40)
        bad = await node.meets("bad", chain)
        await node.meets("good", chain)
        bad.spoil = lambda _, data: data[:-1] + bytes([data[-1] ^ 1])
        assert (await fetch(node, chain)).num_fetched == 40
        assert sum(entry.num_bad for _, entry in node.peering.ledger.entries()) == 1
        assert await node.matched(chain) == 40

    world(main)


def test_what_came_before_the_peer_went_stays_and_the_next_one_goes_on(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        chain = chain_of(40)
        offer = await node.meets("peer", chain)
        late = set(chain.records[25].blocks)
        offer.spoil = lambda name, data: b"" if name in late else data
        with pytest.raises(PeerLost, match="25 of 40 windows came"):
            await fetch(node, chain)
        assert await node.matched(chain) == 25
        assert node.peering.published.record(chain.tip) is None
        flags = node.peering.published.foreign.flags(chain.window_ids)
        assert flags == [True] * 25 + [False] * 15
        offer.spoil = lambda _, data: data
        assert (await fetch(node, chain)).num_fetched == 15
        assert await node.matched(chain) == 40
        assert node.peering.published.record(chain.tip) is not None

    world(main)


def test_a_full_disk_is_no_fault_of_a_peer(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        chain = chain_of(40)
        await node.meets("peer", chain)

        def expect(*_: object) -> None:
            raise StoreFull("full", hint="make room")

        node.peering.published.foreign.expect = expect  # type: ignore[method-assign]
        with pytest.raises(StoreFull, match="full"):
            await fetch(node, chain)
        resolved = await node.resolve(chain)
        assert (resolved.why, resolved.num_windows) == ("disk", 0)
        assert not any(entry.num_bad for _, entry in node.peering.ledger.entries())
        assert node.memory.table.num_reserved == 0

    world(main)


def test_a_store_that_cannot_be_read_is_told_as_that(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        chain = chain_of(40)
        await node.meets("peer", chain)

        async def stored(_: object) -> frozenset[BlockId]:
            raise StoreBroken("the disk is gone", hint="look at it")

        node.memory.stored = stored  # type: ignore[method-assign,assignment]
        with pytest.raises(StoreBroken, match="gone"):
            await fetch(node, chain)

    world(main)


def test_one_that_is_broken_off_leaves_whole_windows_or_none(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        chain = chain_of(40)
        size = chain.profile.window_particle_bytes
        net.link("me", "peer", bytes_per_s=10.0 * size)
        await node.meets("peer", chain)
        with trio.move_on_after(2.5) as scope:
            await fetch(node, chain)
        assert scope.cancelled_caught
        num = await node.matched(chain)
        assert num < 40
        assert node.peering.published.record(chain.tip) is None
        net.link("me", "peer")
        assert (await fetch(node, chain)).num_fetched == 40 - num

    world(main)


def test_a_block_by_its_name(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        chain = chain_of(3)
        await node.meets("peer", chain)
        block_id, data = next(iter(chain.blocks()))
        found = await find_particle(node.peering, block_id)
        assert (found.particle, found.source.bytes) == (data, len(data))

    world(main)


@pytest.mark.parametrize("fault", ["absent", "silent", "lies", "gone", "huge"])
def test_a_particle_that_cannot_be_had(world: Run, fault: str) -> None:
    async def answer(stream: Stream) -> None:
        if fault == "silent":
            await trio.sleep_forever()
        await stream.receive_some(64)
        said = {"absent": bytes(4), "lies": b"\0\0\0\3abc", "gone": b"\0\0", "huge": b"\xff" * 4}
        await stream.send_all(said[fault])
        await stream.finish()

    async def main(node: Node, net: Internet) -> None:
        host = net.host("peer")
        host.serve(PARTICLE, answer)
        await node.knows(host)
        found = await find_particle(node.peering, BlockId(b"\7" * 32))
        assert found.particle is None
        is_unheard = fault in ("silent", "gone")
        assert (found.num_asked, found.num_unheard) == (1, int(is_unheard))
        num_bad = sum(entry.num_bad for _, entry in node.peering.ledger.entries())
        assert num_bad == (fault in ("lies", "huge"))

    world(main)


def test_who_has_it_is_found_in_the_directory(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        chain = chain_of(20)
        rendezvous, far = net.host("rendezvous"), net.host("far")

        serve(far, Shop(node.path / "far", chain))
        await far.connect(rendezvous.addresses()[0])
        await node.knows(rendezvous)
        await far.directory.provide(chain.tip)
        assert (await fetch(node, chain)).num_fetched == 20

    world(main)


def test_who_is_in_the_directory_and_nowhere_else_holds_nobody_up(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        chain = chain_of(20)
        rendezvous, far = net.host("rendezvous"), net.host("far")
        serve(far, Shop(node.path / "far", chain))
        await node.knows(rendezvous)
        for host in [*(net.host(f"gone {number}") for number in range(12)), far]:
            await host.connect(rendezvous.addresses()[0])
            await host.directory.provide(chain.tip)
            if host is not far:
                net.vanish(host.name)
        assert (await fetch(node, chain)).num_fetched == 20

    world(main)
