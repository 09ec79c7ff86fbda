"""Putting windows down: room, bytes, sync, names, in this order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from glia.errors import StoreBroken, StoreFull
from glia.graph.ids import BlockId, WindowId
from glia.store.base import WindowDown
from glia.store.catalog import Catalog
from glia.store.commit import Ticket
from glia.store.index import DiskFull, IndexDamaged
from glia.store.plan import Plan, plan_put
from glia.store.remover import Remover
from glia.store.repair import Mender
from glia.store.reserve import Reserve
from glia.store.schema import Location, Span
from glia.store.tail import Tail

_T = TypeVar("_T")


class Writer:
    """The one writer of a store; methods are called under the catalog's lock."""

    def __init__(
        self,
        catalog: Catalog,
        mender: Mender,
        tail: Tail,
        remover: Remover,
        reserve: Reserve,
        cap_bytes: int,
    ) -> None:
        """Args: cap_bytes: without the reserve."""
        self._catalog = catalog
        self._mender = mender
        self._tail = tail
        self._remover = remover
        self._reserve = reserve
        self._cap = cap_bytes

    def commit(self, tickets: Sequence[Ticket]) -> None:
        """Store all tickets' windows together where the cap has room for them, else one by one.

        The reserve comes before them: what fills the disk must leave room to be removed.

        Raises: StoreFull, StoreBroken for all; or leaves them in the tickets they concern.
        """
        if not self.mended(self._reserve.take):
            raise DiskFull
        together = [window for ticket in tickets for window in ticket.windows]
        if len(tickets) == 1 or self.changed(lambda: self._fits(self._plan(together))):
            self.changed(lambda: self._store(together))
            return
        for ticket in tickets:
            try:
                self.changed(partial(self._store, ticket.windows))
            except (StoreFull, StoreBroken) as error:
                ticket.error = error

    def changed(self, step: Callable[[], _T]) -> _T:
        """As mended, of a step that writes: first the index has to take writes again, and what
        could not be erased is tried once more.

        Raises: as mended; StoreFull while it cannot.
        """
        return self._changed(step, few=False)

    def freeing(self, step: Callable[[], _T]) -> _T:
        """As changed, of a step that makes room. Raises: as changed."""
        return self.with_reserve(partial(self._changed, step, few=True))

    def with_reserve(self, step: Callable[[], _T]) -> _T:
        """What a step returns; taken once more, with the reserve's room, where the disk is full.

        The one method that is called without the lock, too. Raises: what the step raises.
        """
        try:
            return step()
        except DiskFull:
            with self._catalog.lock:
                if not self.mended(self._reserve.give_up):
                    raise
            return step()
        finally:
            with self._catalog.lock, suppress(OSError):  # the next put says what is wrong
                self._reserve.take()

    def _changed(self, step: Callable[[], _T], *, few: bool) -> _T:
        self.mended(partial(self._mender.accept_writes, few=few))
        self._catalog.dead.erase()
        return self.mended(step)

    def mended(self, step: Callable[[], _T]) -> _T:
        """What a step returns; taken once more, over a new index, where this one is damaged.

        Raises: StoreBroken for what the file system refuses, and what the step raises.
        """
        try:
            try:
                return step()
            except IndexDamaged:
                self._mender.rebuild(self._catalog.generation)
                return step()
        except OSError as error:
            raise StoreBroken(f"the store cannot be changed: {error}") from error

    # -- what plan_put asks (plan.Stored) ---------------------------------------

    def is_whole(self, window_id: WindowId) -> bool:
        """Whether a window needs nothing. Raises: IndexDamaged."""
        return self._mender.find(window_id) is not None

    def groups_of(self, window_id: WindowId) -> tuple[Span, ...]:
        """What was written for a window before. Raises: IndexDamaged."""
        row = self._catalog.row(window_id)
        return row.groups if row is not None else ()

    def blocks(self, block_ids: Sequence[BlockId]) -> list[Location | None]:
        """Where blocks lie. Raises: IndexDamaged."""
        return self._catalog.blocks(block_ids)

    # --------------------------------------------------------------------------

    def _store(self, windows: Sequence[WindowDown]) -> None:
        self._remover.lose(self._tail.leave_lost())
        plan = self._plan(windows)
        while not self._fits(plan):
            self._make_room(windows, plan)
            plan = self._plan(windows)
        if plan.groups:
            with self._tail.appended(plan):
                self._catalog.commit(plan)
        else:
            self._catalog.note_uses(plan.whole)

    def _plan(self, windows: Sequence[WindowDown]) -> Plan:
        return plan_put(windows, self, self._tail.end, self._tail.segment_bytes)

    def _fits(self, plan: Plan) -> bool:
        return self._catalog.num_bytes + plan.num_bytes <= self._cap

    def _make_room(self, windows: Sequence[WindowDown], plan: Plan) -> None:
        """Evict for a plan, but not what it continues; blocks it counts on may go: plan again."""
        if plan.num_bytes > self._cap:
            raise StoreFull(
                f"{plan.num_bytes} bytes do not fit into a store of {self._cap}",
                hint="raise [l2] size in glia.toml",
            )
        kept = {window.record.window_id for window in windows}
        kept |= {window.record.prev for window in windows}
        self._remover.make_room(plan.num_bytes, kept)
