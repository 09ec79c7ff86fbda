"""Segment files, from the outside: which are live, how long, when last used; reading them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from glia.errors import StoreBroken
from glia.store.group import (
    ALIGN,
    GROUP_HEAD_BYTES,
    GROUP_MAGIC,
    MAX_HEAD_BYTES,
    SEGMENT_HEAD_BYTES,
    Group,
    check_segment_head,
    head_length,
    parse_head,
)

_SUFFIX = ".seg"
MAX_PIECES = 1024  # IOV_MAX
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

    @property
    def tick(self) -> int:
        """The last use of any segment."""
        return self._tick

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
        Raises: StoreBroken where it is there and cannot be opened (no descriptor left).
        """
        try:
            fd = os.open(self.file(number), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except (FileNotFoundError, NotADirectoryError):
            yield None
            return
        except OSError as error:
            raise StoreBroken(f"segment {number} cannot be opened: {error.strerror}") from error
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
        sync_directory(self.path)


def sync_directory(path: Path) -> None:
    """Make what was created, renamed or removed in a directory durable. Raises: OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read_into(fd: int, buffers: Sequence[memoryview], offset: int) -> bool:
    """Fill buffers from a file, one after the other; False where the file ends or fails before."""
    left = list(buffers)
    try:
        while left:
            num = os.preadv(fd, left[:MAX_PIECES], offset)
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


def read_groups(fd: int, offset: int, size: int) -> Iterator[tuple[int, Group]]:
    """The groups of a segment from `offset` to `size`: (offset, head).

    Where a head is damaged, goes on at the next one that is not.
    Raises: StoreBroken where reading fails, StoreVersion.
    """
    check_segment_head(_pread(fd, SEGMENT_HEAD_BYTES, 0))
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
