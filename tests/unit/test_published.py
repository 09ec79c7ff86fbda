"""The published index: what was put is found, kept once, taken back whole, and set aside broken."""

from __future__ import annotations

import logging
import random
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from glia.errors import (
    MalformedParticle,
    NotFound,
    StoreBroken,
    StoreFull,
    StoreLocked,
    StoreVersion,
)
from glia.graph.boundaries import announced, asked, pairs
from glia.graph.ids import BlockId, ModelId, WindowId, genesis_window
from glia.graph.link import Claim, Link, LinkKind, parse_link, sign_link
from glia.graph.neuron import Signer
from glia.graph.spans import claims
from glia.graph.window import WindowRecord
from glia.store.index import DiskFull, Index
from glia.store.published import Published
from glia.store.published_reader import MAX_CHAIN_LINKS, Match
from glia.store.published_rows import MAX_PER_KEY
from tests.builders import CLASS, MODEL, TINY, Chain, make_chain, make_profile, make_tokens

SIGNER, OTHER = Signer(b"\1" * 32), Signer(b"\2" * 32)
NOBODY = WindowId(bytes(32))
HOLD_S = 1_800_000_060


@pytest.fixture
def published(tmp_path: Path) -> Iterator[Published]:
    made = Published(tmp_path / "published")
    yield made
    made.close()


def sign(chain: Chain, num_before: int = 0, signer: Signer = SIGNER) -> list[Link]:
    return [
        sign_link(signer, claim, number, 1_800_000_000)
        for number, claim in enumerate(claims(chain.records, num_before), 1)
    ]


def find(published: Published, chain: Chain, num: int | None = None) -> list[Match]:
    num = num or len(chain.keys)
    return published.match(MODEL, chain.profile.profile_id, pairs(chain.keys, asked(num)))


def encodings(records: tuple[WindowRecord, ...]) -> list[bytes]:
    return [record.encoding for record in records]


def contents(published: Published) -> list[tuple[bytes, bytes]]:
    return list(published._index._index.each(b""))


