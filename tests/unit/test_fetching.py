"""The I/O of a fetch on the virtual network: ends well whatever ends it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
import trio

from glia.graph.window import WindowRecord
from p2p.fetching import Fetch
from p2p.getter import Close, Session
from p2p.host import PeerId, Stream
from p2p.messages import BLOCKS
from p2p.source import Provides, Verdict
from p2p.testing.host import SimHost
from p2p.testing.internet import Internet
from tests.builders import Chain, make_chain, make_profile
from tests.exchange_parts import ChainOffer, Taken, fetch, in_world, meet, serve

CHAIN = make_chain(24, profile=make_profile(num_layers=4, kv_heads=8, head_dim=32))
NUM = len(CHAIN.records)
WINDOW = CHAIN.profile.window_particle_bytes


class Run:
    """A fetch with everything in reach."""

    def __init__(
        self,
        getter: SimHost,
        hosts: Sequence[SimHost],
        chain: Chain = CHAIN,
        first: int = 0,
        **changes: object,
    ) -> None:
        self.getter = getter
        self.session = Session(
            chain.records[first:],
            chain.records[first - 1] if first else None,
            chain.profile,
            [Provides(host.peer_id, NUM) for host in hosts],
            now_s=trio.current_time(),
            **changes,  # type: ignore[arg-type]
        )
        self.taken = Taken()
        self.closes: list[Close] = []
        self.streams: list[Stream] = []

    def fetch(self, nursery: trio.Nursery) -> Fetch:
        return Fetch(self.session, self._open, self, self.closes.append, nursery)

    async def take(self, record: WindowRecord, particles: Sequence[memoryview | None]) -> None:
        await trio.sleep(0.005)  # they are good until this returns, whatever comes meanwhile
        await self.taken.take(record, particles)

    async def _open(self, peer: PeerId) -> Stream:
        stream = await self.getter.open(peer, BLOCKS)
        self.streams.append(stream)
        return stream


@pytest.mark.parametrize("seed", range(25))
def test_cancelled_at_any_time_nothing_is_left(seed: int) -> None:
    async def main(net: Internet) -> None:
        getter, one, two = net.host("getter"), net.host("one"), net.host("two")
        for name in ("one", "two"):
            net.link("getter", name, bytes_per_s=5e6, latency_s=0.01)
        serve(one, ChainOffer(CHAIN))
        serve(two, ChainOffer(CHAIN))
        await meet(getter, one, two)
        rng = random.Random(seed)
        run = Run(getter, [one, two])
        by_scope = seed % 2
        async with trio.open_nursery() as nursery:
            fetching = run.fetch(nursery)
            with trio.CancelScope() as scope:
                nursery.start_soon(
                    after, rng.random() * 0.4, scope.cancel if by_scope else fetching.cancel
                )
                await fetching.run()
        run.taken.assert_prefix_of(CHAIN, len(run.taken.windows))
        assert {close.peer for close in run.closes} <= {one.peer_id, two.peer_id}
        assert run.session.is_over
        await trio.sleep(1.0)
        assert one._under_way.total() == two._under_way.total() == 0
        got = await fetch(getter, CHAIN, [one, two])
        assert got.is_whole

    async def after(delay_s: float, call: object) -> None:
        await trio.sleep(delay_s)
        call()  # type: ignore[operator]

    in_world(main, seed)


def test_a_sink_that_fails_ends_the_fetch_and_its_peers() -> None:
    async def main(net: Internet) -> None:
        getter, host = net.host("getter"), net.host("host")
        serve(host, ChainOffer(CHAIN))
        await meet(getter, host)
        run = Run(getter, [host])

        async def take(record: WindowRecord, particles: Sequence[bytes | None]) -> None:
            if len(run.taken.windows) == 5:
                raise OSError("no space")
            await run.taken.take(record, particles)

        run.take = take  # type: ignore[method-assign]
        async with trio.open_nursery() as nursery:
            with pytest.raises(OSError, match="no space"):
                await run.fetch(nursery).run()
        run.taken.assert_prefix_of(CHAIN, 5)
        assert [close.verdict for close in run.closes] == [Verdict.DONE]
        await trio.sleep(1.0)
        assert host._under_way.total() == 0

    in_world(main)


def test_a_slow_sink_holds_back_what_is_asked_for_and_blames_nobody() -> None:
    async def main(net: Internet) -> None:
        getter, host = net.host("getter"), net.host("host")
        offer = ChainOffer(CHAIN)
        serve(host, offer)
        await meet(getter, host)
        run = Run(getter, [host], budget_bytes=3 * WINDOW)

        async def take(record: WindowRecord, particles: Sequence[bytes | None]) -> None:
            await trio.sleep(4.0)
            await run.taken.take(record, particles)
            assert offer.num_reads <= 4 * (len(run.taken.windows) + 3)

        run.take = take  # type: ignore[method-assign]
        async with trio.open_nursery() as nursery:
            await run.fetch(nursery).run()
        assert run.session.is_whole
        assert [close.verdict for close in run.closes] == [Verdict.DONE]

    in_world(main)


@pytest.mark.spec(43)
@pytest.mark.parametrize("from_back", [False, True])
def test_what_is_here_is_not_asked_for(from_back: bool) -> None:
    async def main(net: Internet) -> None:
        getter, host = net.host("getter"), net.host("host")
        offer = ChainOffer(CHAIN)
        serve(host, offer)
        await meet(getter, host)
        ids = [block_id for block_id, _ in CHAIN.blocks()]
        held = set(ids[::3])
        run = Run(getter, [host], held=held, from_back=from_back)
        async with trio.open_nursery() as nursery:
            await run.fetch(nursery).run()
        assert run.session.is_whole
        assert offer.num_reads == len(ids) - len(held)
        order = CHAIN.records[::-1] if from_back else CHAIN.records
        assert [record for record, _ in run.taken.windows] == list(order)
        again = Run(getter, [host], held=set(ids))
        async with trio.open_nursery() as nursery:
            await again.fetch(nursery).run()
        assert again.session.is_whole
        assert offer.num_reads == len(ids) - len(held)

    in_world(main)


def test_what_follows_a_window_that_is_here() -> None:
    async def main(net: Internet) -> None:
        getter, host = net.host("getter"), net.host("host")
        serve(host, ChainOffer(CHAIN))
        await meet(getter, host)
        run = Run(getter, [host], first=10)
        async with trio.open_nursery() as nursery:
            await run.fetch(nursery).run()
        assert [record for record, _ in run.taken.windows] == list(CHAIN.records[10:])

    in_world(main)


def test_a_broken_window_in_the_middle_ends_the_chain_there() -> None:
    """What is under way behind it is dropped as it comes."""

    async def main(net: Internet) -> None:
        getter, host = net.host("getter"), net.host("host")
        other = make_chain(1, profile=CHAIN.profile, seed=5)
        record = replace(CHAIN.records[6], blocks=other.records[0].blocks)
        broken = replace(CHAIN, records=(*CHAIN.records[:6], record, *CHAIN.records[7:]))
        serve(host, ChainOffer(CHAIN, other))
        await meet(getter, host)
        run = Run(getter, [host], broken)
        async with trio.open_nursery() as nursery:
            await run.fetch(nursery).run()
        run.taken.assert_prefix_of(CHAIN, 6)
        assert run.session.malformed
        assert [close.verdict for close in run.closes] == [Verdict.DONE]

    in_world(main)


@pytest.mark.parametrize("how", ["kill", "vanish", "cut"])
def test_a_peer_that_goes_in_mid_transfer(how: str) -> None:
    async def main(net: Internet) -> None:
        getter, going, honest = net.host("getter"), net.host("going"), net.host("honest")
        net.link("getter", "going", bytes_per_s=4e6)
        net.link("getter", "honest", bytes_per_s=1e6)
        serve(going, ChainOffer(CHAIN))
        serve(honest, ChainOffer(CHAIN))
        await meet(getter, going, honest)
        run = Run(getter, [going, honest])
        began_s = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(go, net)
            await run.fetch(nursery).run()
        assert run.session.is_whole
        run.taken.assert_prefix_of(CHAIN, NUM)
        if how == "kill":
            verdicts = {close.peer: close.verdict for close in run.closes}
            assert verdicts[going.peer_id] is Verdict.LOST
        assert trio.current_time() - began_s < 3.5

    async def go(net: Internet) -> None:
        await trio.sleep(0.2)
        if how == "cut":
            net.cut("getter", "going")
        else:
            getattr(net, how)("going")

    in_world(main)


def test_peers_together_are_faster_than_the_fastest_alone() -> None:
    async def main(net: Internet) -> None:
        getter = net.host("getter")
        hosts = [net.host(str(number)) for number in range(3)]
        for host, speed in zip(hosts, (1e6, 2e6, 3e6), strict=True):
            net.link("getter", host.name, bytes_per_s=speed, latency_s=0.005)
            serve(host, ChainOffer(LARGE))
        await meet(getter, *hosts)
        alone = await fetch(getter, LARGE, hosts[2:])
        together = await fetch(getter, LARGE, hosts)
        assert together.is_whole
        assert together.took_s < 0.65 * alone.took_s
        size = sum(len(data) for _, data in LARGE.blocks())
        assert together.counts.num_duplicates * LARGE.profile.particle_sizes[0] < 0.15 * size

    in_world(main)


LARGE = make_chain(100, profile=make_profile(num_layers=4, kv_heads=8, head_dim=64))


@pytest.mark.parametrize("has_second", [False, True])
def test_a_block_that_a_peer_lacks_is_asked_of_another_and_never_again_of_it(
    has_second: bool,
) -> None:
    async def main(net: Internet) -> None:
        getter, lacking, second = net.host("getter"), net.host("lacking"), net.host("second")
        offer = ChainOffer(CHAIN)
        offer.gone = {CHAIN.records[5].blocks[2]}
        serve(lacking, offer)
        serve(second, ChainOffer(CHAIN))
        await meet(getter, lacking, second)
        run = Run(getter, [lacking, second] if has_second else [lacking])
        async with trio.open_nursery() as nursery:
            await run.fetch(nursery).run()
        assert len(run.taken.windows) == (NUM if has_second else 5)
        assert offer.num_reads <= 4 * NUM
        assert {close.verdict for close in run.closes} == {Verdict.DONE}

    in_world(main)


def test_a_peer_that_has_nothing_is_not_asked_for_all() -> None:
    async def main(net: Internet) -> None:
        getter, empty, honest = net.host("getter"), net.host("empty"), net.host("honest")
        net.link("getter", "honest", bytes_per_s=1e6)
        offer = ChainOffer()
        serve(empty, offer)
        serve(honest, ChainOffer(LARGE))
        await meet(getter, empty, honest)
        got = await fetch(getter, LARGE, [empty, honest])
        assert got.is_whole
        assert got.verdict(empty) is Verdict.LACKING
        assert offer.num_reads <= 300

    in_world(main)


def test_a_crash_of_a_peers_task_ends_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    async def main(net: Internet) -> None:
        getter, one, two = net.host("getter"), net.host("one"), net.host("two")
        serve(one, ChainOffer(CHAIN))
        serve(two, ChainOffer(CHAIN))
        await meet(getter, one, two)
        run = Run(getter, [one, two])
        opens = run._open

        async def crash(peer: PeerId) -> Stream:
            if peer == one.peer_id:
                raise KeyError("a bug")
            return await opens(peer)

        run._open = crash  # type: ignore[method-assign]
        async with trio.open_nursery() as nursery:
            await run.fetch(nursery).run()
        assert run.session.is_whole

    in_world(main)
    assert "failed" in caplog.text
