"""Fetches the blocks of a chain from several peers at once. Sans-IO: events in, requests out.

The records were walked before (p2p/walking.py). A block is asked of one peer; of a second
one at the end, or where the first one lags; whichever copy comes later is dropped unread.
Nothing is asked for that has no room in the frontier's budget: so all that comes is read
at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from glia.errors import HashMismatch, MalformedParticle
from glia.graph.domain import Salt
from glia.graph.ids import BlockId
from glia.graph.profile import Profile
from glia.graph.window import WindowRecord
from p2p.door import take_block
from p2p.frontier import Frontier, Window
from p2p.host import PeerId
from p2p.messages import MAX_WANTS
from p2p.source import TICK_S, Provides, Source, Verdict, Want

MAX_SOURCES = 4  # asked at once
BUDGET_BYTES = 64 * 1024 * 1024
_HEDGE_RATIO = 2.0  # a second peer is asked if it should be so much sooner
_HEDGE_S = 0.02  # and by so much at least
_LAG_S = 1.0  # of lag at a window that others wait for


@dataclass(frozen=True, slots=True)
class Open:
    """Reach this peer; then `opened` or `ended`."""

    peer: PeerId


@dataclass(frozen=True, slots=True)
class Ask:
    """Send this peer a request for these; it answers in their order."""

    peer: PeerId
    ids: tuple[BlockId, ...]


@dataclass(frozen=True, slots=True)
class Close:
    """Be done with this peer at once, whatever it is sending. What it gave, and how fast.

    `speed` is in bytes/s; None where too little came to tell.
    """

    peer: PeerId
    verdict: Verdict
    num_blocks: int
    num_bytes: int
    speed: float | None


Action = Open | Ask | Close


@dataclass(slots=True)
class Counts:
    """What a session did. `closed`: by peer, in the order in which they ended."""

    num_blocks: int = 0
    num_bytes: int = 0
    num_duplicates: int = 0
    closed: dict[PeerId, Close] = field(default_factory=dict)


class Session:
    """One fetch.

    Args:
        records: a walk's, in order; they follow `base`, or genesis where that is None.
        providers: the most promising first.
        held: blocks that are here: they are not asked for.
        from_back: the last window first.
        salt: of the group in whose domain the windows are.
    """

    def __init__(
        self,
        records: Sequence[WindowRecord],
        base: WindowRecord | None,
        profile: Profile,
        providers: Sequence[Provides],
        *,
        now_s: float,
        held: Collection[BlockId] = (),
        from_back: bool = False,
        budget_bytes: int = BUDGET_BYTES,
        salt: Salt | None = None,
    ) -> None:
        self._frontier = Frontier(
            records,
            base,
            profile,
            held=held,
            from_back=from_back,
            budget_bytes=budget_bytes,
            salt=salt,
        )
        self._candidates = deque(providers)
        self._sources: dict[PeerId, Source] = {}
        self._actions: list[Action] = []
        self._ticked_s = now_s
        self.counts = Counts()

    # -- what the caller asks -------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether all that can be had was handed on."""
        return self._frontier.is_over

    @property
    def is_whole(self) -> bool:
        """Whether everything was handed on."""
        return self._frontier.is_whole

    @property
    def num_windows(self) -> int:
        """Windows that were handed on."""
        return self._frontier.num_done

    @property
    def malformed(self) -> MalformedParticle | None:
        """What the chain's writer did, if the chain is broken."""
        return self._frontier.malformed

    def ready(self) -> Window | None:
        """The next window, if it is whole; then `delivered` is to be called."""
        return self._frontier.ready()

    def delivered(self) -> None:
        """The window that was ready is the caller's now."""
        self._frontier.delivered()

    def expects(self, peer: PeerId) -> int | None:
        """The size of the particle that a peer is to send next; None where it owes none."""
        source = self._sources.get(peer)
        return source.queue[0].size_bytes if source and source.queue else None

    def step(self, now_s: float) -> list[Action]:
        """What is to be done now. To be called after events, and every TICK_S."""
        self._judge(now_s)
        self._frontier.open_more()
        self._despair()
        self._recruit(now_s)
        for source in sorted(self._sources.values(), key=lambda each: -each.speed):
            if source.is_hungry:
                self._feed(source, now_s)
        if self.is_over:
            for source in list(self._sources.values()):
                lags = source.silence_s(now_s) > _LAG_S
                self._drop(source.peer, Verdict.STALLED if lags else Verdict.DONE)
        actions, self._actions = self._actions, []
        return actions

    def cancel(self) -> None:
        """Want nothing more; `step` then closes all peers."""
        self._frontier.cut(self._frontier.num_done)

    # -- what happened --------------------------------------------------------------------

    def join(self, provides: Provides) -> None:
        """One more peer is said to have the chain."""
        self._candidates.append(provides)

    def opened(self, peer: PeerId, now_s: float) -> None:
        """A peer can be asked."""
        source = self._sources.get(peer)
        if source is not None:
            source.is_open = True
            source.heard(0, now_s)

    def ended(self, peer: PeerId, verdict: Verdict) -> None:
        """A peer could not be reached, or its stream ended or broke the rules."""
        self._drop(peer, verdict)

    def heard(self, peer: PeerId, num_bytes: int, now_s: float) -> None:
        """Bytes came from a peer; if it owes none it is dropped."""
        source = self._sources.get(peer)
        if source is None:
            return
        if source.queue:
            source.heard(num_bytes, now_s)
        else:
            self._drop(peer, Verdict.LIED)

    def arrived(self, peer: PeerId, particle: bytes | memoryview) -> None:
        """The next one that a peer owed came, or, where it is empty, is not there. It is copied."""
        source = self._sources.get(peer)
        if source is None or not source.queue:
            return
        want = source.answered()
        if not particle:
            source.lacked(want)
            self._frontier.set_free([want])
            return
        if not self._frontier.is_wanted(want):
            self.counts.num_duplicates += 1
            return
        try:
            take_block(particle, want.expected)
        except HashMismatch:
            self._frontier.set_free([want])
            self._drop(peer, Verdict.LIED)
        except MalformedParticle as error:
            self._frontier.blame(want.window, error)
        else:
            source.gave(want)
            self._frontier.keep(want, particle)
            self.counts.num_blocks += 1
            self.counts.num_bytes += len(particle)

    # -- decisions ------------------------------------------------------------------------

    def _judge(self, now_s: float) -> None:
        late_s = now_s - self._ticked_s - TICK_S
        self._ticked_s = now_s
        for source in list(self._sources.values()):
            if late_s > TICK_S:
                source.forgive(late_s)
            verdict = source.verdict(now_s)
            if verdict is not None:
                self._drop(source.peer, verdict)

    def _despair(self) -> None:
        """Where nobody can give the next block: make room for others, or end before it."""
        free = self._frontier.free
        if not free or any(self._can_give(each, free[0]) for each in self._sources.values()):
            return
        if not self._candidates:
            self._frontier.cut(free[0].window)
        elif len(self._sources) == MAX_SOURCES:
            for source in list(self._sources.values()):
                if not source.queue:
                    self._drop(source.peer, Verdict.LACKING)

    def _recruit(self, now_s: float) -> None:
        while self._candidates and len(self._sources) < MAX_SOURCES and not self.is_over:
            provides = self._candidates.popleft()
            if provides.peer not in self._sources and provides.peer not in self.counts.closed:
                self._sources[provides.peer] = Source(provides, now_s)
                self._actions.append(Open(provides.peer))

    def _drop(self, peer: PeerId, verdict: Verdict) -> None:
        source = self._sources.pop(peer, None)
        if source is None:
            return
        for want in source.queue:
            want.askers.discard(peer)
        self._frontier.set_free(source.queue)
        close = Close(peer, verdict, source.num_blocks, source.num_bytes, source.known_speed)
        self.counts.closed[peer] = close
        self._actions.append(close)

    def _can_give(self, source: Source, want: Want) -> bool:
        return (
            self._frontier.place(want) < source.provides.num_windows
            and want.expected.block_id not in source.lacks
        )

    def _feed(self, source: Source, now_s: float) -> None:
        """Ask a peer for as much as it may owe: what nobody was asked for, else what lags."""
        taken = self._take_free(source)
        if not taken and not source.queue:
            taken = list(self._lagging(source, now_s))
        if taken:
            for want in taken:
                source.ask(want, now_s)
            ids = tuple(want.expected.block_id for want in taken)
            self._actions.append(Ask(source.peer, ids))

    def _take_free(self, source: Source) -> list[Want]:
        taken: list[Want] = []
        left: list[Want] = []
        room = source.credit_bytes - source.queue_bytes
        free = self._frontier.free
        for at, want in enumerate(free):
            if room <= 0 or len(taken) == MAX_WANTS:
                left += free[at:]
                break
            if self._can_give(source, want):
                taken.append(want)
                room -= want.size_bytes
            else:
                left.append(want)
        if taken:
            self._frontier.free = left
        return taken

    def _lagging(self, source: Source, now_s: float) -> Iterator[Want]:
        """What other peers owe, and this one should have sent much sooner."""
        taken_bytes = num_taken = 0
        for want, there_s in self._owed(now_s):
            if taken_bytes >= source.credit_bytes or num_taken == MAX_WANTS:
                return
            here_s = source.wait_s(taken_bytes + want.size_bytes)
            is_late = there_s > _HEDGE_RATIO * here_s + _HEDGE_S
            matters = self._frontier.is_all_open or there_s > _LAG_S
            if is_late and matters and self._can_give(source, want):
                taken_bytes += want.size_bytes
                num_taken += 1
                yield want

    def _owed(self, now_s: float) -> Iterator[tuple[Want, float]]:
        """What one peer owes, and in how many seconds it should come."""
        for other in self._sources.values():
            ahead_bytes = 0
            for want in other.queue:
                ahead_bytes += want.size_bytes
                if self._frontier.is_wanted(want) and len(want.askers) == 1:
                    yield want, max(other.silence_s(now_s), ahead_bytes / other.speed)
