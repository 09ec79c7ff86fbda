"""Who has more of a public prompt than is here, and attested: one search (p2p/finding.py)."""

from __future__ import annotations

import itertools
import logging
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import trio

from daemon.binding import Binding
from daemon.proving import Proven, prove
from daemon.verifying import verified
from daemon.ways import Way
from glia.errors import StoreError
from glia.graph.boundaries import announced, asked, between, pairs
from glia.graph.chain import prefix_keys
from glia.graph.domain import Salt
from glia.graph.ids import PrefixKey, WindowId
from glia.graph.link import Link
from glia.graph.window import WindowRecord
from p2p.attesting import num_attested
from p2p.finding import Finder, Roads
from p2p.host import PeerId
from p2p.messages import FoundChain
from p2p.search import Answer
from p2p.source import Provides
from p2p.walking import Question, Walk

_log = logging.getLogger("gliad.searching")


@dataclass(frozen=True)
class Wanted:
    """Windows of public tokens, of which the first ones may be here.

    Attributes:
        tokens: whole windows.
        here: the leading windows that are here, as one chain.
        keys: the prefix key of genesis, then that of each window.
        exact: no windows but of the binding's exact classes.
        salt: of the group in whose domain the last of them are; those before it are here.
    """

    binding: Binding
    tokens: Sequence[int]
    here: Sequence[WindowRecord]
    keys: Sequence[PrefixKey]
    exact: bool = True
    salt: Salt | None = None

    @property
    def public(self) -> WindowRecord | None:
        """The window before the group's domain."""
        num = 0 if self.salt is None else self.salt.start // self.binding.profile.block_size
        return self.here[num - 1] if num else None

    @property
    def num_windows(self) -> int:
        return len(self.keys) - 1

    @property
    def num_missing(self) -> int:
        return self.num_windows - len(self.here)

    def chain_of(self, answer: Answer) -> list[WindowRecord]:
        """All of an answer's chain, from genesis on."""
        return [*self.here[: _num_before(self.binding, answer.base)], *answer.records]


def wanted_of(
    binding: Binding,
    tokens: Sequence[int],
    here: Sequence[WindowRecord],
    *,
    exact: bool,
    salt: Salt | None = None,
) -> Wanted:
    """Args: tokens: a partial window at the end is left out."""
    keys = [binding.root_key, *prefix_keys(binding.model_id, binding.profile, tokens, salt)]
    whole = tokens[: (len(keys) - 1) * binding.profile.block_size]
    return Wanted(binding, whole, here, keys, exact, salt)


_Links = dict[tuple[PeerId, bytes], tuple[list[Link], list[Link]]]  # by peer and tip


@dataclass(frozen=True)
class _Claimed:
    """What peers said.

    Attributes:
        hold, may: links that attest the answer, and those that may (p2p/attesting.py).
        unheard: peers that were asked and did not answer in time.
    """

    unheard: frozenset[PeerId]
    answer: Answer | None = None
    hold: Sequence[Link] = ()
    may: Sequence[Link] = ()


@dataclass(frozen=True)
class SearchResult:
    """What came of a search.

    Attributes:
        is_unheard: somebody who was asked did not answer in time.
        is_untrusted: somebody has more, attested by those whose word is not taken.
    """

    found: Proven | None
    is_unheard: bool
    is_untrusted: bool


