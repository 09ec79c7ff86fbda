"""The files of conversations: read, made, appended to, marked, erased. Blocking: for threads.

    NAME.conv        a conversation (glia/spec/8-conversation.md)
    NAME.forget      one that is being forgotten: erased as soon as its windows are
    NAME.bad         one that could not be read, or not all of it, set aside; NAME.bad2, ...
    NAME.partial     one that was being made when gliad ended

Owns no state: what a file is known to be is passed in and comes back. Names are checked
before they come here (glia.graph.conversation.is_name).
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from daemon.aside import files_aside, next_aside
from glia.errors import (
    GliaError,
    MalformedParticle,
    QuotaExceeded,
    StoreBroken,
    StoreFull,
    StoreVersion,
    UnknownConversation,
)
from glia.graph.conversation import Head, Record, Replay, Turn, is_name
from glia.graph.journal import (
    MAX_FILE_BYTES,
    Journal,
    begin_file,
    encode_record,
    read_journal,
)

LIVE, MARKED, PARTIAL = ".conv", ".forget", ".partial"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_ZEROS = bytes(64 * 1024)
_log = logging.getLogger("gliad.conversations")


@dataclass(frozen=True, slots=True)
class Kept:
    """A conversation's file as it is known to be.

    Attributes:
        size_bytes, check: where the next record goes, and what it is checked over.
    """

    head: Head
    size_bytes: int
    check: bytes


@dataclass(frozen=True)
class Opened:
    """All files of a directory, by name; how many of them were cut, or set aside.

    Attributes:
        aside: names of which there are files that were set aside, now or before.
    """

    live: dict[str, Kept]
    marked: dict[str, Kept]
    aside: frozenset[str]
    num_cut: int
    num_bad: int


class ConversationFiles:
    """The directory they are in."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def open(self) -> Opened:
        """Read every file; cut off what is not whole, set aside what cannot be read.

        Raises: StoreVersion (a newer gliad wrote one), StoreFull, StoreBroken.
        """
        self._make_directory()
        with _telling(self._directory):
            entries = sorted(self._directory.iterdir())
        found: dict[str, dict[str, Kept]] = {LIVE: {}, MARKED: {}}
        num_cut = num_bad = 0
        for path in entries:
            if not (is_name(path.stem) and stat.S_ISREG(path.lstat().st_mode)):
                _log.warning("%s is no conversation", path)
            elif path.suffix == PARTIAL:
                self._erase(path)
            elif path.suffix in found:
                kept, was_cut, is_aside = self._open_one(path)
                num_cut += was_cut
                num_bad += is_aside
                if kept is not None:
                    found[path.suffix][path.stem] = kept
        with _telling(self._directory):
            aside = frozenset(path.stem for path in files_aside(self._directory))
        return Opened(found[LIVE], found[MARKED], aside, num_cut, num_bad)

    def create(self, name: str, records: Sequence[Record], suffix: str = LIVE) -> Kept:
        """Make a file of these records, whole or not at all. Raises: StoreFull, StoreBroken."""
        data, check = begin_file(records)
        self._make_directory()
        partial, path = self._path(name, PARTIAL), self._path(name, suffix)
        try:
            with _telling(partial), _opened(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as fd:
                _write(fd, data, 0)
                os.fsync(fd)
                os.rename(partial, path)
                self._sync()
        except GliaError:
            partial.unlink(missing_ok=True)
            path.unlink(missing_ok=True)
            raise
        return Kept(read_journal(data).replay.head, len(data), check)

    def append(self, name: str, kept: Kept, head: Head, turn: Turn) -> Kept:
        """Write a turn behind what is kept, durably; where that fails the file is as before.

        Where not even that can be done, it is before the next turn is written, or at the next
        start.

        Args:
            head: what the conversation is after it.
        Raises: StoreFull, StoreBroken, QuotaExceeded (the file would grow too large).
        """
        data, check = encode_record(turn, kept.check)
        size_bytes = kept.size_bytes + len(data)
        if size_bytes > MAX_FILE_BYTES:
            raise QuotaExceeded(
                f"the file of {name} would be larger than {MAX_FILE_BYTES:,} bytes",
                hint=f"gliad fork {name} NEW: a fork has what {name} says now, and no more",
            )
        path = self._path(name)
        with _telling(path), _opened(path, os.O_WRONLY) as fd:
            now_bytes = os.fstat(fd).st_size
            if now_bytes < kept.size_bytes:
                raise StoreBroken(f"{path} is shorter than it was", hint=_AGAIN)
            if now_bytes > kept.size_bytes:  # what failed could not be cut off, either
                _cut(fd, kept.size_bytes)
            try:
                _write(fd, data, kept.size_bytes)
                os.fsync(fd)
            except OSError:
                try:
                    _cut(fd, kept.size_bytes)
                except OSError as error:
                    _log.error("%s: half a turn is left behind its end: %s", path, error.strerror)
                raise
        return Kept(head, size_bytes, check)

    def read(self, name: str, kept: Kept, suffix: str = LIVE) -> Replay:
        """What a file says. Raises: UnknownConversation (it is gone), StoreBroken (damaged)."""
        return self._journal(name, kept, suffix).replay

    def turns(self, name: str, kept: Kept, suffix: str = LIVE) -> tuple[Turn, ...]:
        """Every turn there was, dropped ones included. Raises: as `read`."""
        return self._journal(name, kept, suffix).turns

    def _journal(self, name: str, kept: Kept, suffix: str) -> Journal:
        path = self._path(name, suffix)
        with _telling(path):
            data = _read(path, kept.size_bytes)
        try:
            journal = read_journal(data)
        except MalformedParticle as error:
            raise StoreBroken(f"{path} is damaged: {error.message}", hint=_AGAIN) from error
        if journal.check != kept.check:
            raise StoreBroken(f"{path} is damaged", hint=_AGAIN)
        return journal

    def mark(self, name: str) -> None:
        """From now on, and after a crash, it is one that is being forgotten."""
        with _telling(self._path(name)):
            os.rename(self._path(name), self._path(name, MARKED))
            self._sync()

    def erase(self, name: str) -> None:
        """Overwrite and remove a marked file, if it is there, after those that were set aside.

        Raises: StoreBroken.
        """
        marked = self._path(name, MARKED)
        with suppress(UnknownConversation):
            with _telling(self._directory):
                aside = [path for path in files_aside(self._directory) if path.stem == name]
            for path in aside:
                self._erase(path)
        with suppress(UnknownConversation):
            self._erase(marked)

    def _open_one(self, path: Path) -> tuple[Kept | None, bool, bool]:
        """What a file is, None where it cannot be read; whether it was cut, and set aside."""
        with _telling(path):
            size_bytes = path.lstat().st_size
            try:
                journal = _journal(path)
            except MalformedParticle as error:
                bad = next_aside(path)
                _log.error("%s is set aside as %s: %s", path, bad.name, error.message)
                os.rename(path, bad)
                self._sync()
                return None, False, True
            was_cut = journal.size_bytes < size_bytes
            is_aside = journal.is_damaged and path.suffix == LIVE
            if is_aside:
                self._copy_aside(path)
            if was_cut:
                _log.warning(
                    "%s: its last %d bytes are not whole and were cut off: %d turns are kept",
                    *(path, size_bytes - journal.size_bytes, journal.replay.head.num_turns),
                )
                with _opened(path, os.O_WRONLY) as fd:
                    _cut(fd, journal.size_bytes)
        kept = Kept(journal.replay.head, journal.size_bytes, journal.check)
        return kept, was_cut, is_aside

    def _copy_aside(self, path: Path) -> None:
        """What cannot be read of it may be worth something to somebody."""
        bad = next_aside(path)
        _log.error("%s is damaged: as it is now it is set aside as %s", path, bad.name)
        try:
            with (
                _opened(bad, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as fd,
                open(fd, "wb", closefd=False) as copy,
                open(path, "rb") as file,
            ):
                shutil.copyfileobj(file, copy)
                copy.flush()
                os.fsync(fd)
            self._sync()
        except OSError:
            bad.unlink(missing_ok=True)
            raise

    def _erase(self, path: Path) -> None:
        with _telling(path):
            with _opened(path, os.O_WRONLY) as fd:
                size_bytes = os.fstat(fd).st_size
                for at in range(0, size_bytes, len(_ZEROS)):
                    _write(fd, _ZEROS[: size_bytes - at], at)
                os.fsync(fd)
            path.unlink()
            self._sync()

    def _make_directory(self) -> None:
        with _telling(self._directory):
            self._directory.mkdir(mode=0o700, exist_ok=True)

    def _path(self, name: str, suffix: str = LIVE) -> Path:
        if not is_name(name):
            raise ValueError("a file is named after a checked name")
        return self._directory / f"{name}{suffix}"

    def _sync(self) -> None:
        """The directory's entries are durable."""
        fd = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


_AGAIN = "gliad stop, then gliad start: what is whole of it is kept"


def _journal(path: Path) -> Journal:
    """Raises: MalformedParticle, StoreVersion naming the file, OSError."""
    data = _read(path, MAX_FILE_BYTES)
    try:
        journal = read_journal(data)
    except StoreVersion as error:
        raise StoreVersion(f"{path}: {error.message}", hint=error.hint) from error
    if journal.replay.head.begin.name != path.stem:
        raise MalformedParticle("it is of another conversation than its name says")
    return journal


def _read(path: Path, size_bytes: int) -> bytes:
    with _opened(path, os.O_RDONLY) as fd, open(fd, "rb", closefd=False) as file:
        return file.read(size_bytes)


def _cut(fd: int, size_bytes: int) -> None:
    os.ftruncate(fd, size_bytes)
    os.fsync(fd)


def _write(fd: int, data: bytes, at: int) -> None:
    rest = memoryview(data)
    while rest:
        num_bytes = os.pwrite(fd, rest, at)
        rest, at = rest[num_bytes:], at + num_bytes


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _telling(path: Path) -> Iterator[None]:
    """What the file system refuses, as errors of ours."""
    try:
        yield
    except FileNotFoundError as error:
        raise UnknownConversation(f"{path} is gone", hint="gliad conversations") from error
    except OSError as error:
        if error.errno in _FULL:
            raise StoreFull(f"{path}: {error.strerror}", hint="df -h; free some space") from error
        raise StoreBroken(f"{path}: {error.strerror}", hint=f"ls -l {path}") from error
