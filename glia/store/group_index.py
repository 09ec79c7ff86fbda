"""What groups publish: encrypted windows, by what members ask for. See spec/22-group-index.md.

A key space of its own in files of its own, beside what is public: from neither can the other be
named. It has records and links as ciphertexts; the blocks' bytes are in L2.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from glia.errors import NotFound
from glia.graph.group import GroupId
from glia.graph.ids import ID_BYTES, BlockId, PrefixKey, WindowId, digest, short
from glia.store.group_rows import (
    GROUP_INDEX_VERSION,
    MAX_PER_ALIAS,
    GroupLink,
    GroupWindow,
    alias_key,
    attested_prefix,
    block_prefix,
    decode_group_link,
    decode_group_window,
    kinds_of,
    last_name,
    next_prefix_of,
    stands_key,
    window_key,
)
from glia.store.index import Change
from glia.store.loose import LooseIndex
from glia.store.published_rows import names_in

MAX_CHAIN_LINKS = 128
_MAX_LINKS_A_WINDOW = 8


class GroupIndex:
    """The index in a directory. Thread-safe; blocking.

    Where LevelDB finds damage, the index is set aside and a new one begun, which is empty: what
    conversations say is put into it again.
    """

    def __init__(self, path: Path) -> None:
        """Open or create. Raises: StoreBroken, StoreFull, StoreLocked, StoreVersion."""
        self._index = LooseIndex(path, GROUP_INDEX_VERSION)
        self._lock = threading.Lock()  # of writing

    # -- what members ask ---------------------------------------------------------------------

    def match(
        self,
        group: GroupId,
        keys: Sequence[tuple[int, PrefixKey]],
        may: Callable[[GroupWindow], bool],
    ) -> list[GroupWindow]:
        """Windows that have one of these aliases at that number of windows, the longest first.

        Those of the longest number at which there is one, at most MAX_PER_ALIAS.
        """
        ordered = sorted(set(keys), reverse=True)
        rows = self._index.get_many([alias_key(group, alias) for _, alias in ordered])
        found: list[GroupWindow] = []
        for (num, _), value in zip(ordered, rows, strict=True):
            if value is None or (found and found[0].num_windows != num):
                continue
            here = [self.window(group, name) for name in names_in(value)[::-1]]
            found += [
                row for row in here if row is not None and row.num_windows == num and may(row)
            ]
        return found[:MAX_PER_ALIAS]

    def records(self, group: GroupId, tip: WindowId, num_windows: int, start: int) -> list[bytes]:
        """The encodings of the chain's windows of the group up to a window, or what stands for it.

        In order, from number `start` on, or where the group's domain begins; empty where the
        window is not here, or not at that place.
        """
        row = self.window(group, tip)
        if row is None:
            row = next(iter(self.standing_for(group, tip)), None)
        found: list[bytes] = []
        while row is not None and row.num_windows == num_windows > start:
            found.append(row.encoding)
            window = row.window()
            if window.is_first:
                break
            num_windows -= 1
            row = self.window(group, window.prev)
        return found[::-1]

    def window(self, group: GroupId, name: WindowId) -> GroupWindow | None:
        """One that is published."""
        value = self._index.get(window_key(group, name))
        return decode_group_window(name, value) if value is not None else None

    def standing_for(self, group: GroupId, alias: bytes) -> list[GroupWindow]:
        """Those of the window whose name has this alias, the newest first."""
        names = names_in(self._index.get(stands_key(group, alias)))[::-1]
        rows = (self.window(group, name) for name in names)
        return [row for row in rows if row is not None]

    def named(
        self, group: GroupId, keys: Sequence[bytes], windows: Sequence[bytes]
    ) -> list[WindowId]:
        """Published windows with one of these aliases of prefix keys, or of windows' names."""
        found = [alias_key(group, alias) for alias in keys]
        found += [stands_key(group, alias) for alias in windows]
        rows = self._index.get_many(found)
        return list(dict.fromkeys(name for row in rows for name in names_in(row)))

    def is_continued(self, group: GroupId, name: WindowId) -> bool:
        """Whether a published window follows this one."""
        return self._index.have_prefixes([next_prefix_of(group, name)])[0]

    def tips(
        self, group: GroupId, after: bytes, num: int
    ) -> tuple[list[GroupWindow], WindowId | None]:
        """Of the next windows by name those that none continues.

        Args: after: a name; num: how many windows are looked at.
        Returns: them, and the last name that was looked at; None at the end.
        """
        prefix = window_key(group, WindowId(b""))
        keys = self._index.keys_from(prefix, prefix + after + b"\0", num)
        names = [WindowId(last_name(key)) for key in keys]
        goes_on = self._index.have_prefixes([next_prefix_of(group, name) for name in names])
        found = [
            self.window(group, name) for name, on in zip(names, goes_on, strict=True) if not on
        ]
        return [row for row in found if row is not None], names[-1] if len(names) == num else None

    def names(self, group: GroupId) -> list[WindowId]:
        """All that is published."""
        keys = self._index.keys(window_key(group, WindowId(b"")))
        return [WindowId(last_name(key)) for key in keys]

    def groups(self) -> list[GroupId]:
        """Those of which there is something."""
        found: list[GroupId] = []
        start = window_key(GroupId(b""), WindowId(b""))
        while keys := self._index.keys_from(start[:1], start, 1):
            found.append(GroupId(keys[0][1 : 1 + ID_BYTES]))
            start = window_key(found[-1], WindowId(b"\xff" * (ID_BYTES + 1)))
        return found

    def have_blocks(self, group: GroupId, block_ids: Sequence[BlockId]) -> list[bool]:
        """Whether published windows name them."""
        return self._index.have_prefixes([block_prefix(group, name) for name in block_ids])

    def windows_with(self, group: GroupId, block_id: BlockId) -> list[GroupWindow]:
        """Published windows that name a block."""
        keys = self._index.keys(block_prefix(group, block_id))
        rows = (self.window(group, WindowId(last_name(key))) for key in keys)
        return [row for row in rows if row is not None]

    def chain_links(self, group: GroupId, tip: WindowId) -> list[bytes]:
        """Sealed links that attest a chain: all to its tip, then one for each span before it."""
        here = self.links(group, tip)
        found = [link.sealed for link in here]
        while here and len(found) < MAX_CHAIN_LINKS:
            widest = min(here, key=lambda link: link.num_before)
            here = self.links(group, widest.base)[:1]
            found += [link.sealed for link in here]
        return list(dict.fromkeys(found))

    def links(self, group: GroupId, name: WindowId) -> list[GroupLink]:
        """Sealed links that attest a window, a few of them."""
        prefix = attested_prefix(group, name)
        keys = self._index.keys_from(prefix, prefix, _MAX_LINKS_A_WINDOW)
        values = self._index.get_many([key for key in keys if key.startswith(prefix)])
        return [decode_group_link(value) for value in values if value is not None]

    # -- what its owner changes ---------------------------------------------------------------

    def put(
        self,
        group: GroupId,
        windows: Sequence[GroupWindow],
        links: Sequence[tuple[WindowId, GroupLink]] = (),
    ) -> None:
        """Publish windows, durably, all or none; what is known stays as it is.

        Args:
            windows: each is a domain's first, or continues a published one or one before it.
            links: with a window that each attests.
        Raises: NotFound (the window before is not published), StoreBroken, StoreFull.
        """
        with self._lock:
            rows: dict[bytes, bytes | None] = {}
            for row in windows:
                self._add(rows, group, row)
            for name, link in links:
                rows[attested_prefix(group, name) + digest(link.sealed)] = link.encode()
            if rows:
                self._index.write(list(rows.items()), sync=True)

    def take_back(self, group: GroupId, names: Collection[WindowId]) -> list[WindowId]:
        """Publish windows no longer; nothing of them stays in the files.

        Returns: those that went. Windows that other published ones continue stay.
        Raises: StoreBroken, StoreFull.
        """
        with self._lock:
            found = [row for name in set(names) if (row := self.window(group, name)) is not None]
            rows: dict[bytes, bytes | None] = {}
            gone: list[WindowId] = []
            for row in sorted(found, key=lambda row: (-row.num_windows, row.name)):
                if not self._is_continued(rows, group, row.name):
                    self._take(rows, group, row)
                    gone.append(row.name)
            if gone:
                self._index.erase(list(rows.items()))
        return gone

    def drop(self, group: GroupId) -> None:
        """Nothing of a group stays. Raises: StoreBroken, StoreFull."""
        with self._lock:
            gone: list[Change] = [
                (key, None) for kind in kinds_of(group) for key in self._index.keys(kind)
            ]
            if gone:
                self._index.erase(gone)

    def close(self) -> None:
        """Idempotent."""
        self._index.close()

    # -- inside -------------------------------------------------------------------------------

    def _add(self, rows: dict[bytes, bytes | None], group: GroupId, row: GroupWindow) -> None:
        key, window = window_key(group, row.name), row.window()
        if self._get(rows, key) is not None:
            return
        if not window.is_first and self._get(rows, window_key(group, window.prev)) is None:
            raise NotFound(f"window {short(window.prev)} is not published")
        rows[key] = row.encode()
        for found_by in (alias_key(group, row.alias), stands_key(group, window.alias)):
            names = [*names_in(self._get(rows, found_by)), row.name]
            rows[found_by] = b"".join(names[-MAX_PER_ALIAS:])
        for block_id in window.blocks:
            rows[block_prefix(group, block_id) + row.name] = b""
        rows[next_prefix_of(group, window.prev) + row.name] = b""

    def _take(self, rows: dict[bytes, bytes | None], group: GroupId, row: GroupWindow) -> None:
        window = row.window()
        rows[window_key(group, row.name)] = None
        for found_by in (alias_key(group, row.alias), stands_key(group, window.alias)):
            names = [each for each in names_in(self._get(rows, found_by)) if each != row.name]
            rows[found_by] = b"".join(names) or None
        for block_id in window.blocks:
            rows[block_prefix(group, block_id) + row.name] = None
        rows[next_prefix_of(group, window.prev) + row.name] = None
        rows |= dict.fromkeys(self._index.keys(attested_prefix(group, row.name)))

    def _is_continued(
        self, rows: dict[bytes, bytes | None], group: GroupId, name: WindowId
    ) -> bool:
        keys = self._index.keys(next_prefix_of(group, name))
        return any(rows.get(key, b"") is not None for key in keys)

    def _get(self, rows: dict[bytes, bytes | None], key: bytes) -> bytes | None:
        return rows[key] if key in rows else self._index.get(key)
