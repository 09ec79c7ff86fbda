"""Fetch first, compute at once and fetch from the back, or only compute: pure. See DESIGN C21.

Windows are counted from the first that is missing here to the last that peers have. An engine
computes them from the front, in pieces; between two pieces it takes what came from the back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from p2p.getter import MAX_SOURCES

_WAITS_FOR = 1.1  # of the time of meeting: a fetch alone leaves the processor alone
_LEAST_SHARE = 0.02  # of the windows: less is not worth a fetch


class Plan(Enum):
    """What is quickest.

    WAIT fetches all before anything is computed. MEET computes at once, and fetches from the
    back until the two meet. COMPUTE fetches nothing.
    """

    WAIT = "wait"
    MEET = "meet"
    COMPUTE = "compute"


@dataclass(frozen=True, slots=True)
class Pace:
    """How long each way takes.

    Attributes:
        compute_s: one window's computing.
        num_piece: windows computed in one go.
        fetch_s: one window's fetching.
        rtt_s: until the first one comes.
    """

    compute_s: float
    num_piece: int
    fetch_s: float
    rtt_s: float = 0.0

    def computing_s(self, num: int) -> float:
        """All of them computed."""
        return num * self.compute_s

    def fetching_s(self, num: int) -> float:
        """All of them fetched."""
        return self.rtt_s + num * self.fetch_s

    def meeting(self, num: int, most: int) -> tuple[float, int]:
        """When the two meet, and how many windows were computed then.

        Args: most: windows that may wait for the engine.
        """
        computed, now_s = 0, 0.0
        while (front := num - self._arrived(now_s, min(num, most))) > computed:
            step = min(self.num_piece, front - computed)
            computed += step
            now_s += step * self.compute_s
        return now_s, computed

    def _arrived(self, now_s: float, most: int) -> int:
        if now_s <= self.rtt_s:
            return 0
        if now_s - self.rtt_s >= most * self.fetch_s:
            return most
        return math.floor((now_s - self.rtt_s) / self.fetch_s)


def plan(pace: Pace, num: int, most: int) -> Plan:
    """What to do about windows that peers have. Args: most: as Pace.meeting."""
    waiting_s = pace.fetching_s(num)
    meeting_s, num_computed = pace.meeting(num, most)
    if waiting_s < pace.computing_s(num) and waiting_s <= _WAITS_FOR * meeting_s:
        return Plan.WAIT
    if num - num_computed >= max(1.0, _LEAST_SHARE * num):
        return Plan.MEET
    return Plan.COMPUTE


def joint_speed(speeds: Sequence[float | None]) -> float | None:
    """Bytes/s of the best that are asked at once; None where that of one is not known."""
    known = [speed for speed in speeds if speed is not None]
    if len(known) < len(speeds):
        return None
    return sum(sorted(known, reverse=True)[:MAX_SOURCES])
