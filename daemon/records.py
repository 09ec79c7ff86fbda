"""Window records of L1 and L2 under one roof; the few that were read lately are kept.

For any thread. Looking changes no lease and no order of use.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import TypeVar

from daemon.binding import Binding
from daemon.domains import Domains
from daemon.hidden import Hidden
from daemon.l1 import L1Table
from glia.errors import NotFound
from glia.graph.ids import PrefixKey, WindowId, short
from glia.graph.window import WindowRecord
from glia.store.base import BlockStore

_MAX_KEPT = 1024  # 4.6 KiB each at 30 layers: of 16,384 tokens; beyond, L2 is asked twice

V = TypeVar("V", WindowRecord, PrefixKey)


class Records:
    """Find and get over L1, then L2.

    Attributes:
        hidden: windows that are not to be found, as they are being forgotten.
        domains: of groups, that windows may be in.
    """

    def __init__(self, table: L1Table, store: BlockStore, domains: Domains) -> None:
        self._table = table
        self._store = store
        self.domains = domains
        self._lock = threading.Lock()
        self._kept: OrderedDict[WindowId, WindowRecord] = OrderedDict()
        self._keys: OrderedDict[WindowId, PrefixKey] = OrderedDict()
        self.hidden = Hidden()

    def find(self, key: PrefixKey) -> Iterable[WindowId]:
        """Windows under a prefix key, in L1 or L2."""
        here = self._table.find(key)
        return (*here, *(name for name in self._store.find(key) if name not in here))

    def get(self, window_id: WindowId) -> WindowRecord | None:
        """The record of a window that is whole in L1 or L2."""
        if window_id in self.hidden:
            return None
        record = self._table.record(window_id)
        if record is not None:
            return record
        with self._lock:
            record = self._kept.get(window_id)
        if record is None:
            seen = self.hidden.num_changes
            record = self._store.get(window_id)
            if record is not None and self.hidden.num_changes == seen:
                self._keep(self._kept, window_id, record)
        return record

    def get_now(self, window_id: WindowId) -> WindowRecord | None:
        """The same past the records kept for speed: what is whole at this moment."""
        if window_id in self.hidden:
            return None
        return self._table.record(window_id) or self._store.get(window_id)

    def has(self, window_id: WindowId) -> bool:
        """Whether a window is whole in L1 or L2, hidden or not."""
        return self._table.record(window_id) is not None or self._store.get(window_id) is not None

    def forget(self, window_ids: Iterable[WindowId]) -> None:
        """Keep nothing of windows that proved to be whole no longer, or were forgotten."""
        with self._lock:
            for name in window_ids:
                self._kept.pop(name, None)
                self._keys.pop(name, None)

    def key_of(self, binding: Binding, record: WindowRecord) -> PrefixKey:
        """The prefix key of a window, from the nearest ancestor whose key is known.

        Raises: NotFound where the chain has a hole.
        """
        pending: list[WindowRecord] = []
        key = self._known_key(binding, record.window_id)
        while key is None:
            pending.append(record)
            key = self._known_key(binding, record.before)
            if key is None:
                above = self.get(record.before)
                if above is None or above.end != record.position_start:
                    raise NotFound(f"window {short(record.before)} is not known here")
                record = above
        for below in reversed(pending):
            following = self.domains.next_key(key, below)
            if following is None:
                raise NotFound(f"the group of window {short(below.window_id)} is not known here")
            key = following
            self._keep(self._keys, below.window_id, key)
        return key

    def _known_key(self, binding: Binding, window_id: WindowId) -> PrefixKey | None:
        if window_id == binding.root:
            return binding.root_key
        with self._lock:
            return self._table.key_of(window_id) or self._keys.get(window_id)

    def _keep(self, kept: OrderedDict[WindowId, V], window_id: WindowId, value: V) -> None:
        with self._lock:
            kept[window_id] = value
            while len(kept) > _MAX_KEPT:
                kept.popitem(last=False)
