"""A prompt is computed from the front and fetched from the back, where that is quickest."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
import trio

from daemon.binding import Binding
from glia.errors import StoreFull
from glia.graph.ids import BlockId
from glia.local.messages import Progress
from p2p.deciding import budget_s
from p2p.host import PeerId
from p2p.ledger import RELIED_S
from p2p.testing.internet import Internet
from tests.builders import CLASS, Chain
from tests.meeting_parts import ScriptedEngine, answer, false_chain
from tests.resolver_parts import MIB, PIECE_TOKENS, WINDOW_S, Node, Shop, chain_of, head, run

Run = Callable[..., None]
NUM = 100
ALONE_S = NUM * WINDOW_S
PIECE = PIECE_TOKENS // 16
PIECE_S = PIECE * WINDOW_S
CHAIN = chain_of(NUM)
BINDING = Binding(CHAIN.model_id, CHAIN.profile, CLASS)
SPEED = CHAIN.profile.window_particle_bytes / WINDOW_S  # as fast as computing


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    return partial(run, monkeypatch, tmp_path, l1_bytes=16 * MIB)


async def peer(
    node: Node, net: Internet, ratio: float, name: str = "peer", chain: Chain = CHAIN
) -> Shop:
    """Who has it, and sends it so many times faster than it is computed."""
    shop = await node.meets(name, chain)
    net.link("me", name, latency_s=0.005, bytes_per_s=ratio * SPEED)
    return shop


async def knows_speed(
    node: Node, net: Internet, ratio: float, name: str = "peer", chain: Chain = CHAIN
) -> Shop:
    """The same; its speed was measured before."""
    before = {each.peer for each in node.peering.host.connections()}
    shop = await peer(node, net, ratio, name, chain)
    (new,) = {each.peer for each in node.peering.host.connections()} - before
    node.peering.ledger.measured(new, time.time(), speed=ratio * SPEED, rtt_s=0.01)
    return shop


@pytest.mark.spec(45)
@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize(
    ("ratio", "best_s", "num_met"),
    [
        (30.0, ALONE_S / 30, 0),  # all of it before anything is computed
        (12.0, ALONE_S / 12, 0),
        (1.0, ALONE_S / 2, NUM // 2),  # half and half
        (0.25, ALONE_S * 0.8, NUM // 5),
    ],
)
def test_both_sides_of_break_even(
    world: Run, ratio: float, best_s: float, num_met: int, is_known: bool
) -> None:
    async def main(node: Node, net: Internet) -> None:
        await (knows_speed if is_known else peer)(node, net, ratio)
        got = await answer(node, CHAIN)
        assert got.num_adopted * 16 == got.value.num_met
        assert got.took_s <= best_s + PIECE_S + (1 if is_known else 2) * budget_s(ALONE_S)
        assert abs(got.num_adopted - num_met) <= (10 if is_known else 15)
        assert got.value.num_tokens == (NUM - got.num_computed) * 16
        assert got.value.why == ("met" if num_met else "")
        flags = node.peering.published.foreign.flags(CHAIN.window_ids)
        assert all(flags[NUM - got.num_adopted :])
        assert flags.count(True) == NUM - got.num_computed  # what it computed is its own
        assert node.peering.published.record(CHAIN.tip) == CHAIN.records[-1].encoding
        (entry,) = [entry for _, entry in node.peering.ledger.entries()]
        assert entry.num_bad == 0

    world(main)


@pytest.mark.spec(45)
def test_a_link_that_would_bring_next_to_nothing_is_left(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        shop = await knows_speed(node, net, 0.01)
        net.link("me", "peer", latency_s=0.005, bytes_per_s=SPEED)
        got = await answer(node, CHAIN)
        assert (got.value.why, shop.num_reads, got.num_computed) == ("slow", 0, NUM)
        assert got.took_s <= ALONE_S + budget_s(ALONE_S)

    world(main)


def test_a_link_that_was_slow_long_ago_is_tried_again(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        await knows_speed(node, net, 0.001)
        net.link("me", "peer", latency_s=0.005, bytes_per_s=20 * SPEED)
        (peer, entry) = node.peering.ledger.entries()[0]
        entry.measured_s -= RELIED_S + 1
        got = await answer(node, CHAIN)
        assert (got.value.why, got.num_computed) == ("", 0)
        assert node.peering.ledger.speed_of(peer, time.time()) > SPEED

    world(main)


def test_progress_counts_what_came_and_what_was_computed(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        await knows_speed(node, net, 0.5)
        got = await answer(node, CHAIN)
        both = [(done, total) for what, done, total in node.told if what == "prefill and fetch"]
        assert both
        both += [(e.done, e.total) for e in got.told if isinstance(e, Progress)]
        assert all(0 < done <= total == NUM * 16 + 1 for done, total in both)
        whats = [event.what for event in got.told if isinstance(event, Progress)]
        assert {"prefill and fetch", "prefill"} >= set(whats) >= {"prefill and fetch"}

    world(main)


@pytest.mark.spec(62)
@pytest.mark.parametrize("how", ["cut", "vanish", "kill"])
@pytest.mark.parametrize("after_s", [0.5, 2.0])
def test_a_fetch_that_dies_leaves_the_rest_to_be_computed(
    world: Run, how: str, after_s: float
) -> None:
    """What came before is used all the same, and nothing takes longer than computing alone."""

    async def main(node: Node, net: Internet) -> None:
        await knows_speed(node, net, 0.8)

        async def go_wrong() -> None:
            await trio.sleep(after_s)
            if how == "cut":
                net.cut("me", "peer")
            else:
                getattr(net, how)("peer")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(go_wrong)
            got = await answer(node, CHAIN)
        came_s = (after_s - 0.1) * 0.8 / WINDOW_S
        assert came_s - 6 <= got.num_adopted <= came_s + 6
        assert got.num_computed == NUM - got.num_adopted
        assert got.took_s <= ALONE_S - got.num_adopted * WINDOW_S + budget_s(ALONE_S)
        (entry,) = [entry for _, entry in node.peering.ledger.entries()]
        assert entry.num_bad == 0

    world(main)


@pytest.mark.parametrize("how", ["lies", "lacks"])
def test_a_bad_window_in_the_middle_shortens_what_is_used(world: Run, how: str) -> None:
    async def main(node: Node, net: Internet) -> None:
        shop = await knows_speed(node, net, 0.5)
        bad, read = CHAIN.records[NUM - 5].blocks[1], shop.read_blocks

        def lack(names: Sequence[BlockId], into: memoryview) -> list[memoryview | None]:
            found = read(names, into)
            return [None if n == bad else d for n, d in zip(names, found, strict=False)]

        if how == "lacks":
            shop.read_blocks = lack  # type: ignore[method-assign]
        else:
            shop.spoil = lambda name, data: data[::-1] if name == bad else data
        got = await answer(node, CHAIN)
        assert (got.num_adopted, got.num_computed) == (4, NUM - 4)
        assert [each.end for each in got.value.sources] == ["lied" if how == "lies" else "done"]
        (entry,) = [entry for _, entry in node.peering.ledger.entries()]
        assert entry.num_bad == (how == "lies")

    world(main)


def test_a_liar_is_replaced_by_another_at_once(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        liar = await knows_speed(node, net, 0.5)
        liar.spoil = lambda _, data: data[::-1]
        await knows_speed(node, net, 0.5, "good")
        got = await answer(node, CHAIN)
        assert got.num_adopted
        assert got.value.why == "met"
        assert [each.end for each in got.value.sources] == ["lied", "done"]

    world(main)


@pytest.mark.parametrize("ratio", [0.5, 0.1])
def test_a_cancelled_run_gives_everything_back(world: Run, ratio: float) -> None:
    async def main(node: Node, net: Internet) -> None:
        shop = await knows_speed(node, net, ratio)
        before = node.memory.shelves.room_for(BINDING)

        async def cancel(done: int) -> None:
            if done >= 48:
                assert node.memory.table.num_reserved
                raise _Cancelled

        with pytest.raises(_Cancelled):
            await answer(node, CHAIN, cancel)
        (resolved,) = node.resolved
        await resolved.end()
        await resolved.until_relayed()
        assert node.memory.table.num_reserved == 0
        assert node.memory.shelves.room_for(BINDING) == before
        assert not node.memory.table.used_bytes
        assert not any(node.peering.published.foreign.flags(CHAIN.window_ids))
        value = resolved.value()
        assert (value.num_tokens, value.num_met) == (0, 0)
        reads = shop.num_reads
        await trio.sleep(5)
        assert shop.num_reads == reads

    world(main)


class _Cancelled(Exception):
    pass


def test_a_search_that_takes_too_long_goes_on_while_it_is_computed(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        await knows_speed(node, net, 1.0)
        net.link("me", "peer", latency_s=0.4)  # a round trip is all that a run waits for
        resolved_s = budget_s(ALONE_S)
        got = await answer(node, CHAIN)
        assert got.num_adopted > 20
        assert got.took_s <= (NUM - got.num_adopted) * WINDOW_S + resolved_s
        (resolved,) = node.resolved
        assert resolved.timings_ms == {"find": pytest.approx(resolved_s * 1000, rel=0.01)}

    world(main)


def test_where_it_cannot_be_written_that_they_are_a_peers_all_is_computed(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        shop = await knows_speed(node, net, 0.5)

        def expect(*_: object) -> None:
            raise StoreFull("full")

        node.peering.published.foreign.expect = expect  # type: ignore[method-assign]
        got = await answer(node, CHAIN)
        assert (got.num_computed, shop.num_reads, got.value.why) == (NUM, 0, "disk")
        assert not node.memory.shelves._open

    world(main)


def test_once_they_have_met_nothing_more_is_fetched(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        await knows_speed(node, net, 1.0, chain=head(CHAIN, 60))
        ended: list[bool] = []

        async def look(done: int) -> None:
            if done > 60:
                ended.append(node.resolved[0].pursuits[0].ended.is_set())

        got = await answer(node, CHAIN, look)
        assert (got.num_adopted + got.num_computed, got.value.why) == (NUM, "met")
        assert len(ended) > 2
        assert all(ended)

    world(main)


def test_what_an_engine_that_never_takes_it_has_computed_is_not_fetched(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        chain = chain_of(200)
        shop = await knows_speed(node, net, 1.0, chain=chain)
        resolved = await node.begin(chain)
        engine = ScriptedEngine(node, chain, resolved)
        engine.meet = lambda *_: None  # type: ignore[method-assign]
        await engine.answer()
        await resolved.end()
        assert (engine.num_computed, resolved.value().why) == (200, "slow")
        assert 2 * 80 < shop.num_reads < 2 * 180
        assert node.memory.table.num_reserved == 0

    world(main)


def test_a_first_try_waits_no_longer_than_a_look_up_may_take_alone(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        await node.meets("peer", CHAIN)
        net.link("me", "peer", latency_s=0.04, bytes_per_s=1e9)

        async def go_silent() -> None:
            await trio.sleep(0.2)
            net.cut("me", "peer")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(go_silent)
            resolved = await node.resolve(CHAIN)
        assert {"find", "fetch"} == set(resolved.timings_ms)
        assert resolved.num_windows == 0
        assert resolved.waited_s == pytest.approx(budget_s(ALONE_S))

    world(main)


def test_no_more_waits_for_an_engine_than_its_share_of_l1(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def main(node: Node, net: Internet) -> None:
        shop = await knows_speed(node, net, 0.9)
        most = node.memory.shelves.room_for(BINDING)
        assert most < NUM // 3
        peak = 0

        async def look(done: int) -> None:
            nonlocal peak
            peak = max(peak, node.memory.table.num_reserved)

        got = await answer(node, CHAIN, look)
        assert got.num_adopted == most == peak
        assert shop.num_reads == 2 * most
        assert got.num_computed == NUM - most

    run(monkeypatch, tmp_path, main, l1_bytes=2 * MIB)


def test_what_continues_another_front_is_not_taken(world: Run) -> None:
    """A signer whose K and V are not those of its tokens: what is computed here shows it."""

    async def main(node: Node, net: Internet) -> None:
        false = false_chain(NUM)
        await knows_speed(node, net, 0.5, chain=false)
        got = await answer(node, CHAIN)
        assert (got.num_adopted, got.num_computed, got.value.why) == (0, NUM, "differs")
        assert got.took_s <= ALONE_S + budget_s(ALONE_S)
        assert node.peering.published.record(false.tip) is None
        assert not any(node.peering.published.foreign.flags(false.window_ids))

    world(main)


def test_a_chain_of_another_class_is_not_met(world: Run) -> None:
    """No window that is computed here is one that it continues."""

    async def main(node: Node, net: Internet) -> None:
        await knows_speed(node, net, 0.5, chain=chain_of(NUM, numerics_class="native:other"))
        got = await answer(node, CHAIN)
        assert (got.num_computed, got.value.num_met, got.value.why) == (NUM, 0, "slow")

    world(main)


def test_what_the_engine_computes_in_one_go_is_not_fetched_beside_it(world: Run) -> None:
    """It could take none of that: no border of a piece is left."""

    async def main(node: Node, net: Internet) -> None:
        short = chain_of(PIECE, seed=3)
        await knows_speed(node, net, 1.0, chain=short)
        got = await answer(node, short)
        assert (got.num_computed, got.num_adopted, got.value.why) == (PIECE, 0, "slow")
        assert not got.value.sources

    world(main)


def test_a_link_that_nobody_knows_is_measured_beside_what_is_computed(world: Run) -> None:
    """Else it would never be known, where looking up takes all the time that there is."""

    async def main(node: Node, net: Internet) -> None:
        short = chain_of(PIECE, seed=3)
        await peer(node, net, 20.0, chain=short)
        net.link("me", "peer", latency_s=0.03, bytes_per_s=20 * SPEED)
        got = await answer(node, short)
        assert (got.num_computed, got.num_adopted, got.value.why) == (PIECE, 0, "slow")
        (source,) = got.value.sources
        assert 0 < source.bytes <= 1.2 * MIB
        assert node.peering.ledger.speed_of(PeerId(source.peer), time.time()) is not None

    world(main)
