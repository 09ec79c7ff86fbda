"""F15 to F18: providers that dribble, lie, fall silent, or send what nobody asked for."""

from __future__ import annotations

import random
import tracemalloc

import pytest
import trio

from glia.graph.ids import BlockId
from p2p.frames import LENGTH, Reader
from p2p.host import Stream
from p2p.ledger import Ledger
from p2p.messages import BLOCKS
from p2p.source import Verdict
from p2p.testing.internet import Internet
from tests.builders import make_chain, make_profile
from tests.exchange_parts import ChainOffer, fetch, in_world, meet, serve

CHAIN = make_chain(64, profile=make_profile(num_layers=8, head_dim=16))  # 512 blocks of 1.2 KiB
BIG = make_chain(16, profile=make_profile(num_layers=2, kv_heads=8, head_dim=128))
NUM = len(CHAIN.records)


@pytest.mark.fault("F16")
@pytest.mark.parametrize("share", [0.01, 1.0])
def test_f16_a_liar_is_dropped_at_its_first_lie_and_banned_at_its_third(share: float) -> None:
    async def main(net: Internet) -> None:
        getter, liar, honest = net.host("getter"), net.host("liar"), net.host("honest")
        rng, lies = random.Random(1), []
        bad = ChainOffer(CHAIN)

        def spoil(block_id: BlockId, data: bytes) -> bytes:
            if rng.random() >= share:
                return data
            lies.append(block_id)
            return data[:-1] + bytes([data[-1] ^ 1])

        bad.spoil = spoil
        serve(liar, bad)
        serve(honest, ChainOffer(CHAIN))
        await meet(getter, liar, honest)
        ledger = Ledger()
        num_caught = 0
        while not ledger.is_banned(liar.peer_id):
            got = await fetch(getter, CHAIN, [liar, honest], ledger)
            got.taken.assert_prefix_of(CHAIN, NUM)
            assert got.is_whole
            assert got.verdict(honest) is Verdict.DONE
            num_caught += got.verdict(liar) is Verdict.LIED
            entry = ledger.entry(liar.peer_id)
            assert entry is not None
            assert entry.num_bad == num_caught
        assert num_caught == 3
        num_lies = len(lies)
        await fetch(getter, CHAIN, [liar, honest], ledger)
        assert len(lies) == num_lies

    in_world(main)


@pytest.mark.fault("F17")
@pytest.mark.parametrize("num_silent", [1, 3, 6])
def test_f17_silence_is_answered_elsewhere(num_silent: int) -> None:
    async def main(net: Internet) -> None:
        getter, honest = net.host("getter"), net.host("honest")
        silent = [net.host(f"silent {number}") for number in range(num_silent)]
        asked_s: list[float] = []

        async def say_nothing(stream: Stream) -> None:
            assert await Reader(stream).frame()
            asked_s.append(trio.current_time())
            await trio.sleep_forever()

        for host in silent:
            host.serve(BLOCKS, say_nothing)
        serve(honest, ChainOffer(CHAIN))
        await meet(getter, honest, *silent)
        got = await fetch(getter, CHAIN, [*silent, honest])
        got.taken.assert_prefix_of(CHAIN, NUM)
        assert got.took_s <= 3.0 * (1 + num_silent // 4) + 0.5
        assert all(got.counts.closed[host.peer_id].num_blocks == 0 for host in silent[:3])
        assert asked_s

    in_world(main)


@pytest.mark.fault("F15")
def test_f15_a_body_at_a_byte_a_second() -> None:
    async def main(net: Internet) -> None:
        getter, slow, honest = net.host("getter"), net.host("slow"), net.host("honest")
        ended_s: list[float] = []

        async def dribble(stream: Stream) -> None:
            reader, began_s = Reader(stream), trio.current_time()
            assert await reader.frame()
            try:
                await stream.send_all(LENGTH.pack(BIG.profile.particle_sizes[0]))
                while True:
                    await stream.send_all(b"x")
                    await trio.sleep(1.0)
            finally:
                ended_s.append(trio.current_time() - began_s)

        slow.serve(BLOCKS, dribble)
        serve(honest, ChainOffer(BIG))
        await meet(getter, slow, honest)
        normal = await fetch(getter, BIG, [honest])
        got = await fetch(getter, BIG, [slow, honest])
        got.taken.assert_prefix_of(BIG, len(BIG.records))
        assert got.took_s <= 2 * normal.took_s + 10.0
        alone = await fetch(getter, BIG, [slow])
        assert alone.taken.windows == []
        assert alone.verdict(slow) is Verdict.SLOW
        assert alone.took_s <= 10.0
        await trio.sleep(2.0)
        assert ended_s[-1] <= 11.0

    in_world(main)


@pytest.mark.fault("F18")
@pytest.mark.parametrize("when", ["at once", "after what was asked for"])
def test_f18_blocks_that_nobody_asked_for(when: str) -> None:
    async def main(net: Internet) -> None:
        getter, flooder, honest = net.host("getter"), net.host("flooder"), net.host("honest")
        other = make_chain(1, profile=BIG.profile, seed=9)
        particle = other.particles[0][0]
        sent: list[int] = []
        ended_s: list[float] = []

        async def flood(stream: Stream) -> None:
            reader = Reader(stream)
            content = await reader.frame()
            assert content
            try:
                if when != "at once":
                    blocks = [data for _, data in BIG.blocks()][: content.count(b"\xc4\x20")]
                    await stream.send_all(b"".join(LENGTH.pack(len(b)) + b for b in blocks))
                for _ in range(10_000):
                    await stream.send_all(LENGTH.pack(len(particle)) + particle)
                    sent.append(1)
            finally:
                ended_s.append(trio.current_time())

        flooder.serve(BLOCKS, flood)
        serve(honest, ChainOffer(BIG))
        await meet(getter, flooder, honest)
        tracemalloc.start()
        got = await fetch(getter, BIG, [flooder, honest])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        got.taken.assert_prefix_of(BIG, len(BIG.records))
        assert got.verdict(flooder) is Verdict.LIED
        assert len(sent) < 100
        assert got.took_s < 1.0
        await trio.sleep(1.0)
        assert ended_s
        assert peak < 8 * 1024 * 1024

    in_world(main)


def test_a_hash_that_holds_over_bytes_of_another_kind_blames_no_carrier() -> None:
    """The writer lied: the chain ends there, and the peer is not held to have."""

    async def main(net: Internet) -> None:
        getter, host = net.host("getter"), net.host("host")
        other = make_chain(1, profile=CHAIN.profile, seed=5).particles[0]
        spoiled = CHAIN.records[3]
        blocks = make_chain(1, profile=CHAIN.profile, seed=5).records[0].blocks
        record = type(spoiled)(**{**_fields(spoiled), "blocks": blocks})
        chain = type(CHAIN)(
            CHAIN.profile,
            CHAIN.model_id,
            CHAIN.tokens,
            (*CHAIN.records[:3], record),
            (*CHAIN.particles[:3], other),
            CHAIN.keys,
        )
        serve(host, ChainOffer(chain))
        await meet(getter, host)
        got = await fetch(getter, chain, [host])
        got.taken.assert_prefix_of(CHAIN, 3)
        assert got.verdict(host) is Verdict.DONE

    in_world(main)


def _fields(record: object) -> dict[str, object]:
    names = ("model_id", "profile_id", "numerics_class", "prev", "position_start", "tokens")
    return {name: getattr(record, name) for name in names}
