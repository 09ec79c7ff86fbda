"""Memory calls against a real gliad: names, leases, eviction order, durability."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from glia.errors import ArenaExhausted, BadRequest, NotFound, QuotaExceeded
from glia.graph.ids import ModelId, WindowId, digest
from glia.local import messages as m
from tests.builders import CLASS, MODEL, TINY, Chain, make_chain, make_profile
from tests.node_parts import (
    MIB,
    ROOT,
    Author,
    RunningNode,
    particles_of,
    payload_of,
    until,
)

WINDOW = TINY.window_particle_bytes


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    with RunningNode(tmp_path / "node") as running:
        yield running


ROOM = 9  # windows in two pages


def small_node(tmp_path: Path, hot_steps: int = 4) -> RunningNode:
    """A node whose L1 holds ROOM windows."""
    assert 8192 // WINDOW == ROOM
    l1 = {
        "size_bytes": 8192,
        "staging_bytes": MIB,
        "prefault_bytes": 0,
        "hot_steps": hot_steps,
    }
    return RunningNode(tmp_path / "node", {"l1": l1})


@pytest.mark.spec(5, 7)
def test_sealing_names_the_bytes_and_keeps_them_once(node: RunningNode) -> None:
    chain = make_chain(5)
    author, other = node.author(), node.author()
    assert author.seal(chain) == (chain.window_ids, 0)
    used = node.client().status().tiers["l1"].used_bytes
    assert used == 5 * WINDOW
    assert other.seal(chain) == (chain.window_ids, 5)
    assert node.client().status().tiers["l1"].used_bytes == used
    leased = other.lease(chain.window_ids)
    assert list(leased.tiers) == [1] * 5
    assert other.bytes_of(leased) == particles_of(chain)
    assert author.lease(chain.window_ids).offsets == leased.offsets


@pytest.mark.spec(4)
def test_a_partial_window_gets_no_name(node: RunningNode) -> None:
    author = node.author()
    with pytest.raises(BadRequest, match="whole windows"):
        author.client.seal_end(author.client.seal_begin(None, 0, list(range(15)), 0))
    with pytest.raises(BadRequest, match="whole windows"):
        author.client.seal_end(author.client.seal_begin(None, 0, [], 0))


def test_a_seal_that_does_not_fit_is_refused(node: RunningNode) -> None:
    chain = make_chain(2)
    author = node.author()
    author.seal(chain)
    client, tokens = author.client, list(range(16))
    calls = [
        (None, 16, 0, BadRequest, "position 0"),
        (chain.tip, 16, 0, BadRequest, "does not follow"),
        (WindowId(bytes(32)), 32, 0, NotFound, "not known"),
        (None, 0, 64 * TINY.window_payload_bytes, BadRequest, "staging"),
        (None, 0, 2**50, BadRequest, "staging"),
    ]
    for prev, position, offset, error, match in calls:
        with pytest.raises(error, match=match):
            client.seal_end(client.seal_begin(prev, position, tokens, offset))
    other = Author.__new__(Author)
    other.client = node.client()
    other.client.attach(ModelId(bytes(31) + b"x"), TINY, CLASS)
    with pytest.raises(BadRequest, match="staging first"):
        other.client.seal_end(other.client.seal_begin(None, 0, tokens, 0))
    other.client.make_staging(MIB)
    with pytest.raises(BadRequest, match="another model"):
        other.client.seal_end(other.client.seal_begin(chain.tip, 32, tokens, 0))


def test_memory_calls_need_an_attached_connection(node: RunningNode) -> None:
    client = node.client()
    with pytest.raises(BadRequest, match="attach first"):
        client.match([1] * 16)
    client.attach(MODEL, TINY, CLASS)
    with pytest.raises(BadRequest, match="attached already"):
        client.attach(MODEL, TINY, CLASS)
    for size_bytes in (0, MIB + 1):
        with pytest.raises(QuotaExceeded):
            client.make_staging(size_bytes)


def test_match_finds_the_longest_chain_of_the_own_class_and_model(node: RunningNode) -> None:
    chain, foreign = make_chain(4), make_chain(6, numerics_class="native:other")
    author = node.author()
    author.seal(chain)
    node.author("native:other").seal(foreign)
    assert author.client.match(chain.tokens) == chain.window_ids
    assert author.client.match(chain.tokens[:-1]) == chain.window_ids[:3]
    assert author.client.match(foreign.tokens) == chain.window_ids
    assert author.client.match(foreign.tokens, exact=False) == foreign.window_ids
    assert author.client.match([*chain.tokens[:32], *range(32)]) == chain.window_ids[:2]
    other = node.client()
    other.attach(ModelId(bytes(32)), TINY, CLASS)
    assert other.match(chain.tokens) == []
    wide = node.client()
    wide.attach(MODEL, make_profile(num_layers=3), CLASS)
    assert wide.match(chain.tokens) == []
    author.client.flush(chain.window_ids)
    for tier in (1, 2, 2):
        leased = author.lease(chain.window_ids)
        assert list(leased.tiers) == [tier] * 4
        for client in (other, wide):  # once in L1, and once in L2
            assert client.lease_end(client.lease_begin(chain.window_ids)).tiers == b""
            author.client.release(leased.lease)
            author.client.evict("l1")


@pytest.mark.spec(24)
def test_what_left_l1_comes_back_from_l2_verified(node: RunningNode) -> None:
    chain = make_chain(20)
    author = node.author()
    author.seal(chain)
    client = node.client()
    freed = client.evict("l1")
    assert (freed.freed_bytes, freed.freed_windows) == (20 * WINDOW, 20)
    assert author.client.match(chain.tokens) == chain.window_ids
    leased = author.lease([*chain.window_ids, WindowId(bytes(32)), chain.window_ids[0]])
    assert list(leased.tiers) == [2] * 20  # a hole ends the list
    assert author.bytes_of(leased) == particles_of(chain)
    tiers = client.status().tiers
    assert (tiers["l1"].evictions, tiers["l1"].misses) == (20, 22)
    assert tiers["l2"].hits == 20


@pytest.mark.spec(29)
def test_what_was_flushed_survives_kill_9(node: RunningNode) -> None:
    chain = make_chain(8)
    author = node.author()
    author.seal(chain)
    author.client.flush(chain.window_ids)
    node.restart()
    author = node.author()
    assert author.client.match(chain.tokens) == chain.window_ids
    leased = author.lease(chain.window_ids)
    assert list(leased.tiers) == [2] * 8
    assert author.bytes_of(leased) == particles_of(chain)


@pytest.mark.spec(4)
def test_an_orderly_end_keeps_what_was_only_sealed(node: RunningNode) -> None:
    chain = make_chain(30)
    node.author().seal(chain)
    node.stop()
    node.restart()
    assert node.author().client.match(chain.tokens) == chain.window_ids
    assert node.client().status().tiers["l2"].windows == 30


def test_flushing_what_is_nowhere_is_an_error(node: RunningNode) -> None:
    with pytest.raises(NotFound):
        node.author().client.flush([WindowId(bytes(32))])


@pytest.mark.spec(66)
def test_looking_changes_no_order_and_leasing_does(tmp_path: Path) -> None:
    with small_node(tmp_path, hot_steps=0) as node:
        author = node.author()
        chains = [make_chain(1, seed=seed) for seed in range(ROOM + 1)]
        names = [chain.tip for chain in chains]
        for chain in chains[:ROOM]:
            author.seal(chain)
        author.client.flush(names[:ROOM])
        for _ in range(5):  # the oldest is looked for, the second oldest is used
            assert author.client.match(chains[0].tokens) == [names[0]]
        author.client.release(author.lease([names[1]]).lease)
        author.seal(chains[ROOM])
        author.client.flush([names[ROOM]])
        assert author.client.match(chains[0].tokens) == [names[0]]  # still known, in L2
        assert author.tiers_of(names[1:]) == [1] * ROOM
        assert author.tiers_of([names[0]]) == [2]


@pytest.mark.spec(28)
@pytest.mark.parametrize(("num_steps", "survives"), [(3, True), (4, False)])
def test_recently_decoded_windows_outlive_newer_ones(
    tmp_path: Path, num_steps: int, survives: bool
) -> None:
    """`base` is the least recently used, and `num_steps` ago it was decoded over; 4 steps count."""
    with small_node(tmp_path, hot_steps=4) as node:
        author = node.author()
        base, other = make_chain(1, seed=1), make_chain(1, seed=3)
        grown = make_chain(1, seed=2, base=base)
        newer = [make_chain(1, seed=seed) for seed in range(10, 17)]
        author.seal(base)
        author.seal(grown, 1, 2, num_steps=1)  # one decode step over base
        author.seal(other, num_steps=num_steps)  # so many more, elsewhere
        for chain in newer[:6]:
            author.seal(chain)
        author.client.flush([chain.tip for chain in (grown, other, *newer[:6])])
        author.client.flush([base.tip])
        author.seal(newer[6])  # L1 is full: one must go
        kept, dropped = (base, newer[0]) if survives else (newer[0], base)
        assert author.tiers_of([kept.tip]) == [1]
        assert author.tiers_of([dropped.tip]) == [2]


def test_pinned_windows_stay_where_they_are_under_pressure(tmp_path: Path) -> None:
    with small_node(tmp_path) as node:
        author, other = node.author(), node.author()
        chain = make_chain(4, seed=100)
        author.seal(chain)
        leased = author.lease(chain.window_ids)
        for seed in range(20):
            other.seal(make_chain(3, seed=seed))
        assert author.bytes_of(leased) == particles_of(chain)
        assert author.tiers_of(chain.window_ids) == [1] * 4
        many = make_chain(ROOM, seed=200)
        other.seal(many)
        other.client.flush(many.window_ids)
        held = other.lease(many.window_ids)
        assert len(held.tiers) == ROOM - 4  # no more fit beside the pinned ones
        with pytest.raises(ArenaExhausted):
            other.seal(make_chain(1, seed=300))
        other.client.release(held.lease)
        other.seal(make_chain(1, seed=300))


CHILD = """
import os, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from glia.client import Client
from tests.builders import make_chain
from tests.node_parts import Author
author = Author(Client.connect(sys.argv[1]))
chain = make_chain(4, seed=int(sys.argv[2]))
author.seal(chain)
author.client.flush(chain.window_ids)
author.lease(chain.window_ids)
ticket = author.client.seal_begin(None, 0, make_chain(64, seed=9).tokens, 0)
print("leased", flush=True)
while True:
    author.client.seal_end(ticket)
    ticket = author.client.seal_begin(None, 0, make_chain(64, seed=9).tokens, 0)
