"""Members find and fetch a group's windows; nothing of it is said in the clear, nor to others."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from glia.errors import PeerLost
from glia.graph.encrypted import alias_of, encrypt_window
from glia.graph.group import GroupId
from glia.graph.ids import BlockId, ModelId, WindowId, digest
from glia.graph.scope import Op
from glia.graph.tokens import pack_tokens
from p2p.frames import LENGTH, encode_frame
from p2p.host import Directory, Found, Host, PeerId
from p2p.messages import encode
from p2p.offer import Offer
from p2p.showing import GROUP_FIND, Show
from p2p.testing.internet import Internet
from tests.builders import TINY
from tests.exchange_parts import in_world, meet
from tests.group_exchange_parts import GOOD, Asker, Member, part_of
from tests.vault_parts import GROUP, NEW, OLD, START, names_of, windows_of

NUM = 40
WINDOWS = windows_of(num=NUM)
PEER = PeerId("p")
BLOCK_BYTES = max(TINY.particle_sizes)


@pytest.fixture
def member(tmp_path: Path) -> Iterator[Member]:
    made = Member(tmp_path)
    yield made
    made.close()


def asked(member: Member, test: Callable[[Asker, Host], Awaitable[None]], **asker: object) -> None:
    """Run with who asks, and the member's host."""

    async def main(net: Internet) -> None:
        one, other = net.host("asker"), net.host("member")
        member.serve_on(other)
        await meet(one, other)
        await test(Asker(one, **asker), other)  # type: ignore[arg-type]

    in_world(main)


def test_what_a_member_computed_is_another_s(member: Member) -> None:
    links = member.publish(WINDOWS)

    async def test(asker: Asker, host: Host) -> None:
        found = (await asker.find(WINDOWS, [host])).answer
        assert found is not None
        assert [each.window_id for each in found.records] == names_of(WINDOWS)[START:]
        assert found.base == WINDOWS[START - 1].record
        first = found.records[0]
        assert first.root is not None
        assert first.root.after == WINDOWS[START - 1].record.window_id
        assert {each.group for each in found.records} == {GROUP}
        assert set(found.chain.links) == {link.encoding for link in links}
        taken = await asker.fetch(found)
        assert [each for _, each in taken.windows] == [
            tuple(map(bytes, window.particles)) for window in WINDOWS[START:]
        ]
        assert not asker.blamed
        assert not member.bad
        assert_nothing_said(asker)

    asked(member, test)


def assert_nothing_said(asker: Asker) -> None:
    """No name, key, token, link or byte of K/V went over the wire, either way."""
    said = bytes(asker.sent + asker.came)
    assert len(said) > NUM * 4096
    for window in WINDOWS[START:]:
        record = window.record
        secrets = [record.window_id, window.prefix_key, record.prev, pack_tokens(record.tokens)]
        secrets += [*record.blocks, *(bytes(each)[-64:] for each in window.particles)]
        assert not any(each in said for each in secrets)


def test_a_part_of_it_is_found_and_continued(member: Member) -> None:
    """Of another's longer chain, behind what is here; records, and blocks of these alone."""
    member.publish(WINDOWS)
    other = windows_of(seed=1, num=NUM, base=0)
    mine = [*WINDOWS[:20], *other[20:]]

    async def test(asker: Asker, host: Host) -> None:
        found = (await asker.find(mine, [host], start=3)).answer
        assert found is not None
        assert found.chain.num_windows == 20
        assert len((await asker.fetch(found)).windows) == 18

    asked(member, test)


@pytest.mark.parametrize("what", ["capability", "group", "stranger", "no fetch", "model", "roots"])
def test_refused_and_absent_look_the_same(member: Member, what: str) -> None:
    """Byte for byte, for a question, records and blocks; whatever the reason."""
    member.publish(WINDOWS)
    seen: list[tuple[bytes, bytes]] = []

    async def test(asker: Asker, host: Host) -> None:
        if what == "stranger":
            member.strangers.add(asker.host.peer_id)
        assert (await asker.find(WINDOWS, [host])).answer is None
        assert not asker.blamed
        assert not member.bad
        seen.append((bytes(asker.came), bytes(asker.sent)))

    async def absent(asker: Asker, host: Host) -> None:
        member.strangers.clear()
        others = windows_of(seed=7, num=NUM)
        assert (await asker.find(others, [host])).answer is None
        seen.append((bytes(asker.came), bytes(asker.sent)))

    good = member.scope
    changed = {
        "no fetch": {"ops": Op.ANNOUNCE},
        "model": {"model_id": ModelId(b"m" * 32)},
        "roots": {"roots": frozenset([bytes(32)])},
    }
    member.scope = replace(good, **changed.get(what, {}))  # type: ignore[arg-type]
    given = {"capability": {"capability": b"x" * 17}, "group": {"group": GroupId(b"h" * 32)}}
    asked(member, test, **given.get(what, {}))
    member.scope = good
    asked(member, absent)
    assert seen[0][0] == seen[1][0]
    assert len(seen[0][1]) == len(seen[1][1])


