"""Brings the windows that a search found into L1, as long as they come sooner than computed."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from functools import partial

import trio

from daemon.memory import Memory
from daemon.peering import Peering
from daemon.proving import Proven
from daemon.searching import Wanted
from daemon.telling import Tell
from glia.errors import ArenaExhausted, GliaError, MalformedParticle
from glia.graph.window import WindowRecord
from p2p.deciding import Patience, fetch_s
from p2p.fetching import Fetch
from p2p.getter import Close, Session
from p2p.host import PeerId, Stream
from p2p.messages import BLOCKS

_TELL_S = 0.1
_log = logging.getLogger("gliad.bringing")


class Bringing:
    """One fetch.

    Args:
        found: what was found of what is wanted.
        seen: `hidden.num_changes` before what is here was looked up.
        window_s: what computing one window takes.
        tell: hears how many tokens came.

    Attributes:
        closed: what each peer gave.
    """

    def __init__(
        self,
        memory: Memory,
        peering: Peering,
        wanted: Wanted,
        found: Proven,
        seen: int,
        window_s: float,
        tell: Tell,
        nursery: trio.Nursery,
    ) -> None:
        self._memory, self._peering, self._wanted = memory, peering, wanted
        self._answer, self._tell, self._nursery = found.answer, tell, nursery
        self._chain = found.chain
        self._num_before = len(self._chain) - len(found.answer.records)
        key = wanted.keys[self._num_before]
        self._names = [record.window_id for record in found.answer.records]
        self._foreign = peering.published.foreign
        expect = partial(self._foreign.expect, self._names)
        self._sink = memory.adopter.after(wanted.binding, found.answer.base, key, seen, expect)
        # Where the chain left ours before our end, more windows come than are gained.
        self._compute_s = window_s * (len(self._chain) - len(wanted.here))
        each_s = self._compute_s / len(found.answer.records)
        self._patience = Patience(trio.current_time(), self._compute_s, each_s)
        self._scope = trio.CancelScope(deadline=self._patience.deadline_s)
        self._told_s = -math.inf
        self.closed: list[Close] = []

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
            if self._sink.is_expected:
                self._nursery.start_soon(self._settle)

    async def _run(self) -> str:
        answer, wanted = self._answer, self._wanted
        num_bytes = len(answer.records) * wanted.binding.profile.window_particle_bytes
        if fetch_s(num_bytes, answer.providers) >= self._compute_s:
            return "slow"
        with self._scope:
            why = await self._fetch()
        if self._scope.cancelled_caught:
            return "slow"
        return why or ("nobody" if len(self._chain) < wanted.num_windows else "")

    async def _fetch(self) -> str:
        """Why not all of the answer came."""
        answer = self._answer
        session = Session(
            answer.records,
            answer.base,
            self._wanted.binding.profile,
            answer.providers,
            now_s=trio.current_time(),
            held=await self._memory.stored(answer.records),
        )
        try:
            await Fetch(session, self._open, self, self._done, self._nursery).run()
        except ArenaExhausted:
            return "room"
        except MalformedParticle:
            return "broken"
        except GliaError:  # what was here is gone
            return "lost"
        if session.malformed:
            return "broken"
        return "" if session.is_whole else "lost"

    async def take(self, record: WindowRecord, particles: Sequence[bytes | None]) -> None:
        """A window came (Sink)."""
        await self._sink.take(record, particles)
        now_s = trio.current_time()
        self._patience.arrived(now_s)
        self._scope.deadline = self._patience.deadline_s
        if now_s - self._told_s >= _TELL_S:
            self._told_s = now_s
            size = self._wanted.binding.profile.block_size
            self._tell("fetching", size * self.num_taken, size * len(self._answer.records))

    async def _settle(self) -> None:
        """What did not come may be computed here; where that cannot be written, it is a peer's."""
        came = [record.window_id for record in self._sink.records]
        try:
            await trio.to_thread.run_sync(self._foreign.settle, self._names, came)
        except GliaError as error:
            _log.warning("of windows that did not come it stays written that they might: %s", error)

    async def _open(self, peer: PeerId) -> Stream:
        return await self._peering.open_stream(peer, BLOCKS)

    def _done(self, close: Close) -> None:
        self.closed.append(close)
        self._peering.done(close, self._wanted.binding.model_id)
