"""L2 for a node in groups: what is theirs lies there as ciphertext, all else as it is.

Asked by the names that windows have; kept under the names that their encrypted ones have, which
are found by aliases that only a member can compute. Who has left a group has its ciphertexts, and
finds nothing of them any more.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from glia.errors import IntegrityError, StoreBroken
from glia.graph.encrypted import (
    EncryptedWindow,
    alias_of,
    decrypt_window,
    encrypt_window,
    open_block,
)
from glia.graph.group import Epoch, GroupId
from glia.graph.ids import BlockId, PrefixKey, WindowId, short
from glia.graph.window import DomainRoot, WindowRecord
from glia.store.base import (
    CheckReport,
    EncryptedDown,
    Forgotten,
    Progress,
    SealedWindow,
    StoreStats,
    WindowDown,
)
from glia.store.disk import DiskStore

_MAX_KEPT = 1024

EpochsOf = Callable[[], Sequence[tuple[GroupId, Sequence[Epoch]]]]  # of each group, the newest last


@dataclass(frozen=True, slots=True)
class Opened:
    """An encrypted window that is here, and what is in it."""

    name: WindowId
    window: EncryptedWindow
    epoch: Epoch
    record: WindowRecord


class Vault:
    """BlockStore (glia/store/base.py) over one that keeps what it is given.

    Args:
        epochs: of the groups that this node is in now; asked in any thread.
    """

    def __init__(self, store: DiskStore, epochs: EpochsOf) -> None:
        self._store, self._epochs = store, epochs
        self._lock = threading.Lock()
        self._kept: OrderedDict[WindowId, Opened] = OrderedDict()  # by encrypted name

    def sealed(self, window_id: WindowId) -> Opened | None:
        """What stands for a window of a group, where it is whole."""
        return self._whole(window_id)

    def opened(self, name: WindowId) -> Opened | None:
        """An encrypted window, where it is whole, and of a group that this node is in."""
        window = self._store.get_record(name)
        if isinstance(window, EncryptedWindow):
            for group, epochs in self._epochs():
                for epoch in epochs:
                    if epoch.epoch_id == window.epoch_id:
                        return self._open(name, group, epoch)
        return None

    def put(self, windows: Sequence[SealedWindow]) -> None:
        """See BlockStore. Also raises StoreBroken for windows of a group that was left."""
        down: list[WindowDown] = []
        named: dict[WindowId, WindowId] = {}
        for window in windows:
            if window.record.group is None:
                down.append(window)
                continue
            known = self._find(window.record.window_id)
            if known is not None:
                named[window.record.window_id] = known.name
                if self._store.get_record(known.name) is not None:
                    self._store.touch([known.name])
                    continue
            sealed = self._sealed(window, window.record.group, named)
            named[window.record.window_id] = sealed.record.window_id
            down.append(sealed)
        self._store.put(down)

    def find(self, key: PrefixKey) -> list[WindowId]:
        """See BlockStore."""
        found = self._store.find(key)
        return found or [each.record.window_id for each in self._under(key)]

    def get(self, window_id: WindowId) -> WindowRecord | None:
        """See BlockStore. It says whose it is, and what it follows where its domain begins."""
        record = self._store.get(window_id)
        if record is not None:
            return record
        opened = self._whole(window_id)
        return None if opened is None else opened.record

    def load(self, window_ids: Sequence[WindowId], into: Sequence[memoryview]) -> list[bool]:
        """See BlockStore."""
        plain: list[int] = []
        answers = [False] * len(window_ids)
        for index, name in enumerate(window_ids):
            opened = None if self._store.has_window(name) else self._whole(name)
            if opened is None:
                plain.append(index)
            else:
                answers[index] = self._load(opened, into[index])
        names, views = [window_ids[at] for at in plain], [into[at] for at in plain]
        for index, good in zip(plain, self._store.load(names, views), strict=True):
            answers[index] = good
        return answers

    def children(self, window_id: WindowId) -> list[WindowId]:
        """See BlockStore."""
        names = self._store.children(self._name(window_id))
        return list(dict.fromkeys(map(self._plain, names)))

    def touch(self, chain: Sequence[WindowId]) -> None:
        """See BlockStore."""
        for each in reversed(chain):
            name = self._name(each)
            if self._store.has_window(name):
                self._store.touch([name])
                return

    def spare(self, windows: Collection[WindowId] | None) -> None:
        """See BlockStore."""
        if windows is not None:
            windows = {self._name(each) for each in windows}
        self._store.spare(windows)

    def forget(self, windows: Collection[WindowId], progress: Progress | None = None) -> Forgotten:
        """See BlockStore."""
        names = list(windows)  # an older epoch may have one, too
        names += [opened.name for each in windows for opened in self._under(each)]
        forgotten = self._store.forget(names, progress)
        with self._lock:
            for name in names:
                self._kept.pop(name, None)
        return forgotten

    def read_block(self, block_id: BlockId) -> bytes:
        """See BlockStore; blocks of groups are not read one by one."""
        return self._store.read_block(block_id)

    def read_blocks(
        self, block_ids: Sequence[BlockId], into: memoryview
    ) -> list[memoryview | None]:
        """See BlockStore; as `read_block`."""
        return self._store.read_blocks(block_ids, into)

    def has_block(self, block_id: BlockId) -> bool:
        """See BlockStore; as `read_block`."""
        return self._store.has_block(block_id)

    def windows(self) -> Iterator[WindowId]:
        """See BlockStore. Of groups that were left encrypted names, which no question is of."""
        is_in_none = not self._epochs()
        for name in self._store.windows():
            yield name if is_in_none else self._plain(name)

    def check(self, progress: Progress | None = None) -> CheckReport:
        """See BlockStore."""
        return self._store.check(progress)

    def stats(self) -> StoreStats:
        """See BlockStore."""
        return self._store.stats()

    def close(self) -> None:
        """See BlockStore."""
        self._store.close()

    # -- inside -------------------------------------------------------------------------------

    def _sealed(
        self, window: SealedWindow, group: GroupId, named: dict[WindowId, WindowId]
    ) -> EncryptedDown:
        """Args: named: encrypted names of windows of the same put."""
        record = window.record
        epoch = next((epochs[-1] for each, epochs in self._epochs() if each == group), None)
        if epoch is None:
            raise StoreBroken(
                f"window {short(record.window_id)} is of a group that was left",
                hint="gliad group list",
            )
        prev = record.before
        if record.root is None:
            prev = named.get(record.prev) or self._name(record.prev)
        size = max(memoryview(particle).nbytes for particle in window.particles)
        sealed = encrypt_window(epoch, record, window.particles, prev, size)
        key = alias_of(epoch, window.prefix_key)
        return EncryptedDown(sealed.window, key, sealed.particles)

    def _load(self, opened: Opened, into: memoryview) -> bool:
        """Read a window's sealed blocks, and open them into place."""
        size = opened.window.sealed_bytes
        sealed = memoryview(bytearray(size * len(opened.window.blocks)))
        if not self._store.load([opened.name], [sealed])[0]:
            return False
        at = 0
        for index, name in enumerate(opened.record.blocks):
            try:
                block = open_block(opened.epoch, sealed[index * size : (index + 1) * size], name)
            except IntegrityError:
                return False
            if at + len(block) > len(into):
                return False
            into[at : at + len(block)] = block
            at += len(block)
        return at == len(into)

    def _name(self, window_id: WindowId) -> WindowId:
        """What a window is kept under: its own name where it is not encrypted."""
        found = None if self._store.has_window(window_id) else self._find(window_id)
        return window_id if found is None else found.name

    def _find(self, window_id: WindowId) -> Opened | None:
        """An encrypted window, whole or not."""
        return next(self._under(window_id), None)

    def _whole(self, window_id: WindowId) -> Opened | None:
        for opened in self._under(window_id):
            if self._store.get_record(opened.name) is not None:
                return opened
        return None

    def _under(self, name: bytes) -> Iterator[Opened]:
        """What is found under a window's name or prefix key, of any epoch, the newest first."""
        for group, epochs in self._epochs():
            for epoch in reversed(epochs):
                for encrypted in self._store.find(alias_of(epoch, name)):
                    opened = self._open(encrypted, group, epoch)
                    if opened is not None:
                        yield opened

    def _plain(self, name: WindowId) -> WindowId:
        """The window's own name; the encrypted one of one that cannot be opened."""
        record = self._store.get_record(name)
        if isinstance(record, EncryptedWindow):
            for group, epochs in self._epochs():
                for epoch in epochs:
                    opened = self._open(name, group, epoch)
                    if opened is not None:
                        return opened.record.window_id
        return name

    def _open(self, name: WindowId, group: GroupId, epoch: Epoch) -> Opened | None:
        with self._lock:
            kept = self._kept.get(name)
        if kept is not None:
            return kept
        window = self._store.get_record(name)
        if not isinstance(window, EncryptedWindow) or window.epoch_id != epoch.epoch_id:
            return None
        try:
            record = decrypt_window(epoch, window)
        except IntegrityError:
            return None
        root = DomainRoot(group, window.prev) if window.is_first else None
        opened = Opened(name, window, epoch, replace(record, group=group, root=root))
        with self._lock:
            self._kept[name] = opened
            while len(self._kept) > _MAX_KEPT:
                self._kept.popitem(last=False)
        return opened
