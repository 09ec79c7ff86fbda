"""Which windows came from peers: kept across restarts, until they are here no more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from glia.graph.ids import WindowId
from glia.graph.neuron import NeuronId
from glia.store.foreign import Looked, Origin
from glia.store.published import Published
from tests.builders import make_chain

CHAIN = make_chain(6)
NAMES = CHAIN.window_ids
LIAR, OTHER = NeuronId(b"\1" * 32), NeuronId(b"\2" * 32)


def nowhere(_: WindowId) -> bool:
    return False


@pytest.fixture
def published(tmp_path: Path) -> Iterator[Published]:
    made = Published(tmp_path / "published")
    yield made
    made.close()


def test_what_is_expected_is_foreign_also_after_a_restart(tmp_path: Path) -> None:
    published = Published(tmp_path / "published")
    published.foreign.expect(NAMES[:4])
    published.close()
    published = Published(tmp_path / "published")
    assert published.foreign.flags(NAMES) == [True] * 4 + [False] * 2
    assert published.record(NAMES[0]) is None  # nor is it shown to anybody
    published.close()


def test_what_did_not_come_is_anybody_s(published: Published) -> None:
    published.foreign.expect(NAMES)
    published.foreign.settle(NAMES, NAMES[:2])
    assert published.foreign.flags(NAMES) == [True] * 2 + [False] * 4


def test_what_comes_twice_at_once_stays_a_peer_s_until_both_have_ended(
    published: Published,
) -> None:
    published.foreign.expect(NAMES)
    published.foreign.expect(NAMES[:3])
    published.foreign.settle(NAMES, [])
    published.foreign.sweep(nowhere)
    assert published.foreign.flags(NAMES) == [True] * 3 + [False] * 3
    published.foreign.expect(NAMES[:3])
    published.foreign.settle(NAMES[:3], NAMES[:1])
    assert published.foreign.flags(NAMES) == [True] * 3 + [False] * 3
    published.foreign.settle(NAMES[:3], [])
    assert published.foreign.flags(NAMES) == [True] + [False] * 5


def test_a_sweep_leaves_what_is_here(published: Published) -> None:
    published.foreign.expect(NAMES)
    published.foreign.settle(NAMES, NAMES)
    published.foreign.sweep(lambda name: name != NAMES[5])
    assert published.foreign.flags(NAMES) == [True] * 5 + [False]


def test_of_what_is_forgotten_nothing_stays_in_the_files(
    published: Published, tmp_path: Path
) -> None:
    """Published or not: that it came from a peer says that it was here."""
    published.foreign.expect(NAMES)
    published.foreign.settle(NAMES, NAMES)
    published.put(CHAIN.records[:3])
    assert published.take_back(NAMES[2:]) == [NAMES[2]]
    assert all(published.foreign.flags(NAMES))  # it is here, and shown no longer
    published.forget(NAMES[1:])
    assert published.record(NAMES[1]) is None
    assert published.foreign.flags(NAMES) == [True] + [False] * 5
    published.close()
    data = b"".join(p.read_bytes() for p in (tmp_path / "published").rglob("*") if p.is_file())
    assert NAMES[0] in data
    assert not any(name in data for name in NAMES[1:])


def test_who_attests_a_window_is_known_as_long_as_it_is_here(published: Published) -> None:
    published.foreign.expect(NAMES[:3], {NAMES[0]: LIAR, NAMES[1]: OTHER})
    published.foreign.settle(NAMES[:3], NAMES[:3])
    published.foreign.expect(NAMES[:2], {NAMES[0]: OTHER})  # it comes again, from another
    published.foreign.settle(NAMES[:2], [])
    came = Looked.CAME
    assert published.foreign.origins(NAMES) == {
        NAMES[0]: Origin(came, LIAR),
        NAMES[1]: Origin(came, OTHER),
        NAMES[2]: Origin(came),
    }


def test_what_was_checked_stays_checked_and_what_is_condemned_condemned(tmp_path: Path) -> None:
    published = Published(tmp_path / "published")
    published.foreign.expect(NAMES[:3], dict.fromkeys(NAMES, LIAR))
    published.foreign.checked(NAMES[:2])  # before all of it has come
    published.foreign.condemn([NAMES[1], NAMES[5]], LIAR)
    published.foreign.checked(NAMES[1:2])
    published.foreign.settle(NAMES[:3], NAMES[:3])
    published.close()
    published = Published(tmp_path / "published")
    published.foreign.sweep(nowhere)
    assert published.foreign.all() == {
        NAMES[1]: Origin(Looked.CONDEMNED, LIAR),
        NAMES[5]: Origin(Looked.CONDEMNED, LIAR),
    }
    published.close()


def test_what_this_node_computes_too_is_its_own(published: Published) -> None:
    published.foreign.expect(NAMES[:2], dict.fromkeys(NAMES, LIAR))
    published.foreign.settle(NAMES[:2], NAMES[:2])
    published.foreign.condemn(NAMES[:2], LIAR)
    published.foreign.acquit(NAMES[:1])
    assert published.foreign.flags(NAMES[:2]) == [False, True]


def test_what_is_put_aside_for_two_is_taken_again_when_neither_is_left(tmp_path: Path) -> None:
    published = Published(tmp_path / "published")
    foreign = published.foreign
    foreign.expect(NAMES[:3], dict.fromkeys(NAMES, LIAR))
    foreign.settle(NAMES[:3], NAMES[:3])
    foreign.put_aside(NAMES[:4], LIAR)
    foreign.put_aside(NAMES[3:5], OTHER)
    foreign.condemn(NAMES[:1], None)
    published.close()
    published = Published(tmp_path / "published")
    foreign = published.foreign
    assert foreign.aside() == set(NAMES[:5])
    came = Origin(Looked.CAME, LIAR)
    assert foreign.take_again(LIAR) == {NAMES[1]: came, NAMES[2]: came}
    assert foreign.take_again(LIAR) == {}
    assert foreign.take_again(OTHER) == {NAMES[3]: None, NAMES[4]: None}
    assert foreign.aside() == set()
    published.close()


def test_nothing_is_put_aside_that_is_forgotten_gone_or_computed_here(
    published: Published, tmp_path: Path
) -> None:
    foreign = published.foreign
    foreign.expect(NAMES, dict.fromkeys(NAMES, LIAR))
    foreign.settle(NAMES, NAMES)
    foreign.put_aside(NAMES, LIAR)
    published.forget(NAMES[5:])
    assert foreign.aside() == set(NAMES[:5])
    foreign.sweep(lambda name: name in NAMES[:4])
    assert foreign.aside() == set(NAMES[:4])
    foreign.acquit(NAMES[:1])
    assert foreign.aside() == set(NAMES[1:4])
    published.close()
    data = b"".join(p.read_bytes() for p in (tmp_path / "published").rglob("*") if p.is_file())
    assert NAMES[5] not in data
