"""The engine begins while the end of a fetch is on its way, and takes it as it comes."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from daemon.binding import Binding
from daemon.coming import Coming
from daemon.loading import FROM_PEER, Pinned
from p2p.deciding import budget_s
from p2p.testing.internet import Internet
from tests.builders import CLASS
from tests.meeting_parts import answer
from tests.resolver_parts import MIB, WINDOW_S, Node, Shop, chain_of, run

Run = Callable[..., None]
NUM = 100
ALONE_S = NUM * WINDOW_S
CHAIN = chain_of(NUM)
NAMES = CHAIN.window_ids
BINDING = Binding(CHAIN.model_id, CHAIN.profile, CLASS)
SPEED = 8 * CHAIN.profile.window_particle_bytes / WINDOW_S  # 1 s for all of it
WAIT_S = 0.03  # of one lease


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    return partial(run, monkeypatch, tmp_path, l1_bytes=16 * MIB)


async def peer(node: Node, net: Internet, name: str = "peer") -> Shop:
    shop = await node.meets(name, CHAIN)
    net.link("me", name, latency_s=0.005, bytes_per_s=SPEED)
    return shop


async def begun(node: Node, net: Internet) -> int:
    """An engine may begin with what is here. Returns: how many windows that is."""
    await node.begin(CHAIN)
    return await node.matched(CHAIN)


async def ended(node: Node) -> None:
    await node.resolved[-1].end()
    assert not any(name in node.memory.coming for name in NAMES)


async def lease(node: Node, start: int, end: int = NUM) -> tuple[Pinned, float]:
    """What a lease gives, given back at once; and how long it took."""
    began_s = trio.current_time()
    pinned = await node.memory.loader.pin(BINDING, NAMES[start:end])
    node.memory.loader.unpin(pinned.windows)
    return pinned, trio.current_time() - began_s


def test_it_begins_with_half_and_gets_all(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        await peer(node, net)
        num = await begun(node, net)
        assert 0.3 * NUM < num < 0.7 * NUM  # half a second is left
        assert await node.memory.match(BINDING, CHAIN.tokens, coming=True) == NAMES
        pinned, took_s = await lease(node, 0, num)
        assert (list(pinned.tiers), pinned.is_late, took_s) == ([FROM_PEER] * num, False, 0.0)
        num_late = 0
        while num < NUM:
            pinned, took_s = await lease(node, num)
            assert took_s <= WAIT_S + 1e-9
            assert pinned.windows == tuple(NAMES[num : num + len(pinned.windows)])
            assert set(pinned.tiers) <= {FROM_PEER}
            num, num_late = num + len(pinned.windows), num_late + pinned.is_late
        assert num_late > 5
        assert "fetch" in node.resolved[-1].timings_ms
        await ended(node)
        assert node.resolved[-1].value().why == ""

    world(main)


def test_where_the_link_is_known_it_begins_at_once(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        await peer(node, net)
        (connection,) = node.peering.host.connections()
        node.peering.ledger.measured(connection.peer, time.time(), speed=3 * SPEED, rtt_s=0.01)
        net.link("me", "peer", bytes_per_s=3 * SPEED)
        assert await begun(node, net) == 0
        assert await node.restored(CHAIN) == NUM
        await ended(node)

    world(main)


@pytest.mark.parametrize("how", ["kill", "vanish", "cut"])
def test_a_peer_that_is_gone_meanwhile_shortens_the_prefix(world: Run, how: str) -> None:
    async def main(node: Node, net: Internet) -> None:
        await peer(node, net)
        began_s = trio.current_time()

        async def go_wrong() -> None:
            await trio.sleep(0.8)
            assert node.resolved  # an engine has it
            net.cut("me", "peer") if how == "cut" else getattr(net, how)("peer")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(go_wrong)
            got = await answer(node, CHAIN)
        num = NUM - got.num_computed
        assert 0.6 * NUM < num < 0.8 * NUM
        assert got.value.num_tokens == num * 16
        late_s = trio.current_time() - began_s - 0.8 - got.num_computed * WINDOW_S
        assert late_s <= 2 * budget_s(ALONE_S)

    world(main)


def test_a_peer_that_lies_in_the_end_shortens_the_prefix(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        shop = await peer(node, net)
        bad = CHAIN.records[NUM - 5].blocks[1]
        shop.spoil = lambda name, data: data[::-1] if name == bad else data
        got = await answer(node, CHAIN)
        assert got.num_computed == 5
        assert [each.end for each in got.value.sources] == ["lied"]
        assert node.peering.published.foreign.all().keys() == set(NAMES[: NUM - 5])

    world(main)


def test_another_peer_goes_on_where_one_lied(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        liar = await peer(node, net)
        await peer(node, net, "good")
        bad = CHAIN.records[NUM - 5].blocks[1]
        liar.spoil = lambda name, data: data[::-1] if name == bad else data
        assert (await answer(node, CHAIN)).num_computed == 0

    world(main)


def test_a_run_that_is_given_up_leaves_nothing_on_its_way(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        shop = await peer(node, net)
        await begun(node, net)
        await ended(node)
        num, reads = await node.matched(CHAIN), shop.num_reads
        pinned, took_s = await lease(node, num)
        assert (pinned.windows, pinned.is_late, took_s) == ((), False, 0.0)
        await trio.sleep(5)
        assert await node.matched(CHAIN) == num
        assert shop.num_reads == reads

    world(main)


def test_an_engine_that_dies_while_it_waits_holds_nothing(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        await peer(node, net)
        num = await begun(node, net)
        with trio.move_on_after(WAIT_S / 2) as scope:
            await node.memory.loader.pin(BINDING, NAMES[num - 1 :])
        assert scope.cancelled_caught
        assert not any(map(node.memory.table.is_pinned, NAMES))
        assert await node.restored(CHAIN) == NUM  # another one gets it
        await ended(node)

    world(main)


def test_what_is_condemned_meanwhile_is_not_entered_named_or_shown(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        await peer(node, net)
        num = await begun(node, net)
        node.memory.hidden.condemn([NAMES[num - 2], NAMES[num + 10]])
        found = await node.memory.match(BINDING, CHAIN.tokens, coming=True)
        assert found == NAMES[: num - 2]
        await trio.sleep(2)
        assert not any(name in node.memory.coming for name in NAMES)
        assert all(name not in node.memory.table for name in NAMES[num + 10 :])
        await node.resolved[-1].end()
        record = node.peering.published.record
        assert [record(n) is not None for n in NAMES[num - 3 : num]] == [True, False, False]

    world(main)


def test_what_is_forgotten_meanwhile_is_not_continued(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        await peer(node, net)
        num = await begun(node, net)
        node.memory.hidden.hide(NAMES)
        await node.memory.writer.withdraw(NAMES)
        node.memory.table.forget(NAMES)
        assert await node.memory.match(BINDING, CHAIN.tokens, coming=True) == []
        await trio.sleep(2)
        assert not any(name in node.memory.table for name in NAMES)
        pinned, _ = await lease(node, num)
        assert (pinned.windows, pinned.is_late) == ((), False)
        await node.resolved[-1].end()
        node.memory.hidden.show(NAMES)

    world(main)


def test_only_who_says_so_is_told_of_what_is_on_its_way(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        await peer(node, net)
        num = await begun(node, net)
        assert await node.memory.match(BINDING, CHAIN.tokens) == NAMES[:num]
        assert len(await node.memory.longest(BINDING, CHAIN.tokens)) == num
        assert await node.memory.known(NAMES) == NAMES[:num]
        other = Binding(CHAIN.model_id, CHAIN.profile, "native:other")
        assert await node.memory.match(other, CHAIN.tokens, exact=True, coming=True) == []
        await ended(node)

    world(main)


def test_of_two_fetches_one_may_fail() -> None:
    async def main() -> None:
        coming = Coming()
        one, other = (coming.open(CHAIN.records, CHAIN.keys) for _ in range(2))
        one.close()
        one.close()
        assert NAMES[0] in coming
        assert coming.find(CHAIN.keys[0]) == [NAMES[0]]
        other.came(NAMES[0])
        assert NAMES[0] not in coming
        began_s = trio.current_time()
        await coming.until_came(NAMES[:2])
        assert trio.current_time() - began_s == pytest.approx(WAIT_S)
        other.close()
        await coming.until_came(NAMES)
        assert trio.current_time() - began_s == pytest.approx(WAIT_S)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
