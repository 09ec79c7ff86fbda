"""Taking windows away: to make room, because they are to be forgotten, or lost their bytes.

Rows first, durably, then the bytes: a crash between leaves no row that lies.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import replace
from itertools import islice

from glia.errors import StoreBroken, StoreFull
from glia.graph.ids import WindowId
from glia.store.base import Forgotten
from glia.store.catalog import Catalog
from glia.store.evict import take_oldest
from glia.store.keys import WINDOW, name_at_end
from glia.store.removal import Removal
from glia.store.schema import Usage, decode_window
from glia.store.tail import Tail

_ROOM_BYTES = 64 * 1024 * 1024  # evicted at once beyond what is needed: one sync for many puts
_ROOMS_PER_CAP = 16  # but of a small store not more than this part
_MAKE_ROOM = "forget conversations, or raise [l2] size in glia.toml"
MAX_AT_ONCE = 512  # windows whose rows are held in memory


class Remover:
    """Removes windows with all they have. Every method is called under the catalog's lock.

    Attributes:
        spared: windows that are never evicted; None: all.
    """

    def __init__(
        self, catalog: Catalog, tail: Tail, cap_bytes: int, missing: Collection[int] = ()
    ) -> None:
        """Args: missing: segments without a file, of which rows may speak: `lose` them."""
        self._catalog = catalog
        self._missing = set(missing)
        self._tail = tail
        self._cap = cap_bytes
        self.spared: frozenset[WindowId] | None = frozenset()
        self.num_evicted = 0

    def make_room(self, num_bytes: int, keep: Collection[WindowId] = ()) -> None:
        """Evict until `num_bytes` more fit, and some room beyond.

        Raises: StoreFull where without these and those spared nothing is left to evict:
            what the last step would have evicted stays.
        """
        if self._catalog.num_bytes + num_bytes <= self._cap:
            return
        self._catalog.write_uses()
        room = min(_ROOM_BYTES, self._cap // _ROOMS_PER_CAP)
        while (missing := self._catalog.num_bytes + num_bytes - self._cap) > 0:
            if not self._catalog.dead.is_empty:
                raise StoreBroken(
                    "what was evicted cannot be erased: it makes no room", hint="gliad doctor"
                )
            self._evict(min(missing, _ROOM_BYTES), min(missing, _ROOM_BYTES) + room, keep)

    def forget(self, window_ids: Sequence[WindowId], going: Set[WindowId]) -> Forgotten:
        """Remove windows for ever.

        The index's files have still to be written anew: the state says so.

        Args: going: these, and what will be forgotten next: of it goes now what shares blocks.
        Raises: StoreBroken, StoreFull, IndexDamaged.
        """
        removal = self._take(window_ids, going)
        freed = self._carry_out(removal, unscrubbed=True)
        self.ensure_erased()
        return Forgotten(removal.num_windows, freed)

    def ensure_erased(self) -> None:
        """What no row names any more is in no segment, durably. Raises: StoreBroken, OSError."""
        if not self._catalog.dead.is_empty:
            raise StoreBroken(
                "what was forgotten cannot be erased from its segments", hint="gliad doctor"
            )
        self._catalog.dead.sync()
        self._catalog.segments.sync_directory()

    def lose(self, numbers: Collection[int] = ()) -> None:
        """Segments whose files are gone: nothing may name them any more; nor those that could
        not be lost when that was to be done.

        Raises: StoreBroken, StoreFull, IndexDamaged.
        """
        self._missing.update(numbers)
        if not self._missing:
            return
        lost = (
            WindowId(name_at_end(key))
            for key, value in self._catalog.index.each(WINDOW)
            if (row := decode_window(value)) is not None
            and any(group.segment in self._missing for group in row.groups)
        )
        while names := list(islice(lost, MAX_AT_ONCE)):
            self._carry_out(self._take(names, frozenset(names)))
        draft = self._catalog.draft()
        draft.usages |= dict.fromkeys(self._missing)
        self._catalog.apply(draft)
        self._missing.clear()

    def _take(self, window_ids: Iterable[WindowId], going: Set[WindowId] = frozenset()) -> Removal:
        removal = Removal(self._catalog, self._tail.end, self._tail.segment_bytes, going)
        for name in window_ids:
            removal.take(name)
        for name in removal.twins:  # taking one may add others
            removal.take(name)
        return removal

    def _evict(self, needed_bytes: int, wanted_bytes: int, keep: Collection[WindowId]) -> None:
        if self.spared is None:
            raise StoreFull("nothing may be evicted: all is spared", hint=_MAKE_ROOM)
        removal = self._take(())
        kept = self.spared.union(keep)
        take_oldest(removal, self._catalog.index, kept, wanted_bytes, MAX_AT_ONCE)
        if removal.freed_bytes < needed_bytes and removal.num_windows < MAX_AT_ONCE:
            left = self._catalog.num_bytes - removal.freed_bytes
            raise StoreFull(
                f"nothing may be evicted: {left} bytes are spared, or continued by what is put",
                hint=_MAKE_ROOM,
            )
        self._carry_out(removal)
        self.num_evicted += removal.num_windows

    def _carry_out(self, removal: Removal, *, unscrubbed: bool = False) -> int:
        """Bytes given back. Raises: StoreBroken, StoreFull, IndexDamaged."""
        catalog, draft = self._catalog, removal.draft
        before, gone = catalog.num_bytes, removal.gone
        usages = {number: catalog.segments.usage(number) or Usage() for number in gone}
        files = {number: usage.size - usage.num_punched for number, usage in usages.items()}
        draft.usages |= dict.fromkeys(gone)
        with self._tail.appended(removal.plan):
            dead = catalog.dead.mark(draft, removal.dead)
            state = replace(catalog.state, unscrubbed=unscrubbed or catalog.state.unscrubbed)
            catalog.apply(draft, state.moved(*removal.plan.end) if removal.plan.groups else state)
        catalog.bad = removal.bad
        catalog.num_quarantined += removal.num_found_bad
        catalog.dead.add(dead, files)
        self._tail.leave(gone)
        catalog.dead.erase()
        return before - catalog.num_bytes
