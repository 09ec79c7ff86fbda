"""The index: LevelDB, every checksum verified. What it answers is a hint until bytes are hashed.

Readers share the handle; closing, reopening and replacing it wait for them.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import plyvel

from glia.errors import StoreBroken, StoreFull, StoreLocked
from glia.store.files import sync_directory

WRITE_BUFFER_BYTES = 8 * 1024 * 1024
BLOOM_BITS = 10
_PAGE_ROWS = 1024
OLD_SUFFIX = ".old"
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_TABLE = ".ldb"
_OPENING_BYTES = 64 * 1024  # beside its logs: four times what was measured
_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)

Change = tuple[bytes, bytes | None]  # (key, value); None deletes


class DiskFull(StoreFull):
    """The file system has no room for a write: what it was to be, it is not."""

    def __init__(
        self,
        message: str = "the disk is full",
        *,
        hint: str | None = "free disk space; the store goes on by itself",
    ) -> None:
        super().__init__(message, hint=hint)


class IndexDamaged(StoreBroken):
    """LevelDB found a checksum or a file wrong: the index must be built again from the segments."""


class Index:
    """A LevelDB with one owner. Reads may come from any thread, writes under the owner's lock.

    Attributes:
        changed: where somebody wants to know, the keys of all rows written; of another
            index from then on (None again) after `replace`.
    """

    def __init__(self, path: Path) -> None:
        """Open or create. Raises: IndexDamaged, StoreFull, StoreLocked."""
        self.path = path
        self._turn = threading.Condition()
        self._num_readers = 0
        self._swapping = False
        self.changed: set[bytes] | None = None
        self._db: Any = _open(path)

    def get(self, key: bytes) -> bytes | None:
        """A row's value. Raises: IndexDamaged."""
        with self._reading() as db:
            value: bytes | None = db.get(key, verify_checksums=True)
        return value

    def get_many(self, keys: Iterable[bytes]) -> list[bytes | None]:
        """The values of several rows: three times as fast as one by one. Raises: IndexDamaged."""
        with self._reading() as db:
            return [db.get(key, verify_checksums=True) for key in keys]

    def keys(self, prefix: bytes) -> list[bytes]:
        """All keys of a prefix, in order. Raises: IndexDamaged."""
        with (
            self._reading() as db,
            db.iterator(prefix=prefix, include_value=False, verify_checksums=True) as keys,
        ):
            return list(keys)

    def have_prefixes(self, prefixes: Iterable[bytes]) -> list[bool]:
        """For each of them whether a key begins with it. Raises: IndexDamaged."""
        with (
            self._reading() as db,
            db.iterator(include_value=False, verify_checksums=True) as keys,
        ):
            found = []
            for prefix in prefixes:
                keys.seek(prefix)
                found.append(next(keys, b"").startswith(prefix))
            return found

    def each(self, kind: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Rows of a prefix (b"": all), in key order, without holding them all in memory.

        They are read a page at a time: of what changes meanwhile either may be seen.
        Raises: IndexDamaged.
        """
        start = kind
        while page := self._page(kind, start, _PAGE_ROWS, include_value=True):
            yield from page
            start = page[-1][0] + b"\0"

    def each_key(self, kind: bytes) -> Iterator[bytes]:
        """As each, the keys alone. Raises: IndexDamaged."""
        start = kind
        while page := self.keys_from(kind, start, _PAGE_ROWS):
            yield from page
            start = page[-1] + b"\0"

    def keys_from(self, kind: bytes, start: bytes, num: int) -> list[bytes]:
        """At most so many keys of a prefix, from `start` on. Raises: IndexDamaged."""
        return self._page(kind, start, num, include_value=False)

    def _page(self, kind: bytes, start: bytes, num: int, *, include_value: bool) -> list[Any]:
        with (
            self._reading() as db,
            db.iterator(
                start=start,
                stop=_end_of(kind),
                include_value=include_value,
                verify_checksums=True,
            ) as rows,
        ):
            return list(islice(rows, num))

    def write(self, changes: Iterable[Change], *, sync: bool) -> None:
        """All changes or none. Raises: IndexDamaged, StoreFull, StoreBroken."""
        with self._reading() as db:
            batch = db.write_batch(sync=sync)
            for key, value in changes:
                if value is None:
                    batch.delete(key)
                else:
                    batch.put(key, value)
                if self.changed is not None:
                    self.changed.add(key)
            batch.write()

    @property
    def opening_bytes(self) -> int:
        """What opening it again takes of the disk, at most. Raises: OSError."""
        return opening_bytes(self.path)

    def reopen(self) -> None:
        """Close and open again: LevelDB refuses all writes after one has failed."""
        with self._alone():
            self._shut()
            self._db = _open(self.path)

    def replace(self, new: Path) -> None:
        """Take the index at `new` instead; it must be closed. Raises: OSError, as opening does."""
        with self._alone():
            self._shut()
            self.changed = None
            swap_in(new, self.path)
            self._db = _open(self.path)

    def close(self) -> None:
        """Idempotent; waits for readers."""
        with self._alone():
            self._shut()

    def _shut(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    @contextmanager
    def _reading(self) -> Iterator[Any]:
        with self._turn:
            self._turn.wait_for(lambda: not self._swapping)
            if self._db is None:
                raise StoreBroken("the index is closed", hint="restart gliad")
            self._num_readers += 1
        try:
            yield self._db
        except plyvel.Error as error:
            raise _named(error) from error
        finally:
            with self._turn:
                self._num_readers -= 1
                self._turn.notify_all()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with self._turn:
            self._turn.wait_for(lambda: not self._swapping)
            self._swapping = True
            self._turn.wait_for(lambda: not self._num_readers)
        try:
            yield
        finally:
            with self._turn:
                self._swapping = False
                self._turn.notify_all()


def swap_in(new: Path, path: Path) -> None:
    """Put the directory `new` where `path` is; there is one whole index at any moment.

    Raises: OSError.
    """
    old = path.with_suffix(OLD_SUFFIX)
    shutil.rmtree(old, ignore_errors=True)
    with suppress(FileNotFoundError):
        os.rename(path, old)
    os.rename(new, path)
    sync_directory(path.parent)
    shutil.rmtree(old, ignore_errors=True)


def finish_swap(path: Path) -> None:
    """Where a crash cut `swap_in` in two: what was at `path` is there again. Raises: OSError."""
    old = path.with_suffix(OLD_SUFFIX)
    if old.is_dir() and not path.exists():
        os.rename(old, path)
    shutil.rmtree(old, ignore_errors=True)


def opening_bytes(path: Path) -> int:
    """What opening the index at `path` takes of the disk, at most: its logs become tables, and
    its MANIFEST is written anew (measured: logs of 0.05 to 7.5 MB and 16 KiB). Raises: OSError.
    """
    files = [entry for entry in os.scandir(path) if not entry.name.endswith(_TABLE)]
    return sum(entry.stat().st_size for entry in files) + _OPENING_BYTES


def _open(path: Path) -> Any:
    path.mkdir(mode=0o700, exist_ok=True)
    try:
        return plyvel.DB(
            str(path),
            create_if_missing=True,
            paranoid_checks=True,
            write_buffer_size=WRITE_BUFFER_BYTES,
            bloom_filter_bits=BLOOM_BITS,
            compression=None,
        )
    except plyvel.Error as error:
        named = _named(error)
        if isinstance(named, DiskFull):
            kib = -(-opening_bytes(path) // 1024)
            message = f"the disk is full: {path} cannot be opened"
            raise DiskFull(message, hint=f"free {kib:,} KiB there, then gliad start") from error
        raise named from error


def _named(error: Exception) -> StoreBroken | StoreFull | StoreLocked:
    text = str(error)
    if any(os.strerror(number) in text for number in NO_SPACE):
        return DiskFull()
    if any(os.strerror(number) in text for number in _NO_DESCRIPTOR):
        return StoreBroken("no file descriptor is left", hint="raise the limit: ulimit -n")
    if "already held" in text or "/LOCK" in text:
        return StoreLocked("another process has the index open", hint="gliad stop")
    return IndexDamaged(f"the index is damaged: {text[:200]}")


def _end_of(prefix: bytes) -> bytes | None:
    """The first key behind all that begin with a prefix; None where there is none."""
    known = prefix.rstrip(b"\xff")
    return known[:-1] + bytes([known[-1] + 1]) if known else None
