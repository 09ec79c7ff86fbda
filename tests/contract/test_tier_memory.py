"""The port TierMemory, held by the one-process memory and by the one over a real gliad."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from glia.engine.memory import Leased, TierMemory
from glia.engine.remote import RemoteMemory
from glia.engine.testing import LocalMemory
from glia.errors import NotFound
from glia.graph.ids import WindowId
from glia.store.memory import MemoryStore
from tests.builders import CLASS, MODEL, TINY, WIDE, Chain, make_chain
from tests.node_parts import MIB, RunningNode, payload_of

NUM_CELLS = 24
Make = Callable[[], TierMemory]


@pytest.fixture(params=["local", "remote"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Engines of one node: each call gives another one's memory, over the same L1 and L2."""
    if request.param == "local":
        memory = LocalMemory(
            MemoryStore(64 * MIB),
            MODEL,
            TINY,
            CLASS,
            arena_windows=64,
            staging_windows=NUM_CELLS,
        )
        yield lambda: memory
        return
    with RunningNode(tmp_path / "node") as node:

        def attach() -> TierMemory:
            client = node.client()
            client.attach(MODEL, TINY, CLASS)
            return RemoteMemory(client, TINY, NUM_CELLS * TINY.window_payload_bytes)

        yield attach


@pytest.fixture
def memory(make: Make) -> TierMemory:
    return make()


def stage(memory: TierMemory, chain: Chain, start: int, end: int, cell: int) -> None:
    """Put windows [start, end) into cells from `cell` on, and ask for their names."""
    step, size = TINY.window_payload_bytes, TINY.block_size
    for index in range(start, end):
        at = (cell + index - start) * step
        memory.staging.data[at : at + step] = payload_of(chain, index)
    memory.seal_begin(
        chain.records[start].prev if start else None,
        start * size,
        chain.tokens[start * size : end * size],
        cell * step,
        0,
    )


def seal(memory: TierMemory, chain: Chain) -> list[WindowId]:
    stage(memory, chain, 0, len(chain.records), 0)
    return memory.seal_end()


def payloads_of(memory: TierMemory, leased: Leased) -> list[bytes]:
    """Per window its raw payloads, all layers."""
    return [
        b"".join(
            bytes(memory.arena.data[offset : offset + size])
            for offset, size in zip(row.tolist(), TINY.payload_sizes, strict=True)
        )
        for row in leased.offsets
    ]


def lease(memory: TierMemory, names: list[WindowId]) -> Leased:
    memory.lease_begin(names)
    return memory.lease_end()


def test_what_is_sealed_is_named_found_and_leased(memory: TierMemory) -> None:
    chain = make_chain(5)
    assert memory.match(chain.tokens) == []
    assert seal(memory, chain) == chain.window_ids
    assert memory.match(chain.tokens) == chain.window_ids
    leased = lease(memory, chain.window_ids)
    assert leased.offsets.shape == (5, 2)
    assert leased.tiers == (1,) * 5
    assert payloads_of(memory, leased) == [payload_of(chain, index) for index in range(5)]
    memory.release(leased.lease)


def test_a_match_is_of_whole_windows_of_one_chain(memory: TierMemory) -> None:
    chain = make_chain(3)
    fork = make_chain(2, base=make_chain(2), seed=5)
    seal(memory, chain)
    seal(memory, fork)
    assert memory.match(chain.tokens[:47]) == chain.window_ids[:2]
    assert memory.match(chain.tokens[:15]) == []
    assert memory.match([]) == []
    assert memory.match(fork.tokens) == fork.window_ids
    assert memory.match([*chain.tokens[:20], 7, *chain.tokens[21:]]) == chain.window_ids[:1]


def test_seals_under_way_are_answered_in_order(memory: TierMemory) -> None:
    one, two = make_chain(8, seed=1), make_chain(8, seed=2)
    stage(memory, one, 0, 8, 0)
    stage(memory, two, 0, 8, 8)
    assert memory.seal_end() == one.window_ids
    stage(memory, make_chain(3, seed=3), 0, 3, 0)
    assert memory.seal_end() == two.window_ids
    assert memory.seal_end() == make_chain(3, seed=3).window_ids
    assert not memory.seal_ready()


def test_a_chain_may_be_sealed_in_pieces(memory: TierMemory) -> None:
    chain = make_chain(6)
    for start, end in [(0, 1), (1, 4), (4, 6)]:
        stage(memory, chain, start, end, 3)
        assert memory.seal_end() == chain.window_ids[start:end]


