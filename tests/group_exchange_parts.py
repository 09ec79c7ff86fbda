"""A member's node that publishes a group's windows, and one that asks it, on streams in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import trio

from daemon.group_egress import GroupEgress
from daemon.group_part import GroupPart, group_part
from glia.errors import NotPermitted
from glia.graph.domain import Salt
from glia.graph.group import Epoch, GroupId, domain_prefix
from glia.graph.ids import BlockId, PrefixKey
from glia.graph.link import Link, sign_link
from glia.graph.neuron import Signer
from glia.graph.scope import Op, Scope
from glia.graph.sealed_link import seal_link
from glia.graph.spans import claims
from glia.graph.tokens import pack_tokens
from glia.store.base import SealedWindow
from glia.store.group_index import GroupIndex
from glia.store.group_rows import GroupLink
from p2p.fetching import Fetch
from p2p.finding import Finder, Finding, Roads
from p2p.getter import Session
from p2p.group_asking import GroupAsking
from p2p.group_blocks import GroupBlocks
from p2p.group_serving import GroupProvider
from p2p.host import Directory, Host, PeerId, Stream
from p2p.membership import Ciphertexts, Membership, Sealed
from p2p.provider import Provider
from p2p.search import Answer
from p2p.showing import GROUP_BLOCKS, GROUP_FIND, show
from p2p.upload import UploadLimit
from p2p.walking import Question
from tests.builders import TINY
from tests.domain_parts import BINDING
from tests.exchange_parts import ChainOffer, Taken, at_once, take_any
from tests.vault_parts import GROUP, NEW, SECRET, START, Node

GOOD = b"a good capability"
SIGNER = Signer(b"\5" * 32)
SALT = Salt(GROUP, START * TINY.block_size, SECRET)


def part_of(
    node: Node, windows: Sequence[SealedWindow], num: int | None = None, hold_until_s: int = 0
) -> GroupPart:
    """What of these, which are in the node's L2, is published: those of the domain, up to `num`."""
    records = [window.record for window in windows[START:num]]
    tokens = b"".join(pack_tokens(window.record.tokens) for window in windows)
    return group_part(GROUP, records, tokens, node.vault, _salted, hold_until_s)


def _salted(key: PrefixKey, group: GroupId) -> PrefixKey:
    return domain_prefix(key, SECRET)


class Member:
    """A node that shows what its index has to who shows GOOD and is no stranger."""

    def __init__(self, path: Path, *epochs: Epoch) -> None:
        self.node = Node(path / "store", *(epochs or (NEW,)))
        self.index = GroupIndex(path / "groups")
        self.counters = Counter[str]()
        self.now_s = 0.0
        self.scope = Scope(GROUP, GROUP, Op.FETCH, 1, 0, 2**40)
        self.strangers: set[PeerId] = set()
        self.bad: list[PeerId] = []
        self.egress = GroupEgress(
            self.index, self.node.raw, self._check, self.counters, lambda: self.now_s
        )

    def _check(self, group: GroupId, capability: bytes, peer: PeerId) -> Scope:
        if (group, capability) != (GROUP, GOOD) or peer in self.strangers:
            raise NotPermitted("no")
        return self.scope

    def publish(self, windows: Sequence[SealedWindow], num: int | None = None) -> list[Link]:
        """Keep windows, and publish those of the group's domain, up to `num`, with links."""
        self.node.vault.put(windows)
        part = part_of(self.node, windows, num)
        said = claims(part.records, 0, part.base)
        links = [sign_link(SIGNER, claim, at, 1) for at, claim in enumerate(said)]
        rows = []
        for link in links:
            first, end = (n - START for n in (link.claim.num_before, link.claim.num_windows))
            sealed = seal_link(part.sealed[end - 1].epoch, link)
            row = GroupLink(link.claim.num_before, part.sealed[first].window.prev, sealed)
            rows += [(each.name, row) for each in part.sealed[first:end]]
        self.index.put(GROUP, part.rows(), rows)
        return links

    def serve_on(self, host: Host) -> None:
        provider = Provider(
            ChainOffer(), lambda peer, told: self._tell(peer, told.is_bad), UploadLimit(), at_once
        )
        GroupProvider(provider, self.egress.offer_of, at_once).serve_on(host)

    def _tell(self, peer: PeerId, is_bad: bool) -> None:
        if is_bad:
            self.bad.append(peer)

    def close(self) -> None:
        self.index.close()
        self.node.raw.close()