def test_windows_of_several_epochs_are_one_chain(tmp_path: Path) -> None:
    member = Member(tmp_path, OLD)
    member.publish(WINDOWS[:10])
    member.node.epochs = (OLD, NEW)
    member.publish(WINDOWS)

    async def both(asker: Asker, host: Host) -> None:
        found = (await asker.find(WINDOWS, [host])).answer
        assert found is not None
        assert found.chain.num_windows == NUM
        assert len((await asker.fetch(found)).windows) == NUM - START

    async def new_alone(asker: Asker, host: Host) -> None:
        assert (await asker.find(WINDOWS, [host])).answer is None
        assert not asker.blamed

    asked(member, both, epochs=(OLD, NEW))
    asked(member, new_alone, epochs=(NEW,))
    member.close()


def test_who_is_removed_is_given_nothing_on_a_stream_that_is_open(member: Member) -> None:
    member.publish(WINDOWS)
    one = member.egress.offer_of(GROUP, GOOD, PEER)
    name = member.index.windows_with(GROUP, member_block(member))[0].name
    assert one.has_block(member_block(member))
    assert one.records(name, START + 1, START)
    member.strangers.add(PEER)
    assert one.has_block(member_block(member))
    member.now_s += 15
    assert not one.has_block(member_block(member))
    assert one.records(name, START + 1, START) == []
    assert one.read_blocks([member_block(member)], memoryview(bytearray(1 << 16))) == [None]


def member_block(member: Member) -> BlockId:
    """The first sealed block of the domain."""
    opened = member.node.vault.sealed(WINDOWS[START].record.window_id)
    assert opened is not None
    return opened.window.blocks[0]


def test_no_more_than_a_capability_allows_in_an_hour(member: Member) -> None:
    member.publish(WINDOWS)
    member.scope = replace(member.scope, bytes_per_hour=1)
    offer = member.egress.offer_of(GROUP, GOOD, PEER)
    room = memoryview(bytearray(1 << 16))
    assert offer.read_blocks([member_block(member)], room) != [None]
    assert offer.read_blocks([member_block(member)], room) == [None]
    member.now_s += 3600
    assert offer.read_blocks([member_block(member)], room) != [None]


