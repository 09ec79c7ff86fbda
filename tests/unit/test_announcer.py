"""What the network is told of what is published, on the virtual one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from glia.graph.boundaries import announced
from glia.graph.ids import ModelId, WindowId
from glia.graph.link import parse_link, sign_link
from glia.graph.neuron import Signer
from glia.graph.spans import claims
from glia.store.published_rows import PublishedWindow
from p2p.announcing import topic_of
from p2p.testing.internet import Internet
from p2p.testing.simulate import simulate
from simulations.virtual.announcing import SIGNER, STARTED_S, Net, announcer_of, net_of, publish
from tests.builders import MODEL, Chain, make_chain

HOUR_S = 3600.0
Body = Callable[[Internet, Net, Net, trio.Nursery], Awaitable[None]]


def two_nodes(path: Path, body: Body) -> None:
    """`ours` publishes and announces; `theirs` is connected, and hears."""

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            net = Internet(nursery)
            ours, theirs = net_of(net, "ours", path), net_of(net, "theirs", path)
            await ours.host.connect(theirs.host.addresses()[0])
            try:
                await body(net, ours, theirs, nursery)
            finally:
                ours.close()
                theirs.close()
            nursery.cancel_scope.cancel()

    simulate(main)


async def has(node: Net, chain: Chain) -> list[int]:
    """At how many windows the directory knows a provider of the chain, by key and by window."""
    found = []
    for number, (key, name) in enumerate(zip(chain.keys, chain.window_ids, strict=True), 1):
        told = [await node.host.directory.providers(each, 8) for each in (key, name)]
        assert told[0] == told[1]
        if told[0]:
            found.append(number)
    return found


def test_a_chain_is_announced_at_its_boundaries_after_its_hold(tmp_path: Path) -> None:
    chain = make_chain(40)

    async def body(net: Internet, ours: Net, theirs: Net, nursery: trio.Nursery) -> None:
        heard: list[bytes] = []
        theirs.host.gossip.join(topic_of(MODEL), lambda peer, data: heard.append(data))
        publish(ours, chain)
        nursery.start_soon(announcer_of(ours).run)
        await trio.sleep(59)
        assert not heard
        assert await has(theirs, chain) == []
        await trio.sleep(40)
        assert await has(theirs, chain) == announced(40) == [16, 32, 40]
        assert sorted(parse_link(data).claim.num_windows for data in heard) == [16, 32, 40]
        for number in announced(40):
            (value,) = await theirs.host.directory.get(chain.keys[number - 1])
            assert parse_link(value).claim.tip == chain.window_ids[number - 1]
        assert ours.counters["announce_backlog"] == 0
        assert ours.counters["announced"] == 3
        assert min(ours.published.announced_s(chain.window_ids[15:16])) >= STARTED_S + 60

    two_nodes(tmp_path, body)


def test_a_chain_that_grows_is_announced_at_its_new_end_and_not_at_the_old_one(
    tmp_path: Path,
) -> None:
    chain = make_chain(20)
    longer = make_chain(5, base=chain, seed=1)

    async def body(net: Internet, ours: Net, theirs: Net, nursery: trio.Nursery) -> None:
        publish(ours, chain)
        announcer = announcer_of(ours)
        nursery.start_soon(announcer.run)
        await trio.sleep(30)
        publish(ours, longer, 20)
        announcer.wake()
        await trio.sleep(120)
        assert await has(theirs, longer) == [16, 25]

    two_nodes(tmp_path, body)


def test_a_chain_that_grows_is_walked_as_far_as_it_is_new(tmp_path: Path) -> None:
    chain = make_chain(70)
    longer = make_chain(3, base=chain, seed=1)

    async def body(net: Internet, ours: Net, theirs: Net, nursery: trio.Nursery) -> None:
        publish(ours, chain, hold_s=0)
        announcer = announcer_of(ours)
        nursery.start_soon(announcer.run)
        await trio.sleep(30)
        assert await has(theirs, chain) == [16, 32, 64, 70]
        walked: list[int] = []
        window = ours.published.window

        def counted(name: WindowId) -> PublishedWindow | None:
            row = window(name)
            walked.append(row.num_windows if row else 0)
            return row

        ours.published.window = counted  # type: ignore[method-assign]
        publish(ours, longer, 70, hold_s=0)
        announcer.wake()
        await trio.sleep(30)
        assert min(walked) == 70
        ours.published.window = window  # type: ignore[method-assign]
        assert await has(theirs, longer) == [16, 32, 64, 70, 73]
        assert ours.counters["announced"] == 5

    two_nodes(tmp_path, body)


def test_all_is_announced_again_before_it_is_forgotten(tmp_path: Path) -> None:
    chain = make_chain(20)

    async def body(net: Internet, ours: Net, theirs: Net, nursery: trio.Nursery) -> None:
        publish(ours, chain, hold_s=0)
        nursery.start_soon(announcer_of(ours).run)
        await trio.sleep(60)
        assert ours.counters["announced"] == 2
        await trio.sleep(17 * HOUR_S)
        assert ours.counters["announced"] == 2
        await trio.sleep(4 * HOUR_S)
        assert ours.counters["announced"] == 4

    two_nodes(tmp_path, body)


def test_a_restart_announces_nothing_that_was_announced_lately(tmp_path: Path) -> None:
    chain = make_chain(20)

    async def body(net: Internet, ours: Net, theirs: Net, nursery: trio.Nursery) -> None:
        publish(ours, chain, hold_s=0)
        with trio.move_on_after(60):
            await announcer_of(ours).run()
        assert ours.counters["announced"] == 2
        with trio.move_on_after(HOUR_S):
            await announcer_of(ours, seed=1).run()
        assert ours.counters["announced"] == 2

    two_nodes(tmp_path, body)


def test_what_is_taken_back_is_not_announced(tmp_path: Path) -> None:
    chain = make_chain(20)

    async def body(net: Internet, ours: Net, theirs: Net, nursery: trio.Nursery) -> None:
        publish(ours, chain)
        nursery.start_soon(announcer_of(ours).run)
        await trio.sleep(10)
        ours.published.take_back(chain.window_ids)
        await trio.sleep(HOUR_S)
        assert await has(theirs, chain) == []
        assert ours.counters["announced"] == ours.counters["announce_failed"] == 0
        assert ours.counters["announce_backlog"] == 0

    two_nodes(tmp_path, body)


def test_what_is_not_here_is_announced_once_it_is_and_holds_up_nothing(tmp_path: Path) -> None:
    """Windows that are named for their link alone, or that L2 dropped."""
    chains = [make_chain(20, seed=seed) for seed in range(6)]

    async def body(net: Internet, ours: Net, theirs: Net, nursery: trio.Nursery) -> None:
        for chain in chains:
            publish(ours, chain, hold_s=0)
        for chain in chains[1:]:
            ours.gone |= set(chain.window_ids)
        ours.gone |= {chains[0].tip}
        heard: list[bytes] = []
        theirs.host.gossip.join(topic_of(MODEL), lambda peer, data: heard.append(data))
        nursery.start_soon(announcer_of(ours).run)
        await trio.sleep(12)
        assert await has(theirs, chains[0]) == [16]
        assert len(heard) == 1
        for chain in chains[1:]:
            assert await has(theirs, chain) == []
        assert (ours.counters["announced"], ours.counters["announce_failed"]) == (1, 0)
        assert ours.counters["announce_backlog"] == 0
        ours.gone.clear()
        await trio.sleep(21 * 60)
        for chain in chains:
            assert await has(theirs, chain) == [16, 20]

    two_nodes(tmp_path, body)


def test_without_anybody_it_is_tried_again_and_counted(tmp_path: Path) -> None:
    chain = make_chain(3)

    async def body(net: Internet, ours: Net, theirs: Net, nursery: trio.Nursery) -> None:
        net.cut("ours", "theirs")
        publish(ours, chain, hold_s=0)
        nursery.start_soon(announcer_of(ours).run)
        await trio.sleep(30)
        assert ours.counters["announce_failed"] == 1
        net.heal("ours", "theirs")
        await ours.host.connect(theirs.host.addresses()[0])
        await trio.sleep(120)
        assert await has(theirs, chain) == [3]

    two_nodes(tmp_path, body)


def test_while_the_network_is_off_nothing_is_tried(tmp_path: Path) -> None:
    chain = make_chain(3)

    async def body(net: Internet, ours: Net, theirs: Net, nursery: trio.Nursery) -> None:
        ours.why_off = "a cable"
        publish(ours, chain, hold_s=0)
        announcer = announcer_of(ours)
        nursery.start_soon(announcer.run)
        await trio.sleep(HOUR_S)
        assert (ours.counters["announced"], ours.counters["announce_failed"]) == (0, 0)
        assert ours.counters["announce_backlog"] == 1
        ours.why_off = ""
        announcer.wake()
        await trio.sleep(20)
        assert ours.counters["announced"] == 1

    two_nodes(tmp_path, body)


@pytest.mark.spec(33)
def test_a_chain_with_too_few_copies_counts_as_used(tmp_path: Path) -> None:
    """It is looked at each time that its last window is announced."""
    chain, gone = make_chain(20), make_chain(3, seed=1)

    async def body(net: Internet, ours: Net, theirs: Net, nursery: trio.Nursery) -> None:
        publish(ours, chain, hold_s=0)
        publish(ours, gone, hold_s=0)
        nursery.start_soon(announcer_of(ours, replicas=2).run)
        await trio.sleep(60)
        assert sorted(ours.kept) == sorted([chain.tip, gone.tip])
        assert ours.counters["chains_scarce"] == 2
        more = net.host("more")
        await more.connect(theirs.host.addresses()[0])
        await theirs.host.directory.provide(chain.tip)
        await trio.sleep(20 * HOUR_S)
        assert ours.kept.count(chain.tip) == 2
        await more.directory.provide(chain.tip)
        ours.published.take_back(gone.window_ids)
        await trio.sleep(20 * HOUR_S)
        assert ours.kept.count(chain.tip) == 2
        assert ours.counters["chains_scarce"] == 0

    two_nodes(tmp_path, body)


def test_a_chain_that_has_grown_is_counted_once(tmp_path: Path) -> None:
    """Where it ended before is a boundary, which is announced as long as it is published."""
    chain = make_chain(16)
    longer = make_chain(4, base=chain, seed=2)

    async def body(net: Internet, ours: Net, theirs: Net, nursery: trio.Nursery) -> None:
        publish(ours, chain, hold_s=0)
        announcer = announcer_of(ours, replicas=2)
        nursery.start_soon(announcer.run)
        await trio.sleep(60)
        assert ours.counters["chains_scarce"] == 1
        publish(ours, longer, hold_s=0)
        announcer.wake()
        await trio.sleep(24 * HOUR_S)
        assert ours.kept[-1] == longer.tip
        assert ours.counters["chains_scarce"] == 1

    two_nodes(tmp_path, body)


def test_who_is_silent_hears_and_announces_nothing(tmp_path: Path) -> None:
    chain = make_chain(20)

    async def body(net: Internet, ours: Net, theirs: Net, nursery: trio.Nursery) -> None:
        publish(ours, chain, hold_s=0)
        nursery.start_soon(announcer_of(ours, is_silent=True).run)
        await trio.sleep(HOUR_S)
        assert await has(theirs, chain) == []
        assert (ours.counters["announced"], ours.counters["announce_backlog"]) == (0, 0)
        assert ours.host.gossip.is_member(topic_of(MODEL))

    two_nodes(tmp_path, body)


def test_what_others_attest_is_announced_with_their_link(tmp_path: Path) -> None:
    chain = make_chain(3)
    other = Signer(b"\2" * 32)

    async def body(net: Internet, ours: Net, theirs: Net, nursery: trio.Nursery) -> None:
        (claim,) = claims(chain.records, 0)
        ours.published.put(chain.records, [sign_link(other, claim, 1, int(STARTED_S))])
        nursery.start_soon(announcer_of(ours).run)
        await trio.sleep(30)
        (value,) = await theirs.host.directory.get(chain.keys[2])
        assert parse_link(value).signer == other.neuron

    two_nodes(tmp_path, body)


def test_who_has_to_do_with_a_model_is_in_its_topic(tmp_path: Path) -> None:
    chain = make_chain(3)
    second = ModelId(b"\7" * 32)

    async def body(net: Internet, ours: Net, theirs: Net, nursery: trio.Nursery) -> None:
        publish(ours, chain)
        nursery.start_soon(announcer_of(ours, (second,)).run)
        await trio.sleep(1)
        assert ours.host.gossip.is_member(topic_of(MODEL))
        assert ours.host.gossip.is_member(topic_of(second))
        assert not ours.host.gossip.is_member(topic_of(ModelId(b"\6" * 32)))

    two_nodes(tmp_path, body)


def test_of_several_links_to_a_window_its_own_is_told(tmp_path: Path) -> None:
    chain = make_chain(3)
    (claim,) = claims(chain.records, 0)
    others = [Signer(bytes([number]) * 32) for number in range(2, 8)]

    async def body(net: Internet, ours: Net, theirs: Net, nursery: trio.Nursery) -> None:
        publish(ours, chain, hold_s=0)
        links = [sign_link(other, claim, 1, int(STARTED_S)) for other in others]
        ours.published.put((), links)
        nursery.start_soon(announcer_of(ours).run)
        await trio.sleep(30)
        (value,) = await theirs.host.directory.get(chain.keys[2])
        assert parse_link(value).signer == SIGNER.neuron

    two_nodes(tmp_path, body)
