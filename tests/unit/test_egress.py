"""The door to the outside: published names only, and of them what L2 still has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from daemon.egress import Egress
from glia.graph.boundaries import asked, pairs
from glia.graph.ids import BlockId
from glia.graph.link import sign_link
from glia.graph.neuron import Signer
from glia.graph.spans import claims
from glia.store.published import Published
from p2p.offer import Candidate, read_each
from tests.builders import CLASS, MODEL, Chain, make_chain

SIGNER = Signer(b"\1" * 32)


@dataclass
class Shelf:
    """Particles of private and published windows alike, and what was asked of it."""

    particles: dict[BlockId, bytes] = field(default_factory=dict)
    bad: set[BlockId] = field(default_factory=set)
    asked: list[BlockId] = field(default_factory=list)

    def keep(self, chain: Chain) -> None:
        for record in chain.records:
            self.particles |= {block_id: b"of " + block_id for block_id in record.blocks}

    def read_blocks(
        self, block_ids: Sequence[BlockId], into: memoryview
    ) -> list[memoryview | None]:
        return read_each(self._block, block_ids, into)

    def _block(self, block_id: BlockId) -> bytes | None:
        self.asked.append(block_id)
        return None if block_id in self.bad else self.particles.get(block_id)

    def has_block(self, block_id: BlockId) -> bool:
        self.asked.append(block_id)
        return block_id in self.particles


@pytest.fixture
def published(tmp_path: Path) -> Iterator[Published]:
    made = Published(tmp_path / "published")
    yield made
    made.close()


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def egress(published: Published, shelf: Shelf) -> Egress:
    return Egress(published, shelf)


def test_what_is_not_published_is_not_even_asked_for(egress: Egress, shelf: Shelf) -> None:
    private = make_chain(3)
    shelf.keep(private)
    for record in private.records:
        assert egress.record(record.window_id) is None
        assert not egress.has_window(record.window_id)
        assert egress.records(record.window_id, 3, 0) == []
        assert egress.next_links(record.prev) == []
        for block_id in record.blocks:
            assert not egress.has_block(block_id)
    assert _read(egress, private) == [None] * 6
    assert _match(egress, private) == []
    assert not shelf.asked


def test_a_published_chain_is_offered_with_its_links_and_bytes(
    egress: Egress, shelf: Shelf, published: Published
) -> None:
    chain = make_chain(20)
    shelf.keep(chain)
    links = [sign_link(SIGNER, claim, n, 1) for n, claim in enumerate(claims(chain.records, 0), 1)]
    published.put(chain.records, links)
    tip = chain.records[-1].window_id
    (found,) = _match(egress, chain)
    assert (found.num_windows, found.tip, found.numerics_class) == (20, tip, CLASS)
    assert set(found.links) == {link.encoding for link in links}
    assert egress.records(tip, 20, 18) == [r.encoding for r in chain.records[18:]]
    assert egress.record(tip) == chain.records[-1].encoding
    assert set(egress.next_links(chain.records[15].window_id)) == {links[-1].encoding}
    block_id = chain.records[3].blocks[0]
    assert egress.has_block(block_id)
    assert _read(egress, chain) == [b"of " + name for r in chain.records for name in r.blocks]


def test_what_l2_dropped_or_finds_damaged_is_absent(
    egress: Egress, shelf: Shelf, published: Published
) -> None:
    chain = make_chain(3)
    shelf.keep(chain)
    published.put(chain.records)
    dropped, damaged = chain.records[2].blocks[0], chain.records[1].blocks[0]
    del shelf.particles[dropped]
    shelf.bad.add(damaged)
    assert not egress.has_block(dropped)
    absent = [dropped, damaged]
    names = [name for record in chain.records for name in record.blocks]
    assert _read(egress, chain) == [None if n in absent else b"of " + n for n in names]


def test_a_chain_is_offered_as_far_as_it_is_here(
    egress: Egress, shelf: Shelf, published: Published
) -> None:
    chain = make_chain(20)
    shelf.keep(chain)
    published.put(chain.records)
    for record in chain.records[17:]:
        for block_id in record.blocks:
            shelf.particles.pop(block_id, None)
    (found,) = _match(egress, chain)
    assert (found.num_windows, found.tip) == (17, chain.records[16].window_id)
    assert egress.has_window(found.tip)
    assert not egress.has_window(chain.window_ids[17])
    shelf.particles.clear()
    assert _match(egress, chain) == []
    assert not egress.has_window(found.tip)


def test_a_long_chain_that_l2_dropped_is_looked_up_once(
    egress: Egress, shelf: Shelf, published: Published
) -> None:
    chain = make_chain(40)
    shelf.keep(make_chain(40, seed=7))
    published.put(chain.records)
    keys = pairs(chain.keys, range(1, 41))
    assert egress.match(MODEL, chain.profile.profile_id, keys) == []
    assert published.stats().num_asked == 1  # not once for each window
    first = [record.blocks[0] for record in reversed(chain.records)]
    assert shelf.asked == first


def test_published_and_private_ones_are_read_together_as_far_as_they_fit(
    egress: Egress, shelf: Shelf, published: Published
) -> None:
    shown, private = make_chain(1), make_chain(1, seed=7)
    shelf.keep(shown)
    shelf.keep(private)
    published.put(shown.records)
    one, two = shown.records[0].blocks
    other = private.records[0].blocks[0]
    size = len(shelf.particles[one])
    for room, num in ((2 * size, 4), (2 * size - 1, 2), (size - 1, 0)):
        found = egress.read_blocks([one, other, two, other], memoryview(bytearray(room)))
        want = [b"of " + one, None, b"of " + two, None]
        assert [each and bytes(each) for each in found] == want[:num]
    assert other not in shelf.asked


def _read(egress: Egress, chain: Chain) -> list[bytes | None]:
    names = [name for record in chain.records for name in record.blocks]
    found = egress.read_blocks(names, memoryview(bytearray(100 * len(names))))
    return [each and bytes(each) for each in found]


def _match(egress: Egress, chain: Chain) -> list[Candidate]:
    keys = pairs(chain.keys, asked(len(chain.keys)))
    return egress.match(MODEL, chain.profile.profile_id, keys)
