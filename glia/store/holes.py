"""Ranges of a file: given back to the file system, or filled with zeros; and what is left.

`fallocate` is called through ctypes: Python has no call for it but `posix_fallocate`,
which cannot punch, and a package for one system call would be a dependency too many.
"""

from __future__ import annotations

import ctypes
import errno
import os
import tempfile
from pathlib import Path

_KEEP_SIZE = 1
_PUNCH_HOLE = 2
_ZEROS = bytes(1024 * 1024)

_libc = ctypes.CDLL(None, use_errno=True)
_fallocate = getattr(_libc, "fallocate64", None) or _libc.fallocate
_fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


def can_punch(directory: Path) -> bool:
    """Whether files there give ranges back. Raises: OSError."""
    with tempfile.TemporaryFile(dir=directory) as file:
        file.truncate(len(_ZEROS))
        try:
            punch(file.fileno(), 0, len(_ZEROS))
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.ENOSYS):
                return False
            raise
    return True


def punch(fd: int, offset: int, size: int) -> None:
    """Whole blocks of a range go back to the file system; all of it reads as zeros.

    Raises: OSError.
    """
    if _fallocate(fd, _PUNCH_HOLE | _KEEP_SIZE, offset, size):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def fill(fd: int, offset: int, size: int) -> None:
    """Write zeros over a range. Raises: OSError."""
    end = offset + size
    while offset < end:
        offset += os.pwrite(fd, _ZEROS[: end - offset], offset)


def next_data(fd: int, offset: int, size: int) -> int:
    """The first offset from `offset` on that is in no hole; `size` where there is none."""
    try:
        return min(size, os.lseek(fd, offset, os.SEEK_DATA))
    except OSError as error:
        if error.errno == errno.ENXIO:
            return size
        return offset


def whole_blocks(offset: int, size: int, block_bytes: int) -> int:
    """Bytes of the whole file-system blocks inside a range: what punching it gives back."""
    first = -(-offset // block_bytes)
    end = (offset + size) // block_bytes
    return max(0, end - first) * block_bytes
