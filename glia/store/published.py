"""The published index: what peers may see, and nothing else. See spec/12-published.md.

A key space of its own in files of its own: network code that is given this cannot name a
private window. It has records and links; the blocks' bytes are in L2.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from glia.graph.ids import WindowId
from glia.graph.link import Claim, Link
from glia.graph.neuron import NeuronId
from glia.graph.window import WindowRecord
from glia.store.foreign import Foreign
from glia.store.loose import LooseIndex
from glia.store.promises import Promises
from glia.store.published_reader import PublishedReader
from glia.store.published_rows import (
    COUNTS,
    PUBLISHED_VERSION,
    announced_key,
    decode_counts,
    decode_number,
    encode_number,
    sequence_key,
    signed_key,
    window_key,
)
from glia.store.publishing import Publishing


@dataclass(frozen=True, slots=True)
class PublishedStats:
    """What there is now, and counters since opening."""

    num_windows: int
    num_links: int
    num_asked: int
    num_matched: int
    num_set_aside: int


class Published(PublishedReader):
    """The index in a directory, read and changed. Thread-safe; blocking.

    Where LevelDB finds damage, the index is set aside and a new one begun, which is empty.

    Attributes:
        foreign: windows that came from peers, published or not.
        promises: what neurons signed of canonical windows.
    """

    def __init__(self, path: Path, *, is_lost: bool = False) -> None:
        """Open or create. Raises: StoreBroken, StoreFull, StoreLocked, StoreVersion.

        Args: is_lost: where there is none there was one, as if it were damaged.
        """
        super().__init__(LooseIndex(path, PUBLISHED_VERSION, is_lost=is_lost))
        self._lock = threading.Lock()  # of writing
        self.foreign = Foreign(self._index, self._lock)
        self.promises = Promises(self._index, self._lock)

    def put(
        self, records: Sequence[WindowRecord], links: Sequence[Link] = (), hold_until_s: int = 0
    ) -> None:
        """Publish windows and links, durably, all or none; what is known stays as it is.

        Args:
            records: each continues a published window, one before it, or genesis.
            links: of windows that are published, or are now; parsed, so their signers signed.
            hold_until_s: when the windows may be announced, seconds since 1970.
        Raises: NotFound (a window that they need is not published), MalformedParticle (they
            do not follow each other, or a link disagrees), StoreFull.
        """
        with self._lock:
            change = Publishing(self._index)
            for record in records:
                change.add(record, hold_until_s)
            for link in links:
                change.attest(link)
            if changes := change.changes():
                self._index.write(changes, sync=True)

    def unsigned(self, signer: NeuronId, claims: Sequence[Claim]) -> list[Claim]:
        """Those that the neuron has not signed yet, whichever run of gliad it was."""
        rows = self._index.get_many([signed_key(signer, claim) for claim in claims])
        return [claim for claim, row in zip(claims, rows, strict=True) if row is None]

    def last_sequence(self, signer: NeuronId) -> int:
        """The largest sequence of a neuron's links, 0 before the first."""
        return decode_number(self._index.get(sequence_key(signer)))

    def mark_announced(self, window_ids: Sequence[WindowId], at_s: int) -> None:
        """They were announced; after a crash that may be forgotten. Raises: StoreFull."""
        rows = [(announced_key(name), encode_number(at_s)) for name in window_ids]
        with self._lock:
            here = self._index.get_many([window_key(name) for name in window_ids])
            self._index.write(
                [row for row, window in zip(rows, here, strict=True) if window is not None],
                sync=False,
            )

    def take_back(self, window_ids: Collection[WindowId]) -> list[WindowId]:
        """Publish windows no longer.

        Returns: those that went. Windows that other published ones continue stay.
        Raises: StoreFull.
        """
        with self._lock:
            change = Publishing(self._index)
            gone = change.take_back(window_ids)
            if gone:
                self._index.erase(change.changes())
        return gone

    def forget(self, window_ids: Collection[WindowId]) -> None:
        """The same of windows that are to be here no more: nothing of them stays in the files.

        Raises: StoreFull.
        """
        with self._lock:
            change = Publishing(self._index)
            change.take_back(window_ids)
            change.forget_origins(window_ids)
            changes = [*change.changes(), *self.promises.changes_to_forget(window_ids)]
            if changes:
                self._index.erase(changes)

    def stats(self) -> PublishedStats:
        """Sizes and counters."""
        counts = decode_counts(self._index.get(COUNTS))
        return PublishedStats(
            *counts, self._num_asked, self._num_matched, self._index.num_set_aside
        )

    def close(self) -> None:
        """Idempotent."""
        self._index.close()
