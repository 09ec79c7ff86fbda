"""One prompt's K/V among peers: who has it, what is the quickest way to it, and getting it.

search    for as long as an engine would wait, and on while it computes
bring     from the front, as long as that is sooner than computing meanwhile; the engine begins
          when most is here
meet      else the engine begins, and what is left comes from the back
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from dataclasses import dataclass

import trio

from daemon.bringing import Bringing, HeadStart
from daemon.engine_run import EngineRun
from daemon.meeting import Meeting
from daemon.memory import Memory
from daemon.proving import Proven
from daemon.searching import Searcher, SearchResult, Wanted
from daemon.telling import Tell
from daemon.ways import Way
from glia.local.messages import Emitted, Progress
from p2p.deciding import budget_s
from p2p.getter import Close
from p2p.planning import Pace, Plan, joint_speed, plan

_PROBE_BYTES = 1 << 20
_SEARCH_SHARE = 0.5  # of the time that computing takes: then little is left to fetch
_BOTH = "prefill and fetch"
_log = logging.getLogger("gliad.pursuing")


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be had.

    Attributes:
        seen: `hidden.num_changes` before what is here was looked up.
        window_s: what computing one window takes.
        num_piece: windows that the engine computes in one go.
        is_last: nothing else is looked for that the engine may need.
    """

    wanted: Wanted
    seen: int
    window_s: float
    num_piece: int
    is_last: bool

    @property
    def compute_s(self) -> float:
        """What computing all that is missing takes."""
        return self.wanted.num_missing * self.window_s


