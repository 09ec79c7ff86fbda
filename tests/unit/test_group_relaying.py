"""A node that no member is keeps and serves a group's ciphertexts, over the virtual network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest
import trio

from daemon.group_egress import GroupEgress
from daemon.group_file import MemberRow
from daemon.group_life import RENEW_S
from daemon.group_relaying import Relaying
from daemon.shared import Shared
from glia.errors import BadRequest, NotPermitted
from glia.graph.group import GroupId
from glia.graph.ids import WindowId
from glia.graph.scope import Op
from glia.graph.tokens import pack_tokens
from glia.store.group_index import GroupIndex
from glia.store.group_rows import GroupWindow
from p2p.group_relay import FIRST, GROUP_RELAY, RelayAsking, Row, Tips
from p2p.showing import show
from tests.exchange_parts import ChainOffer
from tests.group_exchange_parts import Asker, part_of
from tests.store_parts import joined
from tests.unit.test_granting import Node, at_once, run
from tests.vault_parts import NEW, START, windows_of
from tests.vault_parts import Node as Disk

RELAY = int(Op.FETCH | Op.RELAY)
NUM, NUM_SHARED = 24, 18
WINDOWS = windows_of(num=NUM, num_shared=NUM_SHARED)
SHARED = WINDOWS[:NUM_SHARED]


class Keeper:
    """What a node of the virtual network shows of a group, with the parts of a real one."""

    def __init__(self, node: Node, path: Path, *, has_keys: bool) -> None:
        self.node, self.counters = node, Counter[str]()
        self.disk = Disk(path / "store", *([NEW] if has_keys else []))
        self.index = GroupIndex(path / "shown")
        node.peering._read = at_once
        egress = GroupEgress(
            self.index, self.disk.raw, node.groups.check, self.counters, trio.current_time
        )
        node.peering.serve(ChainOffer(), egress.offer_of, egress.catalogue_of)
        shared = Shared(self.disk.vault, self.disk.raw, self.index, node.groups)
        self.kept: list[GroupWindow] = []
        self.relaying = Relaying(node.groups, node.peering, shared, self.counters, at_once)
        self.relaying.on_kept = lambda _, rows: self.kept.extend(rows)

    def publish(self, group: GroupId, num: int = NUM_SHARED) -> list[WindowId]:
        """Returns: names of what is shown."""
        self.disk.vault.put(WINDOWS)
        part = part_of(self.disk, WINDOWS, num)
        self.index.put(group, part.rows())
        return [each.name for each in part.sealed]

    def close(self) -> None:
        self.index.close()
        self.disk.raw.close()


def granted(giver: Node, group: GroupId, to: Node, ops: int) -> None:
    giver.groups.grant(group, MemberRow(ops, int(giver.now()), peer=to.key))


Main = Callable[[Keeper, Keeper, Node, GroupId, trio.Nursery], object]


def relayed(tmp_path: Path, main: Callable[..., object]) -> None:
    """`main` has a member that shows SHARED, one who was granted that it relays, and a member."""

    async def in_world(ada: Node, dan: Node, bob: Node, nursery: trio.Nursery) -> None:
        group = ada.groups.create("friends").group_id
        granted(ada, group, dan, RELAY)
        granted(ada, group, bob, int(Op.FETCH))
        for node in (dan, bob):
            await node.life.join([ada.address])
        with (
            closing(Keeper(ada, tmp_path / "shows", has_keys=True)) as shows,
            closing(Keeper(dan, tmp_path / "relays", has_keys=False)) as relays,
        ):
            shows.publish(group)
            await main(shows, relays, bob, group, nursery)  # type: ignore[misc]

    run(tmp_path, in_world)


async def found_at(bob: Node, keeper: Keeper, group: GroupId) -> list[bytes]:
    """What a member has of SHARED from one node alone."""
    host = bob.peering.host
    if all(each.peer != keeper.node.peer for each in host.connections()):
        await host.connect(keeper.node.peering.host.addresses()[0])
    asker = Asker(host, (NEW,), bob.groups.capability(group), group)
    answer = (await asker.find(SHARED, [keeper.node.peering.host])).answer
    if answer is None:
        return []
    taken = await asker.fetch(answer)
    assert not asker.blamed
    return [b"".join(each) for _, each in taken.windows]


@pytest.mark.spec(47, 49)
def test_what_a_relay_keeps_a_member_reads_when_its_maker_is_gone(tmp_path: Path) -> None:
    async def main(
        shows: Keeper, relays: Keeper, bob: Node, group: GroupId, nursery: trio.Nursery
    ) -> None:
        await relays.relaying.look()
        assert relays.counters["group_windows_relayed"] == NUM_SHARED - START
        assert relays.index.names(group) == shows.index.names(group)
        shows.node.peering.host.ban(bob.peer, True)
        assert await found_at(bob, relays, group) == list(map(joined, SHARED[START:]))

        kept = list(relays.kept)
        await relays.relaying.look()  # there is nothing new
        assert relays.counters["group_windows_relayed"] == len(kept) == NUM_SHARED - START
        longer = shows.publish(group, NUM_SHARED)
        assert relays.index.names(group) == sorted(longer)

    relayed(tmp_path, main)


@pytest.mark.fault("F30")
@pytest.mark.spec(49, 50)
def test_a_relay_has_nothing_that_opens_or_names_anything(tmp_path: Path) -> None:
    """In its files, whole: neither keys nor salts, nor plain names, nor which model it is."""

    async def main(
        shows: Keeper, relays: Keeper, bob: Node, group: GroupId, nursery: trio.Nursery
    ) -> None:
        await relays.relaying.look()
        groups = relays.node.groups
        row = groups.row(group)
        assert row.is_relay
        assert (row.secret, row.epochs, row.keys, groups.keys(group)) == (None, (), None, None)
        assert not groups.is_in(group)
        keys = shows.node.groups.keys(group)
        assert keys is not None
        secrets = [keys.secret, keys.current.key, NEW.key, NEW.k_id, NEW.k_enc]
        for window in WINDOWS[START:]:
            record = window.record
            secrets += [record.window_id, window.prefix_key, *record.blocks]
            secrets += [record.model_id, pack_tokens(record.tokens)]
        files = (tmp_path / "relays", Path(groups._files._directory))
        held = b"".join(
            path.read_bytes() for each in files for path in each.rglob("*") if path.is_file()
        )
        assert len(held) > NUM_SHARED * 4096
        assert not [each for each in secrets if bytes(each) in held]

    relayed(tmp_path, main)


@pytest.mark.fault("F30")
@pytest.mark.spec(49)
def test_a_relay_that_was_revoked_serves_and_is_served_no_longer(tmp_path: Path) -> None:
    async def main(
        shows: Keeper, relays: Keeper, bob: Node, group: GroupId, nursery: trio.Nursery
    ) -> None:
        ada, dan = shows.node, relays.node
        await relays.relaying.look()
        before = ada.groups.row(group).epochs
        ada.revoke(group, dan)
        assert ada.groups.row(group).epochs == before, "it knew no key"
        shown = dan.groups.capability(group)
        stream = await dan.peering.host.open(ada.peer, GROUP_RELAY)
        await show(stream, group, shown)
        assert await RelayAsking(stream).tips(FIRST) == Tips(())

        nursery.start_soon(dan.life.run)
        await trio.sleep(RENEW_S + 1)
        assert "grants nothing" in dan.groups.trouble(group)
        with pytest.raises(NotPermitted):
            dan.groups.capability(group)
        assert await found_at(bob, relays, group) == []

        granted(ada, group, dan, RELAY)
        await trio.sleep(RENEW_S + 1)
        assert dan.groups.trouble(group) == ""
        assert await found_at(bob, relays, group) == list(map(joined, SHARED[START:]))

    relayed(tmp_path, main)


def test_what_a_relay_may_is_over_when_nobody_renews_it(tmp_path: Path) -> None:
    async def main(
        shows: Keeper, relays: Keeper, bob: Node, group: GroupId, nursery: trio.Nursery
    ) -> None:
        await relays.relaying.look()
        shown = bob.groups.capability(group)
        relays.node.groups.check(group, shown, bob.peer)
        await trio.sleep(3600)
        await bob.life.join([shows.node.address])
        with pytest.raises(NotPermitted, match="is over"):
            relays.node.groups.check(group, bob.groups.capability(group), bob.peer)

    relayed(tmp_path, main)


@pytest.mark.spec(49)
def test_a_member_is_told_no_catalogue(tmp_path: Path) -> None:
    """It could open all of it, also what it would not know to ask for."""

    async def main(
        shows: Keeper, relays: Keeper, bob: Node, group: GroupId, nursery: trio.Nursery
    ) -> None:
        (name, *_) = shows.index.names(group)
        for node, num in ((bob, 0), (relays.node, 1)):
            stream = await node.peering.host.open(shows.node.peer, GROUP_RELAY)
            await show(stream, group, node.groups.capability(group))
            said = await RelayAsking(stream).tips(FIRST)
            assert len(said.names) == num
            content = shows_row(shows, group, node, name)
            assert bool(content) is bool(num)

    relayed(tmp_path, main)


def shows_row(shows: Keeper, group: GroupId, node: Node, name: WindowId) -> Row | None:
    egress = GroupEgress(
        shows.index, shows.disk.raw, shows.node.groups.check, Counter(), trio.current_time
    )
    return egress.catalogue_of(group, node.groups.capability(group), node.peer).row(name)


def test_who_relays_grants_nothing_and_has_no_keys_to_begin_with(tmp_path: Path) -> None:
    async def main(
        shows: Keeper, relays: Keeper, bob: Node, group: GroupId, nursery: trio.Nursery
    ) -> None:
        ada = shows.node
        with pytest.raises(NotPermitted, match="relays group"):
            granted(relays.node, group, bob, int(Op.FETCH))
        with pytest.raises(BadRequest, match="has its keys"):
            granted(ada, group, bob, RELAY)
        with pytest.raises(BadRequest, match="hand on"):
            granted(ada, group, relays.node, RELAY | int(Op.DELEGATE))
        ada.revoke(group, bob)
        granted(ada, group, bob, RELAY)
        with pytest.raises(BadRequest, match="cannot relay it without"):
            await bob.life.join([ada.address])
        granted(ada, group, relays.node, int(Op.FETCH))  # a relay becomes a member
        await relays.node.life.join([ada.address])
        assert relays.node.groups.keys(group) == ada.groups.keys(group)

    relayed(tmp_path, main)


def test_what_is_not_what_its_name_says_is_not_kept(tmp_path: Path) -> None:
    async def main(
        shows: Keeper, relays: Keeper, bob: Node, group: GroupId, nursery: trio.Nursery
    ) -> None:
        read = shows.disk.raw.read_blocks

        def altered(names: Sequence[bytes], into: memoryview) -> list[memoryview | None]:
            found = read(names, into)  # type: ignore[arg-type]
            for each in found:
                if each is not None:
                    each[-1] ^= 1
            return found

        shows.disk.raw.read_blocks = altered  # type: ignore[method-assign, assignment]
        await relays.relaying.look()
        assert relays.counters["group_relay_refused"] == 1
        assert relays.index.names(group) == []
        assert list(relays.disk.raw.windows()) == []

    relayed(tmp_path, main)
