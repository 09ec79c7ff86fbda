"""How files of conversations are opened, written and removed; what the file system refuses is
an error of ours."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from glia.errors import StoreBroken, StoreFull, UnknownConversation
from glia.store.files import sync_directory

PARTIAL = ".partial"  # of a file that is being made

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_ZEROS = bytes(64 * 1024)


@contextmanager
def opened(path: Path, flags: int) -> Iterator[int]:
    """A file descriptor, of no link; what is made is for its owner. Raises: OSError."""
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        yield fd
    finally:
        os.close(fd)


def read_file(path: Path, size_bytes: int) -> bytes:
    """Its first bytes. Raises: OSError."""
    with opened(path, os.O_RDONLY) as fd, open(fd, "rb", closefd=False) as file:
        return file.read(size_bytes)


def write_at(fd: int, data: bytes, at: int) -> None:
    """All of it. Raises: OSError."""
    rest = memoryview(data)
    while rest:
        num_bytes = os.pwrite(fd, rest, at)
        rest, at = rest[num_bytes:], at + num_bytes


def cut(fd: int, size_bytes: int) -> None:
    """Durably. Raises: OSError."""
    os.ftruncate(fd, size_bytes)
    os.fsync(fd)


def erase_file(path: Path) -> None:
    """Overwrite and remove it, durably. Raises: UnknownConversation, StoreFull, StoreBroken."""
    with telling(path):
        with opened(path, os.O_WRONLY) as fd:
            size_bytes = os.fstat(fd).st_size
            for at in range(0, size_bytes, len(_ZEROS)):
                write_at(fd, _ZEROS[: size_bytes - at], at)
            os.fsync(fd)
        path.unlink()
        sync_directory(path.parent)


@contextmanager
def telling(path: Path) -> Iterator[None]:
    """Raises: UnknownConversation, StoreFull, StoreBroken for what the file system refuses."""
    try:
        yield
    except FileNotFoundError as error:
        raise UnknownConversation(f"{path} is gone", hint="gliad conversations") from error
    except OSError as error:
        if error.errno in _FULL:
            raise StoreFull(f"{path}: {error.strerror}", hint="df -h; free some space") from error
        raise StoreBroken(f"{path}: {error.strerror}", hint=f"ls -l {path}") from error
