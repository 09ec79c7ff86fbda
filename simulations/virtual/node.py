"""One node: it shows what it has, announces it, hears what others say, and fetches."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import trio

from glia.errors import BadRequest, MalformedParticle, NetworkError
from glia.graph.boundaries import announced, asked, pairs
from glia.graph.ids import PrefixKey, WindowId, digest, genesis_prefix
from glia.graph.link import accept_link
from glia.graph.window import WindowRecord
from p2p.announcing import Announcing, Boundary, topic_of
from p2p.attesting import links_that_hold, num_attested
from p2p.choosing import by_turns
from p2p.crowds import crowd_among
from p2p.fetching import Fetch
from p2p.finding import Finder, Roads
from p2p.getter import Close, Session
from p2p.hints import Hints
from p2p.host import Address, Found, PeerId, Stream
from p2p.ledger import Ledger
from p2p.messages import BLOCKS, FIND, FoundChain
from p2p.provider import Provider
from p2p.redialling import Redialling
from p2p.search import Answer
from p2p.testing.internet import Internet
from p2p.upload import UploadLimit
from p2p.walking import Question, Walk
from simulations.virtual.chains import CLASS, MODEL, SMALL, Chain
from simulations.virtual.library import Library
from simulations.virtual.machine import world_s

FETCH_S = 60.0
_ROOT = genesis_prefix(MODEL, SMALL.profile_id)
_FIND_S = 10.0
_AGAIN_S = 1.0


def is_link(key: bytes, value: bytes) -> bool:
    """The directory's validator (p2p/values.py, on virtual time)."""
    try:
        return accept_link(value, world_s()).claim.prefix_key == key
    except MalformedParticle:
        return False


@dataclass
class Fetched:
    """What came of a fetch."""

    is_found: bool = False
    is_whole: bool = False
    is_wrong: bool = False
    took_s: float = 0.0
    num_bytes: int = 0
    particles: list[tuple[bytes, ...]] = field(default_factory=list)

    async def take(self, record: WindowRecord, particles: Sequence[memoryview | None]) -> None:
        """See p2p.fetching.Sink."""
        self.particles.append(tuple(bytes(each or b"") for each in particles))


