"""Questions to an open store, answered over damage: from a new index, or as a miss."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import TypeVar

from glia.errors import GliaError, StoreBroken
from glia.graph.ids import BlockId, WindowId, short
from glia.store.catalog import Catalog, Found
from glia.store.index import IndexDamaged
from glia.store.reading import Wanted, read_and_verify, read_one
from glia.store.remover import Remover
from glia.store.repair import Mender
from glia.store.schema import Location, runs_of, spans_of

_T = TypeVar("_T")
_NAMES_AT_ONCE = 1024


class Reader:
    """What may be asked from any thread."""

    def __init__(self, catalog: Catalog, mender: Mender, remover: Remover) -> None:
        self.catalog = catalog
        self._mender = mender
        self._remover = remover

    def ask(self, question: Callable[[], _T], miss: _T) -> _T:
        """The answer; from a new index where this one is damaged; a miss where that fails too."""
        seen = self.catalog.generation
        try:
            try:
                return question()
            except IndexDamaged:
                self._mender.rebuild(seen)
                return question()
        except GliaError:
            return miss

    def find(self, window_id: WindowId) -> Found | None:
        """A whole window, its record verified."""
        return self.ask(partial(self._mender.find, window_id), None)

    def names(self) -> Iterator[WindowId]:
        """Ids of all windows, whole or not; what changes meanwhile may be among them or not."""
        after = b""
        while True:
            nothing: list[WindowId] = []
            page = self.ask(partial(self.catalog.windows_after, after, _NAMES_AT_ONCE), nothing)
            yield from page
            if len(page) < _NAMES_AT_ONCE:
                return
            after = page[-1]

    def load(self, window_ids: Sequence[WindowId], into: Sequence[memoryview]) -> list[bool]:
        """See BlockStore. Raises: ValueError for a buffer that is not as long as its window."""
        answers = [False] * len(window_ids)
        before: dict[WindowId, WindowId] = {}
        numbers: list[int] = []
        wanted: list[Wanted] = []
        for number, (window_id, view) in enumerate(zip(window_ids, into, strict=True)):
            found = self.find(window_id)
            if found is None:
                continue
            if view.nbytes != sum(found.lengths):
                raise ValueError(f"window {short(window_id)} has {sum(found.lengths)} bytes")
            before[window_id] = found.record.prev
            numbers.append(number)
            wanted.append(Wanted(found.record.blocks, found.lengths, found.spans, view))
        for number, window, bad in zip(
            numbers, wanted, read_and_verify(self.catalog.segments, wanted), strict=True
        ):
            mended = [self.read_again(window, ordinal) for ordinal in bad]  # all of them
            answers[number] = all(mended)
        followed = set(before.values())
        self.note([name for name in before if name not in followed])
        return answers

    def read_blocks(
        self, block_ids: Sequence[BlockId], into: memoryview
    ) -> list[memoryview | None]:
        """See BlockStore. What lies together on disk is read at once."""
        nothing: list[Location | None] = [None] * len(block_ids)
        found: list[memoryview | None] = []
        known: list[tuple[BlockId, Location]] = []
        at = 0
        for block_id, where in zip(
            block_ids, self.ask(lambda: self.catalog.blocks(block_ids), nothing), strict=True
        ):
            end = at + (where.length if where is not None else 0)
            if end > into.nbytes:
                break
            found.append(into[at:end] if where is not None else None)
            if where is not None:
                known.append((block_id, where))
            at = end
        names = [block_id for block_id, _ in known]
        places = [where for _, where in known]
        lengths = [where.length for where in places]
        wanted = Wanted(names, lengths, spans_of(runs_of(places), lengths), into[:at])
        (bad,) = read_and_verify(self.catalog.segments, [wanted])
        ordinals = [index for index, particle in enumerate(found) if particle is not None]
        for ordinal in bad:
            if not self.read_again(wanted, ordinal):
                found[ordinals[ordinal]] = None
        return found

    def read_again(self, window: Wanted, ordinal: int) -> bool:
        """Once more, from where the block's own row says; quarantine what is bad there too."""
        block_id = window.blocks[ordinal]
        at = sum(window.lengths[:ordinal])
        where = self.ask(lambda: self.catalog.block(block_id), None)
        if where is None or where.length != window.lengths[ordinal]:
            return False
        return bool(self.read_one(block_id, where, window.into[at : at + where.length]))

    def read_one(self, block_id: BlockId, where: Location, into: memoryview) -> bool | None:
        """Whether the bytes are as named; False quarantines; None where they cannot be had."""
        try:
            good = read_one(self.catalog.segments, block_id, where, into)
        except StoreBroken:
            return None  # no word against the bytes: nothing is removed
        if good is None:
            self.ask(lambda: self._lose(where.segment), None)
        elif not good:
            self.ask(lambda: self.catalog.quarantine(block_id, where), None)
        return good

    def note(self, window_ids: Collection[WindowId]) -> None:
        """These were used now, and so were those before them."""
        self.ask(lambda: self.catalog.note_uses(window_ids), None)

    def _lose(self, number: int) -> None:
        with self.catalog.lock:
            self._remover.lose({number})
