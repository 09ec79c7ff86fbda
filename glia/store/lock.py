"""One process per store: an advisory lock that the kernel drops with its holder."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from glia.errors import StoreBroken, StoreLocked

LOCK = "lock"  # its name in a store's directory


class StoreLock:
    """Held from construction to `release`. The file carries the holder's pid."""

    def __init__(self, file: Path) -> None:
        """Raises: StoreLocked at once where another process (or store object) holds it."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._fd = os.open(file, flags, 0o600)
        except OSError as error:
            raise StoreBroken(f"the store's lock cannot be opened: {error.strerror}") from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._fd, 32, 0).decode(errors="replace").strip()
            os.close(self._fd)
            raise StoreLocked(
                f"process {holder or '(unknown)'} has this store open",
                hint="gliad stop, or use another --data-dir",
            ) from error
        with suppress(OSError):  # a full disk: the lock holds without a name
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Idempotent. The file stays: removing it would race with the next holder."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
