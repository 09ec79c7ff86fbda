"""A file that holds one secret: made once, whole, and only ever for its owner's eyes."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from daemon.whole_file import write_private
from glia.errors import BadRequest, StoreBroken

_READ_BYTES = 1024


def read_or_make(path: Path, make: Callable[[], bytes], anew: str) -> bytes:
    """What is in the file, at most 1,024 bytes of it; what `make` gives where there is none.

    Args: anew: the hint: how to come by a new one, and what that means.
    Raises: BadRequest (a symlink, of another user, open to others), StoreBroken.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return _make(path, make())
    except OSError as error:
        raise BadRequest(f"{path}: {error.strerror}", hint=anew) from error
    try:
        _check(os.fstat(fd), path, anew)
        return os.read(fd, _READ_BYTES)
    except OSError as error:
        raise StoreBroken(f"{path}: {error.strerror}") from error
    finally:
        os.close(fd)


def _check(status: os.stat_result, path: Path, anew: str) -> None:
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        raise BadRequest(f"{path}: not a file of yours", hint=anew)
    if status.st_mode & 0o077:
        raise BadRequest(
            f"{path} is open to other users, who may have read it",
            hint=f"{anew}, or: chmod 600 {path}",
        )


def _make(path: Path, secret: bytes) -> bytes:
    try:
        write_private(path, secret)
    except OSError as error:
        raise StoreBroken(f"{path}: {error.strerror}") from error
    return secret
