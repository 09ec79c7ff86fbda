"""L2 for a node in groups: what is theirs lies there as ciphertext, all else as it is.

Asked by the names that windows have; kept under the names that their encrypted ones have. What the
members of a group may have is sealed under its newest epoch, and what stands behind that, and is
this node's alone, under a key that nobody else has (glia/store/keyring.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from glia.errors import NotFound
from glia.graph.encrypted import alias_of, encrypt_window
from glia.graph.group import Epoch, GroupId
from glia.graph.ids import BlockId, PrefixKey, WindowId, short
from glia.graph.window import WindowRecord
from glia.store.base import (
    CheckReport,
    EncryptedDown,
    Forgotten,
    Progress,
    SealedWindow,
    StoreStats,
    WindowDown,
)
from glia.store.ciphertexts import Ciphertexts, Opened
from glia.store.disk import DiskStore
from glia.store.keyring import Keyring


class Vault:
    """BlockStore (glia/store/base.py) over one that keeps what it is given.

    Args:
        keyring: of the groups that this node is in now; asked in any thread.
    """

    def __init__(self, store: DiskStore, keyring: Keyring) -> None:
        self._store, self._keyring = store, keyring
        self._sealed = Ciphertexts(store, keyring)

    # -- what is given to members -------------------------------------------------------------

    def sealed(self, window_id: WindowId) -> Opened | None:
        """What stands for a window of a group, where it is whole, and its members may have it."""
        found = self._sealed.wholes(window_id)
        return next((each for each in found if not each.record.is_own), None)

    def opened(self, name: WindowId) -> Opened | None:
        """An encrypted window, where it is whole, and of a group that this node is in."""
        return self._sealed.opened(name)

    def share(self, windows: Sequence[tuple[WindowId, PrefixKey]]) -> None:
        """Have windows sealed for their group's members, that here may be sealed for nobody else.

        Args: windows: with their prefix keys, in order, from the first of their domain on.
        Raises: NotFound (one is not whole), StoreBroken, StoreFull.
        """
        if self._are_shared([name for name, _ in windows]):
            return
        before: WindowId | None = None
        for name, key in windows:
            here = list(self._sealed.wholes(name))
            fits = (o for o in here if not o.record.is_own and before in (None, o.window.prev))
            found = next(fits, None)
            if found is not None:
                before = found.name
                continue
            if not here:
                raise NotFound(f"window {short(name)} is not in L2")
            down = self._anew(here[0], key, before)
            self._down([down])
            before = down.record.window_id

    def _are_shared(self, windows: Sequence[WindowId]) -> bool:
        """Whether ciphertexts that members may have follow each other down to a domain's first."""
        at = self.sealed(windows[-1]) if windows else None
        for name in reversed(windows):
            if at is None or at.record.is_own or at.record.window_id != name:
                return False
            at = None if at.window.is_first else self.opened(at.window.prev)
        return True

    def of_group(self, group: GroupId) -> list[WindowId]:
        """The names of all that is here of a group; of what can be opened the windows' own, too."""
        return self._sealed.of_group(group)

    # -- BlockStore ---------------------------------------------------------------------------

    def put(self, windows: Sequence[SealedWindow]) -> None:
        """See BlockStore."""
        down: list[WindowDown] = []
        named: dict[WindowId, WindowId] = {}
        for window in windows:
            if window.record.group is None:
                down.append(window)
                continue
            known = self._fitting(window.record)
            if known is not None:
                named[window.record.window_id] = known.name
                if self._store.get_record(known.name) is not None:
                    self._store.touch([known.name])
                    continue
            sealed = self._encrypted(window, window.record.group, named)
            named[window.record.window_id] = sealed.record.window_id
            down.append(sealed)
        self._down(down)

    def find(self, key: PrefixKey) -> list[WindowId]:
        """See BlockStore."""
        found = self._store.find(key)
        return found or self._sealed.under_key(key)

    def get(self, window_id: WindowId) -> WindowRecord | None:
        """See BlockStore. It says whose it is, and what it follows where its domain begins."""
        record = self._store.get(window_id)
        if record is not None:
            return record
        opened = next(self._sealed.wholes(window_id), None)
        return None if opened is None else opened.record

    def load(self, window_ids: Sequence[WindowId], into: Sequence[memoryview]) -> list[bool]:
        """See BlockStore."""
        plain: list[int] = []
        answers = [False] * len(window_ids)
        for index, name in enumerate(window_ids):
            is_plain = self._store.has_window(name)
            opened = None if is_plain else next(self._sealed.wholes(name), None)
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
        names = [window_id, *(opened.name for opened in self._sealed.under(window_id))]
        found = (child for name in names for child in self._store.children(name))
        return list(dict.fromkeys(map(self._sealed.plain, found)))

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
        names += [opened.name for each in windows for opened in self._sealed.under(each)]
        forgotten = self._store.forget(names, progress)
        self._sealed.gone(names)
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
        is_in_none = self._keyring.is_empty
        for name in self._store.windows():
            yield name if is_in_none else self._sealed.plain(name)

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

    def _down(self, windows: Sequence[WindowDown]) -> None:
        epochs = {each.record.epoch_id for each in windows if isinstance(each, EncryptedDown)}
        self._sealed.come(epochs)  # first, so that nobody takes them to be absent
        self._store.put(windows)

    def _fitting(self, record: WindowRecord) -> Opened | None:
        """A window as it is to be kept: what members may have was sealed for them."""
        found = self._sealed.under(record.window_id)
        return next((each for each in found if record.is_own or not each.record.is_own), None)

    def _encrypted(
        self, window: SealedWindow, group: GroupId, named: dict[WindowId, WindowId]
    ) -> EncryptedDown:
        """Args: named: encrypted names of windows of the same put."""
        record = window.record
        epoch = self._epoch_for(record, group)
        prev = record.before
        if record.root is None:
            prev = named.get(record.prev) or self._name(record.prev)
        size = max(memoryview(particle).nbytes for particle in window.particles)
        sealed = encrypt_window(epoch, record, window.particles, prev, size)
        key = alias_of(epoch, window.prefix_key)
        return EncryptedDown(sealed.window, key, sealed.particles)

    def _anew(self, opened: Opened, key: PrefixKey, before: WindowId | None) -> EncryptedDown:
        """A window sealed for its group's members. Args: before: None of a domain's first."""
        record = replace(opened.record, is_own=False)
        if record.group is None:
            raise ValueError("an encrypted window of no group")
        particles = self._sealed.particles(opened)
        if particles is None:
            raise NotFound(f"window {short(record.window_id)} is not whole in L2")
        size = max(map(len, particles))
        epoch = self._epoch_for(record, record.group)
        sealed = encrypt_window(epoch, record, particles, before or opened.window.prev, size)
        return EncryptedDown(sealed.window, alias_of(epoch, key), sealed.particles)

    def _epoch_for(self, record: WindowRecord, group: GroupId) -> Epoch:
        """Of a group that was left meanwhile, too: nobody asks for it, and it goes in its turn."""
        epoch = None if record.is_own else self._keyring.newest(group)
        return epoch or self._keyring.own(group)

    def _load(self, opened: Opened, into: memoryview) -> bool:
        """Read a window's sealed blocks, and open them into place."""
        particles = self._sealed.particles(opened)
        if particles is None or sum(map(len, particles)) != len(into):
            return False
        at = 0
        for block in particles:
            into[at : at + len(block)] = block
            at += len(block)
        return True

    def _name(self, window_id: WindowId) -> WindowId:
        """What a window is kept under: its own name where it is not encrypted."""
        if self._store.has_window(window_id):
            return window_id
        found = next(self._sealed.under(window_id), None)
        return window_id if found is None else found.name
