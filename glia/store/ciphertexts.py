"""The encrypted windows of a store, as who has the keys sees them: found, opened, told by epoch."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from glia.errors import IntegrityError
from glia.graph.encrypted import EncryptedWindow, alias_of, decrypt_window, open_block
from glia.graph.group import Epoch, EpochId, GroupId
from glia.graph.ids import PrefixKey, WindowId
from glia.graph.window import DomainRoot, WindowRecord
from glia.store.disk import DiskStore
from glia.store.keyring import Keyring, Opens

_MAX_KEPT = 1024


@dataclass(frozen=True, slots=True)
class Opened:
    """An encrypted window that is here, and what is in it."""

    name: WindowId
    window: EncryptedWindow
    epoch: Epoch
    record: WindowRecord


class Ciphertexts:
    """For any thread; blocking.

    Args:
        keyring: of the groups that this node is in now.
    """

    def __init__(self, store: DiskStore, keyring: Keyring) -> None:
        self._store, self._keyring = store, keyring
        self._lock = threading.Lock()
        self._kept: OrderedDict[WindowId, Opened] = OrderedDict()  # by encrypted name
        self._present: set[EpochId] = set()  # epochs that windows here are, or were, sealed under
        self._absent: set[EpochId] = set()

    def under_key(self, key: PrefixKey) -> list[WindowId]:
        """Own names of windows that are kept under a prefix key."""
        return list(dict.fromkeys(opened.record.window_id for opened in self.under(key)))

    def under(self, name: WindowId | PrefixKey) -> Iterator[Opened]:
        """What stands for a window, or is kept under a prefix key.

        What members may have first, of it the newest.
        A look-up for each epoch that anything here is of.
        """
        own: list[Opened] = []
        for opens in self._keyring.all():
            if not self._is_present(opens.epoch.epoch_id):
                continue
            for encrypted in self._store.find(alias_of(opens.epoch, name)):
                opened = self._open(encrypted, opens)
                if opened is not None and opens.is_own:
                    own.append(opened)
                elif opened is not None:
                    yield opened
        yield from own

    def wholes(self, window_id: WindowId) -> Iterator[Opened]:
        """Those of them that are whole."""
        for opened in self.under(window_id):
            if self._store.get_record(opened.name) is not None:
                yield opened

    def opened(self, name: WindowId) -> Opened | None:
        """One that is whole, and of a group that this node is in."""
        window = self._store.get_record(name)
        if not isinstance(window, EncryptedWindow):
            return None
        opens = self._keyring.opening(window.epoch_id)
        return None if opens is None else self._open(name, opens)

    def plain(self, name: WindowId) -> WindowId:
        """The window's own name; the encrypted one of one that cannot be opened."""
        opened = self.opened(name)
        return name if opened is None else opened.record.window_id

    def particles(self, opened: Opened) -> list[memoryview] | None:
        """A window's blocks; None where they are not there, or not as they are named."""
        size = opened.window.sealed_bytes
        sealed = memoryview(bytearray(size * len(opened.window.blocks)))
        if not self._store.load([opened.name], [sealed])[0]:
            return None
        try:
            return [
                open_block(opened.epoch, sealed[index * size : (index + 1) * size], name)
                for index, name in enumerate(opened.record.blocks)
            ]
        except IntegrityError:
            return None

    def of_group(self, group: GroupId) -> list[WindowId]:
        """The names of all that is here of a group; of what can be opened the windows' own, too."""
        found: dict[WindowId, None] = {}
        for opens in self._keyring.of_group(group):
            for name in self._store.find(PrefixKey(opens.epoch.epoch_id)):
                found |= dict.fromkeys((name, self.plain(name)))
        return list(found)

    def come(self, epoch_ids: Collection[EpochId]) -> None:
        """Windows are about to come that are sealed under these."""
        self._present.update(epoch_ids)

    def gone(self, names: Collection[WindowId]) -> None:
        """These were removed."""
        with self._lock:
            for name in names:
                self._kept.pop(name, None)

    def _is_present(self, epoch_id: EpochId) -> bool:
        if epoch_id in self._present:
            return True
        if epoch_id in self._absent:
            return False
        is_here = bool(self._store.find(PrefixKey(epoch_id)))
        (self._present if is_here else self._absent).add(epoch_id)
        return is_here

    def _open(self, name: WindowId, opens: Opens) -> Opened | None:
        with self._lock:
            kept = self._kept.get(name)
        if kept is not None:
            return kept
        window = self._store.get_record(name)
        if not isinstance(window, EncryptedWindow) or window.epoch_id != opens.epoch.epoch_id:
            return None
        try:
            record = decrypt_window(opens.epoch, window)
        except IntegrityError:
            return None
        root = DomainRoot(opens.group, window.prev) if window.is_first else None
        record = replace(record, group=opens.group, root=root, is_own=opens.is_own)
        opened = Opened(name, window, opens.epoch, record)
        with self._lock:
            self._kept[name] = opened
            while len(self._kept) > _MAX_KEPT:
                self._kept.popitem(last=False)
        return opened