"""


@pytest.mark.spec(66)
def test_leases_and_staging_die_with_their_client(node: RunningNode) -> None:
    """SIGKILL while it holds leases and while its staging is being sealed."""
    watcher = node.client()
    for seed in range(6):  # more areas than fit at once, if they were not given back
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD.format(root=str(ROOT)), str(node.data_dir), str(seed)],
            stdout=subprocess.PIPE,
        )
        assert child.stdout is not None
        assert child.stdout.readline() == b"leased\n"
        watcher.evict("l1")
        assert watcher.status().tiers["l1"].windows >= 4
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()

        def all_given_back() -> bool:
            watcher.evict("l1")
            return watcher.status().tiers["l1"].used_bytes == 0

        until(all_given_back)
    assert "crashed" not in watcher.status().counters


def test_a_client_that_changes_its_staging_meanwhile_names_what_was_kept(
    node: RunningNode,
) -> None:
    """Whatever bytes the copy caught, they are the ones that the name names."""
    author = node.author()
    chain = make_chain(64)
    tokens = list(chain.tokens)
    for round_number in range(5):
        tokens[0] = round_number
        staged = b"".join(payload_of(chain, index) for index in range(64))
        author.client.staging[: len(staged)] = staged
        ticket = author.client.seal_begin(None, 0, tokens, 0)
        while not author.client.seal_ready(ticket):
            author.client.staging[: len(staged)] = os.urandom(len(staged))
        names = [WindowId(name) for name in author.client.seal_end(ticket).windows]
        values = node.client().chain(names[-1])
        assert [value.window for value in values] == names
        windows = author.bytes_of(author.lease(names))
        for value, window in zip(values, windows, strict=True):
            split = TINY.particle_sizes[0]
            assert [digest(window[:split]), digest(window[split:])] == value.blocks


def test_writing_to_the_arena_reaches_nobody(node: RunningNode) -> None:
    chain = make_chain(1)
    author, other = node.author(), node.author()
    author.seal(chain)
    leased = author.lease(chain.window_ids)
    offset = int.from_bytes(leased.offsets[:8], "little")
    author.client.arena[offset : offset + 4] = b"evil"
    assert other.bytes_of(other.lease(chain.window_ids)) == particles_of(chain)


def test_a_chain_comes_in_pages_and_check_reads_everything(node: RunningNode) -> None:
    chain = make_chain(1200, seed=4)
    author = node.author()
    author.seal(chain)
    client = node.client()
    values = client.chain(chain.tip)
    assert [WindowId(value.window) for value in values] == chain.window_ids
    assert [list(record.blocks) for record in chain.records] == [v.blocks for v in values]
    with pytest.raises(NotFound):
        client.chain(bytes(32))
    told: list[tuple[str, int, int]] = []
    report = client.check(lambda what, done, total: told.append((what, done, total)))
    assert (report.bad, report.windows, report.bad_windows) == (0, 1200, 0)
    assert (report.checked, report.l1_bad) == (2400, 0)
    assert report.l1_checked
    assert told
    with pytest.raises(BadRequest, match="no tier"):
        client.evict("l2")


def test_leaving_during_a_check_ends_it(node: RunningNode) -> None:
    chain = make_chain(300)
    author = node.author()
    author.seal(chain)
    author.client.flush(chain.window_ids)
    watcher = node.client()
    for _ in range(10):
        client = node.client()
        client._connection.call(m.Check(900))
        client.close()
    report = watcher.check()  # one at a time: it waits for those that are not over
    assert (report.bad, report.windows) == (0, 300)
    assert "crashed" not in watcher.status().counters


@pytest.mark.spec(22)
def test_a_block_that_rots_in_one_layer_shortens_the_prefix(node: RunningNode) -> None:
    """One flipped bit on disk: a hole, told and counted; sealed again it is whole again."""
    chain = make_chain(6)
    author = node.author()
    author.seal(chain)
    author.client.flush(chain.window_ids)
    client = node.client()
    client.evict("l1")
    _flip_bit(node, chain.particles[3][1])
    assert list(author.lease(chain.window_ids).tiers) == [2] * 3
    assert author.client.match(chain.tokens) == chain.window_ids[:3]
    assert client.status().tiers["l2"].quarantined == 1
    with pytest.raises(NotFound):
        client.chain(chain.tip)
    author.seal(chain, 3)
    author.client.flush(chain.window_ids)
    client.evict("l1")
    leased = author.lease(chain.window_ids)
    assert author.bytes_of(leased) == particles_of(chain)
    assert client.check().bad == 0


def _flip_bit(node: RunningNode, particle: bytes) -> None:
    for path in (node.data_dir / "store").rglob("*"):
        at = path.read_bytes().find(particle) if path.is_file() else -1
        if at >= 0:
            with path.open("r+b") as file:
                file.seek(at + len(particle) - 1)
                file.write(bytes([particle[-1] ^ 1]))
            return
    pytest.fail("the particle is in no file")


@pytest.mark.fault("F8")
@pytest.mark.parametrize("harm", ["removed", "emptied"])
def test_store_files_lost_under_a_running_node(node: RunningNode, harm: str) -> None:
    """Right bytes or misses, no crash; what is computed again is stored again, also later."""
    chain = make_chain(20)
    author = node.author()
    author.seal(chain)
    author.client.flush(chain.window_ids)
    client = node.client()
    client.evict("l1")
    segments = [p for p in (node.data_dir / "store").rglob("*") if _holds(p, chain)]
    assert segments
    for path in segments:
        if harm == "removed":
            path.unlink()  # a process that has it open reads it still
        else:
            os.truncate(path, 0)
    other = make_chain(20, seed=1)  # over the arena's bytes, which still were the right ones
    author.seal(other)
    leased = author.lease(chain.window_ids)
    assert author.bytes_of(leased) == particles_of(chain)[: len(leased.tiers)]
    assert leased.tiers == b"" or harm == "removed"
    author.client.release(leased.lease)
    for _ in range(2):
        author.seal(chain)
        author.client.flush(chain.window_ids)
        client.evict("l1")
        assert author.bytes_of(author.lease(chain.window_ids)) == particles_of(chain)
        assert "crashed" not in client.status().counters
        node.restart()
        author, client = node.author(), node.client()


def _holds(path: Path, chain: Chain) -> bool:
    return path.is_file() and chain.particles[0][0] in path.read_bytes()


def test_connections_leave_nothing_behind(node: RunningNode) -> None:
    stays = node.author()
    stays.seal(make_chain(1, seed=99))
    stays.client.flush([make_chain(1, seed=99).tip])  # from now on the store's files are open
    folder = f"/proc/{node.process.pid}/fd"
    before = len(os.listdir(folder))
    for seed in range(30):
        author = node.author()
        author.seal(make_chain(2, seed=seed))
        author.lease(make_chain(2, seed=seed).window_ids)
        author.client.close()
    until(lambda: len(os.listdir(folder)) <= before)
    assert stays.client.status().tiers["l1"].windows == 61
