"""The directory a node lives in: private, of a known format version, and locked while it runs."""

from __future__ import annotations

import fcntl
import os
import shlex
import stat
import time
from contextlib import suppress
from pathlib import Path

from daemon.paths import Paths
from glia.errors import AlreadyRunning, BadRequest, StoreBroken, StoreVersion

FORMAT_VERSION = 1
_LOCK_TRIES = 10
_LOCK_PAUSE_S = 0.05  # a client that looks for us may hold the lock for a moment


def prepare(paths: Paths) -> None:
    """Make the data dir, or see that it is ours alone.

    Raises: BadRequest (it or a directory in it is a symlink, of another user, open to others),
        StoreBroken.
    """
    path = paths.data_dir
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.lstat()
    except OSError as error:
        raise StoreBroken(
            f"{path}: {error.strerror}", hint="choose another: --data-dir DIR"
        ) from error
    if stat.S_ISLNK(status.st_mode):
        raise BadRequest(
            f"{path} is a symlink",
            hint=f"give the real one: --data-dir {shlex.quote(str(path.resolve()))}",
        )
    if status.st_uid != os.geteuid():
        raise BadRequest(
            f"{path} belongs to uid {status.st_uid}", hint="choose another: --data-dir DIR"
        )
    if status.st_mode & 0o077:
        raise BadRequest(f"{path} is open to other users", hint=f"chmod 700 {path}")
    directories = (
        paths.store, paths.models, paths.conversations, paths.published, paths.heard, paths.groups,
    )  # fmt: skip
    for inside in directories:
        if inside.is_symlink():  # what it points to may be open to others, or another's tomorrow
            named, real = shlex.quote(str(inside)), shlex.quote(str(inside.resolve()))
            raise BadRequest(f"{inside} is a symlink", hint=f"rm {named} && mv {real} {named}")
    try:
        paths.models.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise StoreBroken(f"{paths.models}: {error.strerror}") from error


def check_version(paths: Paths) -> None:
    """Write the format version into a new data dir, or see that we can read it.

    The caller holds the lock. Raises: StoreVersion, StoreBroken.
    """
    try:
        text = _read(paths.version)
        if text is None:
            _write(paths.version, f"{FORMAT_VERSION}\n")
            return
    except OSError as error:
        raise StoreBroken(f"{paths.version}: {error.strerror}") from error
    if not (text.strip().isascii() and text.strip().isdigit()):
        raise StoreBroken(
            f"{paths.version}: not a format version", hint="restore it, or start anew"
        )
    if int(text) > FORMAT_VERSION:
        raise StoreVersion(
            f"{paths.data_dir} is of format version {int(text)}, this gliad knows {FORMAT_VERSION}",
            hint="use a newer gliad, or another --data-dir",
        )


class DataDirLock:
    """Held while a node runs; the file carries its pid, if the disk has room for that.

    Attributes:
        predecessor: pid of a node that had it and did not end by itself; "" where none did.

    Raises (on construction): AlreadyRunning.
    """

    def __init__(self, paths: Paths) -> None:
        self._path = paths.lock
        for _ in range(_LOCK_TRIES):
            self._fd = self._open()
            if self._try_lock():
                text = os.pread(self._fd, 20, 0).decode(errors="replace").strip()
                self.predecessor = text or ("" if self._is_new else "unknown")
                self.name_holder()
                return
            os.close(self._fd)
            time.sleep(_LOCK_PAUSE_S)
        holder = _holder(paths.lock)
        raise AlreadyRunning(
            f"gliad is running already at {paths.data_dir}: pid {holder}",
            hint=f"gliad stop --data-dir {shlex.quote(str(paths.data_dir))}",
        )

    def name_holder(self) -> None:
        """Write the pid, if it is not there yet and can be."""
        said = f"{os.getpid()}\n".encode()
        with suppress(OSError):  # without a pid the lock holds as well
            if os.pread(self._fd, len(said) + 1, 0) != said:
                os.ftruncate(self._fd, 0)
                os.pwrite(self._fd, said, 0)

    def release(self) -> None:
        """Remove the file and let go. Idempotent."""
        if self._fd >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self._is_new = True
            with suppress(FileExistsError):
                return os.open(self._path, flags | os.O_EXCL, 0o600)
            self._is_new = False
            return os.open(self._path, flags, 0o600)
        except OSError as error:
            raise StoreBroken(f"{self._path}: {error.strerror}") from error

    def _try_lock(self) -> bool:
        """Whether we hold the lock of the file that has the name."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            named = os.stat(self._path)
        except OSError:  # held, or removed by its last holder
            return False
        held = os.fstat(self._fd)
        return (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino)


def _holder(path: Path) -> str:
    try:
        return (_read(path) or "").strip()[:20] or "unknown"
    except OSError:
        return "unknown"


def _read(path: Path) -> str | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with open(fd, "rb") as file:
        return file.read(64).decode(errors="replace")


def _write(path: Path, text: str) -> None:
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
