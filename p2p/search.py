"""Whom to ask next for the longest prefix, and which answer is the best. Sans-IO."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from glia.graph.window import WindowRecord
from p2p.host import PeerId
from p2p.messages import FoundChain
from p2p.source import Provides
from p2p.walking import Walk

MAX_ASKED = 4  # at once, of those that are known
MAX_ASKED_STRANGERS = 16  # of the directory's, most of which may be of one mind
MAX_OPEN = 128  # with those that hold no place any more
PATIENCE_S = 0.3  # then who was asked holds no place any more, though it may answer yet


@dataclass(frozen=True)
class Answer:
    """A chain that was walked to its tip, and whose links were accepted.

    Attributes:
        records: what is not here of it, in order; they follow `base`, or genesis where None.
        providers: who has how much of it, whoever was heard first, first.
    """

    peer: PeerId
    chain: FoundChain
    records: tuple[WindowRecord, ...]
    base: WindowRecord | None
    providers: tuple[Provides, ...] = ()


class Search:
    """One search.

    Args:
        most: the longest prefix that was asked for, in windows.
        at_least: windows that are here: an answer is longer.
        classes: breaks a tie, the best first.
    """

    def __init__(self, most: int, at_least: int, classes: tuple[str, ...]) -> None:
        self._most, self._at_least, self._classes = most, at_least, classes
        self._waiting: deque[PeerId] = deque()
        self._strangers: deque[PeerId] = deque()
        self._known: set[PeerId] = set()
        self._asked: dict[PeerId, float] = {}  # until when it holds a place
        self._heard: dict[PeerId, tuple[FoundChain, ...]] = {}
        self.unheard: set[PeerId] = set()
        self.best: Answer | None = None

    @property
    def is_over(self) -> bool:
        """Whether no peer could have more."""
        return self.num_windows >= self._most

    @property
    def num_windows(self) -> int:
        """How much there is by now, here or in the best answer."""
        return self.best.chain.num_windows if self.best else self._at_least

    @property
    def num_asked(self) -> int:
        """Peers that are being asked."""
        return len(self._asked)

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting or self._strangers)

    def add(self, peers: Iterable[PeerId]) -> None:
        """More peers to ask, the most promising first; each is asked once."""
        self._add(self._waiting, peers)

    def add_strangers(self, peers: Iterable[PeerId]) -> None:
        """Peers that only say of themselves that they have something; more of them at once."""
        self._add(self._strangers, peers)

    def _add(self, queue: deque[PeerId], peers: Iterable[PeerId]) -> None:
        for peer in peers:
            if peer not in self._known:
                self._known.add(peer)
                queue.append(peer)

    def next_peer(self, now_s: float) -> PeerId | None:
        """Whom to ask now; `ended` is to be called when it was."""
        num = sum(until_s > now_s for until_s in self._asked.values())
        if self._waiting and num < MAX_ASKED:
            peer = self._waiting.popleft()
        elif self._strangers and num < MAX_ASKED_STRANGERS and len(self._asked) < MAX_OPEN:
            peer = self._strangers.popleft()
        else:
            return None
        self._asked[peer] = now_s + PATIENCE_S
        self.unheard.add(peer)
        return peer

    def until_s(self, now_s: float) -> float:
        """When the next of those that are asked gives its place to another."""
        later = (until_s for until_s in self._asked.values() if until_s > now_s)
        return min(later, default=now_s + PATIENCE_S)

    def heard(self, peer: PeerId, chains: tuple[FoundChain, ...]) -> list[FoundChain]:
        """A peer answered. Which of its chains are worth walking, the best first."""
        self._heard[peer] = chains
        self.unheard.discard(peer)
        return sorted(filter(self.is_better, chains), key=self._rank)

    def has_some(self, peer: PeerId) -> bool:
        """Whether a peer said to have something."""
        return bool(self._heard.get(peer))

    def is_better(self, chain: FoundChain) -> bool:
        """Whether a chain is better than what there is."""
        if self.best is None:
            return chain.num_windows > self._at_least
        return self._rank(chain) < self._rank(self.best.chain)

    def accept(self, peer: PeerId, chain: FoundChain, walk: Walk) -> None:
        """A chain was walked and its links hold."""
        if self.is_better(chain):
            self.best = Answer(peer, chain, tuple(walk.records), walk.base)

    def ended(self, peer: PeerId) -> None:
        """A peer is not asked any more, whether it answered or not."""
        self._asked.pop(peer, None)

    def unreached(self, peer: PeerId) -> None:
        """A peer was not asked, as nobody knows where it is; who learns that may add it again."""
        self._known.discard(peer)

    def result(self) -> Answer | None:
        """The best, with all who have some of it."""
        best = self.best
        if best is None:
            return None
        peers = [best.peer, *(peer for peer in self._heard if peer != best.peer)]
        found = [(peer, _shared(self._heard[peer], best)) for peer in peers]
        providers = tuple(Provides(peer, num) for peer, num in found if num)
        return Answer(best.peer, best.chain, best.records, best.base, providers)

    def _rank(self, chain: FoundChain) -> tuple[int, int]:
        known = chain.numerics_class in self._classes
        place = self._classes.index(chain.numerics_class) if known else len(self._classes)
        return -chain.num_windows, place


def _shared(chains: Collection[FoundChain], best: Answer) -> int:
    """How many leading windows of a chain a peer has, by the tips that it named."""
    first = best.chain.num_windows - len(best.records)
    ids = {first + at + 1: record.window_id for at, record in enumerate(best.records)}
    shared = [each.num_windows for each in chains if ids.get(each.num_windows) == each.tip]
    return max(shared, default=0)
