"""An index that nothing here can build again: where it is damaged, it is set aside.

What was published and what others sent are such. Losing them costs work, never truth: what
is made from then on is signed, and the others' links come again. See spec/12-published.md.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import TypeVar

from glia.errors import StoreBroken, StoreFull, StoreVersion
from glia.store.files import sync_directory
from glia.store.index import WRITE_BUFFER_BYTES, Change, Index, IndexDamaged, finish_swap

_INDEX, _COPY, _BAD = "index", "index.copy", "index.bad"
_VERSION = b"version"
_UNSCRUBBED = b"unscrubbed"
BEGUN_ANEW = b"begun anew"  # in an index in place of a damaged or lost one, until told otherwise
_VERSION_BYTES = 2
_ROWS_PER_BATCH = 4096
_T = TypeVar("_T")
_log = logging.getLogger("gliad.store")


class LooseIndex:
    """A LevelDB in `path`/index. Reads may come from any thread, writes under the owner's lock.

    Attributes:
        num_set_aside: since opening; the last one that was is at `path`/index.bad.
    """

    def __init__(self, path: Path, version: int, *, is_lost: bool = False) -> None:
        """Open or create. Raises: StoreBroken, StoreFull, StoreLocked, StoreVersion.

        Args: is_lost: where there is none there was one, as if it were damaged.
        """
        self._path, self._version, self._is_lost = path, version, is_lost
        self._turn = threading.RLock()
        self._refused = False
        self.num_set_aside = 0
        try:
            path.mkdir(mode=0o700, exist_ok=True)
            shutil.rmtree(path / _COPY, ignore_errors=True)
            finish_swap(path / _INDEX)
            self._index = self._open()
        except OSError as error:
            raise StoreBroken(f"{path}: {error.strerror}") from error

    def get(self, key: bytes) -> bytes | None:
        """A row's value. Raises: StoreBroken."""
        return self._guarded(lambda index: index.get(key))

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of several rows. Raises: StoreBroken."""
        return self._guarded(lambda index: index.get_many(keys))

    def keys(self, prefix: bytes) -> list[bytes]:
        """All keys of a prefix, in order. Raises: StoreBroken."""
        return self._guarded(lambda index: index.keys(prefix))

    def keys_from(self, kind: bytes, start: bytes, num: int) -> list[bytes]:
        """At most so many keys of a prefix, from `start` on. Raises: StoreBroken."""
        return self._guarded(lambda index: index.keys_from(kind, start, num))

    def have_prefixes(self, prefixes: Sequence[bytes]) -> list[bool]:
        """For each of them whether a key begins with it. Raises: StoreBroken."""
        return self._guarded(lambda index: index.have_prefixes(prefixes))

    def write(self, changes: Sequence[Change], *, sync: bool) -> None:
        """All changes or none. Raises: StoreFull, StoreBroken: nothing has changed, then."""
        if self._refused:
            self._accept_writes()
        try:
            self._guarded(lambda index: index.write(changes, sync=sync))
        except IndexDamaged:
            raise
        except BaseException:
            self._refused = True  # LevelDB takes none until it is opened again
            raise

    def erase(self, changes: Sequence[Change]) -> None:
        """Durably delete rows, and write the files anew, so that they have nothing of them.

        Raises: StoreFull, StoreBroken. Where only the second failed, the next start does it that
        has room.
        """
        self.write([*changes, (_UNSCRUBBED, b"")], sync=True)
        try:
            self._guarded(self._scrub)
        except OSError as error:
            raise StoreBroken(f"the index cannot be written anew: {error.strerror}") from error

    def close(self) -> None:
        """Idempotent; waits for readers."""
        self._index.close()

    def _guarded(self, call: Callable[[Index], _T]) -> _T:
        index = self._index
        try:
            return call(index)
        except IndexDamaged as error:
            self._begin_anew(index, error)
            raise

    def _begin_anew(self, damaged: Index, error: IndexDamaged) -> None:
        with self._turn:
            if self._index is not damaged:
                return  # another thread did
            damaged.close()
            try:
                self._set_aside(error)
                self._index = self._create(is_anew=True)
            except OSError as failed:
                raise StoreBroken(f"{self._path}: {failed.strerror}") from failed

    def _open(self) -> Index:
        """Raises: StoreBroken, StoreFull, StoreLocked, StoreVersion, OSError."""
        path = self._path / _INDEX
        if not path.exists():
            return self._create(is_anew=self._is_lost)
        try:
            return self._checked(Index(path))
        except IndexDamaged as error:
            self._set_aside(error)
            return self._create(is_anew=True)

    def _checked(self, index: Index) -> Index:
        """Raises: IndexDamaged, StoreVersion, as scrubbing does; the index is closed, then."""
        try:
            value = index.get(_VERSION)
            if value is None or len(value) != _VERSION_BYTES:
                raise IndexDamaged("the index does not say its version")
            if (version := int.from_bytes(value, "little")) > self._version:
                raise StoreVersion(
                    f"{self._path} has version {version}, this gliad knows {self._version}",
                    hint="use the gliad that wrote it, or another --data-dir",
                )
            if index.get(_UNSCRUBBED) is not None:
                self._scrub_if_there_is_room(index)
        except BaseException:
            index.close()
            raise
        return index

    def _scrub_if_there_is_room(self, index: Index) -> None:
        try:
            self._scrub(index)
        except StoreFull as error:  # it is read all the same
            _log.warning("%s: its files cannot be written anew yet: %s", self._path, error)

    def _create(self, *, is_anew: bool = False) -> Index:
        """Complete when it has its name: a crash leaves a whole index or none."""
        new = self._path / _COPY
        shutil.rmtree(new, ignore_errors=True)
        index = Index(new)
        try:
            version = self._version.to_bytes(_VERSION_BYTES, "little")
            rows: list[Change] = [(_VERSION, version)]
            index.write(rows + [(BEGUN_ANEW, b"")] * is_anew, sync=True)
        finally:
            index.close()
        os.rename(new, self._path / _INDEX)
        sync_directory(self._path)
        return Index(self._path / _INDEX)

    def _set_aside(self, error: IndexDamaged) -> None:
        bad = self._path / _BAD
        shutil.rmtree(bad, ignore_errors=True)
        os.rename(self._path / _INDEX, bad)
        sync_directory(self._path)
        self.num_set_aside += 1
        _log.warning("%s: %s; it is set aside as %s, and begun anew", self._path, error, bad.name)

    def _scrub(self, index: Index) -> None:
        path = self._path / _COPY
        shutil.rmtree(path, ignore_errors=True)
        copy = Index(path)
        try:
            rows = (row for row in index.each(b"") if row[0] != _UNSCRUBBED)
            while batch := list(islice(rows, _ROWS_PER_BATCH)):
                copy.write(batch, sync=False)
            copy.write([], sync=True)  # all of them are on disk
            copy.close()
            index.replace(path)
        finally:
            copy.close()
            shutil.rmtree(path, ignore_errors=True)

    def _accept_writes(self) -> None:
        room = os.statvfs(self._path)
        if room.f_bavail * room.f_frsize < 2 * WRITE_BUFFER_BYTES:
            raise StoreFull("the disk is full", hint="free disk space; gliad goes on by itself")
        self._guarded(Index.reopen)
        self._refused = False