def test_leases_under_way_are_answered_in_order_among_seals(memory: TierMemory) -> None:
    one, two = make_chain(4, seed=1), make_chain(4, seed=2)
    seal(memory, one)
    memory.lease_begin(one.window_ids)
    stage(memory, two, 0, 4, 0)
    memory.lease_begin(one.window_ids[2:])
    first = memory.lease_end()
    assert memory.seal_end() == two.window_ids
    second = memory.lease_end()
    assert (len(first.tiers), len(second.tiers)) == (4, 2)
    assert payloads_of(memory, second) == [payload_of(one, index) for index in (2, 3)]
    memory.release(second.lease)
    memory.release(first.lease)


def test_what_is_sealed_is_known(memory: TierMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glia.client.memory._KNOWN_AT_ONCE", 3)
    chain, unknown = make_chain(4), make_chain(2, seed=9)
    assert memory.known(chain.window_ids) == set()
    seal(memory, chain)
    mixed = [unknown.tip, *chain.window_ids, *unknown.window_ids]
    assert memory.known(mixed) == set(chain.window_ids)
    memory.flush(chain.window_ids)
    assert memory.known(mixed) == set(chain.window_ids)
    assert memory.known([]) == set()


def test_a_hole_ends_a_lease(memory: TierMemory) -> None:
    chain, unknown = make_chain(4), make_chain(1, seed=9)
    seal(memory, chain)
    names = [*chain.window_ids[:2], *unknown.window_ids, *chain.window_ids[2:]]
    leased = lease(memory, names)
    assert payloads_of(memory, leased) == [payload_of(chain, index) for index in range(2)]
    memory.release(leased.lease)
    nothing = lease(memory, unknown.window_ids)
    assert nothing.tiers == ()
    assert nothing.offsets.shape == (0, 2)
    memory.release(nothing.lease)


def test_where_no_peer_sent_anything_there_is_nothing_to_adopt(memory: TierMemory) -> None:
    chain = make_chain(3)
    seal(memory, head := make_chain(2))
    assert memory.adopt(head.tip, chain.tokens[32:]) == []
    assert memory.adopt(None, chain.tokens) == []
    with pytest.raises(NotFound):
        memory.adopt(make_chain(2, seed=9).tip, chain.tokens[32:])


def test_another_engine_finds_what_this_one_sealed(make: Make) -> None:
    chain = make_chain(5)
    one, other = make(), make()
    seal(one, chain)
    one.flush(chain.window_ids)
    assert other.match(chain.tokens) == chain.window_ids
    assert seal(other, chain) == chain.window_ids
    leased = lease(other, chain.window_ids)
    assert payloads_of(other, leased) == [payload_of(chain, index) for index in range(5)]
    other.release(leased.lease)


def test_windows_after_an_unknown_one_get_no_names(memory: TierMemory) -> None:
    chain = make_chain(4, seed=6)
    stage(memory, chain, 2, 4, 0)
    with pytest.raises(NotFound):
        memory.seal_end()
    assert seal(memory, chain) == chain.window_ids


@pytest.mark.spec(24)
def test_more_than_l1_holds_comes_back_from_l2(tmp_path: Path) -> None:
    chains = [make_chain(12, seed=seed) for seed in range(12)]
    l1 = {"size_bytes": 32 * 1024, "staging_bytes": MIB, "prefault_bytes": 0}
    local = LocalMemory(
        MemoryStore(64 * MIB), MODEL, TINY, CLASS, arena_windows=36, staging_windows=NUM_CELLS
    )
    with RunningNode(tmp_path / "node", {"l1": l1}) as node:
        client = node.client()
        client.attach(MODEL, TINY, CLASS)
        remote = RemoteMemory(client, TINY, NUM_CELLS * TINY.window_payload_bytes)
        for memory in (local, remote):
            for chain in chains:
                assert seal(memory, chain) == chain.window_ids
                memory.flush(chain.window_ids)
            for chain in chains:
                leased = lease(memory, chain.window_ids)
                assert payloads_of(memory, leased) == [payload_of(chain, i) for i in range(12)]
                memory.release(leased.lease)
            assert 2 in lease(memory, chains[0].window_ids).tiers


def test_the_wide_shape_too(tmp_path: Path) -> None:
    chain = make_chain(2, profile=WIDE)
    l1 = {"size_bytes": 4 * MIB, "staging_bytes": MIB, "prefault_bytes": 0}
    with RunningNode(tmp_path / "node", {"l1": l1}) as node:
        client = node.client()
        client.attach(MODEL, WIDE, CLASS)
        memory = RemoteMemory(client, WIDE, 2 * WIDE.window_payload_bytes)
        memory.staging.data[:] = payload_of(chain, 0) + payload_of(chain, 1)
        memory.seal_begin(None, 0, chain.tokens, 0, 0)
        assert memory.seal_end() == chain.window_ids
        leased = lease(memory, chain.window_ids)
        assert WIDE.payload_sizes[0] == 65_536
        at = leased.offsets[1, 1]
        assert bytes(memory.arena.data[at : at + 65_536]) == payload_of(chain, 1)[65_536:]
