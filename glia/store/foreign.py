"""Which windows of this node came from peers: known durably before any of them is used.

Whoever computed a window may sign it, nobody else. A window that came is found by its tokens
from then on, as one that was computed here, whatever happens to gliad; so that it is a peer's
is written first. Rows of the published index: see spec/12-published.md.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence

from glia.graph.ids import WindowId
from glia.store.index import Change
from glia.store.loose import BEGUN_ANEW, LooseIndex
from glia.store.published_rows import FOREIGN, foreign_key, last_name

_EXPECTED, _CAME = b"\0", b"\1"


class Foreign:
    """Their names. Thread-safe; blocking, as Published is. Args: lock: of writing the index."""

    def __init__(self, index: LooseIndex, lock: threading.Lock) -> None:
        self._index, self._lock = index, lock
        self._coming = Counter[WindowId]()

    def expect(self, window_ids: Collection[WindowId]) -> None:
        """These may come from now on, until as many `settle`. Raises: StoreFull, StoreBroken."""
        with self._lock:
            new = [name for name, row in self._rows(window_ids).items() if row is None]
            if new:
                self._index.write([(foreign_key(name), _EXPECTED) for name in new], sync=True)
            self._coming.update(window_ids)

    def settle(self, window_ids: Collection[WindowId], came: Collection[WindowId]) -> None:
        """Of these no more come; those that did not are whose they are.

        Args: came: of these, what became windows of this node.
        Raises: as `expect`; then the rest is taken for a peer's.
        """
        with self._lock:
            self._coming.subtract(window_ids)
            for name in window_ids:
                if not self._coming[name]:
                    del self._coming[name]
            rows = self._rows(set(window_ids) - set(came))
            gone = [n for n, row in rows.items() if row == _EXPECTED and n not in self._coming]
            self._write([*((n, _CAME) for n in came), *((n, None) for n in gone)])

    def sweep(self, is_here: Callable[[WindowId], bool]) -> None:
        """Forget those that are here no more: who computes them again may sign them.

        Raises: as `expect`.
        """
        names = [WindowId(last_name(key)) for key in self._index.keys(FOREIGN)]
        with self._lock:
            self._write([(n, None) for n in names if n not in self._coming and not is_here(n)])

    def doubt(self, here: Callable[[], Iterable[WindowId]]) -> int:
        """After a damage nothing says whose windows are: any that are here may be a peer's.

        Args: here: all there are; asked only then.
        Returns: how many these are. Raises: as `expect`.
        """
        if self._index.get(BEGUN_ANEW) is None:
            return 0
        names = list(here())
        with self._lock:
            rows: list[Change] = [(foreign_key(name), _CAME) for name in (*names, *self._coming)]
            self._index.write([*rows, (BEGUN_ANEW, None)], sync=True)
        return len(names)

    def flags(self, window_ids: Sequence[WindowId]) -> list[bool]:
        """Whether each came from a peer, or may have. Raises: StoreBroken."""
        rows = self._rows(window_ids)
        return [rows[name] is not None for name in window_ids]

    def _rows(self, window_ids: Iterable[WindowId]) -> dict[WindowId, bytes | None]:
        names = list(window_ids)
        return dict(zip(names, self._index.get_many(list(map(foreign_key, names))), strict=True))

    def _write(self, rows: Sequence[tuple[WindowId, bytes | None]]) -> None:
        """After a crash that may be undone: then more is taken for a peer's."""
        if rows:
            self._index.write([(foreign_key(name), row) for name, row in rows], sync=False)
