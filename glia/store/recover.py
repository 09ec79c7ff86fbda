"""From segments to rows: after a crash the tail, after the loss of the index everything.

A group carries all that its rows say, so the index can always be built again. What
is put into it this way is not acknowledged by anybody: what a crash can have torn, the tail or
the newest segment, is hashed before it is named; other blocks of a whole rebuild when they are
first read.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from glia.graph.ids import BlockId
from glia.store.catalog import Catalog
from glia.store.draft import Draft
from glia.store.files import cut
from glia.store.group import Group, groups_at
from glia.store.index import Index
from glia.store.keys import STATE, block_key, quarantine_key, usage_key, window_key
from glia.store.naming import name_window
from glia.store.plan import Named
from glia.store.scan import first_group_at, read_groups
from glia.store.schema import (
    NOT_KNOWN,
    Location,
    Span,
    State,
    Usage,
    WindowRow,
    decode_location,
    decode_window,
    runs_of,
)
from glia.store.segment import Segments
from glia.store.torn import Torn, find_torn, not_as_named

_GROUPS_PER_BATCH = 64
_log = logging.getLogger("gliad.store")


def adopt_tail(catalog: Catalog) -> None:
    """Index the whole groups after `state`, cut what is torn, and move past both.

    The segments adopted become live. A killed process may not have synced them: what is
    named is taken for durable by whoever puts it again.
    Raises: StoreBroken, StoreFull, StoreVersion, OSError.
    """
    catalog.segments.sync_directory()
    for number, size in catalog.segments.on_disk().items():
        state = catalog.state
        if number < state.segment:
            continue
        catalog.segments.sync(number)
        start = state.offset if number == state.segment else 0
        end = _adopt(catalog, number, start, size)
        file = catalog.segments.file(number)
        cut(file, end)
        usage = catalog.segments.usage(number)
        if usage is not None:
            catalog.segments.put(number, replace(usage, size=file.stat().st_size))
        if not end:
            catalog.dead.add((), {number: 0})
        catalog.apply(catalog.draft(), catalog.state.moved(number, end))
    catalog.dead.erase()


def _adopt(catalog: Catalog, number: int, start: int, size: int) -> int:
    """Rows of the unbroken run of whole, verified groups from `start`; and where it ends."""
    end = start
    with catalog.segments.reading(number) as fd:
        if fd is None:
            return end
        for offset, group in read_groups(fd, number, start, size):
            if offset != (end or groups_at(group.version)):
                break
            if not_as_named(fd, group, number, offset):
                break
            draft = catalog.draft()
            name_group(draft, group, number, offset, (), catalog.uses.next())
            end = offset + group.size
            catalog.apply(draft, catalog.state.moved(number, end), sync=False)
    return end


def rebuild(
    path: Path,
    segments: Segments,
    bad: Mapping[BlockId, Location],
    least_next: int,
    *,
    may_be_torn: bool,
) -> tuple[State, dict[int, Usage]]:
    """A new closed index at `path` for all segment files there are.

    What no whole group covers is erased; a segment without a group has no row.

    Args:
        bad: quarantined blocks: they stay it, unless a later copy exists.
        least_next: a number that no new segment may be below.
        may_be_torn: nobody knows how far the newest segment was synced.
    Raises: StoreBroken, StoreFull, StoreVersion, OSError.
    """
    on_disk = segments.on_disk()
    segments.sync_directory()
    if on_disk:
        _log.warning("the index is built again from %d segments", len(on_disk))
    shutil.rmtree(path, ignore_errors=True)
    index = Index(path)
    builder = _Builder(index, segments, bad, least_next)
    try:
        for number, size in on_disk.items():
            builder.take(number, size, may_be_torn and number == max(on_disk))
        builder.finish()
    finally:
        index.close()
    if on_disk:
        _log.warning("the index is built: it names %d windows", builder.state.num_windows)
    return builder.state, builder.usages


class _Builder:
    """An index growing, segment by segment."""

    def __init__(
        self, index: Index, segments: Segments, bad: Mapping[BlockId, Location], least_next: int
    ) -> None:
        self._index = index
        self._segments = segments
        self._bad = bad
        self._bad_places = frozenset(bad.values())
        self.state = State(next_segment=least_next)
        self.usages: dict[int, Usage] = {}

    def take(self, number: int, size: int, may_be_torn: bool) -> None:
        """All groups of a segment; but none that is torn and that nobody shares blocks with."""
        self._segments.sync(number)
        gaps: list[Span] = []
        draft = Draft(self._index, self.usages.get)
        with self._segments.reading(number) as fd:
            if fd is None:
                return
            end = first_group_at(fd, number)
            torn = find_torn(fd, number, size) if may_be_torn else Torn()
            bad = self._bad_places | torn.bad
            for done, (offset, group) in enumerate(read_groups(fd, number, 0, size), start=1):
                if offset in torn.alone and not _has_known(draft, group):
                    continue
                gaps.append(Span(number, end, offset - end))
                end = offset + group.size
                self.state = replace(self.state, tick=self.state.tick + 1)
                name_group(draft, group, number, offset, bad, self.state.tick)
                if not done % _GROUPS_PER_BATCH:
                    self._write(draft)
                    draft = Draft(self._index, self.usages.get)
            gaps.append(Span(number, end, size - end))
        self._write(draft)
        self._close(number, size, gaps)

    def finish(self) -> None:
        """Quarantine again, and all of it durable."""
        draft = Draft(self._index, self.usages.get)
        for block_id, where in self._bad.items():
            if draft.get(block_key(block_id)) is None:
                draft.put(quarantine_key(block_id), where.encode())
        self._write(draft, sync=True)

    def _close(self, number: int, size: int, gaps: list[Span]) -> None:
        self.state = self.state.moved(number, size)
        usage = self.usages.get(number)
        if usage is None:
            return
        num_punched = 0
        for gap in [gap for gap in gaps if gap.num_bytes]:
            self._segments.erase(gap)
            num_punched += self._segments.given_back(gap)
        self._segments.sync(number)
        self.usages[number] = replace(usage, size=size, num_punched=num_punched)
        self._index.write([(usage_key(number), self.usages[number].encode())], sync=False)

    def _write(self, draft: Draft, *, sync: bool = False) -> None:
        self.state = draft.counted(self.state)
        self._index.write([*draft.changes(), (STATE, self.state.encode())], sync=sync)
        for number, usage in draft.usages.items():
            if usage is not None:
                self.usages[number] = usage


def name_group(
    draft: Draft,
    group: Group,
    number: int,
    offset: int,
    bad: Collection[Location],
    tick: int,
) -> None:
    """All rows that the head of a group speaks of; of particles, but of the bad ones.

    Raises: StoreBroken.
    """
    here = {block_id: where for block_id, where in group.blocks(number, offset) if where not in bad}
    places = [here.get(block_id) or _known(draft, block_id) for block_id in group.record.blocks]
    value = draft.get(window_key(group.record.window_id))
    old = decode_window(value) if value is not None else None
    row = WindowRow(
        groups=(*(old.groups if old is not None else ()), Span(number, offset, group.size)),
        prefix_key=group.prefix_key,
        runs=runs_of(places),
        lengths=tuple(where.length for where in places),
        encoding=group.record.encoding,
    )
    name_window(draft, Named(group.record, row, here), tick)


def _has_known(draft: Draft, group: Group) -> bool:
    """Whether an older segment has the group's window, or any of its blocks."""
    keys = [window_key(group.record.window_id), *map(block_key, group.record.blocks)]
    return any(value is not None for value in draft.get_many(keys))


def _known(draft: Draft, block_id: BlockId) -> Location:
    value = draft.get(block_key(block_id))
    return (decode_location(value) if value is not None else None) or NOT_KNOWN
