"""The files of conversations: read, made, appended to, marked, erased. Blocking: for threads.

    NAME.conv        a conversation (glia/spec/8-conversation.md)
    NAME.forget      one that is being forgotten: erased as soon as its windows are
    NAME.bad         one that could not be read, or not all of it, set aside; NAME.bad2, ...
    NAME.partial     one that was being made when gliad ended

Owns no state: what a file is known to be is passed in and comes back. Names are checked
before they come here (glia.graph.conversation.is_name).
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from daemon.aside import files_aside
from daemon.conversation_io import (
    PARTIAL,
    cut,
    erase_file,
    opened,
    read_file,
    telling,
    write_at,
)
from daemon.mending import Kept, Mended, mend
from glia.errors import (
    GliaError,
    MalformedParticle,
    QuotaExceeded,
    StoreBroken,
    StoreVersion,
    UnknownConversation,
)
from glia.graph.conversation import Head, Record, Replay, Turn, is_name
from glia.graph.journal import MAX_FILE_BYTES, Journal, begin_file, encode_record, read_journal
from glia.store.files import sync_directory

LIVE, MARKED = ".conv", ".forget"
_log = logging.getLogger("gliad.conversations")


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
        with telling(self._directory):
            entries = sorted(self._directory.iterdir(), key=lambda at: (at.suffix != PARTIAL, at))
        found: dict[str, dict[str, Kept]] = {LIVE: {}, MARKED: {}}
        num_cut = num_bad = 0
        for path in entries:
            if not (is_name(path.stem) and stat.S_ISREG(path.lstat().st_mode)):
                _log.warning("%s is no conversation", path)
            elif path.suffix == PARTIAL:
                erase_file(path)
            elif path.suffix in found:
                mended = self.mend(path.stem, path.suffix)
                num_cut += mended.was_cut
                num_bad += mended.is_aside
                if mended.kept is not None:
                    found[path.suffix][path.stem] = mended.kept
        with telling(self._directory):
            aside = frozenset(path.stem for path in files_aside(self._directory))
        return Opened(found[LIVE], found[MARKED], aside, num_cut, num_bad)

    def mend(self, name: str, suffix: str = LIVE) -> Mended:
        """Look at a file that may be damaged. Raises: as daemon.mending does."""
        return mend(self._path(name, suffix), keeps_copy=suffix == LIVE)

    def create(self, name: str, records: Sequence[Record], suffix: str = LIVE) -> Kept:
        """Make a file of these records, whole or not at all. Raises: StoreFull, StoreBroken."""
        data, check = begin_file(records)
        self._make_directory()
        partial, path = self._path(name, PARTIAL), self._path(name, suffix)
        try:
            with telling(partial), opened(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as fd:
                write_at(fd, data, 0)
                os.fsync(fd)
                os.rename(partial, path)
                sync_directory(self._directory)
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
        with telling(path), opened(path, os.O_WRONLY) as fd:
            now_bytes = os.fstat(fd).st_size
            if now_bytes < kept.size_bytes:
                raise StoreBroken(f"{path} is shorter than it was", hint=f"gliad export {name}")
            if now_bytes > kept.size_bytes:  # what failed could not be cut off, either
                cut(fd, kept.size_bytes)
            try:
                write_at(fd, data, kept.size_bytes)
                os.fsync(fd)
            except OSError:
                try:
                    cut(fd, kept.size_bytes)
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

    def data(self, name: str, kept: Kept, suffix: str = LIVE) -> bytes:
        """The bytes of a file that is whole. Raises: as `read`."""
        data, _ = self._checked(name, kept, suffix)
        return data

    def _journal(self, name: str, kept: Kept, suffix: str) -> Journal:
        _, journal = self._checked(name, kept, suffix)
        return journal

    def _checked(self, name: str, kept: Kept, suffix: str) -> tuple[bytes, Journal]:
        path = self._path(name, suffix)
        with telling(path):
            data = read_file(path, kept.size_bytes)
        try:
            journal = read_journal(data)
        except (MalformedParticle, StoreVersion) as error:
            raise StoreBroken(f"{path} is damaged: {error.message}") from error
        if journal.check != kept.check:
            raise StoreBroken(f"{path} is damaged")
        return data, journal

    def mark(self, name: str) -> None:
        """From now on, and after a crash, it is one that is being forgotten."""
        with telling(self._path(name)):
            os.rename(self._path(name), self._path(name, MARKED))
            sync_directory(self._directory)

    def erase(self, name: str) -> None:
        """Overwrite and remove a marked file, if it is there, after those that were set aside.

        Raises: StoreBroken.
        """
        marked = self._path(name, MARKED)
        with suppress(UnknownConversation):
            with telling(self._directory):
                aside = [path for path in files_aside(self._directory) if path.stem == name]
            for path in aside:
                erase_file(path)
        with suppress(UnknownConversation):
            erase_file(marked)

    def _make_directory(self) -> None:
        with telling(self._directory):
            self._directory.mkdir(mode=0o700, exist_ok=True)

    def _path(self, name: str, suffix: str = LIVE) -> Path:
        if not is_name(name):
            raise ValueError("a file is named after a checked name")
        return self._directory / f"{name}{suffix}"
