"""Fetches a prompt's windows from the back, while its engine computes them from the front.

K and V that come need nothing of those that are computed: so the engine is told where what
came begins, computes up to there, and takes it. What it has computed already is not wanted
any more, and what it never comes to is given back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import trio

from daemon.binding import Binding
from daemon.engine_run import EngineRun
from daemon.memory import Memory
from daemon.transfer import Transfer
from daemon.ways import Way
from glia.errors import GliaError
from glia.graph.ids import PrefixKey
from glia.graph.link import Link
from glia.graph.window import WindowRecord
from p2p.attesting import attested_by
from p2p.getter import Close
from p2p.source import Provides

_PAUSE_S = 0.02  # an engine needs it between two pieces, and not for each window
_log = logging.getLogger("gliad.meeting")


class Meeting:
    """One fetch, beside one run.

    Args:
        chain: from genesis on; of the engine's own numerics class.
        links: that attest it.
        first: windows of it that are here, or that are computed in any case.
        run: where the windows go.
        tell: hears that more came.

    Attributes:
        num_came: windows that came.
    """

    def __init__(
        self,
        memory: Memory,
        way: Way,
        binding: Binding,
        chain: Sequence[WindowRecord],
        links: Sequence[Link],
        keys: Sequence[PrefixKey],
        first: int,
        providers: Sequence[Provides],
        run: EngineRun,
        tell: Callable[[], None],
        nursery: trio.Nursery,
    ) -> None:
        self._memory, self._run, self._tell = memory, run, tell
        self._records, self._keys = chain[first:], keys[first + 1 : len(chain) + 1]
        self._first = first
        base = chain[first - 1] if first else None
        self._transfer = Transfer(
            way, binding, self._records, base, providers, nursery, from_back=True
        )
        self._shelf = memory.shelves.open(binding, self._met)
        peering = way.peering
        self._foreign = peering.published.foreign
        self._signers = attested_by(chain, links, peering.believing.trust_in)
        self._why = "slow"
        self._came, self._is_met = trio.Event(), trio.Event()
        self.num_came = 0

    @property
    def closed(self) -> list[Close]:
        """What each peer gave."""
        return self._transfer.closed

    @property
    def num_taken(self) -> int:
        """Windows that the engine took."""
        return self._shelf.num_taken

    @property
    def num_here(self) -> int:
        """Windows of the chain that are here now, if the engine took some; else 0."""
        return self._shelf.num_windows

    @property
    def why(self) -> str:
        """Why not all of it was used, as FetchedValue says it."""
        if self.num_taken:
            return "" if self.num_taken == len(self._records) else "met"
        return "differs" if self._shelf.is_of_another else self._why

    async def run(self) -> None:
        """Until the engine took what came, or none did; to be cancelled when the run ends."""
        names = [record.window_id for record in self._records]
        try:
            await trio.to_thread.run_sync(self._foreign.expect, names, self._signers)
            try:
                await self._bring()
            finally:
                self._shelf.close()  # from now on no more is taken
                end = self._shelf.num_windows - self._first
                took = names[end - self.num_taken : end]
                with trio.CancelScope(shield=True):
                    await trio.to_thread.run_sync(self._foreign.settle, names, took)
        except GliaError as error:
            self._why = "disk"
            _log.warning("fetching beside a run: %s", error)
        finally:
            self._shelf.close()

    async def take(self, record: WindowRecord, particles: Sequence[memoryview | None]) -> None:
        """The window before those that came is here, too (Sink)."""
        if record.position_start < self._run.num_done:  # it was computed sooner
            self._transfer.cancel()
            return
        await self._shelf.put(record, self._keys[-1 - self.num_came], particles)
        self.num_came += 1
        self._came.set()

    async def _bring(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tell_what_came)
            why = await self._transfer.run(self)
            if not self._transfer.is_cancelled:
                self._why = why or self._why
            if self.num_came:
                await self._is_met.wait()
            nursery.cancel_scope.cancel()

    async def _tell_what_came(self) -> None:
        while True:
            await self._came.wait()
            self._came = trio.Event()
            self._run.meet(self._records[-self.num_came].position_start)
            self._tell()
            await trio.sleep(_PAUSE_S)

    def _met(self) -> None:
        self._transfer.cancel()
        self._is_met.set()