class Node:
    """What is on its disk stays while it is away: chains, ledger, whom it keeps.

    Args:
        bootstrap: where it meets others, as its user said.
        library: what it shows.
    """

    def __init__(
        self,
        net: Internet,
        name: str,
        seed: int,
        bootstrap: Sequence[Found],
        library: Library,
    ) -> None:
        self.name, self._net = name, net
        self._now_s = world_s
        self._source = random.Random(f"{seed} {name}")
        self.library, self.ledger = library, Ledger()
        self.counts = Counter[str]()
        self._kept = Redialling(seed=self._source.randrange(2**32))
        for found in bootstrap:
            self._kept.keep(found.peer, found.addresses)
            self.ledger.trust(found.peer, "known", 0.0)
        self._announcing = Announcing(self._source)
        self.life = 0  # counts its comings
        self._scope: trio.CancelScope | None = None
        self._is_vanishing = False

    @property
    def is_online(self) -> bool:
        return self._scope is not None

    def set_clock(self, now_s: Callable[[], float]) -> None:
        """Its own clock says something else."""
        self._now_s = now_s

    # -- its life -----------------------------------------------------------------------------

    async def live(self) -> None:
        """Be on the network until `stop`."""
        self.life += 1
        self.host = self._net.host(self.name, validate=is_link)
        self.host.directory.is_proven = self.ledger.is_proven
        self.host.directory.rendezvous = self._kept.peers
        self._hints = Hints(
            digest(self.name.encode()),
            self.ledger.is_proven,
            lambda peer: crowd_among(self.host.connections(), peer),
        )
        upload = UploadLimit()
        Provider(self.library, lambda *_: None, upload, self.library.answer).serve_on(self.host)
        self.host.gossip.join(topic_of(MODEL), self._hear)
        self._scope = trio.CancelScope()
        with self._scope:
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self._keep)
                self._nursery.start_soon(self._announce)
        self._scope = None
        (self._net.vanish if self._is_vanishing else self._net.kill)(self.name)

    def stop(self, *, is_silent: bool) -> None:
        """Be gone, with a word to whom it is connected or without."""
        assert self._scope is not None
        self._is_vanishing = is_silent
        self._scope.cancel()

    async def _keep(self) -> None:
        while True:
            connected = [each.peer for each in self.host.connections()]
            for found in self._kept.due(connected, trio.current_time()):
                if found.peer != self.host.peer_id:
                    self._nursery.start_soon(self._dial, found.addresses)
            await trio.sleep(1.0)

    async def _dial(self, addresses: Sequence[Address]) -> bool:
        for address in addresses:
            try:
                await self.host.connect(address)
            except NetworkError:
                continue
            return True
        return False

    def _hear(self, peer: PeerId, message: bytes) -> None:
        try:
            link = accept_link(message, self._now_s())
        except MalformedParticle:
            self.counts["refused"] += 1
        else:
            self._hints.said(peer, link.claim.prefix_key)

    # -- what it shows ------------------------------------------------------------------------

    def publish(self, chain: Chain) -> None:
        """Show a chain to others, and announce it."""
        self.library.add(chain)
        now_s = self._now_s()
        self._announcing.add(
            [
                Boundary(chain.records[n - 1].window_id, chain.keys[n - 1], MODEL, n, now_s, 0.0)
                for n in announced(len(chain.records))
            ],
            now_s,
        )

    async def _announce(self) -> None:
        while True:
            boundary = self._announcing.next(self._now_s())
            if boundary is None:
                await trio.sleep(1.0)
                continue
            try:
                await self._tell(boundary)
            except (NetworkError, BadRequest):
                self.counts["announcements failed"] += 1
                self._announcing.failed(boundary, self._now_s())
            else:
                self.counts["announcements"] += 1
                self._announcing.done(boundary, self._now_s())

    async def _tell(self, boundary: Boundary) -> None:
        directory = self.host.directory
        await directory.provide(boundary.prefix_key)
        await directory.provide(boundary.window_id)
        for link in self._links(boundary.window_id):
            await directory.put(boundary.prefix_key, link)
            await self.host.gossip.publish(topic_of(MODEL), link)

    def _links(self, window_id: WindowId) -> list[bytes]:
        links = [data for chain in self.library.chains.values() for data in chain.links]
        return [data for data in links if accept_link(data, world_s()).claim.tip == window_id][:1]

    # -- what it wants ------------------------------------------------------------------------

    async def fetch(self, chain: Chain) -> Fetched:
        """Have a chain, of which only the tokens are known, within FETCH_S; then show it, too."""
        fetched, began_s = Fetched(), trio.current_time()
        with trio.move_on_after(FETCH_S):
            while not fetched.is_whole:
                await self._bring(chain, fetched)
                if not fetched.is_whole:
                    await trio.sleep(_AGAIN_S)
        fetched.took_s = trio.current_time() - began_s
        num = len(fetched.particles)
        fetched.is_wrong = tuple(fetched.particles) != chain.particles[:num]
        if fetched.is_whole:
            self.publish(chain)
        return fetched

    async def _bring(self, chain: Chain, fetched: Fetched) -> None:
        """What can be had of what is missing, at one go."""
        num_here = len(fetched.particles)
        answer = await self._find(chain, num_here)
        if answer is None:
            return
        fetched.is_found = True
        session = Session(
            answer.records, answer.base, SMALL, answer.providers, now_s=trio.current_time()
        )
        async with trio.open_nursery() as nursery:
            get = Fetch(session, self._to_blocks, fetched, self._done, nursery)
            counts = await get.run()
        fetched.num_bytes += counts.num_bytes
        fetched.is_whole = len(fetched.particles) == len(chain.records)

    async def _find(self, chain: Chain, num_here: int) -> Answer | None:
        here = {record.window_id: record for record in chain.records[:num_here]}
        question = Question(MODEL, SMALL, tokens=chain.tokens, classes=(CLASS,), held=here.get)
        counts = [num for num in asked(len(chain.records)) if num > num_here]
        keys = pairs(chain.keys, counts)

        async def check(_: PeerId, found: FoundChain, walk: Walk) -> bool:
            records = [*chain.records[: found.num_windows - len(walk.records)], *walk.records]
            hold, may = links_that_hold(found.links, records, (_ROOT, *chain.keys), self._now_s())
            return num_attested([*hold, *may], num_here) >= found.num_windows

        roads = Roads(
            self._to_find, self.host.directory, self._meet, self.host.disconnect,
            self.ledger.is_proven,
        )  # fmt: skip
        async with trio.open_nursery() as nursery:
            finder = Finder(
                question, keys, roads, check, self._lied, nursery,
                at_least=num_here, source=self._source,
            )  # fmt: skip
            finding = await finder.run(self._known([key for _, key in keys]), _FIND_S)
        return finding.answer

    def _known(self, keys: Sequence[PrefixKey]) -> list[PeerId]:
        """As daemon.peering.Peering.peers_of."""
        said = [peer for peer in self._hints.peers(keys) if not self.ledger.is_banned(peer)]
        first = dict.fromkeys(by_turns(said, self.ledger.peers_of(MODEL)))
        connected = {each.peer: None for each in self.host.connections()}
        return [*first, *self.ledger.ranked(peer for peer in connected if peer not in first)]

    async def _to_find(self, peer: PeerId) -> Stream:
        return await self.host.open(peer, FIND)

    async def _to_blocks(self, peer: PeerId) -> Stream:
        return await self.host.open(peer, BLOCKS)

    async def _meet(self, found: Found) -> bool:
        if any(each.peer == found.peer for each in self.host.connections()):
            return False
        if not await self._dial(found.addresses):
            raise NetworkError(f"peer {found.peer} cannot be reached")
        return True

    def _done(self, close: Close) -> None:
        if close.num_blocks:
            self.ledger.gave(close.peer, MODEL, close.num_blocks, close.num_bytes, self._now_s())
        if close.verdict.is_bad:
            self._lied(close.peer)

    def _lied(self, peer: PeerId) -> None:
        self.counts["lies"] += 1
        if self.ledger.lied(peer, self._now_s()):
            self.host.ban(peer, True)
