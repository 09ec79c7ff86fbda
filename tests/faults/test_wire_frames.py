"""F10, F11, F19: malformed frames, lengths that are too large, a million wants."""

from __future__ import annotations

import gc
import logging
import os
import random
import struct
import tracemalloc
from collections import Counter

import msgspec
import pytest
import trio

from glia.errors import PeerLost, RemoteProtocolError
from p2p.frames import MAX_FRAME_BYTES, Reader, encode_frame
from p2p.host import PeerId, Stream
from p2p.messages import BLOCKS, FIND, PARTICLE, Find, GetBlocks, Have, encode
from p2p.provider import Served
from p2p.testing.internet import Internet
from tests.builders import make_chain, make_profile
from tests.exchange_parts import ChainOffer, fetch, in_world, meet, serve

FULL = bool(os.environ.get("GLIA_FULL"))
NUM_FRAMES = 10_000 if FULL else 1_500
NUM_CONNECTIONS = 100 if FULL else 30
NUM_LENGTHS = 1_000 if FULL else 100
NUM_WANTS = 1_000_000 if FULL else 200_000
CHAIN = make_chain(8)
BIG = make_chain(16, profile=make_profile(num_layers=4, kv_heads=8, head_dim=32))


def malformed(rng: random.Random) -> bytes:
    good = rng.choice(
        [
            encode(Find(bytes(32), bytes(32), ((1, bytes(32)),), ("native:x",), True)),
            encode(GetBlocks((bytes(32),) * 3)),
            encode(Have((bytes(32),))),
        ]
    )
    kind = rng.randrange(8)
    if kind == 0:
        return encode_frame(good[: rng.randrange(1, len(good))])
    if kind == 1:
        return encode_frame(rng.randbytes(rng.randrange(1, 200)))
    if kind == 2:
        return struct.pack(">I", rng.choice([0, MAX_FRAME_BYTES + 1, 2**31, 2**32 - 1]))
    if kind == 3:
        return encode_frame(good)[: rng.randrange(1, len(good))]
    if kind == 4:
        return encode_frame(msgspec.msgpack.encode(["Format", rng.randrange(9), "x"]))
    if kind == 5:
        return encode_frame(msgspec.msgpack.encode(["GetBlocks", [b"short"]]))
    if kind == 6:
        return encode_frame(b"\xdd\xff\xff\xff\xff")
    return encode_frame(b"\x91" * rng.randrange(1, 60_000))


