"""The provider: what it answers, how much at once, how fast."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import trio

from glia.errors import PeerLost, QuotaExceeded, StoreBroken
from glia.graph.cid import cid_bytes
from glia.graph.ids import BlockId, WindowId
from p2p.answers import PartReader, best_candidates, found_chains, links_that_fit
from p2p.asking import Asking
from p2p.frames import LENGTH, MAX_FRAME_BYTES, Reader, encode_frame
from p2p.host import Host, PeerId, Stream
from p2p.messages import (
    BLOCKS,
    FIND,
    PARTICLE,
    GetBlocks,
    Have,
    decode_held,
    encode,
)
from p2p.offer import Candidate
from p2p.provider import Provider, Served, ServingLimits
from p2p.testing.internet import Internet
from p2p.upload import SendingBudget, UploadLimit
from p2p.walking import Walk
from tests.builders import make_chain, make_profile
from tests.exchange_parts import (
    ChainOffer,
    at_once,
    fetch,
    in_world,
    keys_of,
    meet,
    question_of,
    serve,
)

CHAIN = make_chain(20)
LARGE = make_chain(2, profile=make_profile(kv_heads=8, head_dim=128))
DEEP = make_chain(120, profile=make_profile(num_layers=64))
BLOCKS_OF = dict(CHAIN.blocks())


async def particle(getter: Host, host: Host, *cids: bytes) -> list[bytes]:
    stream = await getter.open(host.peer_id, PARTICLE)
    reader = Reader(stream)
    answers = []
    for cid in cids:
        await stream.send_all(encode_frame(cid))
        length = await reader.length(1.0)
        assert length is not None
        answers.append(await reader.exactly(length))
    await stream.finish()
    assert await reader.length(1.0) is None
    return answers


def test_a_particle_by_its_cid() -> None:
    async def main(net: Internet) -> None:
        getter, host = net.host("getter"), net.host("host")
        serve(host, ChainOffer(CHAIN))
        await meet(getter, host)
        block_id, data = next(CHAIN.blocks())
        record = CHAIN.records[3]
        unknown = cid_bytes(bytes(32))
        other_codec = b"\x01\x70" + cid_bytes(block_id)[2:]
        answers = await particle(
            getter,
            host,
            cid_bytes(block_id),
            unknown,
            cid_bytes(record.window_id),
            other_codec,
        )
        assert answers == [data, b"", record.encoding, b""]

    in_world(main)


def test_a_particle_request_of_another_length_ends_its_stream() -> None:
    async def main(net: Internet) -> None:
        getter, host = net.host("getter"), net.host("host")
        told: list[Served] = []
        serve(host, ChainOffer(CHAIN), lambda _, served: told.append(served))
        await meet(getter, host)
        for size in (35, 37):
            with pytest.raises(PeerLost):
                await particle(getter, host, cid_bytes(bytes(40))[:size])
        assert told == [Served(is_bad=True)] * 2

    in_world(main)


def test_blocks_and_who_is_told_of_them() -> None:
    told: list[tuple[PeerId, Served]] = []

    async def main(net: Internet) -> None:
        getter, host = net.host("getter"), net.host("host")
        offer = ChainOffer(CHAIN)
        ids = [block_id for block_id, _ in CHAIN.blocks()]
        offer.gone = {ids[1]}
        serve(host, offer, lambda peer, served: told.append((peer, served)))
        await meet(getter, host)
        stream = await getter.open(host.peer_id, BLOCKS)
        reader = Reader(stream)
        wanted = [*ids[:3], bytes(32)]
        await stream.send_all(encode_frame(encode(Have(tuple(wanted)))))
        held = await reader.frame(1.0)
        assert held
        assert decode_held(held).bitmap == bytes([0b0101])
        await stream.send_all(encode_frame(encode(GetBlocks(tuple(wanted)))))
        got = [await reader.exactly(await reader.length() or 0) for _ in wanted]
        assert got == [BLOCKS_OF[ids[0]], b"", BLOCKS_OF[ids[2]], b""]
        await stream.finish()
        size = CHAIN.profile.particle_sizes[0]
        assert told == [(getter.peer_id, Served(2, 2 * size))]

    in_world(main)


@pytest.mark.parametrize("start", [0, 1, 57, 119])
def test_records_travel_in_parts_newest_first(start: int) -> None:
    parts = PartReader(ChainOffer(DEEP), DEEP.tip, 120, start)
    got: list[bytes] = []
    num_parts = 0
    while not parts.is_over:
        part = parts.read()
        assert len(encode_frame(encode(part))) <= MAX_FRAME_BYTES
        assert part.is_last == parts.is_over
        got += part.encodings
        num_parts += 1
    assert got == [record.encoding for record in DEEP.records[start:][::-1]]
    assert num_parts <= 1 + len(b"".join(got)) // 40_000 + 1


def test_records_that_are_not_there() -> None:
    part = PartReader(ChainOffer(CHAIN), WindowId(bytes(32)), 5, 0).read()
    assert (part.encodings, part.is_last) == ((), True)
    assert PartReader(ChainOffer(CHAIN), CHAIN.tip, 20, 20).read().is_last


def test_records_are_asked_for_alone() -> None:
    async def main(net: Internet) -> None:
        getter, host = net.host("getter"), net.host("host")
        serve(host, ChainOffer(DEEP, links=(b"next",)))
        await meet(getter, host)
        asking = Asking(await getter.open(host.peer_id, FIND))
        keys = [(120, DEEP.keys[-1])]
        assert len(await asking.find(question_of(DEEP), keys, want_records=False)) == 1
        walk = Walk(question_of(DEEP), DEEP.tip, 120)
        await asking.get_records(walk)
        assert walk.records == list(DEEP.records)
        assert await asking.next_links(DEEP.tip) == (b"next",)

    in_world(main)


def test_candidates_are_cut_to_what_a_frame_holds() -> None:
    link = bytes(1000)
    many = [
        Candidate(num, WindowId(bytes([num]) * 32), "native:x", (link,) * 40)
        for num in range(1, 20)
    ]
    best = best_candidates(many, ())
    assert [each.num_windows for each in best] == list(range(19, 11, -1))
    found = found_chains(best)
    assert len(encode(found)) <= MAX_FRAME_BYTES
    assert [len(each.links) for each in found.candidates][:3] == [40, 17, 0]
    assert best_candidates(many, ("native:y",)) == []
    assert links_that_fit([bytes(1025), link]) == ()
    assert len(links_that_fit([b"x"] * 200)) == 128


def test_an_upload_limit_holds_over_all_peers() -> None:
    async def main(net: Internet) -> None:
        getters = [net.host(f"getter {number}") for number in range(3)]
        host = net.host("host")
        chain = make_chain(12, profile=make_profile(kv_heads=8, head_dim=32))
        total = len(getters) * sum(len(data) for _, data in chain.blocks())
        rate = total // 4
        provider = Provider(ChainOffer(chain), lambda *_: None, UploadLimit(rate), at_once)
        provider.serve_on(host)
        async with trio.open_nursery() as nursery:
            for getter in getters:
                await meet(getter, host)
            began_s = trio.current_time()
            for getter in getters:
                nursery.start_soon(fetch, getter, chain, [host])
        assert 3.4 <= trio.current_time() - began_s <= 4.5

    in_world(main)


def test_a_token_bucket_by_seed() -> None:
    rng = random.Random(3)
    limit = UploadLimit(1000)
    now_s = sent = 0.0
    for _ in range(500):
        num = rng.randrange(1, 400)
        now_s += limit.take(num, now_s)
        sent += num
        assert sent <= 1000 * now_s + 250 + 1e-6
        now_s += rng.choice([0.0, 0.01])
    assert UploadLimit().take(10**12, 0.0) == 0.0
    assert UploadLimit().batch_bytes is None
    assert limit.batch_bytes == 250


def test_a_budget_is_shared_and_never_waited_for() -> None:
    budget = SendingBudget(8_000, 1_000)
    assert budget.share_bytes == 1_000
    with budget.hold(6_000) as held:
        assert budget.share_bytes == 500
        with budget.hold(2_000):
            assert budget.share_bytes == 0
        with pytest.raises(QuotaExceeded), budget.hold(2_001):
            pass
        held.shrink(1_000)
        assert budget.held_bytes == 1_000
    assert budget.held_bytes == 0


def test_with_no_budget_left_a_request_is_refused() -> None:
    async def main(net: Internet) -> None:
        getter, other, host = net.host("getter"), net.host("other"), net.host("host")
        chain = make_chain(8, profile=make_profile(kv_heads=8, head_dim=128))
        limits = ServingLimits(total_bytes=4 * 66_000 + 1000)
        provider = Provider(ChainOffer(chain), lambda *_: None, UploadLimit(), at_once, limits)
        provider.serve_on(host)
        await meet(getter, host)
        await meet(other, host)
        frame = encode_frame(encode(GetBlocks(tuple(i for i, _ in chain.blocks()))))
        stalled = [net.host(f"stalled {number}") for number in range(8)]
        for peer in stalled:
            await meet(peer, host)
            stream = await peer.open(host.peer_id, BLOCKS)
            await stream.send_all(frame)
        await trio.sleep(1.0)
        assert not (await fetch(getter, chain, [host])).is_whole
        await trio.sleep(45.0)
        assert (await fetch(other, chain, [host])).is_whole

    in_world(main)


def test_peers_that_take_blocks_slowly_keep_nobody_from_asking() -> None:
    """Sixty of them once left too little of what is held for peers to answer a question."""

    async def main(net: Internet) -> None:
        getter, host = net.host("getter"), net.host("host")
        chain = make_chain(64, profile=make_profile(kv_heads=4, head_dim=64))
        serve(host, ChainOffer(chain))
        await meet(getter, host)
        frame = encode_frame(encode(GetBlocks(tuple(i for i, _ in chain.blocks())[:64])))
        for number in range(80):
            peer = net.host(f"slow {number}")
            await meet(peer, host)
            await (await peer.open(host.peer_id, BLOCKS)).send_all(frame)
        await trio.sleep(1.0)
        stream = await getter.open(host.peer_id, FIND)
        asking = Asking(stream)
        found = await asking.find(question_of(chain), keys_of(chain), want_records=True)
        assert [each.num_windows for each in found][:1] == [64]
        walk = Walk(question_of(chain), WindowId(found[0].tip), 64)
        await asking.read_records(walk)
        assert walk.is_over

    in_world(main)


def test_memory_is_counted_before_it_is_read_into() -> None:
    """Whatever is asked for, and by how many: buffers are never more than the budget."""
    rooms: dict[int, int] = {}
    are_counted: list[bool] = []
    chain = make_chain(8, profile=make_profile(kv_heads=8, head_dim=128))
    limits = ServingLimits(peer_bytes=200_000, total_bytes=40_000_000)

    class Watched(ChainOffer):
        def read_blocks(
            self, block_ids: Sequence[BlockId], into: memoryview
        ) -> list[memoryview | None]:
            rooms[id(into.obj)] = len(into)
            held = provider._budget.held_bytes
            are_counted.append(sum(rooms.values()) <= held <= limits.total_bytes)
            return super().read_blocks(block_ids, into)

    provider = Provider(Watched(chain), lambda *_: None, UploadLimit(), at_once, limits)

    async def main(net: Internet) -> None:
        host = net.host("host")
        provider.serve_on(host)
        frame = encode_frame(encode(GetBlocks(tuple(i for i, _ in chain.blocks()))))
        for number in range(8):
            peer = net.host(f"stalled {number}")
            await meet(peer, host)
            stream = await peer.open(host.peer_id, BLOCKS)
            await stream.send_all(frame)
        await trio.sleep(1.0)
        assert len(rooms) == 8
        assert set(rooms.values()) == {200_000}
        assert all(are_counted)
        await trio.sleep(45.0)
        assert not provider._budget.held_bytes

    in_world(main)


def test_hardly_more_is_looked_up_than_fits_and_one_buffer_serves_all() -> None:
    chain = make_chain(40)
    size = chain.profile.particle_sizes[0]
    asked: list[int] = []
    buffers: set[int] = set()

    class Watched(ChainOffer):
        def read_blocks(
            self, block_ids: Sequence[BlockId], into: memoryview
        ) -> list[memoryview | None]:
            asked.append(len(block_ids))
            buffers.add(id(into.obj))
            return super().read_blocks(block_ids, into)

    limits = ServingLimits(peer_bytes=10 * size)
    provider = Provider(Watched(chain), lambda *_: None, UploadLimit(), at_once, limits)

    async def main(net: Internet) -> None:
        getter, host = net.host("getter"), net.host("host")
        provider.serve_on(host)
        await meet(getter, host)
        blocks = list(chain.blocks())
        frame = encode_frame(encode(GetBlocks(tuple(block_id for block_id, _ in blocks))))
        stream = await getter.open(host.peer_id, BLOCKS)
        reader = Reader(stream)
        for _ in range(3):
            await stream.send_all(frame)
            for _, data in blocks:
                assert await reader.exactly(await reader.length() or 0) == data
        first, *others = asked
        assert first == min(256, len(blocks))
        assert max(others) <= 12
        assert len(buffers) == 1

    in_world(main)


def test_a_block_larger_than_what_is_read_at_once_has_room_of_its_own() -> None:
    async def main(net: Internet) -> None:
        getter, host = net.host("getter"), net.host("host")
        limits = ServingLimits(peer_bytes=60_000)
        provider = Provider(ChainOffer(LARGE), lambda *_: None, UploadLimit(), at_once, limits)
        provider.serve_on(host)
        await meet(getter, host)
        assert (await fetch(getter, LARGE, [host])).is_whole
        block_id, data = next(LARGE.blocks())
        assert await particle(getter, host, cid_bytes(block_id)) == [data]
        assert not provider._budget.held_bytes
        small = ServingLimits(peer_bytes=60_000, total_bytes=16 * 1024 * 1024)
        Provider(ChainOffer(LARGE), lambda *_: None, UploadLimit(), at_once, small).serve_on(host)
        assert not (await fetch(getter, LARGE, [host])).is_whole

    in_world(main)


def test_what_is_amiss_here_is_a_line_and_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(ChainOffer):
        def read_blocks(
            self, block_ids: Sequence[BlockId], into: memoryview
        ) -> list[memoryview | None]:
            raise StoreBroken("no file descriptor is left")

    provider = Provider(Broken(CHAIN), lambda *_: None, UploadLimit(), at_once)

    async def main(net: Internet) -> None:
        getter, host = net.host("getter"), net.host("host")
        provider.serve_on(host)
        await meet(getter, host)
        for _ in range(12):
            assert not (await fetch(getter, CHAIN, [host])).is_whole

    in_world(main)
    said = [each for each in caplog.records if each.name == "gliad.p2p.provider"]
    assert [each.getMessage().split()[0] for each in said] == ["1", "10"]
    assert not any(each.exc_info for each in said)
    assert provider.counters == {"requests_refused": 12}


def test_a_peer_that_does_not_read_is_let_go() -> None:
    async def main(net: Internet) -> None:
        getter, host = net.host("getter"), net.host("host")
        chain = make_chain(8, profile=make_profile(kv_heads=8, head_dim=128))
        serve(host, ChainOffer(chain))
        await meet(getter, host)
        stream = await getter.open(host.peer_id, BLOCKS)
        await stream.send_all(encode_frame(encode(GetBlocks(tuple(i for i, _ in chain.blocks())))))
        await trio.sleep(33.0)
        assert host.counters["handlers_failed"] == 1

    in_world(main)


def test_a_stream_on_which_nothing_is_asked_is_let_go() -> None:
    async def main(net: Internet) -> None:
        getter, host = net.host("getter"), net.host("host")
        serve(host, ChainOffer(CHAIN))
        await meet(getter, host)
        stream = await getter.open(host.peer_id, PARTICLE)
        await stream.send_all(LENGTH.pack(36)[:2])
        await trio.sleep(61.0)
        assert host.counters["handlers_failed"] == 1
        stream = await getter.open(host.peer_id, PARTICLE)
        await stream.send_all(LENGTH.pack(36) + b"x")
        await trio.sleep(6.0)
        assert host.counters["handlers_failed"] == 2

    in_world(main)


def test_a_question_does_not_wait_behind_its_peers_blocks() -> None:
    async def main(net: Internet) -> None:
        getter, host = net.host("getter"), net.host("host")
        chain = make_chain(64, profile=make_profile(kv_heads=8, head_dim=128))
        serve(host, ChainOffer(chain))
        await meet(getter, host)
        net.link("getter", "host", bytes_per_s=1e6)
        stream = await getter.open(host.peer_id, BLOCKS)
        ids = tuple(block_id for block_id, _ in chain.blocks())
        await stream.send_all(encode_frame(encode(GetBlocks(ids))))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read_all, stream)
            began_s = trio.current_time()
            asking = Asking(await getter.open(host.peer_id, FIND))
            keys = list(enumerate(chain.keys, 1))
            assert await asking.find(question_of(chain), keys, want_records=False)
            assert trio.current_time() - began_s < 1.0
            nursery.cancel_scope.cancel()

    in_world(main)


async def read_all(stream: Stream) -> None:
    while await stream.receive_some(65536):
        pass
