"""Segment files, from the outside: which are live, how much of them is; opening and erasing."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from glia.errors import StoreBroken
from glia.store.files import sync_directory
from glia.store.holes import can_punch, fill, punch, whole_blocks
from glia.store.schema import Span, Usage

_SUFFIX = ".seg"


class Segments:
    """Live segments. Any thread may ask and read; changes are made under the catalog's lock.

    Attributes:
        gives_back: whether the file system takes ranges of a file back. Where it does not,
            dead ranges are filled with zeros, and count until the whole segment is dead.
        block_bytes: of the file system: what is given back at once.
    """

    def __init__(self, path: Path) -> None:
        """Raises: OSError."""
        path.mkdir(mode=0o700, exist_ok=True)
        self.path = path
        self.gives_back = can_punch(path)
        self.block_bytes = os.statvfs(path).f_frsize
        self._lock = threading.Lock()
        self._usages: dict[int, Usage] = {}
        self._num_bytes = 0

    def file(self, number: int) -> Path:
        """Path of a segment."""
        return self.path / f"{number:08d}{_SUFFIX}"

    def on_disk(self) -> dict[int, int]:
        """Numbers and sizes of the segment files there are, ascending. Raises: OSError."""
        found = {}
        for entry in os.scandir(self.path):
            stem = entry.name.removesuffix(_SUFFIX)
            if entry.name.endswith(_SUFFIX) and stem.isdecimal():
                found[int(stem)] = entry.stat(follow_symlinks=False).st_size
        return dict(sorted(found.items()))

    def put(self, number: int, usage: Usage | None) -> None:
        """What a segment is from now on; None: not live, locations in it are misses."""
        with self._lock:
            old = self._usages.pop(number, Usage())
            self._num_bytes -= old.size - old.num_punched
            if usage is not None:
                self._usages[number] = usage
                self._num_bytes += usage.size - usage.num_punched

    def usage(self, number: int) -> Usage | None:
        """Of a live segment, None for any other."""
        return self._usages.get(number)

    def is_live(self, number: int) -> bool:
        """Whether locations in it may be followed."""
        return number in self._usages

    def numbers(self) -> list[int]:
        """Live segments, ascending."""
        with self._lock:
            return sorted(self._usages)

    @property
    def num_bytes(self) -> int:
        """All live segments together, without what was given back."""
        return self._num_bytes

    @contextmanager
    def reading(self, number: int) -> Iterator[int | None]:
        """A file descriptor of one's own, or None where the file is gone.

        Opened anew each time (10 us): so a segment can be unlinked under a reader.
        Raises: StoreBroken where it is there and cannot be opened (no descriptor left).
        """
        with self._opened(number, os.O_RDONLY) as fd:
            yield fd

    @contextmanager
    def changing(self, number: int) -> Iterator[int | None]:
        """As reading, to write over what is there. Raises: StoreBroken."""
        with self._opened(number, os.O_RDWR) as fd:
            yield fd

    def erase(self, span: Span) -> None:
        """Give a range back, or fill it with zeros; of a file that is gone nothing is left.

        Raises: StoreBroken, OSError.
        """
        with self.changing(span.segment) as fd:
            if fd is None:
                return
            (punch if self.gives_back else fill)(fd, span.offset, span.num_bytes)
        usage = self.usage(span.segment)
        if usage is not None:
            num = usage.num_punched + self.given_back(span)
            self.put(span.segment, replace(usage, num_punched=num))

    def sync(self, number: int) -> None:
        """What was written or erased is durable. Raises: StoreBroken, OSError."""
        with self.changing(number) as fd:
            if fd is not None:
                os.fsync(fd)

    def given_back(self, span: Span) -> int:
        """Bytes that erasing a range gives back to the file system."""
        if not self.gives_back:
            return 0
        return whole_blocks(span.offset, span.num_bytes, self.block_bytes)

    def unlink(self, number: int) -> None:
        """Give the space back. Whoever is reading finishes."""
        self.put(number, None)
        self.file(number).unlink(missing_ok=True)

    def sync_directory(self) -> None:
        """Make creations and removals durable."""
        sync_directory(self.path)

    @contextmanager
    def _opened(self, number: int, flags: int) -> Iterator[int | None]:
        try:
            fd = os.open(self.file(number), flags | os.O_CLOEXEC | os.O_NOFOLLOW)
        except (FileNotFoundError, NotADirectoryError):
            yield None
            return
        except OSError as error:
            raise StoreBroken(f"segment {number} cannot be opened: {error.strerror}") from error
        try:
            yield fd
        finally:
            os.close(fd)