def test_private_windows_behind_the_group_s_are_not_there(member: Member) -> None:
    member.publish(WINDOWS, num=20)

    async def test(asker: Asker, host: Host) -> None:
        found = (await asker.find(WINDOWS, [host])).answer
        assert found is not None
        assert found.chain.num_windows == 20

    asked(member, test)
    offer = member.egress.offer_of(GROUP, GOOD, PEER)
    for window in WINDOWS[20:]:
        opened = member.node.vault.sealed(window.record.window_id)
        assert opened is not None
        assert not any(map(offer.has_block, opened.window.blocks))
        assert not offer.records(opened.name, window.record.end // 16, START)
        assert not offer.records(opened.window.alias, window.record.end // 16, START)  # type: ignore[arg-type]


def test_a_member_is_found_by_what_only_members_look_for(member: Member) -> None:
    """The directory hears no prefix key, and of who was removed an alias that nobody is under."""
    member.publish(WINDOWS)
    heard: list[bytes] = []

    async def main(net: Internet) -> None:
        one, other = net.host("asker"), net.host("member")
        member.serve_on(other)
        await meet(one, other)
        await other.directory.provide(alias_of(NEW, WINDOWS[31].prefix_key))
        directory = Listened(one.directory, heard)
        found = (await Asker(one).find(WINDOWS, [], directory=directory)).answer
        assert found is not None
        assert found.chain.num_windows == NUM
        removed = Asker(one, epochs=(OLD,))
        assert (await removed.find(WINDOWS, [], directory=directory)).answer is None
        keys = {window.prefix_key for window in WINDOWS}
        assert heard
        assert not keys.intersection(heard)

    in_world(main)


class Listened:
    """A directory, and the names that it is asked for."""

    def __init__(self, directory: Directory, heard: list[bytes]) -> None:
        self._directory, self._heard = directory, heard

    async def providers(self, key: bytes, limit: int) -> Sequence[Found]:
        self._heard.append(key)
        return await self._directory.providers(key, limit)


class Spoiled:
    """An Offer that changes what a member sends."""

    def __init__(self, offer: Offer, **how: Callable[..., object]) -> None:
        self._offer, self._how = offer, how

    def __getattr__(self, name: str) -> Callable[..., object]:
        call = getattr(self._offer, name)
        how = self._how.get(name)
        return call if how is None else lambda *args: how(call(*args), *args)


def spoil(member: Member, **how: Callable[..., object]) -> None:
    honest = member.egress.offer_of
    member.egress.offer_of = lambda *args: Spoiled(honest(*args), **how)  # type: ignore[method-assign,assignment,return-value]


def altered(encoding: bytes) -> bytes:
    return bytes([*encoding[:-1], encoding[-1] ^ 1])


def test_a_window_that_is_not_the_named_one_is_blamed_on_whoever_sent_it(member: Member) -> None:
    member.publish(WINDOWS)
    spoil(member, records=lambda found, *_: [altered(each) for each in found])

    async def test(asker: Asker, host: Host) -> None:
        assert (await asker.find(WINDOWS, [host])).answer is None
        assert asker.blamed == [host.peer_id]

    asked(member, test)


def test_a_window_in_another_s_place_is_blamed_on_nobody(member: Member) -> None:
    """A relay cannot see it: who sealed it may have lied about what was before it."""
    member.publish(WINDOWS)
    others = windows_of(seed=1, num=NUM, base=0)
    member.publish(others)
    rows = {each.record.window_id: each for each in part_of(member.node, others).sealed}
    wrong = rows[others[20].record.window_id].window
    mine = part_of(member.node, WINDOWS).sealed
    forged = encrypt_window(
        NEW, mine[21].record, WINDOWS[21 + START].particles, wrong.window_id, BLOCK_BYTES
    )

    def chain(_found: list[bytes], _tip: WindowId, end: int, start: int) -> list[bytes]:
        return [wrong.encoding, forged.window.encoding][max(0, start - 22) : end - 22]

    spoil(
        member,
        match=lambda found, *_: [
            replace(each, tip=forged.window.window_id, num_windows=24) for each in found
        ],
        records=chain,
    )

    async def test(asker: Asker, host: Host) -> None:
        finding = await asker.find(WINDOWS[:24], [host])
        assert finding.answer is None
        assert not asker.blamed

    asked(member, test)


@pytest.mark.parametrize("is_named_so", [False, True])
def test_a_ciphertext_that_does_not_open_is_no_block(member: Member, is_named_so: bool) -> None:
    """Of other bytes than its name says whoever sent it is to blame; of its own bytes nobody."""
    member.publish(WINDOWS)
    spoil(
        member,
        read_blocks=lambda found, *_: [
            None if each is None else memoryview(altered(bytes(each))) for each in found
        ],
    )

    async def test(asker: Asker, host: Host) -> None:
        found = (await asker.find(WINDOWS, [host])).answer
        assert found is not None
        if is_named_so:
            asker.rename = lambda sealed: replace(sealed, name=digest(spoilt(member, sealed.name)))
        assert (await asker.fetch(found)).windows == []
        assert asker.blamed == ([] if is_named_so else [host.peer_id])

    asked(member, test)


def spoilt(member: Member, name: BlockId) -> bytes:
    """What comes in place of a sealed block."""
    room = memoryview(bytearray(1 << 16))
    (found,) = member.node.raw.read_blocks([name], room)
    assert found is not None
    return altered(bytes(found))


@pytest.mark.parametrize("seed", range(8))
def test_what_is_no_show_ends_the_stream_and_nothing_else(member: Member, seed: int) -> None:
    member.publish(WINDOWS)
    source = random.Random(seed)
    frame = encode_frame(encode(Show(GROUP, GOOD)))
    broken = bytearray(frame)
    broken[source.randrange(4, 9)] ^= 1 << source.randrange(8)
    sent = [bytes(broken), encode_frame(source.randbytes(40)), LENGTH.pack(2**31), frame[:-3]]

    async def test(asker: Asker, host: Host) -> None:
        for data in sent:
            stream = await asker.host.open(host.peer_id, GROUP_FIND)
            await stream.send_all(data)
            await stream.finish()
            with pytest.raises(PeerLost):
                await stream.receive_some(1)
        found = (await asker.find(WINDOWS, [host])).answer
        assert found is not None

    asked(member, test)
