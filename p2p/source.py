"""One peer of a fetch: what it was asked for, how fast it is, whether it still moves. Sans-IO."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from p2p.door import Expected
from p2p.frames import PROGRESS_BYTES, PROGRESS_S
from p2p.host import PeerId

TICK_S = 0.25  # a session looks at its peers so often
STALL_S = 2.5  # of silence under a request; with the tick it is below 3 s (SECURITY F17)
MIN_CREDIT_BYTES = 1024 * 1024
MAX_CREDIT_BYTES = 16 * 1024 * 1024
_QUEUE_S = 0.25  # of its own speed is asked of a peer, beside one round trip
_FIRST_SPEED = 4e6  # bytes/s, until something was measured
_MEASURE_BYTES = 128 * 1024
_MEASURE_S = 0.1
_FIRST_MEASURE_S = 0.02  # before it, a fast peer would wait for us: it owes so little
_NEW_SHARE = 0.3  # of a new measurement in the speed
_MAX_LACKING = 64  # in a row: then the chain is not there


class Verdict(Enum):
    """Why a peer is of no more use to a fetch."""

    DONE = "done"
    LOST = "lost"  # the connection, or it could not be reached
    STALLED = "stalled"  # silent
    SLOW = "slow"  # below 8 KiB/s
    LACKING = "lacking"  # does not have the chain
    LIED = "lied"  # bytes that are not the named ones, or that nobody asked for

    @property
    def is_bad(self) -> bool:
        """Whether it counts against the peer for ever."""
        return self is Verdict.LIED


@dataclass(eq=False, slots=True)
class Want:
    """A block that is missing here.

    Attributes:
        window, layer: its place; windows are counted in the order in which they are fetched.
        askers: peers that owe it.
        is_done: it came, or is not wanted any more.
    """

    expected: Expected
    window: int
    layer: int
    askers: set[PeerId] = field(default_factory=set)
    is_done: bool = False

    @property
    def size_bytes(self) -> int:
        return self.expected.size_bytes


@dataclass(frozen=True, slots=True)
class Provides:
    """A peer that is said to have a chain.

    Attributes:
        num_windows: how many of its first windows.
        speed, rtt_s: bytes/s and seconds, as measured before; None if never.
    """

    peer: PeerId
    num_windows: int
    speed: float | None = None
    rtt_s: float | None = None


class Source:
    """A peer that is being asked."""

    def __init__(self, provides: Provides, now_s: float) -> None:
        self.provides = provides
        self.peer = provides.peer
        self.speed = provides.speed or _FIRST_SPEED
        self.is_measured = provides.speed is not None
        self.is_open = False
        self.queue: deque[Want] = deque()
        self.queue_bytes = 0
        self.lacks: set[bytes] = set()
        self.num_blocks = 0
        self.num_bytes = 0
        self._lacking_in_row = 0
        self._asked_s = self._heard_s = now_s
        self._pace_s = now_s
        self._pace_bytes = 0
        self._measured_s = now_s
        self._measured_bytes = 0

    @property
    def credit_bytes(self) -> int:
        """How much it may owe at once."""
        wished = int(self.speed * ((self.provides.rtt_s or 0.0) + _QUEUE_S))
        return min(MAX_CREDIT_BYTES, max(MIN_CREDIT_BYTES, wished))

    @property
    def is_hungry(self) -> bool:
        """Whether it owes less than half of what it may."""
        return self.is_open and self.queue_bytes < self.credit_bytes // 2

    @property
    def known_speed(self) -> float | None:
        """Bytes/s; where it all took too short a time to measure, roughly; None where too little
        came to tell."""
        if self.is_measured:
            return self.speed
        took_s = self._heard_s - self._asked_s
        if self.num_bytes < _MEASURE_BYTES or took_s <= 0:
            return None
        return self.num_bytes / max(took_s - (self.provides.rtt_s or 0.0), took_s / 4)

    def wait_s(self, more_bytes: int = 0) -> float:
        """When it should have sent all that it owes, and so much more; seconds from now."""
        return (self.provides.rtt_s or 0.0) + (self.queue_bytes + more_bytes) / self.speed

    def silence_s(self, now_s: float) -> float:
        """How long it has owed something without a byte."""
        return now_s - self._heard_s if self.queue or not self.is_open else 0.0

    def ask(self, want: Want, now_s: float) -> None:
        """It owes one more."""
        if not self.num_bytes and not self.queue:
            self._asked_s = now_s
        if not self.queue:
            self._heard_s = self._pace_s = self._measured_s = now_s
            self._pace_bytes = self._measured_bytes = 0
        self.queue.append(want)
        self.queue_bytes += want.size_bytes
        want.askers.add(self.peer)

    def answered(self) -> Want:
        """It owes the first one no more."""
        want = self.queue.popleft()
        self.queue_bytes -= want.size_bytes
        want.askers.discard(self.peer)
        return want

    def gave(self, want: Want) -> None:
        """A block that holds."""
        self.num_blocks += 1
        self.num_bytes += want.size_bytes
        self._lacking_in_row = 0

    def lacked(self, want: Want) -> None:
        """It does not have one; it is not asked for that again."""
        self.lacks.add(want.expected.block_id)
        self._lacking_in_row += 1

    def heard(self, num_bytes: int, now_s: float) -> None:
        """Bytes came."""
        self._heard_s = now_s
        self._pace_bytes += num_bytes
        if self._pace_bytes >= PROGRESS_BYTES:
            self._pace_s, self._pace_bytes = now_s, 0
        self._measured_bytes += num_bytes
        took_s = now_s - self._measured_s
        least_s = _MEASURE_S if self.is_measured else _FIRST_MEASURE_S
        if self._measured_bytes >= _MEASURE_BYTES and took_s >= least_s:
            self._measure(self._measured_bytes / took_s)
            self._measured_s, self._measured_bytes = now_s, 0

    def forgive(self, seconds: float) -> None:
        """Time in which this node did not run is not the peer's."""
        self._heard_s += seconds
        self._pace_s += seconds
        self._measured_s += seconds

    def verdict(self, now_s: float) -> Verdict | None:
        """What is to be held against it now, if anything."""
        if self.silence_s(now_s) >= STALL_S:
            return Verdict.STALLED
        if self.queue and now_s - self._pace_s >= PROGRESS_S - 2 * TICK_S:
            return Verdict.SLOW
        if self._lacking_in_row >= _MAX_LACKING:
            return Verdict.LACKING
        return None

    def _measure(self, speed: float) -> None:
        share = _NEW_SHARE if self.is_measured else 1.0
        self.speed += share * (speed - self.speed)
        self.is_measured = True
