"""A conversation's file as it is found: what is not whole is cut off, what is damaged set aside.

At every start for every file, and for one that turns out to be damaged meanwhile. What an
older gliad wrote is written anew, as this one does.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from daemon.aside import next_aside
from daemon.conversation_io import PARTIAL, cut, erase_file, opened, read_file, telling, write_at
from glia.errors import MalformedParticle, StoreVersion
from glia.graph.conversation import Head
from glia.graph.journal import (
    HEAD_BYTES,
    MAX_FILE_BYTES,
    VERSION,
    Journal,
    read_journal,
    upgraded,
)
from glia.store.files import sync_directory

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


@dataclass(frozen=True, slots=True)
class Mended:
    """A file that was looked at.

    Attributes:
        kept: what is whole of it, None where nothing is.
        was_cut: whether something was cut off.
        is_aside: whether it was set aside, or a copy of what it was.
    """

    kept: Kept | None
    was_cut: bool
    is_aside: bool


def mend(path: Path, *, keeps_copy: bool) -> Mended:
    """Look at a file; afterwards all that is left of it is whole.

    Args:
        keeps_copy: what is damaged and cut off may be worth something to somebody; not where
            it is to be forgotten, and may have been erased in part.
    Raises: UnknownConversation (there is none), StoreVersion naming the file, StoreFull,
        StoreBroken.
    """
    with telling(path):
        size_bytes = path.lstat().st_size
        try:
            journal = _journal(path)
        except MalformedParticle as error:
            if not keeps_copy and _is_erased(path):
                erase_file(path)  # a crash came between, and its windows went before
                return Mended(None, was_cut=False, is_aside=False)
            bad = next_aside(path)
            _log.error("%s is set aside as %s: %s", path, bad.name, error.message)
            os.rename(path, bad)
            sync_directory(path.parent)
            return Mended(None, was_cut=False, is_aside=True)
        is_aside = journal.is_damaged and keeps_copy
        if is_aside:
            _copy_aside(path)
        was_cut = journal.size_bytes < size_bytes
        if was_cut:
            _log.warning(
                "%s: its last %d bytes are not whole and were cut off: %d turns are kept",
                *(path, size_bytes - journal.size_bytes, journal.replay.head.num_turns),
            )
            with opened(path, os.O_WRONLY) as fd:
                cut(fd, journal.size_bytes)
        if journal.version < VERSION and keeps_copy:
            journal = _upgrade(path)
    kept = Kept(journal.replay.head, journal.size_bytes, journal.check)
    return Mended(kept, was_cut, is_aside)


def _journal(path: Path) -> Journal:
    """Raises: MalformedParticle, StoreVersion naming the file, OSError."""
    try:
        data = read_file(path, MAX_FILE_BYTES)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        raise MalformedParticle("the disk cannot read it") from error
    try:
        journal = read_journal(data)
    except StoreVersion as error:
        raise StoreVersion(f"{path}: {error.message}", hint=error.hint) from error
    if journal.replay.head.begin.name != path.stem:
        raise MalformedParticle("it is of another conversation than its name says")
    return journal


def _upgrade(path: Path) -> Journal:
    """Write a file anew in the format of today; a crash leaves the old one. Raises: OSError."""
    data = upgraded(read_file(path, MAX_FILE_BYTES))
    partial = path.with_suffix(PARTIAL)
    with opened(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as fd:
        write_at(fd, data, 0)
        os.fsync(fd)
    os.rename(partial, path)
    sync_directory(path.parent)
    return read_journal(data)


def _is_erased(path: Path) -> bool:
    """Whether it was begun to be overwritten."""
    try:
        return not any(read_file(path, HEAD_BYTES))
    except OSError:
        return False


def _copy_aside(path: Path) -> None:
    bad = next_aside(path)
    _log.error("%s is damaged: as it is now it is set aside as %s", path, bad.name)
    try:
        with (
            opened(bad, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as fd,
            open(fd, "wb", closefd=False) as copy,
            open(path, "rb") as file,
        ):
            shutil.copyfileobj(file, copy)
            copy.flush()
            os.fsync(fd)
        sync_directory(path.parent)
    except OSError:
        bad.unlink(missing_ok=True)
        raise
