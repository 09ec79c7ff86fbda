"""Brings the windows that a search found into L1 from the front, while their engine waits.

As long as they come sooner than they are computed, and than computing and fetching would meet.
When the rest should be here in a moment the engine begins: it takes what is here, while that comes.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import trio

from daemon.coming import Tail
from daemon.memory import Memory
from daemon.proving import Proven
from daemon.searching import Wanted
from daemon.telling import Tell
from daemon.transfer import Transfer
from daemon.ways import Way
from glia.errors import GliaError
from glia.graph.window import WindowRecord
from p2p.attesting import attested_by
from p2p.deciding import Patience
from p2p.getter import Close
from p2p.planning import Pace, Plan, plan

_TELL_S = 0.1
_TAIL_S = 0.5  # for so long an engine may wait with what is here; no other prompt begins then
_log = logging.getLogger("gliad.bringing")


@dataclass(frozen=True, slots=True)
class HeadStart:
    """How long an engine waits where it may as well begin, and what is left comes meanwhile.

    Attributes:
        end_s: until then it waits whatever comes.
        is_try: nobody knows how fast it comes: it waits no longer if nothing does.
        num_piece: windows that it computes in one go.
        most: windows that may wait for it.
    """

    end_s: float
    is_try: bool
    num_piece: int
    most: int


class Bringing:
    """One fetch.

    Args:
        found: what was found of what is wanted.
        seen: `hidden.num_changes` before what is here was looked up.
        window_s: what computing one window takes.
        tell: hears how many tokens came.
        begin: the engine may begin; None where it is not to before this has ended.
        fetch_s: how long all should take, as far as that is known.
        head_start: None where the engine cannot compute before this has ended.
    """

    def __init__(
        self,
        memory: Memory,
        way: Way,
        wanted: Wanted,
        found: Proven,
        seen: int,
        window_s: float,
        tell: Tell,
        nursery: trio.Nursery,
        begin: Callable[[], None] | None,
        fetch_s: float,
        head_start: HeadStart | None = None,
    ) -> None:
        self._memory, self._way, self._wanted = memory, way, wanted
        peering = way.peering
        self._window_s, self._head_start = window_s, head_start
        self._answer, self._tell, self._nursery = found.answer, tell, nursery
        self._chain = found.chain
        self._num_before = len(self._chain) - len(found.answer.records)
        key = wanted.keys[self._num_before]
        self._names = [record.window_id for record in found.answer.records]
        self._foreign = peering.published.foreign
        signers = attested_by(self._chain, found.links, peering.believing.trust_in)
        expect = partial(self._foreign.expect, self._names, signers)
        self._sink = memory.adopter.after(wanted.binding, found.answer.base, key, seen, expect)
        # Where the chain left ours before our end, more windows come than are gained.
        self._compute_s = window_s * (len(self._chain) - len(wanted.here))
        each_s = self._compute_s / len(found.answer.records)
        self._patience = Patience(trio.current_time(), self._compute_s, each_s)
        self._scope = trio.CancelScope(deadline=self._patience.deadline_s)
        if head_start is not None and head_start.is_try:
            self._scope.deadline = min(self._scope.deadline, head_start.end_s)
        self._told_s = -math.inf
        self._first_s = 0.0
        self._begin, self._fetch_s = begin, fetch_s
        self._tail: Tail | None = None
        self._transfer: Transfer | None = None

    @property
    def closed(self) -> list[Close]:
        """What each peer gave."""
        return self._transfer.closed if self._transfer else []

    @property
    def num_taken(self) -> int:
        """Windows that came."""
        return len(self._sink.records)

    @property
    def num_here(self) -> int:
        """Windows of the chain that are here now."""
        return self._num_before + self.num_taken

    async def run(self) -> str:
        """Why not all that is wanted came, as Resolved says it; "" where it did."""
        try:
            return await self._run()
        finally:
            if self._tail is not None:
                self._tail.close()
            if self._sink.is_expected:
                self._nursery.start_soon(self._settle)

    async def _run(self) -> str:
        answer, wanted = self._answer, self._wanted
        why = ""
        with self._scope:
            self._transfer = Transfer(
                self._way,
                wanted.binding,
                answer.records,
                answer.base,
                answer.providers,
                self._nursery,
                held=await self._memory.stored(answer.records),
            )
            self._open_tail(self._fetch_s)
            why = await self._transfer.run(self)
        if self._scope.cancelled_caught:
            return "slow"
        return why or ("nobody" if len(self._chain) < wanted.num_windows else "")

    async def take(self, record: WindowRecord, particles: Sequence[memoryview | None]) -> None:
        """A window came (Sink)."""
        await self._sink.take(record, particles)
        now_s = trio.current_time()
        self._patience.arrived(now_s)
        self._scope.deadline = self._patience.deadline_s
        self._came(record, now_s)
        if self._is_better_met(now_s):
            self._scope.cancel()
        if now_s - self._told_s >= _TELL_S:
            self._told_s = now_s
            size = self._wanted.binding.profile.block_size
            self._tell("fetching", size * self.num_taken, size * len(self._answer.records))

    def _came(self, record: WindowRecord, now_s: float) -> None:
        if self.num_taken == 1:
            self._first_s = now_s
        if self._tail is not None:
            self._tail.came(record.window_id)
        elif self.num_taken > 1:
            num_left = len(self._answer.records) - self.num_taken
            self._open_tail(num_left * self._window_fetch_s(now_s))

    def _open_tail(self, left_s: float) -> None:
        """Let the engine begin, where the rest comes in a moment and continues all that is here."""
        left = self._answer.records[self.num_taken :]
        if self._begin is None or left_s > _TAIL_S:
            return
        if not left or self.num_here < len(self._wanted.here):
            return
        first = self.num_here + 1
        keys = self._wanted.keys[first : first + len(left)]
        self._tail = self._memory.coming.open(left, keys)
        self._begin()

    def _window_fetch_s(self, now_s: float) -> float:
        """What one takes, once two came."""
        return (now_s - self._first_s) / (self.num_taken - 1)

    async def _settle(self) -> None:
        """What did not come may be computed here; where that cannot be written, it is a peer's."""
        came = [record.window_id for record in self._sink.records]
        try:
            await trio.to_thread.run_sync(self._foreign.settle, self._names, came)
        except GliaError as error:
            _log.warning("of windows that did not come it stays written that they might: %s", error)

    def _is_better_met(self, now_s: float) -> bool:
        """Whether what is left is had sooner if the engine begins now, as fast as it comes."""
        head, num_left = self._head_start, len(self._answer.records) - self.num_taken
        if head is None or now_s < head.end_s or self.num_taken == 1 or not num_left:
            return False
        pace = Pace(self._window_s, head.num_piece, self._window_fetch_s(now_s))
        return plan(pace, num_left, head.most) is not Plan.WAIT
