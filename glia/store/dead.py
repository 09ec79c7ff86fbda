"""Ranges of segments that no row names any more, from the batch that says so until they are erased.

A crash between leaves the rows `d`, and the next start erases: twice is as good as once,
because nothing is ever written into a range again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter

from glia.errors import StoreBroken
from glia.store.draft import Draft
from glia.store.keys import dead_key
from glia.store.schema import Span, encode_number
from glia.store.segment import Segments

_log = logging.getLogger("glia.store")


class Dead:
    """Mirrors the rows `d`. Under the catalog's lock."""

    def __init__(self, segments: Segments, spans: Iterable[Span]) -> None:
        """Args: spans: what the rows say."""
        self._segments = segments
        self._left = set(spans)
        self._erased: set[Span] = set()  # their rows go with the next batch

    @property
    def is_empty(self) -> bool:
        """Whether everything is erased."""
        return not self._left

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

    def add(self, spans: Iterable[Span]) -> None:
        """The batch that marked these was written."""
        self._left.update(spans)
        self._left = {span for span in self._left if self._segments.is_live(span.segment)}

    def erase(self) -> None:
        """Erase what is left. What the file system refuses stays."""
        for span in sorted(self._left):
            try:
                self._segments.erase(span)
            except (OSError, StoreBroken) as error:
                _log.warning("segment %d: a range cannot be erased: %s", span.segment, error)
                continue
            self._left.discard(span)
            self._erased.add(span)

    def sync(self) -> None:
        """What was erased since the last batch is durable. Raises: StoreBroken, OSError."""
        for number in {span.segment for span in self._erased}:
            self._segments.sync(number)

    def settle(self, draft: Draft) -> None:
        """No rows any more for what was erased: `settled`, once that is written.

        In every batch, so that a range's row goes when its bytes are counted as given back.
        Raises: IndexDamaged.
        """
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
