"""Putting windows down: room, bytes, sync, names, in this order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from glia.errors import StoreBroken, StoreFull
from glia.graph.ids import WindowId
from glia.store.append import Appender
from glia.store.base import SealedWindow
from glia.store.catalog import Catalog
from glia.store.commit import Ticket
from glia.store.group import SEGMENT_HEAD_BYTES
from glia.store.index import NO_SPACE, IndexDamaged
from glia.store.plan import Cursor, Plan, plan_put

_SEGMENTS_PER_CAP = 8  # evicting one segment should not empty a small store

_T = TypeVar("_T")


class Writer:
    """The one writer of a store; every method is called under the catalog's lock."""

    def __init__(self, catalog: Catalog, cap_bytes: int, segment_bytes: int) -> None:
        self._catalog = catalog
        self._cap = cap_bytes
        self._segment_bytes = max(
            SEGMENT_HEAD_BYTES, min(segment_bytes, cap_bytes // _SEGMENTS_PER_CAP)
        )
        self.num_evicted = 0
        self.spared: frozenset[WindowId] = frozenset()
        self._appender = Appender(catalog.segments, catalog.start)

    def commit(self, tickets: Sequence[Ticket]) -> None:
        """Store all tickets' windows together where the cap has room for them, else one by one.

        Raises: StoreFull, StoreBroken for all; or leaves them in the tickets they concern.
        """
        self._mended(self._catalog.accept_writes)
        together = [window for ticket in tickets for window in ticket.windows]
        if len(tickets) == 1 or self._mended(lambda: self._fits(self._plan(together))):
            self._mended(lambda: self._store(together))
            return
        for ticket in tickets:
            try:
                self._mended(partial(self._store, ticket.windows))
            except (StoreFull, StoreBroken) as error:
                ticket.error = error

    def make_room(self, num_bytes: int, spared: set[int]) -> bool:
        """Evict until `num_bytes` more fit. True where a plan made before no longer holds.

        Raises: StoreFull where nothing is left to evict.
        """
        catalog = self._catalog
        while catalog.num_bytes + num_bytes > self._cap:
            uses = catalog.segments.uses()
            if not uses or num_bytes > self._cap:
                raise StoreFull(
                    f"{num_bytes} bytes do not fit into a store of {self._cap}",
                    hint="raise [l2] size in glia.toml",
                )
            for name in self.spared:
                for number in self._segments_of(name) or ():
                    uses.pop(number, None)
            if not uses:
                raise StoreFull(
                    f"nothing may be evicted: {catalog.num_bytes} bytes are spared",
                    hint="forget conversations, or raise [l2] size in glia.toml",
                )
            victim = min(uses, key=lambda n: (n in spared, n == self._appender.cursor[0], uses[n]))
            is_end = victim == self._appender.cursor.segment
            if is_end:
                self._appender.leave(max(catalog.state.next_segment, victim + 1))
            catalog.drop(victim)
            self.num_evicted += 1
            if is_end or victim in spared:
                return True
        return False

    def close(self) -> None:
        """Release the segment and the catalog, as cleanly as the disk allows."""
        end = self._appender.cursor
        self._appender.close()
        self._catalog.close(end)

    def _mended(self, step: Callable[[], _T]) -> _T:
        """The step; once more, over a new index, where this one is damaged."""
        try:
            try:
                return step()
            except IndexDamaged:
                self._catalog.rebuild(self._catalog.generation)
                return step()
        except OSError as error:
            raise StoreBroken(f"the store cannot be changed: {error}") from error

    def _fits(self, plan: Plan) -> bool:
        return self._catalog.num_bytes + plan.num_bytes <= self._cap

    def _segments_of(self, window_id: WindowId) -> set[int] | None:
        found = self._catalog.find(window_id)
        return found.segments if found is not None else None

    def _plan(self, windows: Sequence[SealedWindow]) -> Plan:
        return plan_put(
            windows,
            self._catalog.blocks,
            self._segments_of,
            self._appender.cursor,
            self._segment_bytes,
        )

    def _store(self, windows: Sequence[SealedWindow]) -> None:
        self._leave_lost()
        plan = self._plan(windows)
        while self.make_room(plan.num_bytes, plan.shared_segments):
            plan = self._plan(windows)
        if plan.groups:
            self._write(plan)
        self._catalog.segments.touch(plan.shared_segments)

    def _leave_lost(self) -> None:
        """Go on in a new segment where the file of this one was removed under us."""
        if self._appender.is_lost:
            number = self._appender.cursor.segment
            self._appender.leave(max(self._catalog.state.next_segment, number + 1))
            self._catalog.lose({number})

    def _write(self, plan: Plan) -> None:
        before = self._appender.cursor
        try:
            self._appender.append(plan.groups)
            self._catalog.commit(plan, plan.end)
        except OSError as error:
            self._undo(before, plan)
            if error.errno in NO_SPACE:
                raise StoreFull(
                    "the disk is full", hint="free disk space; the store goes on by itself"
                ) from error
            raise StoreBroken(f"the store cannot be written: {error.strerror}") from error
        except BaseException:
            self._undo(before, plan)
            raise

    def _undo(self, before: Cursor, plan: Plan) -> None:
        following = plan.end.segment + 1
        try:
            self._appender.rewind(before, following)
        except OSError:
            self._appender.leave(following)
        self._catalog.skip_to(following)
