"""Peers for tests of finding and fetching: an offer of chains, and streams kept in memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import trio

from glia.graph.ids import BlockId, ModelId, PrefixKey, ProfileId, WindowId
from glia.graph.window import WindowRecord, parse_window
from p2p.fetching import Fetch
from p2p.getter import Close, Counts, Session
from p2p.host import Host, PeerId
from p2p.ledger import Ledger
from p2p.messages import BLOCKS
from p2p.offer import Candidate, Offer, read_each
from p2p.provider import Provider, Served
from p2p.source import Provides, Verdict
from p2p.testing.internet import Internet
from p2p.testing.simulate import simulate
from p2p.upload import UploadLimit
from p2p.walking import Question
from simulations.virtual.ports import at_once as at_once
from tests.builders import Chain

T = TypeVar("T")


class ChainOffer:
    """Everything of some chains; every match is a whole one.

    `spoil` changes blocks on their way out, `gone` are not there.
    """

    def __init__(self, *chains: Chain, links: tuple[bytes, ...] = ()) -> None:
        self.chains = chains
        self.links = links
        self.spoil: Callable[[BlockId, bytes], bytes] = lambda _, data: data
        self.gone: set[bytes] = set()
        self.num_reads = 0
        self._blocks = {block_id: data for chain in chains for block_id, data in chain.blocks()}
        self._records = {r.window_id: r.encoding for chain in chains for r in chain.records}

    def match(
        self, model_id: ModelId, profile_id: ProfileId, keys: Sequence[tuple[int, PrefixKey]]
    ) -> list[Candidate]:
        found = [
            Candidate(num, chain.records[num - 1].window_id, _class(chain), self.links)
            for chain in self.chains
            for num, key in keys
            if (model_id, profile_id) == (chain.model_id, chain.profile.profile_id)
            and num <= len(chain.keys)
            and chain.keys[num - 1] == key
        ]
        return sorted(found, key=lambda each: -each.num_windows)

    def records(self, tip: WindowId, num_windows: int, start: int) -> list[bytes]:
        found: list[bytes] = []
        for _ in range(start, num_windows):
            encoding = self._records.get(tip)
            if encoding is None:
                return []
            found.append(encoding)
            tip = parse_window(encoding).prev
        return found[::-1]

    def record(self, window_id: WindowId) -> bytes | None:
        return self._records.get(window_id)

    def _block(self, block_id: BlockId) -> bytes | None:
        data = None if block_id in self.gone else self._blocks.get(block_id)
        return None if data is None else self.spoil(block_id, data)

    def read_blocks(
        self, block_ids: Sequence[BlockId], into: memoryview
    ) -> list[memoryview | None]:
        found = read_each(self._block, block_ids, into)
        self.num_reads += len(found)
        return found

    def has_block(self, block_id: BlockId) -> bool:
        return block_id in self._blocks and block_id not in self.gone

    def next_links(self, window_id: WindowId) -> list[bytes]:
        return list(self.links)


def _class(chain: Chain) -> str:
    return chain.records[-1].numerics_class


async def take_any(*_: object) -> bool:
    """A check of chains that takes all."""
    return True


def question_of(chain: Chain, **changes: object) -> Question:
    values: dict[str, object] = {"tokens": chain.tokens, **changes}
    return Question(chain.model_id, chain.profile, **values)  # type: ignore[arg-type]


def keys_of(chain: Chain) -> list[tuple[int, PrefixKey]]:
    return list(enumerate(chain.keys, 1))


class Taken:
    """A sink that keeps copies of what it is given."""

    def __init__(self) -> None:
        self.windows: list[tuple[WindowRecord, tuple[bytes | None, ...]]] = []

    async def take(self, record: WindowRecord, particles: Sequence[memoryview | None]) -> None:
        kept = tuple(None if each is None else bytes(each) for each in particles)
        self.windows.append((record, kept))

    def assert_prefix_of(self, chain: Chain, num_windows: int) -> None:
        assert [record for record, _ in self.windows] == list(chain.records[:num_windows])
        assert [particles for _, particles in self.windows] == list(chain.particles[:num_windows])


@dataclass
class Fetched:
    """What a fetch gave, and what became of its peers."""

    taken: Taken
    counts: Counts
    took_s: float
    is_whole: bool

    def verdict(self, host: Host) -> Verdict:
        return self.counts.closed[host.peer_id].verdict


async def fetch(
    getter: Host, chain: Chain, hosts: Sequence[Host], ledger: Ledger | None = None
) -> Fetched:
    """All of a chain, whose records are known, from these hosts."""
    ledger = ledger or Ledger()
    began_s = trio.current_time()
    peers = ledger.ranked(host.peer_id for host in hosts)
    session = Session(
        chain.records,
        None,
        chain.profile,
        [Provides(peer, len(chain.records)) for peer in peers],
        now_s=began_s,
    )
    taken = Taken()

    def tell(close: Close) -> None:
        ledger.gave(close.peer, chain.model_id, close.num_blocks, close.num_bytes, 0.0)
        if close.verdict.is_bad:
            ledger.lied(close.peer, 0.0)

    async with trio.open_nursery() as nursery:
        opens = lambda peer: getter.open(peer, BLOCKS)  # noqa: E731
        counts = await Fetch(session, opens, taken, tell, nursery).run()
        took_s = trio.current_time() - began_s
    return Fetched(taken, counts, took_s, session.is_whole)


def serve(host: Host, offer: Offer, tell: Callable[[PeerId, Served], None] | None = None) -> None:
    """Let a host answer from an offer, without a limit."""
    Provider(offer, tell or (lambda *_: None), UploadLimit(), at_once).serve_on(host)


def in_world(main: Callable[[Internet], Awaitable[None]], seed: int = 0) -> None:
    """Run on an internet in a dict, on virtual time."""

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            await main(Internet(nursery, seed))
            nursery.cancel_scope.cancel()

    simulate(run, seed=seed)


async def meet(getter: Host, *hosts: Host) -> None:
    for host in hosts:
        await getter.connect(host.addresses()[0])
