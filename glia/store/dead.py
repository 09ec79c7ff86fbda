"""What no row names any more, from the batch that says so until it is erased.

Ranges of segments: a crash between leaves the rows `d`, and the next start erases: twice is as
good as once, because nothing is ever written into a range again. And whole segments: their
files are there without a row.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from operator import attrgetter
from typing import TypeVar

from glia.errors import StoreBroken
from glia.store.draft import Draft
from glia.store.keys import dead_key
from glia.store.schema import Span, encode_number
from glia.store.segment import Segments

_T = TypeVar("_T", Span, int)
_log = logging.getLogger("gliad.store")


class Dead:
    """Mirrors the rows `d`, and knows the segments without a row. Under the catalog's lock."""

    def __init__(
        self, segments: Segments, spans: Iterable[Span], files: Mapping[int, int] | None = None
    ) -> None:
        """Args:
        spans: what the rows say.
        files: segments without a row, and their bytes.
        """
        self._segments = segments
        self._left = set(spans)
        self._files = dict(files or {})
        self._erased: set[Span] = set()  # their rows go with the next batch
        self._unsynced: set[int] = set()  # segments of those
        self._refused: set[Span | int] = set()

    @property
    def is_empty(self) -> bool:
        """Whether everything is erased."""
        return not self._left and not self._files

    @property
    def num_file_bytes(self) -> int:
        """Of segments without a row, which are on the disk all the same."""
        return sum(self._files.values())

    def mark(self, draft: Draft, spans: Iterable[Span]) -> list[Span]:
        """Rows for ranges, and none any more for those of segments that go.

        Returns what is to be erased once the batch is written: `add` it.
        """
        marked = [span for span in joined(spans) if draft.usage(span.segment) is not None]
        for span in marked:
            draft.put(dead_key(span.segment, span.offset), encode_number(span.num_bytes))
        for span in [span for span in self._left if draft.usage(span.segment) is None]:
            draft.remove(dead_key(span.segment, span.offset))
        return marked

    def add(self, spans: Iterable[Span], files: Mapping[int, int]) -> None:
        """The batch that marked these, and removed the rows of these segments, was written."""
        self._left.update(spans)
        self._left = {span for span in self._left if self._segments.is_live(span.segment)}
        self._files |= files

    def erase(self) -> None:
        """Erase what is left. What the file system refuses stays, until this is called again."""
        for number in sorted(self._files):
            if self._is_done(number, "it cannot be removed", self._segments.unlink, number):
                del self._files[number]
        for span in sorted(self._left):
            what = "a range cannot be erased"
            if self._is_done(span.segment, what, self._segments.erase, span):
                self._left.discard(span)
                self._erased.add(span)
                self._unsynced.add(span.segment)

    def _is_done(self, number: int, what: str, step: Callable[[_T], None], on: _T) -> bool:
        try:
            step(on)
        except (OSError, StoreBroken) as error:
            if on not in self._refused:
                _log.warning("segment %d: %s: %s", number, what, error)
            self._refused.add(on)
            return False
        self._refused.discard(on)
        return True

    def sync(self) -> None:
        """What was erased is durable. Raises: StoreBroken."""
        for number in sorted(self._unsynced):
            try:
                self._segments.sync(number)
            except OSError as error:
                raise StoreBroken(f"segment {number} cannot be synced: {error.strerror}") from error
            self._unsynced.discard(number)

    def settle(self, draft: Draft) -> None:
        """No rows any more for what was erased, durably: `settled`, once that is written.

        In every batch, so that a range's row goes when its bytes are counted as given back.
        Raises: IndexDamaged, StoreBroken.
        """
        self.sync()
        for span in self._erased:
            draft.remove(dead_key(span.segment, span.offset))
            usage = draft.usage(span.segment)
            if usage is not None:
                draft.usages[span.segment] = usage

    def settled(self) -> None:
        """The batch of the last `settle` was written."""
        self._erased.clear()


def joined(spans: Iterable[Span]) -> list[Span]:
    """Ranges in order, those side by side as one."""
    found: list[Span] = []
    for segment, group in groupby(sorted(spans), key=attrgetter("segment")):
        for _, offset, num in group:
            last = found[-1] if found else None
            if last and last.segment == segment and last.offset + last.num_bytes == offset:
                found[-1] = Span(segment, last.offset, last.num_bytes + num)
            else:
                found.append(Span(segment, offset, num))
    return found
