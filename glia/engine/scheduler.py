"""Who computes next. Decides only: touches no slot, no model, no clock.

Prefill goes one sequence at a time, first come first served, so that requests with one
prefix that come at once compute it once: each looks for its prefix when its own turn
comes. Decoding goes round all running sequences, one token each.

A sequence starts only when L0 has room for the longest it may become, beside all that
run: so none that runs is ever stopped for want of a slot. Shared windows are counted once
for each sequence: too careful, never wrong.
"""

from __future__ import annotations

from collections import deque

from glia.engine.promise import promise
from glia.engine.sequence import Sequence, State
from glia.errors import PoolExhausted


class Scheduler:
    """The queue and the running set.

    Args:
        num_slots: slots of L0.
        block_size: tokens of a slot.
        max_running: most sequences between admission and their end.
    """

    def __init__(self, num_slots: int, block_size: int, max_running: int) -> None:
        self._num_slots = num_slots
        self._block_size = block_size
        self._max_running = max_running
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self._reserved = 0

    @property
    def waiting(self) -> tuple[Sequence, ...]:
        """In the order they will start."""
        return tuple(self._waiting)

    @property
    def running(self) -> tuple[Sequence, ...]:
        """In the order they started."""
        return tuple(self._running)

    def add(self, sequence: Sequence) -> None:
        """Queue it. Raises: PoolExhausted where L0 could never hold it."""
        needed = sequence.num_slots
        if needed > self._num_slots:
            room = self._num_slots * self._block_size
            raise PoolExhausted(
                f"prompt and max_tokens need {sequence.limit} tokens of L0, which has room "
                f"for {room}",
                hint=f"ask for fewer tokens (max_tokens), or give [l0] size "
                f"{needed / self._num_slots:.1f} times its value in glia.toml",
            )
        self._waiting.append(sequence)

    def start_now(self, sequence: Sequence) -> None:
        """Let a fork run at once. Raises: PoolExhausted where there is no room right now."""
        if self._reserved + sequence.num_slots > self._num_slots:
            raise PoolExhausted("L0 has no room for a fork beside what runs")
        self._start(sequence)

    def to_prefill(self) -> Sequence | None:
        """The one sequence whose prefill is on, or the next to start, or None.

        A sequence that is still WAITING was started by this call.
        """
        for sequence in self._running:
            if sequence.state in (State.WAITING, State.PREFILLING):
                return sequence
        if not self._waiting or len(self._running) >= self._max_running:
            return None
        if self._reserved + self._waiting[0].num_slots > self._num_slots:
            return None
        sequence = self._waiting.popleft()
        self._start(sequence)
        return sequence

    def to_decode(self) -> tuple[Sequence, ...]:
        """Those that get one more token each in this step."""
        return tuple(s for s in self._running if s.state is State.DECODING)

    def remove(self, sequence: Sequence) -> None:
        """It is over, wherever it was."""
        if sequence in self._running:
            self._running.remove(sequence)
            self._reserved -= sequence.num_slots
        else:
            self._waiting.remove(sequence)

    def check(self) -> None:
        """The invariants, for tests and idle time."""
        reserved = sum(s.num_slots for s in self._running)
        promise(self._reserved == reserved <= self._num_slots, "what is reserved fits")
        promise(all(s.state is State.WAITING for s in self._waiting), "the queue waits")
        promise(all(s.state is not State.FINISHED for s in self._running), "what is over left")

    def _start(self, sequence: Sequence) -> None:
        self._reserved += sequence.num_slots
        self._running.append(sequence)
