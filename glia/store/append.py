"""The end of the newest segment. Everything older is only read, and removed whole.

A segment that a crash or a refusal may have touched is never appended to again:
what an index that outlived its bytes names would otherwise be other bytes later.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from glia.store.base import Buffer
from glia.store.files import cut, write_all
from glia.store.group import encode_segment_head
from glia.store.plan import Cursor, Placed
from glia.store.segment import Segments


class Appender:
    """The end of the newest segment. One thread at a time."""

    def __init__(self, segments: Segments, cursor: Cursor) -> None:
        """Args: cursor: where to go on; offset 0 where that segment is still to be made."""
        self._segments = segments
        self._fd = -1
        self.cursor = cursor
        if cursor.offset:
            self._fd = os.open(segments.file(cursor.segment), os.O_WRONLY | os.O_CLOEXEC)
            os.lseek(self._fd, cursor.offset, os.SEEK_SET)

    def append(self, groups: Sequence[Placed]) -> None:
        """Write groups where they were placed, and return when they are durable.

        Raises: OSError; then `rewind`.
        """
        pieces: list[Buffer] = []
        for group in groups:
            if group.segment != self.cursor.segment or self._fd < 0:
                self._flush(pieces)
                self._begin(group.segment)
            pieces.extend(group.pieces)
            self.cursor = Cursor(group.segment, group.offset + group.size)
        self._flush(pieces)
        if groups:
            os.fdatasync(self._fd)

    def rewind(self, to: Cursor, following: int) -> None:
        """Give up what was written after `to`, and go on in the new segment `following`.

        The old segment is cut where `to` is, as far as the file system lets us.
        """
        self.close()
        for number in self._segments.on_disk():
            if number > to.segment or (number == to.segment and not to.offset):
                self._segments.file(number).unlink(missing_ok=True)
            elif number == to.segment:
                cut(self._segments.file(number), to.offset)
        self.cursor = Cursor(following, 0)

    @property
    def is_lost(self) -> bool:
        """Whether somebody removed the file: what would be appended could not be found again."""
        return self._fd >= 0 and not os.fstat(self._fd).st_nlink

    def leave(self, number: int) -> None:
        """Go on in the new segment `number`."""
        self.close()
        self.cursor = Cursor(number, 0)

    def close(self) -> None:
        """Release the file; idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _begin(self, number: int) -> None:
        if self._fd >= 0:
            os.fdatasync(self._fd)
            self.close()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(self._segments.file(number), flags, 0o600)
        write_all(self._fd, [encode_segment_head(number)])
        self._segments.sync_directory()

    def _flush(self, pieces: list[Buffer]) -> None:
        if pieces:
            write_all(self._fd, pieces)
            pieces.clear()
