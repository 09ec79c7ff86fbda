"""Segment files: appended to by one writer, read by many, removed whole.

`Segments` is the directory: which segments are live, how long, when last used.
`Appender` is the end of the newest one. A segment that a crash may have touched
is never appended to again: what an index that outlived its bytes names would
otherwise be other bytes later.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from glia.errors import StoreBroken
from glia.store.base import Buffer
from glia.store.group import (
    ALIGN,
    GROUP_HEAD_BYTES,
    GROUP_MAGIC,
    MAX_HEAD_BYTES,
    SEGMENT_HEAD_BYTES,
    Group,
    encode_segment_head,
    head_length,
    parse_head,
    segment_head_fits,
)
from glia.store.plan import Cursor, Placed

_SUFFIX = ".seg"
_MAX_PIECES = 1024  # IOV_MAX
_SEARCH_BYTES = 1024 * 1024


class Segments:
    """Live segments: sizes in bytes and last uses. Any thread may read and touch."""

    def __init__(self, path: Path) -> None:
        path.mkdir(mode=0o700, exist_ok=True)
        self.path = path
        self._lock = threading.Lock()
        self._sizes: dict[int, int] = {}
        self._uses: dict[int, int] = {}
        self._changed: set[int] = set()
        self._tick = 0

    def file(self, number: int) -> Path:
        """Path of a segment."""
        return self.path / f"{number:08d}{_SUFFIX}"

    def on_disk(self) -> dict[int, int]:
        """Numbers and sizes of the segment files there are, ascending."""
        found = {}
        for entry in os.scandir(self.path):
            stem = entry.name.removesuffix(_SUFFIX)
            if entry.name.endswith(_SUFFIX) and stem.isdecimal():
                found[int(stem)] = entry.stat(follow_symlinks=False).st_size
        return dict(sorted(found.items()))

    def add(self, number: int, size: int, tick: int | None = None) -> None:
        """Count a segment as live, used last at `tick` (None: now)."""
        with self._lock:
            self._tick = max(self._tick + 1, tick or 0)
            self._sizes[number] = size
            self._uses[number] = self._tick if tick is None else tick
            if tick is None:
                self._changed.add(number)

    def forget(self, number: int) -> None:
        """Not live any more: locations in it are misses from now on."""
        with self._lock:
            self._sizes.pop(number, None)
            self._uses.pop(number, None)

    def size(self, number: int) -> int:
        """Bytes of a live segment, 0 for any other."""
        return self._sizes.get(number, 0)

    def is_live(self, number: int) -> bool:
        """Whether locations in it may be followed."""
        return number in self._sizes

    def touch(self, numbers: set[int]) -> None:
        """These were used now."""
        with self._lock:
            for number in numbers & self._sizes.keys():
                self._tick += 1
                self._uses[number] = self._tick
                self._changed.add(number)

    def uses(self) -> dict[int, int]:
        """Last use of each live segment."""
        with self._lock:
            return dict(self._uses)

    def take_changed(self) -> dict[int, int]:
        """Last uses that nobody has taken yet: to be written down with the next batch."""
        with self._lock:
            changed = {number: self._uses[number] for number in self._changed & self._uses.keys()}
            self._changed.clear()
        return changed

    @property
    def num_bytes(self) -> int:
        """All live segments together."""
        with self._lock:
            return sum(self._sizes.values())

    @contextmanager
    def reading(self, number: int) -> Iterator[int | None]:
        """A file descriptor of one's own, or None where the file is gone.

        Opened anew each time (10 us): so a segment can be unlinked under a reader.
        """
        try:
            fd = os.open(self.file(number), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            yield None
            return
        try:
            yield fd
        finally:
            os.close(fd)

    def unlink(self, number: int) -> None:
        """Give the space back. Whoever is reading finishes."""
        self.forget(number)
        self.file(number).unlink(missing_ok=True)

    def sync_directory(self) -> None:
        """Make creations and removals durable."""
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


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


def write_all(fd: int, pieces: Sequence[Buffer]) -> None:
    """Write buffers one after the other without joining them. Raises: OSError."""
    left = [memoryview(piece).cast("B") for piece in pieces if len(piece)]
    while left:
        num = os.writev(fd, left[:_MAX_PIECES])
        done = 0
        while done < len(left) and num >= left[done].nbytes:
            num -= left[done].nbytes
            done += 1
        del left[:done]
        if num:
            left[0] = left[0][num:]


def read_into(fd: int, buffers: Sequence[memoryview], offset: int) -> bool:
    """Fill buffers from a file, one after the other; False where the file ends or fails before."""
    left = list(buffers)
    try:
        while left:
            num = os.preadv(fd, left[:_MAX_PIECES], offset)
            if not num:
                return False
            offset += num
            done = 0
            while done < len(left) and num >= left[done].nbytes:
                num -= left[done].nbytes
                done += 1
            del left[:done]
            if num:
                left[0] = left[0][num:]
    except OSError:
        return False
    return True


def cut(file: Path, size: int) -> None:
    """Shorten a file to `size` bytes if it is longer and the file system lets us."""
    try:
        if file.stat().st_size > size:
            os.truncate(file, size)
    except OSError:
        return


def read_groups(fd: int, number: int, offset: int, size: int) -> Iterator[tuple[int, Group]]:
    """The groups of a segment from `offset` to `size`: (offset, head).

    Where a head is damaged, goes on at the next one that is not.
    Raises: StoreBroken where reading fails, StoreVersion.
    """
    # A damaged segment head loses nothing (heads of groups carry checks of their own),
    # but a newer version is refused here.
    segment_head_fits(_pread(fd, SEGMENT_HEAD_BYTES, 0), number)
    offset = max(offset, SEGMENT_HEAD_BYTES)
    while offset < size:
        group = _group_at(fd, offset)
        if group is not None and offset + group.size <= size:
            yield offset, group
            offset += group.size
        else:
            offset = _next_magic(fd, offset + ALIGN, size)


def _group_at(fd: int, offset: int) -> Group | None:
    fixed = _pread(fd, 4096, offset)
    length = head_length(fixed[:GROUP_HEAD_BYTES])
    if length is None:
        return None
    if length > len(fixed):
        fixed = _pread(fd, min(length, MAX_HEAD_BYTES), offset)
    return parse_head(fixed)


def _next_magic(fd: int, offset: int, size: int) -> int:
    """The next aligned offset at which a group may begin; `size` where there is none."""
    while offset < size:
        data = _pread(fd, _SEARCH_BYTES, offset)
        at = data.find(GROUP_MAGIC)
        while at >= 0:
            if at % ALIGN == 0:
                return offset + at
            at = data.find(GROUP_MAGIC, at + 1)
        offset += _SEARCH_BYTES
    return size


def _pread(fd: int, num: int, offset: int) -> bytes:
    try:
        return os.pread(fd, num, offset)
    except OSError as error:
        raise StoreBroken(f"a segment cannot be read: {error.strerror}") from error
