"""Reading and writing several buffers with few calls, and making changes of directories durable."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from glia.store.base import Buffer

_MAX_PIECES = 1024  # IOV_MAX


def write_all(fd: int, pieces: Sequence[Buffer]) -> None:
    """Write buffers one after the other, where the file stands. Raises: OSError."""
    left = [memoryview(piece).cast("B") for piece in pieces if len(piece)]
    while left:
        _advance(left, os.writev(fd, left[:_MAX_PIECES]))


def read_into(fd: int, buffers: Sequence[memoryview], offset: int) -> bool:
    """Fill buffers from a file, one after the other; False where the file ends or fails before."""
    left = list(buffers)
    try:
        while left:
            num = os.preadv(fd, left[:_MAX_PIECES], offset)
            if not num:
                return False
            offset += num
            _advance(left, num)
    except OSError:
        return False
    return True


def _advance(left: list[memoryview], num: int) -> None:
    """Take what was done off the front."""
    done = 0
    while done < len(left) and num >= left[done].nbytes:
        num -= left[done].nbytes
        done += 1
    del left[:done]
    if num:
        left[0] = left[0][num:]


def cut(file: Path, size: int) -> None:
    """Shorten a file to `size` bytes, durably, if it is longer and the file system lets us."""
    with suppress(OSError):
        if file.stat().st_size > size:
            os.truncate(file, size)
            with open(file, "rb") as shortened:
                os.fsync(shortened.fileno())


def sync_directory(path: Path) -> None:
    """Make what was created, renamed or removed in a directory durable. Raises: OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