class Searcher:
    """Searches on a node's network.

    Args:
        nursery: runs what asks a peer; nothing of that outlives a search but for a second.
    """

    def __init__(
        self,
        way: Way,
        counters: Counter[str],
        nursery: trio.Nursery,
    ) -> None:
        self._way, self._peering, self._counters = way, way.peering, counters
        self._nursery = nursery
        self._takes = self._peering.believing.takes()
        self._is_untrusted = False
        self._num_taken = 0  # leading windows of an untrusted chain that are attested all the same

    async def search(self, wanted: Wanted, timeout_s: float) -> SearchResult:
        """The longest attested chain that is longer than what is here. Never raises for a peer.

        A peer is asked for thinned keys first, then, if it has one of them and not the next,
        for what lies between.
        """
        until_s = trio.current_time() + timeout_s
        claimed = await self._claimed(wanted, until_s)
        found = None
        if claimed.answer is not None:
            self._way.chose(claimed.answer.peer)
            found = await prove(
                self._way,
                wanted.binding.profile,
                wanted.keys,
                Proven(claimed.answer, wanted.chain_of(claimed.answer), claimed.hold),
                claimed.may,
                until_s - trio.current_time(),
            )
            self._counters["chains_unattested"] += found is None
        return SearchResult(found, bool(claimed.unheard), self._is_untrusted)

    async def _claimed(self, wanted: Wanted, until_s: float) -> _Claimed:
        counts = [num for num in asked(wanted.num_windows) if num > len(wanted.here)]
        keys = [key for _, key in pairs(wanted.keys[1:], counts)]
        peers = self._way.peers_of(wanted.binding.model_id, keys)
        first = await self._ask(wanted, counts, peers, until_s, use_directory=True)
        if first.answer is None and self._num_taken > len(wanted.here):
            first = await self._ask(wanted, [self._num_taken], peers, until_s, use_directory=False)
        if first.answer is None:
            return first
        num = first.answer.chain.num_windows
        finer = between(num, min((c for c in counts if c > num), default=num + 1))
        if not finer:
            return first
        peers = [each.peer for each in first.answer.providers if each.num_windows == num]
        second = await self._ask(wanted, finer, peers, until_s, use_directory=False)
        return _joined(first, second)

    async def _ask(
        self,
        wanted: Wanted,
        counts: Sequence[int],
        peers: Sequence[PeerId],
        until_s: float,
        *,
        use_directory: bool,
    ) -> _Claimed:
        binding = wanted.binding
        here = {record.window_id: record for record in wanted.here}
        question = Question(
            binding.model_id,
            binding.profile,
            tokens=wanted.tokens,
            classes=binding.exact_classes if wanted.exact or not binding.takes_others else (),
            own_class=binding.numerics_class,
            held=here.get,
            salt=wanted.salt,
            public=wanted.public,
        )
        claimed: _Links = {}
        asked_for = pairs(wanted.keys[1:], counts)
        finder = Finder(
            question,
            asked_for,
            self._roads(use_directory),
            partial(self._check, wanted, claimed),
            self._peering.lied,
            self._nursery,
            at_least=counts[0] - 1,
            windows=partial(self._attested, wanted) if wanted.salt is None else None,
            names=self._way.names(asked_for),
        )
        finding = await finder.run(peers, max(0.0, until_s - trio.current_time()))
        if finding.answer is None:
            return _Claimed(finding.unheard)
        answer = replace(finding.answer, providers=self._measured(finding.answer.providers))
        return _Claimed(finding.unheard, answer, *claimed[answer.peer, answer.chain.tip])

    async def _check(
        self, wanted: Wanted, claimed: _Links, peer: PeerId, chain: FoundChain, walk: Walk
    ) -> bool:
        """Whether all of a chain is attested, or may be; the links for that go to `claimed`."""
        num_before = _num_before(wanted.binding, walk.base)
        records = [*wanted.here[:num_before], *walk.records]
        if records[-1].numerics_class != chain.numerics_class:
            return False
        hold, may = await verified(
            self._peering.verify, chain.links, records, wanted.keys, time.time()
        )
        is_vouched_for = self._way.vouches(peer)
        if wanted.salt is None:  # a group's tokens are on disk as ciphertext alone
            heard = hold if is_vouched_for else self._taken(hold)
            await self._peering.overheard(wanted.binding.profile.scheme, records, heard)
        hold, may = self._counting(hold), self._counting(may)
        taken = (hold, may) if is_vouched_for else (self._taken(hold), self._taken(may))
        claimed[peer, chain.tip] = taken
        if num_attested(itertools.chain(*taken), num_before) >= chain.num_windows:
            return True
        self._num_taken = max(self._num_taken, num_attested(taken[0], num_before))
        is_untrusted = num_attested([*hold, *may], num_before) >= chain.num_windows
        self._is_untrusted |= is_untrusted
        self._counters["chains_untrusted" if is_untrusted else "chains_unattested"] += 1
        return False

    async def _attested(self, wanted: Wanted) -> list[tuple[int, WindowId]]:
        """Windows of the prompt that those whose word is taken were heard to attest."""
        counts = [num for num in announced(wanted.num_windows) if num > len(wanted.here)]
        keys = [key for _, key in pairs(wanted.keys[1:], counts)]
        try:
            heard = await trio.to_thread.run_sync(self._peering.heard.find, keys)
        except StoreError as error:
            _log.warning("what others said is not known: %s", error)
            return []
        claims = [link.claim for link in self._taken(heard)]
        return [(each.num_windows, each.tip) for each in claims if each.num_windows in counts]

    def _taken(self, links: Iterable[Link]) -> list[Link]:
        """Those whose signers' word is taken."""
        return [link for link in links if self._takes(link.signer)]

    def _counting(self, links: Iterable[Link]) -> list[Link]:
        """Without those whose signers' word is never taken, whoever passes it on."""
        return [link for link in links if self._peering.believing.may_count(link.signer)]

    def _roads(self, use_directory: bool) -> Roads:
        way, peering = self._way, self._peering
        if not use_directory:
            return Roads(way.open_find, asks=way.asks)
        return Roads(
            way.open_find,
            peering.directory,
            peering.meet,
            peering.part,
            peering.ledger.is_proven,
            way.asks,
        )

    def _measured(self, providers: Sequence[Provides]) -> tuple[Provides, ...]:
        """With what is known of their speeds, the fastest first among those with as much."""
        rtts = {each.peer: each.rtt_s for each in self._peering.host.connections()}
        found: list[Provides] = []
        for each in providers:
            entry = self._peering.ledger.entry(each.peer)
            speed = entry.speed if entry else None
            rtt_s = rtts.get(each.peer) or (entry.rtt_s if entry else None)
            found.append(replace(each, speed=speed, rtt_s=rtt_s))
        return tuple(sorted(found, key=lambda each: (-each.num_windows, -(each.speed or 0.0))))


def _num_before(binding: Binding, base: WindowRecord | None) -> int:
    return 0 if base is None else base.end // binding.profile.block_size


def _joined(first: _Claimed, second: _Claimed) -> _Claimed:
    """The longer of two answers, and who has a part of it."""
    short, long = first.answer, second.answer
    if short is None or long is None:
        return first
    ids: set[bytes] = {record.window_id for record in long.records}
    also = short.providers if short.chain.tip in ids else ()
    known = {each.peer for each in long.providers}
    others = [each for each in also if each.peer not in known]
    answer = replace(long, providers=(*long.providers, *others))
    return replace(second, unheard=first.unheard, answer=answer)