class Pursuit:
    """It runs once.

    Args:
        tell: hears how many tokens came.
        nursery: runs what speaks to a peer.

    Attributes:
        ended: set when nothing more is fetched.
        engine: the run at its engine; whoever hands it over says so.
        why: why no more was fetched, as FetchedValue says it.
        found: what was found, if something was.
        timings_ms: find and fetch: what the engine waited for.
    """

    def __init__(
        self,
        memory: Memory,
        way: Way,
        task: Task,
        tell: Tell,
        counters: Counter[str],
        nursery: trio.Nursery,
    ) -> None:
        self._memory, self._way, self._task = memory, way, task
        self._tell, self._counters, self._nursery = tell, counters, nursery
        self._wanted = task.wanted
        self._scope = trio.CancelScope()
        self._marked_s = self._began_s = trio.current_time()
        self._searched, self._may_begin = trio.Event(), trio.Event()
        self._bringing: Bringing | None = None
        self._meeting: Meeting | None = None
        self.ended = trio.Event()
        self.engine = EngineRun()
        self.why = "unheard"
        self.found: Proven | None = None
        self.timings_ms: dict[str, float] = {}

    # -- for whoever has it done --------------------------------------------------------------

    async def run(self) -> None:
        """Until all is fetched that is to be. Nothing of a peer's is raised."""
        try:
            with self._scope:
                await self._pursue()
        except Exception:
            _log.exception("fetching failed")
        finally:
            if self._meeting is not None:
                self.why = self._meeting.why
            self._begin()
            self.ended.set()

    async def until_begin(self) -> None:
        """Return when the engine is to begin. Giving this up gives all up."""
        try:
            with trio.move_on_after(budget_s(self._task.compute_s)) as waiting:
                await self._searched.wait()
            if waiting.cancelled_caught:
                self._begin()
            await self._may_begin.wait()
        except BaseException:
            self.stop()
            raise

    def heard(self, event: Progress | Emitted) -> Progress | Emitted:
        """What the engine says of the run, as it is to be told on."""
        if isinstance(event, Emitted):
            self.stop()
        elif event.what == "prefill":
            self.engine.num_done = event.done
            self.engine.num_tokens = event.total
            return self._progress() or event
        return event

    def stop(self) -> None:
        """Want nothing more; then `ended`."""
        self._scope.cancel()

    # -- what came of it ----------------------------------------------------------------------

    @property
    def num_met(self) -> int:
        """Windows that came from the back, and were taken."""
        return self._meeting.num_taken if self._meeting else 0

    @property
    def num_windows(self) -> int:
        """Windows that came, and are here."""
        return self.num_met + (self._bringing.num_taken if self._bringing else 0)

    @property
    def num_here(self) -> int:
        """Leading windows of what was found that are here, if some came."""
        if self._meeting and self._meeting.num_taken:
            return self._meeting.num_here
        return self._bringing.num_here if self._bringing else 0

    @property
    def closed(self) -> list[Close]:
        """What each peer gave, in the order in which they ended; one may have ended twice."""
        return [
            *(self._bringing.closed if self._bringing else ()),
            *(self._meeting.closed if self._meeting else ()),
        ]

    # -- doing it -----------------------------------------------------------------------------

    async def _pursue(self) -> None:
        budget = budget_s(self._task.compute_s)
        searcher = Searcher(self._way, self._counters, self._nursery)
        longest_s = max(budget, _SEARCH_SHARE * self._task.compute_s)
        result = await searcher.search(self._wanted, longest_s)
        took_s = trio.current_time() - self._began_s
        self._mark("find")
        self._searched.set()
        self.found = result.found
        if result.found is None:
            self.why = why_none(result)
            return
        self._counters["prompts_found"] += 1
        self.why = "slow"
        if not self._may_begin.is_set():
            self.why = await self._bring(result.found, took_s)
            if self.why == "nobody":  # has the rest
                self.why = why_none(result)
            if self.why != "slow":
                return
            self._begin()
        if self._can_meet(result.found):
            await self._meet(result.found)

    async def _bring(self, found: Proven, took_s: float) -> str:
        """Fetch while the engine waits. Returns: as Bringing.run."""
        num, end_s = self._num_missing(found), self._began_s + budget_s(self._task.compute_s)
        can_meet, pace = self._can_meet(found), self._pace(found)
        most = self._memory.shelves.room_for(self._wanted.binding) if can_meet else 0
        if pace is None:
            if can_meet and end_s - trio.current_time() < took_s:
                return "slow"  # nothing can have come by then
        elif plan(pace, num, most) is not Plan.WAIT:
            return "slow"
        self._bringing = Bringing(
            self._memory,
            self._way,
            self._wanted,
            found,
            self._task.seen,
            self._task.window_s,
            self._tell,
            self._nursery,
            self._begin if self._task.is_last else None,
            math.inf if pace is None else pace.fetching_s(num),
            HeadStart(end_s, pace is None, self._task.num_piece, most) if can_meet else None,
        )
        return await self._bringing.run()

    async def _meet(self, found: Proven) -> None:
        """Fetch from the back while the engine computes."""
        binding, num = self._wanted.binding, len(found.chain)
        here = self._bringing.num_here if self._bringing else len(self._wanted.here)
        done = max(here, self.engine.num_done // binding.profile.block_size)
        most = self._memory.shelves.room_for(binding)
        pace = self._pace(found)
        if pace is not None and plan(pace, num - done, most) is Plan.COMPUTE:
            return
        piece = self._task.num_piece  # the one under way is computed whole
        first = max((done // piece + 1) * piece, num - most)
        if first >= num and pace is None and most:  # at least learn how fast the link is
            probe = max(1, _PROBE_BYTES // binding.profile.window_particle_bytes)
            first = max(done, num - min(most, probe))
        if first >= num:
            self.why = "slow" if most else "room"
            return
        self._meeting = Meeting(
            self._memory,
            self._way,
            binding,
            found.chain,
            found.links,
            self._wanted.keys,
            first,
            found.answer.providers,
            self.engine,
            self._tell_progress,
            self._nursery,
        )
        await self._meeting.run()

    def _can_meet(self, found: Proven) -> bool:
        """Whether what an engine computes here is what the chain continues."""
        own = self._wanted.binding.numerics_class
        is_own = all(record.numerics_class == own for record in found.answer.records)
        return is_own and self._num_missing(found) == len(found.answer.records)

    def _num_missing(self, found: Proven) -> int:
        return len(found.chain) - len(self._wanted.here)

    def _pace(self, found: Proven) -> Pace | None:
        """None where the link was not measured lately."""
        providers, now_s = found.answer.providers, time.time()
        speed = joint_speed([self._way.peering.ledger.speed_of(p.peer, now_s) for p in providers])
        if speed is None:
            return None
        fetch_s = self._wanted.binding.profile.window_particle_bytes / speed if speed else math.inf
        rtt_s = min((each.rtt_s for each in providers if each.rtt_s is not None), default=0.0)
        return Pace(self._task.window_s, self._task.num_piece, fetch_s, rtt_s)

    def _begin(self) -> None:
        if self._bringing is not None:
            self._mark("fetch")
        elif not self.timings_ms:
            self._mark("find")
        self._may_begin.set()

    def _mark(self, part: str) -> None:
        """What the engine has waited for since the last mark."""
        if not self._may_begin.is_set():
            now_s = trio.current_time()
            self.timings_ms[part] = (now_s - self._marked_s) * 1000
            self._marked_s = now_s

    def _tell_progress(self) -> None:
        progress = self._progress()
        if progress is not None:
            self._tell(progress.what, progress.done, progress.total)

    def _progress(self) -> Progress | None:
        """How far computing and fetching are together, where both are going on."""
        engine, meeting = self.engine, self._meeting
        if meeting is None or not meeting.num_came or meeting.num_taken or not engine.num_tokens:
            return None
        came = meeting.num_came * self._wanted.binding.profile.block_size
        return Progress(0, _BOTH, min(engine.num_tokens, engine.num_done + came), engine.num_tokens)


def why_none(result: SearchResult) -> str:
    """Why nothing was found, as FetchedValue says it."""
    if result.is_untrusted:
        return "untrusted"
    return "unheard" if result.is_unheard else "nobody"