@contextmanager
def files_at_most(num_bytes: int) -> Iterator[None]:
    """No file of this process grows beyond `num_bytes`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_chain_is_found_by_any_of_its_keys(published: Published) -> None:
    chain = make_chain(40)
    links = sign(chain)
    published.put(chain.records, links, HOLD_S)
    for num in (1, 15, 16, 17, 32, 39, 40):
        (match,) = find(published, chain, num)
        assert (match.num_windows, match.tip) == (num, chain.window_ids[num - 1])
        assert match.numerics_class == CLASS
    longer = make_chain(30, base=chain, seed=5)
    (match,) = find(published, longer)
    # the boundary below what is shared; the getter asks again for what lies between
    assert match.num_windows == 32
    assert published.match(MODEL, TINY.profile_id, pairs(longer.keys, [*range(33, 65)])) == [
        Match(40, chain.tip, CLASS, tuple(link.encoding for link in reversed(links)))
    ]


def test_what_nobody_put_is_not_found(published: Published) -> None:
    chain = make_chain(20)
    assert find(published, chain) == []
    published.put(chain.records)
    assert find(published, make_chain(20, seed=1)) == []
    keys = pairs(chain.keys, asked(20))
    assert published.match(ModelId(bytes(32)), TINY.profile_id, keys) == []
    assert published.match(MODEL, make_profile(num_layers=3).profile_id, keys) == []
    assert published.match(MODEL, TINY.profile_id, [(19, chain.keys[19])]) == []
    assert published.match(MODEL, TINY.profile_id, []) == []
    stats = published.stats()
    assert (stats.num_asked, stats.num_matched) == (6, 0)


def test_records_of_a_chain_come_in_order(published: Published) -> None:
    chain = make_chain(20)
    published.put(chain.records)
    assert published.records(chain.tip, 20) == encodings(chain.records)
    assert published.records(chain.tip, 20, 17) == encodings(chain.records[17:])
    assert published.records(chain.window_ids[4], 5, 0) == encodings(chain.records[:5])
    for tip, num, start in (
        (chain.tip, 19, 0), (chain.tip, 21, 0), (chain.tip, 20, 20), (chain.tip, 20, -1),
        (WindowId(bytes(32)), 20, 0),
    ):  # fmt: skip
        assert published.records(tip, num, start) == []


def test_only_what_was_put_can_be_named(published: Published) -> None:
    chain, private = make_chain(3), make_chain(3, seed=1)
    published.put(chain.records)
    assert all(published.has_block(name) for name, _ in chain.blocks())
    assert not any(published.has_block(name) for name, _ in private.blocks())
    assert not published.has_block(BlockId(b"\xff" * 32))
    assert [published.record(name) for name in chain.window_ids] == encodings(chain.records)
    assert [published.record(name) for name in private.window_ids] == [None] * 3
    assert published.next_links(private.tip) == published.links(private.tip) == []


def test_putting_again_changes_nothing(published: Published) -> None:
    chain = make_chain(20)
    published.put(chain.records, sign(chain), HOLD_S)
    before = contents(published)
    again = [sign_link(SIGNER, link.claim, 99, 1_900_000_000) for link in sign(chain)]
    published.put(chain.records[:7])
    published.put(chain.records, again, HOLD_S + 9)
    published.put([], [])
    assert contents(published) == before


def test_a_neuron_signs_a_span_once_also_across_restart(tmp_path: Path) -> None:
    """The first 20 windows, then 40 by another run of gliad, and what it signs in all."""
    chain = make_chain(40)
    signed: list[Link] = []
    sequence = 0
    for num in (20, 20, 33, 40, 40):
        published = Published(tmp_path / "published")
        for _ in range(2):
            new = published.unsigned(SIGNER.neuron, claims(chain.records[:num], 0))
            assert published.last_sequence(SIGNER.neuron) == sequence
            links = [sign_link(SIGNER, claim, sequence + n, num) for n, claim in enumerate(new, 1)]
            published.put(chain.records[:num], links)
            signed += links
            sequence += len(links)
        published.close()
    ends = [(link.claim.num_before, link.claim.num_windows) for link in signed]
    assert ends == [(0, 16), (16, 20), (16, 32), (32, 33), (32, 40)]
    published = Published(tmp_path / "published")
    assert published.stats().num_links == 5
    assert published.unsigned(OTHER.neuron, claims(chain.records, 0)) == claims(chain.records, 0)
    assert published.last_sequence(OTHER.neuron) == 0
    published.close()


def test_links_of_several_neurons_are_all_kept(published: Published) -> None:
    chain = make_chain(20)
    signers = [Signer(bytes([number]) * 32) for number in range(10)]
    published.put(chain.records, [link for signer in signers for link in sign(chain, 0, signer)])
    attesting = [parse_link(data) for data in published.links(chain.tip)]
    assert {link.signer for link in attesting} == {signer.neuron for signer in signers}
    (match,) = find(published, chain)
    assert len(match.links) == MAX_PER_KEY + 1  # of the tip, and one of the span before it
    assert {parse_link(data).claim.tip for data in match.links} == {
        chain.tip,
        chain.window_ids[15],
    }


@pytest.mark.spec(23)
def test_few_links_attest_a_long_chain_back_to_genesis(published: Published) -> None:
    for num in (16, 100, 160):
        chain = make_chain(num, profile=make_profile(num_layers=1), seed=num)
        published.put(chain.records, sign(chain))
        (match,) = find(published, chain)
        found = [parse_link(data).claim for data in match.links]
        assert len(found) <= num / 16 + 1
        assert [(c.num_before, c.num_windows) for c in reversed(found)] == [
            (c.num_before, c.num_windows) for c in claims(chain.records, 0)
        ]
    long = make_chain(20, profile=make_profile(num_layers=1), seed=1)
    published.put(long.records, [link_to(long, num) for num in range(1, 21)])
    assert len(published.chain_links(long.tip)) == 20
    assert len(published.chain_links(long.tip, most=12)) == 12 <= MAX_CHAIN_LINKS


def link_to(chain: Chain, num: int) -> Link:
    """A link that attests one window."""
    (claim,) = claims(chain.records[:num], num - 1)
    return sign_link(SIGNER, claim, num, 0)


def test_a_window_in_the_middle_comes_with_the_link_that_goes_over_it(published: Published) -> None:
    chain = make_chain(32)
    span, last = sign(chain)
    published.put(chain.records, [span, last])
    (match,) = find(published, chain, 20)
    assert match.links == (last.encoding, span.encoding)
    assert published.next_links(chain.window_ids[19]) == [last.encoding]
    root = genesis_window(MODEL, TINY.profile_id)
    assert published.next_links(root) == [span.encoding]
    assert published.next_links(chain.tip) == []
    assert published.links(chain.window_ids[15]) == [span.encoding]


def test_of_several_links_over_a_base_the_one_that_ends_there_and_attests_most(
    published: Published,
) -> None:
    chain = make_chain(24)
    last = claims(chain.records, 16)[0]
    records = chain.records
    made = [claims(records[:end], start)[0] for start, end in ((0, 8), (4, 8), (8, 16), (12, 16))]
    over = replace(
        last,
        base=chain.window_ids[3],
        num_before=4,
        tip=chain.window_ids[19],
        prefix_key=chain.keys[19],
        num_windows=20,
    )
    published.put(records, [sign_link(SIGNER, claim, 1, 1) for claim in (last, over, *made)])
    found = [parse_link(data).claim for data in published.chain_links(chain.tip)]
    assert [(c.num_before, c.num_windows) for c in found] == [(16, 24), (8, 16), (0, 8)]


def test_the_largest_sequence_counts_and_a_put_is_on_disk_when_it_returns(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain, synced = make_chain(20), list[bool]()
    write = Index.write
    monkeypatch.setattr(
        Index,
        "write",
        lambda self, rows, *, sync: (synced.append(sync), write(self, rows, sync=sync)),
    )
    span, tip = claims(chain.records, 0)
    published.put(chain.records, [sign_link(SIGNER, span, 9, 1), sign_link(SIGNER, tip, 3, 1)])
    assert published.last_sequence(SIGNER.neuron) == 9
    assert synced == [True]


def test_links_after_what_another_computed_begin_there(published: Published) -> None:
    chain = make_chain(30)
    first = make_chain(20)
    published.put(chain.records, [*sign(first, 0, OTHER), *sign(chain, 20, SIGNER)])
    (match,) = find(published, chain)
    found = [parse_link(data) for data in match.links]
    assert [(link.signer, link.claim.num_before) for link in found] == [
        (SIGNER.neuron, 20),
        (OTHER.neuron, 16),
        (OTHER.neuron, 0),
    ]


@pytest.mark.spec(21)
def test_every_continuation_of_a_fork_is_told(published: Published) -> None:
    trunk = make_chain(4)
    left, right = make_chain(2, base=trunk, seed=1), make_chain(2, base=trunk, seed=2)
    published.put(left.records, sign(left))
    published.put(right.records, sign(right, 4, OTHER))
    after = published.next_windows(trunk.tip)
    assert set(after) == {left.window_ids[4], right.window_ids[4]}
    links = [parse_link(data) for data in published.next_links(trunk.tip)]
    assert {link.claim.tip for link in links} == {left.tip, right.tip}
    assert {link.signer for link in links} == {SIGNER.neuron, OTHER.neuron}


def test_of_very_many_continuations_a_few_are_told(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    firsts = [make_chain(1, seed=seed) for seed in range(MAX_CHAIN_LINKS + 40)]
    for first in firsts:
        published.put(first.records, sign(first))
    asked_for: list[WindowId] = []
    links = published.links

    def counted(window_id: WindowId, most: int) -> list[bytes]:
        asked_for.append(window_id)
        return links(window_id, most)

    monkeypatch.setattr(published, "links", counted)
    genesis = genesis_window(MODEL, firsts[0].profile.profile_id)
    assert len(published.next_links(genesis)) == MAX_CHAIN_LINKS
    assert len(asked_for) == MAX_CHAIN_LINKS


def test_chains_of_other_classes_are_found_too_the_longest_of_each(published: Published) -> None:
    tokens = make_tokens(20 * 16)
    native = make_chain(20, tokens=tokens)
    canonical = make_chain(18, tokens=tokens[: 18 * 16], numerics_class="canonical")
    short = make_chain(3, tokens=tokens[: 3 * 16], numerics_class="third")
    for chain in (short, canonical, native):
        published.put(chain.records)
    found = find(published, native)
    assert [(match.num_windows, match.tip) for match in found] == [
        (20, native.tip),
        (18, canonical.tip),
        (3, short.tip),
    ]
    again = published.match(MODEL, TINY.profile_id, pairs(native.keys, range(1, 21)))
    assert [match.tip for match in again] == [native.tip, canonical.tip, short.tip]


def test_at_most_eight_chains_have_one_key_the_newest(published: Published) -> None:
    tokens = make_tokens(16)
    chains = [make_chain(1, tokens=tokens, numerics_class=f"c{number}") for number in range(10)]
    for chain in chains:
        published.put(chain.records)
    found = find(published, chains[0])
    assert [match.tip for match in found] == [chain.tip for chain in reversed(chains[2:])]
    assert published.records(chains[0].tip, 1) == encodings(chains[0].records)
    published.take_back([chain.tip for chain in chains[5:]])
    assert len(find(published, chains[0])) == 3


def test_a_window_whose_chain_is_not_published_is_refused_whole(published: Published) -> None:
    chain = make_chain(6)
    with pytest.raises(NotFound):
        published.put(chain.records[1:])
    with pytest.raises(NotFound):
        published.put((*chain.records[:2], *chain.records[3:]))
    jump = replace(chain.records[2], position_start=64, prev=chain.window_ids[1])
    other = replace(chain.records[2], model_id=ModelId(bytes(32)))
    not_first = replace(chain.records[0], position_start=16)
    for bad in (jump, other):
        with pytest.raises(MalformedParticle):
            published.put((*chain.records[:2], bad))
    with pytest.raises(MalformedParticle):
        published.put([not_first])
    assert published.stats().num_windows == 0
    assert len(contents(published)) == 1  # the version


@pytest.mark.spec(18)
def test_a_link_that_disagrees_is_refused_with_its_windows(published: Published) -> None:
    chain, other = make_chain(20), make_chain(20, seed=1)
    published.put(other.records)
    span, tip = claims(chain.records, 0)
    bad: list[Claim] = [
        replace(tip, prefix_key=chain.keys[3]),
        replace(tip, num_before=15),
        replace(tip, base=other.window_ids[15]),
        replace(span, tip=other.window_ids[15]),
        replace(tip, num_before=17, num_windows=21),
        replace(span, num_windows=30),
        replace(tip, kind=LinkKind.SPLICE),
    ]
    for claim in bad:
        with pytest.raises(MalformedParticle):
            published.put(chain.records, [sign_link(SIGNER, claim, 1, 1)])
    with pytest.raises(NotFound):
        published.put(chain.records, [sign_link(SIGNER, replace(tip, tip=NOBODY), 1, 1)])
    assert published.stats().num_windows == 20
    assert find(published, chain) == []


def test_tips_are_what_nothing_continues(published: Published) -> None:
    trunk = make_chain(4)
    left, right = make_chain(2, base=trunk, seed=1), make_chain(3, base=trunk, seed=2)
    stranger = make_chain(1, model_id=ModelId(b"\5" * 32))
    published.put(trunk.records, (), HOLD_S)
    (tip,) = published.tips()
    assert (tip.window_id, tip.num_windows, tip.hold_until_s) == (trunk.tip, 4, HOLD_S)
    assert (tip.prefix_key, tip.record()) == (trunk.keys[3], trunk.records[3])
    for chain in (left, right, stranger):
        published.put(chain.records)
    assert {row.window_id for row in published.tips()} == {left.tip, right.tip, stranger.tip}
    assert {row.window_id for row in published.tips(MODEL)} == {left.tip, right.tip}


def test_where_a_chain_is_announced_and_when_it_was(tmp_path: Path) -> None:
    chain = make_chain(70)
    published = Published(tmp_path / "published")
    published.put(chain.records[:40], (), HOLD_S)
    published.put(chain.records, (), HOLD_S + 100)
    rows = published.windows_at(chain.tip, announced(70))
    assert [row.num_windows for row in rows] == [70, 64, 32, 16]
    assert [row.window_id for row in rows] == [chain.window_ids[n - 1] for n in (70, 64, 32, 16)]
    assert [row.hold_until_s for row in rows] == [HOLD_S + 100, HOLD_S + 100, HOLD_S, HOLD_S]
    names = [row.window_id for row in rows]
    published.mark_announced([*names[2:], WindowId(bytes(32))], HOLD_S + 5)
    published.close()
    published = Published(tmp_path / "published")
    assert published.announced_s([*names, WindowId(bytes(32))]) == [0, 0, HOLD_S + 5, HOLD_S + 5, 0]
    assert published.windows_at(chain.tip, []) == []
    assert published.windows_at(WindowId(bytes(32)), [16]) == []
    published.close()


def test_it_is_read_while_it_is_written_and_taken_back(published: Published) -> None:
    trunk, stop, wrong = make_chain(20), threading.Event(), list[object]()
    published.put(trunk.records, sign(trunk))
    expected = (encodings(trunk.records), find(published, trunk))

    def read() -> None:
        while not stop.is_set():
            found = (published.records(trunk.tip, 20), find(published, trunk))
            if found != expected:
                wrong.append(found)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for seed in range(1, 8):
        branch = make_chain(10, base=trunk, seed=seed)
        published.put(branch.records, sign(branch, 20))
        published.take_back(branch.window_ids[20:])
    stop.set()
    for reader in readers:
        reader.join()
    assert wrong == []


# -- taking back ---------------------------------------------------------------------------


def in_files(path: Path, sentinel: bytes) -> bool:
    return any(sentinel in file.read_bytes() for file in path.rglob("*") if file.is_file())


@pytest.mark.fault("F27")
def test_what_is_taken_back_is_in_no_file_and_no_answer(tmp_path: Path) -> None:
    trunk, path = make_chain(20), tmp_path / "published"
    published = Published(path)
    published.put(trunk.records, sign(trunk))
    before = contents(published)
    more = make_chain(20, base=trunk, seed=3)
    published.put(more.records, sign(more))
    published.mark_announced([more.tip], 5)
    for name in (more.tip, more.keys[39], more.records[30].encoding[-200:]):
        assert in_files(path, name)
    gone = published.take_back([*more.window_ids[20:], WindowId(bytes(32))])
    assert set(gone) == set(more.window_ids[20:])
    assert [row for row in contents(published) if row[0][:1] != b"q"] == [
        row for row in before if row[0][:1] != b"q"
    ]
    for record, key in zip(more.records[20:], more.keys[20:], strict=True):
        assert not in_files(path, record.window_id)
        assert not in_files(path, key)
        assert not in_files(path, record.encoding[120:184])  # its tokens
    assert published.records(trunk.tip, 20) == encodings(trunk.records)
    assert [match.num_windows for match in find(published, trunk)] == [20]
    published.put(more.records, sign(more))  # and again
    assert [match.num_windows for match in find(published, more)] == [40]
    published.close()


def test_what_others_continue_stays(published: Published) -> None:
    trunk = make_chain(4)
    left, right = make_chain(2, base=trunk, seed=1), make_chain(3, base=trunk, seed=2)
    for chain in (left, right):
        published.put(chain.records, sign(chain))
    assert set(published.take_back(left.window_ids)) == set(left.window_ids[4:])
    assert published.records(right.tip, 7) == encodings(right.records)
    assert {row.window_id for row in published.tips()} == {right.tip}
    assert set(published.take_back(right.window_ids)) == set(right.window_ids)
    assert published.stats().num_windows == published.stats().num_links == 0
    assert published.take_back(right.window_ids) == []
    left_over = {key[:1] for key, _ in contents(published)} - {b"q"}
    assert left_over == {b"v", b"c"}  # version, counts


def test_a_crash_before_the_files_were_written_anew_is_made_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain, path = make_chain(4), tmp_path / "published"
    published = Published(path)
    published.put(chain.records)
    with monkeypatch.context() as patched:
        patched.setattr(Index, "replace", lambda *_: (_ for _ in ()).throw(OSError(5, "crash")))
        with pytest.raises(StoreBroken):
            published.take_back(chain.window_ids)
    assert published.stats().num_windows == 0
    published.close()
    assert in_files(path, chain.tip)
    with monkeypatch.context() as patched:  # a disk too full for that keeps nobody from starting
        patched.setattr(Index, "replace", lambda *_: (_ for _ in ()).throw(DiskFull))
        published = Published(path)
        assert published.stats().num_windows == 0
        published.close()
    assert in_files(path, chain.tip)
    published = Published(path)
    assert not in_files(path, chain.tip)
    published.close()


# -- a full disk -----------------------------------------------------------------------------


@pytest.mark.fault("F5")
def test_a_full_disk_is_told_and_writes_go_on_after_it(tmp_path: Path) -> None:
    path, chain = tmp_path / "published", make_chain(60)
    published = Published(path)
    published.put(chain.records[:10])
    with files_at_most(8_000):
        for _ in range(3):
            with pytest.raises(StoreFull):
                published.put(chain.records)
        assert published.records(chain.window_ids[9], 10) == encodings(chain.records[:10])
        assert published.record(chain.tip) is None
    published.put(chain.records, sign(chain))
    assert published.records(chain.tip, 60) == encodings(chain.records)
    assert published.stats().num_set_aside == 0
    published.close()
    published = Published(path)
    assert published.records(chain.tip, 60) == encodings(chain.records)
    published.close()


# -- whatever was done -----------------------------------------------------------------------


def rows_of(published: Published) -> dict[bytes, bytes]:
    """All rows that follow from what is published, names of one key in any order."""
    rows = {key: value for key, value in contents(published) if key[:1] != b"q"}
    return {key: bytes(sorted(value)) if key[:1] == b"p" else value for key, value in rows.items()}


@pytest.mark.parametrize("seed", range(6))
def test_the_rows_follow_from_what_is_published_however_it_came_to_be(
    tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    trunk = make_chain(5)
    branches = [make_chain(rng.randrange(1, 20), base=trunk, seed=n) for n in range(3)]
    forest = [trunk, *branches, make_chain(3, base=branches[0], seed=9)]
    published, here = Published(tmp_path / "published"), dict[WindowId, WindowRecord]()
    links: dict[bytes, Link] = {}
    for _ in range(25):
        chain = rng.choice(forest)
        num = rng.randrange(1, len(chain.records) + 1)
        if rng.random() < 0.6:
            signer, start = rng.choice([SIGNER, OTHER]), rng.randrange(num)
            new = published.unsigned(signer.neuron, claims(chain.records[:num], start))
            signed = [sign_link(signer, claim, 1, 1) for claim in new]
            published.put(chain.records[:num], signed)
            here |= {record.window_id: record for record in chain.records[:num]}
            links |= {link.link_id: link for link in signed}
        elif rng.random() < 0.8:
            gone = published.take_back(rng.sample(chain.window_ids, num))
            here = {name: record for name, record in here.items() if name not in gone}
            links = {
                name: link for name, link in links.items() if not set(gone) & attested(link, forest)
            }
        else:
            published.close()
            published = Published(tmp_path / "published")
    fresh = Published(tmp_path / "fresh")
    fresh.put(sorted(here.values(), key=lambda record: record.position_start), [*links.values()])
    assert rows_of(published) == rows_of(fresh)
    stats = published.stats()
    assert (stats.num_windows, stats.num_links) == (len(here), len(links))
    published.close()
    fresh.close()


def attested(link: Link, forest: list[Chain]) -> set[WindowId]:
    """The windows that a link attests."""
    (names, *_) = [chain.window_ids for chain in forest if link.claim.tip in chain.window_ids]
    return set(names[link.claim.num_before : link.claim.num_windows])


# -- damage ----------------------------------------------------------------------------------


def damage(path: Path) -> None:
    """Flip a byte in every table and log."""
    for file in path.iterdir():
        if file.suffix in (".ldb", ".log") and file.stat().st_size:
            data = bytearray(file.read_bytes())
            data[len(data) // 2] ^= 1
            file.write_bytes(data)


def test_a_damaged_index_is_set_aside_and_begun_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, chain = tmp_path / "published", make_chain(40)
    published = Published(path)
    published.put(chain.records, sign(chain))
    published.close()
    damage(path / "index")
    with caplog.at_level(logging.WARNING, "gliad.store"):
        published = Published(path)
    assert "set aside" in caplog.text
    assert published.stats().num_set_aside == 1
    assert (path / "index.bad").is_dir()
    assert find(published, chain) == []
    published.put(chain.records, sign(chain))
    assert [match.num_windows for match in find(published, chain)] == [40]
    published.close()


def test_damage_found_while_it_runs_is_one_error_then_an_empty_index(tmp_path: Path) -> None:
    path, chain = tmp_path / "published", make_chain(40)
    published = Published(path)
    published.put(chain.records)
    published.close()
    Published(path).close()  # the log became a table
    published = Published(path)
    damage(path / "index")
    with pytest.raises(StoreBroken):
        published.records(chain.tip, 40)
    assert published.stats().num_set_aside == 1
    assert published.records(chain.tip, 40) == []
    with pytest.raises(NotFound):
        published.put(chain.records[20:])
    published.put(chain.records)
    assert len(published.records(chain.tip, 40)) == 40
    published.close()


@pytest.mark.parametrize("name", ["CURRENT", "MANIFEST"])
def test_a_lost_file_of_leveldb_is_damage(tmp_path: Path, name: str) -> None:
    path, chain = tmp_path / "published", make_chain(4)
    published = Published(path)
    published.put(chain.records)
    published.close()
    for file in (path / "index").glob(f"{name}*"):
        file.unlink()
    published = Published(path)
    assert published.stats().num_set_aside == 1
    published.put(chain.records)
    published.close()


def test_versions_and_locks_are_told_apart_from_damage(tmp_path: Path) -> None:
    path = tmp_path / "published"
    published = Published(path)
    with pytest.raises(StoreLocked):
        Published(path)
    published.close()
    published.close()
    with pytest.raises(StoreBroken):
        published.stats()
    index = Index(path / "index")
    index.write([(b"version", b"\2\0")], sync=True)
    index.close()
    with pytest.raises(StoreVersion):
        Published(path)
    assert not (path / "index.bad").exists()


def test_a_swap_that_a_crash_cut_in_two_is_finished(tmp_path: Path) -> None:
    path, chain = tmp_path / "published", make_chain(4)
    published = Published(path)
    published.put(chain.records)
    published.close()
    (path / "index").rename(path / "index.old")
    (path / "index.copy").mkdir()
    published = Published(path)
    assert len(published.records(chain.tip, 4)) == 4
    assert sorted(file.name for file in path.iterdir()) == ["index"]
    published.close()


def test_a_page_of_a_prefix_ends_with_it(tmp_path: Path) -> None:
    """Rows of others, however many they are, are not read: a question's cost does not grow."""
    index = Index(tmp_path / "index")
    names = [b"a\1", b"a\1\0", b"a\1\xff", b"a\2", b"a\xff", b"a\xff\xff", b"b", b"\xff\xff"]
    index.write([(name, b"") for name in names], sync=False)
    for prefix in (b"", b"a", b"a\1", b"a\xff", b"b", b"\xff", b"c"):
        ours = sorted(name for name in names if name.startswith(prefix))
        assert index.keys_from(prefix, prefix, 100) == ours
        assert [key for key, _ in index.each(prefix)] == ours
    index.close()