@pytest.mark.fault("F10")
def test_f10_malformed_frames_end_their_stream_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL, "gliad.p2p.testing")  # what is captured is not growth

    async def main(net: Internet) -> None:
        host, honest = net.host("host"), net.host("honest")
        told: Counter[PeerId] = Counter()

        def tell(peer: PeerId, served: Served) -> None:
            told[peer] += served.is_bad

        serve(host, ChainOffer(CHAIN), tell)
        await meet(honest, host)
        tracemalloc.start()
        rng = random.Random(0)
        num_accused = 0
        for number in range(NUM_CONNECTIONS):
            peer = net.host(f"peer {number}")
            await meet(peer, host)
            for _ in range(NUM_FRAMES // NUM_CONNECTIONS):
                stream = await peer.open(host.peer_id, rng.choice([FIND, BLOCKS, PARTICLE]))
                await stream.send_all(malformed(rng))
                await stream.finish()
                with trio.fail_after(10.0):
                    assert await answer_of(stream) in (b"", bytes(4))  # 36 bytes may be a CID
            num_accused += told[peer.peer_id]
            pinged_s = await honest.ping(host.peer_id)
            assert pinged_s <= 0.25
        assert held_bytes() < 16 * 1024 * 1024
        tracemalloc.stop()
        assert num_accused > NUM_FRAMES // 2
        assert told[honest.peer_id] == 0
        got = await fetch(honest, CHAIN, [host])
        assert got.is_whole

    in_world(main)


def held_bytes() -> int:
    """What is held now, but for the simulated world's trace."""
    gc.collect()
    world = tracemalloc.Filter(False, "*/p2p/testing/*")
    snapshot = tracemalloc.take_snapshot().filter_traces([world])
    return sum(each.size for each in snapshot.statistics("filename"))


async def answer_of(stream: Stream) -> bytes:
    """All that comes before the stream ends, one way or the other."""
    got = b""
    try:
        while data := await stream.receive_some(65536):
            got += data
    except PeerLost:
        pass
    return got


@pytest.mark.fault("F11")
@pytest.mark.parametrize("protocol", [FIND, BLOCKS, PARTICLE])
@pytest.mark.parametrize("length", [2**31, 2**32 - 1, MAX_FRAME_BYTES + 1])
def test_f11_a_length_over_the_cap_is_refused_before_allocation(
    length: int, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "gliad.p2p.testing")

    async def main(net: Internet) -> None:
        host, peer = net.host("host"), net.host("peer")
        serve(host, ChainOffer(CHAIN))
        await meet(peer, host)
        tracemalloc.start()
        for _ in range(NUM_LENGTHS):
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            stream = await peer.open(host.peer_id, protocol)
            await stream.send_all(struct.pack(">I", length))
            assert await answer_of(stream) == b""
            assert tracemalloc.get_traced_memory()[1] - before < 64 * 1024
        assert held_bytes() < 2 * 1024 * 1024
        tracemalloc.stop()

    in_world(main)


@pytest.mark.fault("F11")
def test_f11_a_block_of_another_length_is_refused_before_allocation() -> None:
    async def main(net: Internet) -> None:
        host, peer = net.host("host"), net.host("peer")

        async def announce_much(stream: Stream) -> None:
            await Reader(stream).frame()
            await stream.send_all(struct.pack(">I", 2**31 - 1))
            await trio.sleep_forever()

        host.serve(BLOCKS, announce_much)
        await meet(peer, host)
        tracemalloc.start()
        got = await fetch(peer, CHAIN, [host])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert got.taken.windows == []
        assert got.counts.closed[host.peer_id].verdict.is_bad
        assert peak < 2 * 1024 * 1024

    in_world(main)


@pytest.mark.fault("F19")
def test_f19_a_million_wants_from_one_peer() -> None:
    async def main(net: Internet) -> None:
        host, greedy, honest = net.host("host"), net.host("greedy"), net.host("honest")
        net.link("host", "honest", bytes_per_s=1e6)
        net.link("host", "greedy", bytes_per_s=1e6)
        offer = ChainOffer(BIG)
        serve(host, offer)
        await meet(greedy, host)
        await meet(honest, host)
        alone = await fetch(honest, BIG, [host])
        ids = tuple(block_id for block_id, _ in BIG.blocks())
        frame = encode_frame(encode(GetBlocks((ids * 16)[:1024])))
        tracemalloc.start()
        async with trio.open_nursery() as nursery:
            streams = [await greedy.open(host.peer_id, BLOCKS) for _ in range(16)]
            for stream in streams:
                nursery.start_soon(want_much, stream, frame, NUM_WANTS // 1024 // 16)
            await trio.sleep(1.0)
            reads = offer.num_reads
            got = await fetch(honest, BIG, [host])
            assert got.is_whole
            assert got.took_s <= 2 * alone.took_s
            # the greedy one, which does not read, holds what fits its share and its window
            assert offer.num_reads - reads - len(ids) <= 64
            assert tracemalloc.get_traced_memory()[1] < 16 * 1024 * 1024
            nursery.cancel_scope.cancel()
        for stream in streams:
            await stream.reset()
        await trio.sleep(5.0)
        tracemalloc.stop()
        assert (await fetch(honest, BIG, [host])).is_whole

    in_world(main)


async def want_much(stream: Stream, frame: bytes, num_frames: int) -> None:
    try:
        for _ in range(num_frames):
            await stream.send_all(frame)
        await trio.sleep_forever()
    except PeerLost:
        pass


def test_more_wants_than_a_frame_may_have() -> None:
    async def main(net: Internet) -> None:
        host, peer = net.host("host"), net.host("peer")
        bad: list[Served] = []
        serve(host, ChainOffer(CHAIN), lambda _, served: bad.append(served))
        await meet(peer, host)
        stream = await peer.open(host.peer_id, BLOCKS)
        await stream.send_all(encode_frame(encode(GetBlocks((bytes(32),) * 1025))))
        assert await answer_of(stream) == b""
        assert bad == [Served(is_bad=True)]

    in_world(main)


def reading(data: bytes, chunk: int) -> Reader:
    return Reader(Chunks(data, chunk))


class Chunks:
    """A stream that gives so many bytes at a time, and then ends."""

    peer = PeerId("chunks")

    def __init__(self, data: bytes, chunk: int) -> None:
        self._data, self._chunk = data, chunk

    async def receive_some(self, max_bytes: int) -> bytes:
        num = min(self._chunk, max_bytes)
        data, self._data = self._data[:num], self._data[num:]
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        raise AssertionError

    async def finish(self) -> None:
        raise AssertionError

    async def reset(self) -> None:
        raise AssertionError


@pytest.mark.parametrize("chunk", [1, 3, 7, 64, 300_000])
def test_frames_come_out_as_they_went_in(chunk: int) -> None:
    rng = random.Random(chunk)
    contents = [rng.randbytes(rng.choice([1, 5, 100, 65536])) for _ in range(8)]

    async def main() -> None:
        reader = reading(b"".join(map(encode_frame, contents)), chunk)
        got = []
        while (content := await reader.frame(1.0)) is not None:
            got.append(content)
        assert got == contents

    trio.run(main)


@pytest.mark.parametrize("cut", [1, 4, 9])
def test_a_frame_cut_short(cut: int) -> None:
    async def main() -> None:
        with pytest.raises(PeerLost):
            await reading(encode_frame(b"content")[:cut], 3).frame()

    trio.run(main)


def test_what_cannot_be_a_frame() -> None:
    async def main() -> None:
        for length in (0, MAX_FRAME_BYTES + 1):
            with pytest.raises(RemoteProtocolError):
                await reading(struct.pack(">I", length), 4).frame()

    trio.run(main)
    for size in (0, MAX_FRAME_BYTES + 1):
        with pytest.raises(ValueError, match="cannot be"):
            encode_frame(bytes(size))


def test_the_largest_find_fits_a_frame() -> None:
    keys = tuple((2**18 - n, bytes([255]) * 32) for n in range(1500))
    find = Find(bytes(32), bytes(32), keys, ("x" * 256,) * 16, True)
    assert len(encode(find)) <= 64_225 <= MAX_FRAME_BYTES
