"""A network in which nodes come and go, and want what others have."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import trio

from p2p.host import Found
from p2p.testing.internet import Internet
from p2p.testing.names import address_of, peer_id_of
from p2p.testing.simulate import simulate
from simulations.virtual.chains import Chain, public_chain
from simulations.virtual.library import Library
from simulations.virtual.machine import STARTED_S
from simulations.virtual.node import Fetched, Node
from simulations.virtual.roads import published_roads

T = TypeVar("T")
NUM_BOOTSTRAP = 3
_NUM_HOLDERS = 2  # of each chain, at first
_WARM_UP_S = 30.0
_SIGNED_S = int(STARTED_S) - 7 * 86_400
_AWAY_S = (10.0, 60.0)
_SILENT = 0.5  # of those that go


@dataclass(frozen=True)
class Town:
    """Who lives in a world, and how.

    Attributes:
        churn: the share of nodes that goes each minute; each is back after a while.
        loss: share of segments lost on all roads; None: as was measured (roads.py).
        wants: fetches that each node begins in a minute.
        odd: what others than the plain nodes show, one each.
        odd_hold: whether these have every chain from the start, as liars do.
    """

    num_nodes: int = 50
    minutes: float = 10.0
    seed: int = 0
    churn: float = 0.0
    loss: float | None = None
    wants: float = 0.5
    num_chains: int = 30
    num_windows: int = 20
    odd: Sequence[type[Library]] = ()
    odd_hold: bool = True


@dataclass
class Result:
    """What came of it. Fetches count for which an honest holder was online from end to end."""

    num_fetches: int = 0
    num_found: int = 0
    num_whole: int = 0
    num_wrong: int = 0
    num_without_holder: int = 0
    num_bytes: int = 0
    num_lies: int = 0
    num_gone: int = 0
    announcements: int = 0
    sent_bytes: int = 0
    directory_messages: int = 0
    took_s: list[float] = field(default_factory=list)
    trace: str = ""


class World:
    """All of it.

    Attributes:
        nodes: the first ones are where others meet, and stay; the odd ones come last.
        chains: that somebody has, or had.
    """

    def __init__(self, nursery: trio.Nursery, town: Town) -> None:
        self.town, self._nursery = town, nursery
        self.source = random.Random(town.seed)
        self.net = Internet(nursery, town.seed, published_roads(town.seed, town.loss))
        names = [f"node {number}" for number in range(town.num_nodes)]
        peers = [peer_id_of(town.seed, name) for name in names[:NUM_BOOTSTRAP]]
        bootstrap = [Found(peer, (address_of(at, peer),)) for at, peer in enumerate(peers)]
        shown = [*[Library] * (town.num_nodes - len(town.odd)), *town.odd]
        self.nodes = [
            Node(self.net, name, town.seed, bootstrap, library())
            for name, library in zip(names, shown, strict=True)
        ]
        self.chains: list[Chain] = []
        self.new_chains(town.num_chains)
        self.result = Result()

    @property
    def plain(self) -> list[Node]:
        """Those that are not odd, and not where others meet."""
        return self.nodes[NUM_BOOTSTRAP : len(self.nodes) - len(self.town.odd)]

    @property
    def odd(self) -> list[Node]:
        return self.nodes[len(self.nodes) - len(self.town.odd) :]

    def new_chains(self, num: int) -> list[Chain]:
        """Chains that nobody has yet."""
        first, size = len(self.chains), self.town.num_windows
        made = [public_chain(first + at, size, _SIGNED_S) for at in range(num)]
        self.chains += made
        return made

    async def begin(self) -> None:
        """Everybody comes, and shows what it has."""
        for node in self.nodes:
            self._nursery.start_soon(node.live)
            await trio.sleep(0.1)
        for chain in self.chains:
            others = self.odd if self.town.odd_hold else []
            for node in [*self.source.sample(self.plain, _NUM_HOLDERS), *others]:
                node.publish(chain)
        await trio.sleep(_WARM_UP_S)

    async def run(self) -> None:
        """Let nodes come and go, and want, for so long."""
        town = self.town
        async with trio.open_nursery() as nursery:
            for node in self.nodes[NUM_BOOTSTRAP:]:
                nursery.start_soon(self._want_often, node)
            nursery.start_soon(self._churn)
            await trio.sleep(60.0 * town.minutes)
            nursery.cancel_scope.cancel()
        self._sum_up()

    async def _churn(self) -> None:
        per_s = self.town.churn * len(self.nodes) / 60.0
        while per_s:
            await trio.sleep(self.source.expovariate(per_s))
            online = [node for node in self.nodes[NUM_BOOTSTRAP:] if node.is_online]
            if online:
                self._nursery.start_soon(self._leave, self.source.choice(online))

    async def _leave(self, node: Node) -> None:
        self.result.num_gone += 1
        node.stop(is_silent=self.source.random() < _SILENT)
        await trio.sleep(self.source.uniform(*_AWAY_S))
        await node.live()

    async def _want_often(self, node: Node) -> None:
        while True:
            await trio.sleep(self.source.expovariate(self.town.wants / 60.0))
            missing = [chain for chain in self.chains if not node.library.has(chain)]
            if node.is_online and missing:
                await self.want(node, self.source.choice(missing))

    def holders(self, chain: Chain) -> list[Node]:
        """Who could give a chain now."""
        return [
            node
            for node in self.nodes
            if node.is_online and node.library.has(chain) and node.library.is_honest
        ]

    async def want(self, node: Node, chain: Chain) -> Fetched | None:
        """A fetch, counted unless the node itself left or no holder stayed."""
        before = {holder: holder.life for holder in self.holders(chain)}
        life = node.life
        fetched = await node.fetch(chain)
        result = self.result
        result.num_wrong += fetched.is_wrong
        if node.life != life or not node.is_online:
            return None
        stayed = [each for each, since in before.items() if each.is_online and each.life == since]
        if not stayed:
            result.num_without_holder += 1
            return fetched
        result.num_fetches += 1
        result.num_found += fetched.is_found
        result.num_whole += fetched.is_whole
        result.num_bytes += fetched.num_bytes
        result.took_s.append(fetched.took_s)
        return fetched

    def _sum_up(self) -> None:
        result = self.result
        result.announcements = sum(node.counts["announcements"] for node in self.nodes)
        result.num_lies = sum(node.counts["lies"] for node in self.nodes)
        result.sent_bytes = self.net.trace.sent_bytes
        result.directory_messages = self.net.trace.counts["asked"]
        result.trace = self.net.trace.digest()

    def blamed(self) -> Counter[str]:
        """Who lied, in the eyes of how many plain nodes."""
        names = {peer_id_of(self.town.seed, node.name): node.name for node in self.nodes}
        return Counter(
            names[peer]
            for node in self.plain
            for peer, entry in node.ledger.entries()
            if entry.num_bad
        )


def in_town(town: Town, main: Callable[[World], Awaitable[T]]) -> T:
    """A town after its first minutes, until `main` has ended: the same for the same town."""

    async def run() -> T:
        async with trio.open_nursery() as nursery:
            world = World(nursery, town)
            await world.begin()
            ended = await main(world)
            nursery.cancel_scope.cancel()
        return ended

    return simulate(run, seed=town.seed)


def live(town: Town) -> World:
    """A town in which nodes want, come and go; what became of it."""

    async def main(world: World) -> World:
        await world.run()
        return world

    return in_town(town, main)


def quantile(values: Sequence[float], share: float) -> float:
    """Of values in any order; 0 where there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
