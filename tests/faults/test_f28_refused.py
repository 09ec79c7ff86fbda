"""F28 in groups: who is refused learns neither what is held, nor that he is refused."""

from __future__ import annotations

import os
import random
import time
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from daemon import group_changes as changes
from daemon.group_egress import GroupEgress
from daemon.group_file import MemberRow
from daemon.groups import Groups
from glia.errors import NotPermitted
from glia.graph.encrypted import alias_of
from glia.graph.group import GroupId
from glia.graph.ids import PrefixKey
from glia.graph.member import parse_card
from glia.graph.scope import Op, Scope
from p2p.frames import encode_frame
from p2p.group_serving import GroupProvider
from p2p.host import PeerId
from p2p.messages import Find, GetBlocks, GetRecords, encode
from p2p.provider import Provider
from p2p.showing import Show
from p2p.upload import UploadLimit
from tests.exchange_parts import ChainOffer, at_once
from tests.group_exchange_parts import Member
from tests.group_parts import Clock, groups_of, peer_named
from tests.vault_parts import GROUP, NEW, START, windows_of

NUM = 24
NUM_PROBES = 40_000 if os.environ.get("GLIA_FULL") else 6_000  # the area is known to 0.01
WORST = 0.55  # of SECURITY: a classifier by time; 0.5 is a coin
HELD, ABSENT = windows_of(num=NUM), windows_of(seed=9, num=NUM)


class Said:
    """A stream of one probe: what a peer sends, and what it is answered."""

    def __init__(self, peer: PeerId, data: bytes) -> None:
        self.peer, self._data = peer, data
        self.came = bytearray()

    async def receive_some(self, max_bytes: int) -> bytes:
        part, self._data = self._data[:max_bytes], self._data[max_bytes:]
        return part

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self.came += data

    async def finish(self) -> None:
        """Nothing follows."""

    async def reset(self) -> None:
        raise AssertionError("a probe is answered")


class Server:
    """Ada's node, which shows its group, or has nothing; bob is a member, cyd was removed."""

    def __init__(self, path: Path) -> None:
        self.clock = Clock()
        self.full, self.empty = Member(path / "full"), Member(path / "empty")
        self.full.publish(HELD)
        ada = groups_of(path, "ada", self.clock)
        self.team = ada.create("team").group_id
        self.shown = {name: self._granted(path, ada, name) for name in ("bob", "cyd")}
        gone = [each for each in ada.row(self.team).members if each.ops == int(Op.FETCH)]
        (cyd,) = (each for each in gone if each.peer == parse_card(self.cards["cyd"]).peer)
        ada.change(self.team, lambda row, now_s: changes.revoked(row, [cyd], now_s))
        self._ada = ada

    def _granted(self, path: Path, ada: Groups, name: str) -> bytes:
        self.cards = getattr(self, "cards", {})
        node = groups_of(path, name, self.clock)
        self.cards[name] = node.card()
        card = parse_card(self.cards[name])
        ada.grant(self.team, MemberRow(int(Op.FETCH), 0, neuron=card.neuron))
        (grant,) = ada.grants_for(card)
        node.take(grant)
        return node.capability(self.team)

    def check(self, group: GroupId, capability: bytes, peer: PeerId) -> Scope:
        """As ada's node does, whose group has another name here."""
        if group != GROUP:
            raise NotPermitted("no such group")
        return self._ada.check(self.team, capability, peer)

    def provider(self, member: Member) -> GroupProvider:
        egress = GroupEgress(member.index, member.node.raw, self.check, member.counters)
        serving = Provider(ChainOffer(), lambda peer, told: None, UploadLimit(), at_once)
        return GroupProvider(serving, egress.offer_of, at_once)


def probe(name: str, shown: bytes, keys: Sequence[PrefixKey], blocks: bool) -> Said:
    """What one that looks for windows sends: everything that can be asked."""
    said = [Show(GROUP, shown)]
    if blocks:
        said.append(GetBlocks(tuple(keys)))  # type: ignore[arg-type]
    else:
        asked = tuple((START + 1 + num, key) for num, key in enumerate(keys))
        said += [Find(bytes(32), bytes(32), asked), GetRecords(keys[-1], NUM, START)]  # type: ignore[arg-type]
    return Said(peer_named(name), b"".join(encode_frame(encode(each)) for each in said))


def auc(one: Sequence[int], other: Sequence[int]) -> float:
    """How well a threshold tells them apart: 0.5 not at all, 1 always."""
    ranked = sorted(other)
    wins = sum(bisect_left(ranked, each) + bisect_right(ranked, each) for each in one)
    area = wins / (2 * len(one) * len(other))
    return max(area, 1 - area)


@pytest.mark.fault("F28")
@pytest.mark.spec(49)
@pytest.mark.parametrize("blocks", [False, True], ids=["find", "blocks"])
def test_a_refused_holder_cannot_tell_refused_from_absent(tmp_path: Path, blocks: bool) -> None:
    """By no byte; nor by the time that it takes: of what is held, and of what is not."""
    server = Server(tmp_path)
    full, empty = server.provider(server.full), server.provider(server.empty)
    keys = {
        "held": [alias_of(NEW, window.prefix_key) for window in HELD[START:]],
        "absent": [alias_of(NEW, window.prefix_key) for window in ABSENT[START:]],
    }
    if blocks:
        opened = server.full.node.vault.sealed(HELD[-1].record.window_id)
        assert opened is not None
        keys["held"] = [PrefixKey(name) for name in opened.window.blocks]
        keys["absent"] = keys["absent"][: len(opened.window.blocks)]
    cases = {
        "refused, held": (full, "cyd", keys["held"]),
        "refused, absent": (full, "cyd", keys["absent"]),
        "refused, nothing here": (empty, "cyd", keys["held"]),
        "a member, absent": (full, "bob", keys["absent"]),
    }
    times: dict[str, list[int]] = {name: [] for name in cases}
    answers: dict[str, set[bytes]] = {name: set() for name in cases}

    async def main() -> None:
        order = [name for name in cases for _ in range(NUM_PROBES // len(cases))]
        random.Random(28).shuffle(order)
        for name in order:
            provider, who, asked = cases[name]
            stream = probe(who, server.shown[who], asked, blocks)
            server.clock.now_s += 0.1  # else it is refused unread, and that is as quick for all
            began = time.thread_time_ns()
            await (provider.blocks if blocks else provider.find)(stream)
            times[name].append(time.thread_time_ns() - began)
            answers[name].add(bytes(stream.came))

    trio.run(main)
    held = probe("bob", server.shown["bob"], keys["held"], blocks)
    trio.run(full.blocks if blocks else full.find, held)
    told = set.union(*answers.values())
    assert len(told) == 1
    assert len(held.came) > len(next(iter(told))), "a member is given it"
    figures = {
        f"{name} / refused, held": auc(times[name], times["refused, held"]) for name in cases
    }
    print(figures)
    assert figures["refused, absent / refused, held"] <= WORST, figures
    assert figures["refused, nothing here / refused, held"] <= WORST, figures
    server.full.close()
    server.empty.close()
