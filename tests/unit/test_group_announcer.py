"""What the directory is told of a group's chains: aliases of boundaries, of the newest epoch."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import trio

from daemon.group_announcer import GroupAnnouncer
from daemon.shared import Shared
from glia.graph.boundaries import announced
from glia.graph.encrypted import alias_of
from glia.graph.group import Epoch, GroupId, GroupSecret
from glia.graph.member import Keys
from p2p.testing.internet import Internet
from p2p.testing.simulate import simulate
from simulations.virtual.announcing import Net, at_once, net_of, now_s
from tests.domain_parts import KnownGroup
from tests.group_exchange_parts import Member, part_of
from tests.vault_parts import GROUP, NEW, OLD, SECRET, START, windows_of

NUM = 40
WINDOWS = windows_of(num=NUM)
HOLD_S = 60
LOOKED_AT = (15, 16, 20, 32, NUM)


@dataclass
class Epochs:
    """Of the one group that a node is in (daemon/domains.py)."""

    epochs: tuple[Epoch, ...] = (OLD,)

    def all(self) -> list[KnownGroup]:
        return [KnownGroup("team", GROUP, self.keys(GROUP))]

    def keys(self, _group: GroupId) -> Keys:
        return Keys(GroupSecret(SECRET), self.epochs, (b"",) * len(self.epochs))


def announce(
    path: Path, body: Callable[[Member, Epochs, GroupAnnouncer, Net], Awaitable[None]]
) -> None:
    """`body` has a member that publishes, its announcer, and another node's directory."""

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            net = Internet(nursery)
            ours, theirs = net_of(net, "ours", path), net_of(net, "theirs", path)
            await ours.host.connect(theirs.host.addresses()[0])
            groups, member = Epochs(), Member(path / "member", OLD)
            shared = Shared(member.node.vault, member.node.raw, member.index, groups)  # type: ignore[arg-type]
            made = GroupAnnouncer(ours, shared, random.Random(1), now_s=now_s, call=at_once)
            nursery.start_soon(made.run)
            try:
                await body(member, groups, made, theirs)
            finally:
                for each in (ours, theirs, member):
                    each.close()
            nursery.cancel_scope.cancel()

    (path / "member").mkdir()
    simulate(main)


async def told(net: Net, epoch: Epoch) -> list[int]:
    """At how many windows the directory has somebody under an epoch's alias of the prefix key.

    Under nothing else of a window has it anybody.
    """
    found = []
    for number in LOOKED_AT:
        window = WINDOWS[number - 1]
        names = [window.prefix_key, window.record.window_id]
        names += [alias_of(each, window.record.window_id) for each in (OLD, NEW)]
        for name in names:
            assert not await net.host.directory.providers(name, 8)
        if await net.host.directory.providers(alias_of(epoch, window.prefix_key), 8):
            found.append(number)
    return found


def test_boundaries_are_told_after_the_hold_and_anew_in_a_new_epoch(tmp_path: Path) -> None:
    async def body(member: Member, groups: Epochs, made: GroupAnnouncer, theirs: Net) -> None:
        member.publish(WINDOWS)
        made.add(part_of(member.node, WINDOWS, hold_until_s=int(now_s()) + HOLD_S))
        await trio.sleep(HOLD_S - 1)
        assert await told(theirs, OLD) == []
        await trio.sleep(HOLD_S)
        assert await told(theirs, OLD) == announced(NUM) == [16, 32, NUM]
        assert await told(theirs, NEW) == []
        groups.epochs = (OLD, NEW)
        await trio.sleep(120)
        assert await told(theirs, NEW) == announced(NUM)

    announce(tmp_path, body)


def test_what_is_shown_no_longer_or_goes_on_is_not_told(tmp_path: Path) -> None:
    async def body(member: Member, groups: Epochs, made: GroupAnnouncer, theirs: Net) -> None:
        member.publish(WINDOWS, 20)
        made.add(part_of(member.node, WINDOWS, 20))
        member.publish(WINDOWS)  # what ended at 20 goes on, and
        gone = [each.name for each in part_of(member.node, WINDOWS).sealed[15 - START :]]
        member.index.take_back(GROUP, gone)  # 16 is shown no longer
        await trio.sleep(60)
        assert await told(theirs, OLD) == []

    announce(tmp_path, body)


def test_what_is_kept_without_a_key_is_told_under_the_aliases_that_came(tmp_path: Path) -> None:
    async def body(member: Member, groups: Epochs, made: GroupAnnouncer, theirs: Net) -> None:
        member.publish(WINDOWS)
        names = member.index.names(GROUP)
        rows = [row for name in names if (row := member.index.window(GROUP, name)) is not None]
        groups.all = list  # type: ignore[method-assign, assignment]
        groups.keys = lambda _: None  # type: ignore[method-assign, assignment, return-value]
        made.add_kept(GROUP, rows)
        await trio.sleep(60)
        assert await told(theirs, OLD) == [16, 32, NUM]

    announce(tmp_path, body)
