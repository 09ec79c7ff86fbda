"""The end of the store while bytes and rows are written: both are there, or neither is."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from glia.errors import StoreBroken
from glia.store.append import Appender
from glia.store.catalog import Catalog
from glia.store.group import GROUPS_AT
from glia.store.index import NO_SPACE, DiskFull
from glia.store.plan import Cursor, Plan

_SEGMENTS_PER_CAP = 8  # one that stays for a few windows should not be much of a small store


class Tail:
    """Where the next group goes. Under the catalog's lock."""

    def __init__(self, catalog: Catalog, start: Cursor, cap_bytes: int, segment_bytes: int) -> None:
        self._catalog = catalog
        self._appender = Appender(catalog.segments, start)
        self.segment_bytes = max(GROUPS_AT, min(segment_bytes, cap_bytes // _SEGMENTS_PER_CAP))

    @property
    def end(self) -> Cursor:
        """Where the next group goes."""
        return self._appender.cursor

    @contextmanager
    def appended(self, plan: Plan) -> Iterator[None]:
        """The plan's groups are on disk; when leaving with an error, they never were.

        Raises: DiskFull, StoreBroken.
        """
        before = self.end
        try:
            self._appender.append(plan.groups)
            yield
        except OSError as error:
            self._undo(before, plan)
            if error.errno in NO_SPACE:
                raise DiskFull from error
            raise StoreBroken(f"the store cannot be written: {error.strerror}") from error
        except BaseException:
            self._undo(before, plan)
            raise

    def leave(self, gone: Collection[int]) -> None:
        """Go on in a new segment where this one is among those that go."""
        number = self.end.segment
        if number in gone:
            self._appender.leave(max(self._catalog.state.next_segment, number + 1))

    def leave_lost(self) -> set[int]:
        """The segment being written, where somebody removed its file: left, then."""
        if not self._appender.is_lost:
            return set()
        lost = {self.end.segment}
        self.leave(lost)
        return lost

    def close(self) -> Cursor:
        """Release the segment; where it ended."""
        self._appender.close()
        return self.end

    def _undo(self, before: Cursor, plan: Plan) -> None:
        if not plan.groups:
            return
        following = plan.end.segment + 1
        try:
            self._appender.rewind(before, following)
        except OSError:
            self._appender.leave(following)
        self._catalog.skip_to(following)