@dataclass
class Tapped:
    """A stream whose bytes are kept, both ways."""

    stream: Stream
    sent: bytearray
    came: bytearray

    @property
    def peer(self) -> PeerId:
        return self.stream.peer

    async def receive_some(self, max_bytes: int) -> bytes:
        data = await self.stream.receive_some(max_bytes)
        self.came += data
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data
        await self.stream.send_all(data)

    async def finish(self) -> None:
        await self.stream.finish()

    async def reset(self) -> None:
        await self.stream.reset()


@dataclass
class Asker:
    """Who asks members, and what went over its streams."""

    host: Host
    epochs: Sequence[Epoch] = (NEW,)
    capability: bytes = GOOD
    group: GroupId = GROUP
    sent: bytearray = field(default_factory=bytearray)
    came: bytearray = field(default_factory=bytearray)
    blamed: list[PeerId] = field(default_factory=list)
    rename: Callable[[Sealed], Sealed] = lambda sealed: sealed

    def __post_init__(self) -> None:
        self.known = Ciphertexts(Membership(self.group, self.epochs, self.capability))

    def _sealed(self, peer: PeerId, first: PeerId, name: BlockId) -> Sealed | None:
        sealed = self.known.block(peer, first, name)
        return None if sealed is None else self.rename(sealed)

    async def open(self, peer: PeerId, protocol: str) -> Stream:
        stream = Tapped(await self.host.open(peer, protocol), self.sent, self.came)
        await show(stream, self.group, self.capability)
        return stream

    async def find(
        self,
        windows: Sequence[SealedWindow],
        hosts: Sequence[Host],
        start: int = START,
        *,
        directory: Directory | None = None,
    ) -> Finding:
        """Who has the longest prefix of these; those before the domain are here."""
        tokens = [token for window in windows for token in window.record.tokens]
        question = Question(
            BINDING.model_id, TINY, tokens=tokens, salt=SALT, public=windows[START - 1].record
        )
        keys: list[tuple[int, PrefixKey]] = [
            (num, window.prefix_key) for num, window in enumerate(windows, 1) if num > start
        ]
        roads = Roads(
            lambda peer: self.open(peer, GROUP_FIND),
            directory,
            asks=lambda s: GroupAsking(s, self.known),
        )
        aliases = self.known.membership.aliases
        async with trio.open_nursery() as nursery:
            finder = Finder(
                question,
                keys,
                roads,
                take_any,
                self.blamed.append,
                nursery,
                at_least=start,
                names=[(num, next(aliases(key))) for num, key in keys],
            )
            return await finder.run([host.peer_id for host in hosts], 5.0)

    async def fetch(self, answer: Answer) -> Taken:
        """All blocks of an answer."""
        taken = Taken()
        session = Session(
            answer.records,
            answer.base,
            TINY,
            answer.providers,
            now_s=trio.current_time(),
            salt=SALT,
        )

        async def opens(peer: PeerId) -> Stream:
            stream = await self.open(peer, GROUP_BLOCKS)
            return GroupBlocks(stream, lambda name: self._sealed(peer, answer.peer, name))

        async with trio.open_nursery() as nursery:
            counts = await Fetch(session, opens, taken, lambda _: None, nursery).run()
        self.blamed += [peer for peer, each in counts.closed.items() if each.verdict.is_bad]
        return taken
