"""The key that HTTP requests carry: a file of the data dir, made once, for its owner only."""

from __future__ import annotations

import os
import re
import secrets
import stat
from pathlib import Path

from glia.errors import BadRequest, StoreBroken

_KEY_BYTES = 32
_KEY = re.compile(rb"[A-Za-z0-9_-]{32,256}")
_READ_BYTES = 1024


def http_key(path: Path) -> str:
    """The key in `path`, made where there is no such file.

    Raises: BadRequest (a symlink, of another user, open to others, not a key), StoreBroken.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return _make(path)
    except OSError as error:
        raise BadRequest(f"{path}: {error.strerror}", hint=_anew(path)) from error
    try:
        _check(os.fstat(fd), path)
        data = os.read(fd, _READ_BYTES).strip()
    finally:
        os.close(fd)
    if not _KEY.fullmatch(data):
        raise BadRequest(f"{path}: not a key", hint=_anew(path))
    return data.decode()


def _check(status: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        raise BadRequest(f"{path}: not a file of yours", hint=_anew(path))
    if status.st_mode & 0o077:
        raise BadRequest(
            f"{path} is open to other users, who may have read it",
            hint=f"{_anew(path)}, or: chmod 600 {path}",
        )


def _make(path: Path) -> str:
    key = secrets.token_urlsafe(_KEY_BYTES)
    partial = path.with_name(f"{path.name}.partial")
    try:
        partial.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(partial, flags, 0o600), "w") as file:
            file.write(f"{key}\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        raise StoreBroken(f"{path}: {error.strerror}") from error
    return key


def _anew(path: Path) -> str:
    return f"rm {path}, and gliad start makes a new one"
