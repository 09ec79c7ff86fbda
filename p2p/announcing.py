"""When the boundaries of chains are announced: after their hold, and again before others forget.

Pure. At most one boundary a second, as receivers take no more of one sender (research: about
one a second); nothing all at once, whether much was published at one time or gliad was away for
long.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count

from glia.graph.ids import ModelId, PrefixKey, WindowId

EVERY_S = 1.0  # from one announcement to the next
FIRST_SPREAD_S = 10.0  # after the hold
AGAIN_S = 20 * 3600.0  # receivers keep a record for 22 hours or more
AGAIN_SPREAD_S = 2 * 3600.0  # sooner than that
LATE_SPREAD_S = 600.0  # where that was long ago
FAILED_AGAIN_S = 60.0
ABSENT_AGAIN_S = 600.0


def held_until_s(now_s: float, hold_s: float) -> int:
    """When a hold that begins now is over, in whole seconds, as it is kept: never sooner."""
    return math.ceil(now_s + hold_s)


def topic_of(model_id: ModelId) -> str:
    """Where the links of a model's chains are gossiped."""
    return f"/glia/1/{model_id.hex()}"


@dataclass(frozen=True, slots=True)
class Boundary:
    """A window at which a chain is announced.

    Attributes:
        num_windows: of the chain up to it.
        hold_until_s: not before, seconds since 1970.
        announced_s: when it was last, 0 for never.
    """

    window_id: WindowId
    prefix_key: PrefixKey
    model_id: ModelId
    num_windows: int
    hold_until_s: float
    announced_s: float


class Announcing:
    """What is announced next. Times are seconds since 1970.

    `next` gives a boundary away; `done`, `failed`, `absent` or `drop` says what became of it.
    """

    def __init__(self, source: random.Random) -> None:
        self._random = source
        self._due: list[tuple[float, int, Boundary]] = []
        self._numbers = count()
        self._known: set[WindowId] = set()
        self._next_s = 0.0
        self._last: Boundary | None = None  # that was given away

    def add(self, boundaries: Iterable[Boundary], now_s: float) -> None:
        """These are to be announced, and again and again; those that are known stay as they are."""
        for boundary in boundaries:
            if boundary.window_id not in self._known:
                self._known.add(boundary.window_id)
                self._push(boundary, self._due_s(boundary, now_s))

    def next(self, now_s: float) -> Boundary | None:
        """What is to be announced now."""
        if self.wait_s(now_s) > 0:
            return None
        self._next_s = now_s + EVERY_S
        self._last = heapq.heappop(self._due)[2]
        return self._last

    def wait_s(self, now_s: float) -> float:
        """How long there is nothing to announce."""
        if not self._due:
            return float("inf")
        pause_s = min(self._next_s - now_s, EVERY_S)  # whatever the clock was set to
        return max(0.0, self._due[0][0] - now_s, pause_s)

    def done(self, boundary: Boundary, now_s: float) -> None:
        """It was announced."""
        self._push(boundary, self._again_s(now_s))

    def failed(self, boundary: Boundary, now_s: float) -> None:
        """Nobody could be told."""
        self._push(boundary, now_s + FAILED_AGAIN_S * self._random.uniform(1.0, 2.0))

    def absent(self, boundary: Boundary, now_s: float) -> None:
        """Its blocks are not here, so nobody was told: its turn is another's."""
        self._push(boundary, now_s + ABSENT_AGAIN_S * self._random.uniform(1.0, 2.0))
        if self._last is boundary:
            self._next_s = now_s

    def drop(self, boundary: Boundary) -> None:
        """It is published no longer."""
        self._known.discard(boundary.window_id)

    def backlog(self, now_s: float) -> int:
        """How many could have been announced by now, by their hold and their age."""
        return sum(due_s <= now_s for due_s, _, _ in self._due)

    def _push(self, boundary: Boundary, due_s: float) -> None:
        heapq.heappush(self._due, (due_s, next(self._numbers), boundary))

    def _due_s(self, boundary: Boundary, now_s: float) -> float:
        if not boundary.announced_s:
            first_s = max(now_s, boundary.hold_until_s)
            return first_s + self._random.uniform(0.0, FIRST_SPREAD_S)
        again_s = self._again_s(boundary.announced_s)
        return max(again_s, now_s + self._random.uniform(0.0, LATE_SPREAD_S))

    def _again_s(self, announced_s: float) -> float:
        return announced_s + AGAIN_S - self._random.uniform(0.0, AGAIN_SPREAD_S)
