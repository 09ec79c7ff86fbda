"""Room on the disk that is kept for what must go on when there is none: opening, and removing.

LevelDB opens by writing its logs into tables, and what removes windows writes rows first: on a
full disk neither could be done, so nothing would ever be read there, or make room.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from glia.store.index import NO_SPACE, WRITE_BUFFER_BYTES

RESERVE_BYTES = 2 * WRITE_BUFFER_BYTES  # the logs of two write buffers: the most there are
_PER_DISK = 16  # of a small disk, and of a small store, not more than this part
_BLOCK_BYTES = 4096
_SLACK_BYTES = 64 * 1024  # left to others, where not all of it can be had
# Others may be quicker, and the first of them is LevelDB, which compacts what it has just opened:
# each time a part more is left to them.
_MAX_TRIES = 4
_PER_TRY = 8


class Reserve:
    """A file without content that takes room. Under the catalog's lock.

    Attributes:
        wanted_bytes: what it is to have.
        size_bytes: what it has.
    """

    def __init__(self, file: Path, most_bytes: int, cap_bytes: int) -> None:
        """Takes nothing yet; a larger one of a former process is cut. Raises: OSError."""
        self._file = file
        disk = os.statvfs(file.parent)
        most = min(most_bytes, cap_bytes // _PER_DISK, disk.f_blocks * disk.f_frsize // _PER_DISK)
        self.wanted_bytes = most // _BLOCK_BYTES * _BLOCK_BYTES
        self.size_bytes = 0
        try:
            status = file.lstat()
        except FileNotFoundError:
            return
        if not (self.wanted_bytes and stat.S_ISREG(status.st_mode)):  # a link's target is no room
            file.unlink()
            return
        if status.st_size > self.wanted_bytes:
            os.truncate(file, self.wanted_bytes)
        self.size_bytes = min(status.st_size, status.st_blocks * 512, self.wanted_bytes)

    @property
    def is_there(self) -> bool:
        """Whether it has enough: at least half of what is wanted."""
        return 2 * self.size_bytes >= self.wanted_bytes

    def take(self) -> bool:
        """Let it have what is wanted, or what there is of that. Whether it `is_there`."""
        if self.size_bytes == self.wanted_bytes:
            return True
        for tries in range(_MAX_TRIES):
            if self._is_settled(tries * self.wanted_bytes // _PER_TRY):
                break
        return self.is_there

    def give_up(self) -> bool:
        """Let others have the room. Whether there was any. Raises: OSError."""
        had_bytes, self.size_bytes = self.size_bytes, 0
        self._file.unlink(missing_ok=True)
        return had_bytes > 0

    def lend(self) -> None:
        """Give it up where there is less room beside it than it is to have. Raises: OSError."""
        if room_bytes(self._file.parent) < self.wanted_bytes:
            self.give_up()

    def _is_settled(self, left_bytes: int) -> bool:
        """Whether it took what there is but `left_bytes`, or has no use for that."""
        free = room_bytes(self._file.parent) - _SLACK_BYTES
        size_bytes = min(self.wanted_bytes, self.size_bytes + free) - left_bytes
        size_bytes = size_bytes // _BLOCK_BYTES * _BLOCK_BYTES
        if size_bytes <= self.size_bytes or 2 * size_bytes < self.wanted_bytes:
            return True
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(self._file, flags, 0o600)
        try:
            os.posix_fallocate(fd, 0, size_bytes)
            self.size_bytes = size_bytes
        except OSError as error:
            os.ftruncate(fd, self.size_bytes)  # a part of the rest may be there
            if error.errno not in NO_SPACE:
                raise
            return False
        finally:
            os.close(fd)
        return True


def room_bytes(directory: Path) -> int:
    """What the file system has left for files there. Raises: OSError."""
    room = os.statvfs(directory)
    return room.f_bavail * room.f_frsize
