"""The port of L2. `disk` and `memory` keep it; tests/contract holds them to it.

All methods are synchronous, may be called from several threads, and are blocking
where the implementation touches a disk: call them from worker threads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from glia.graph.encrypted import EncryptedWindow
from glia.graph.ids import BlockId, PrefixKey, WindowId
from glia.graph.window import WindowRecord

Buffer = bytes | bytearray | memoryview
Progress = Callable[[int, int], None]  # (done, total)


@dataclass(frozen=True, slots=True)
class SealedWindow:
    """A window on its way down: record, key of its tokens, particles in record order.

    Attributes:
        record: says, too, whether it is a group's (glia/store/vault.py).
    """

    record: WindowRecord
    prefix_key: PrefixKey
    particles: Sequence[Buffer]


@dataclass(frozen=True, slots=True)
class EncryptedDown:
    """The same of an encrypted one: the key is an alias, the particles are sealed."""

    record: EncryptedWindow
    prefix_key: PrefixKey
    particles: Sequence[Buffer]


WindowDown = SealedWindow | EncryptedDown


@dataclass(frozen=True, slots=True)
class StoreStats:
    """Counters since opening, and sizes now."""

    used_bytes: int
    cap_bytes: int
    num_windows: int
    num_blocks: int
    num_hits: int
    num_misses: int
    num_quarantined: int
    num_evicted: int


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What re-verifying everything found."""

    checked: int
    bad: int
    windows: int
    bad_windows: int


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What was removed: windows, and bytes given back to the file system."""

    num_windows: int
    freed_bytes: int


class BlockStore(Protocol):
    """Windows and their blocks by name.

    Order: a window's bytes are durable before the index names them; `put` returns
    after both. A window is *whole* when every block it names is indexed.
    Eviction: by window, least recently used first, never one that stored windows continue. A
    use of a window is a use of those before it. Never what a put names or continues, either:
    where nothing else is left it is refused. A cap that became smaller is kept from the first
    `put` or `spare` on.
    """

    def put(self, windows: Sequence[SealedWindow]) -> None:
        """Store windows durably; known blocks and windows are not written again.

        Raises: StoreFull (nothing of the failing window is visible), StoreBroken.
        """

    def find(self, key: PrefixKey) -> list[WindowId]:
        """Ids of windows stored under a prefix key: hints, to be checked against their records."""

    def get(self, window_id: WindowId) -> WindowRecord | None:
        """The verified record of a whole window, or None."""

    def load(self, window_ids: Sequence[WindowId], into: Sequence[memoryview]) -> list[bool]:
        """Read windows' particles, each into its buffer: particles in record order, concatenated.

        Every block's BLAKE3 is compared with the record before True is answered. A bad
        block is quarantined and counted; its window answers False, as a missing one does.
        Counts as use (for eviction).
        """

    def children(self, window_id: WindowId) -> list[WindowId]:
        """Stored windows that continue this one (a genesis included); does not count as use."""

    def touch(self, chain: Sequence[WindowId]) -> None:
        """These windows, from root to tip, were used now, wherever they were read from."""

    def spare(self, windows: Collection[WindowId] | None) -> None:
        """From now on these, and no others, are never evicted (DESIGN C11): a put that finds
        nothing else to evict raises StoreFull. `forget` removes them all the same.
        None: all, those put later, too."""

    def forget(self, windows: Collection[WindowId], progress: Progress | None = None) -> Forgotten:
        """Remove windows so that their bytes are in the store's files no more.

        Rows and bytes, from the index's tables and logs, too; blocks that other stored
        windows name stay. Unknown names are no matter. Raises: StoreBroken, StoreFull.
        """

    def read_block(self, block_id: BlockId) -> bytes:
        """One particle, verified. Raises: NotFound, HashMismatch (quarantined from now on)."""

    def read_blocks(
        self, block_ids: Sequence[BlockId], into: memoryview
    ) -> list[memoryview | None]:
        """As many of the first particles as fit a buffer, verified: views of it.

        None for one that is not there, or not as named (quarantined from now on). Nothing, where
        the first does not fit. Does not count as use.
        """

    def has_block(self, block_id: BlockId) -> bool:
        """Whether the index names the block; does not count as use."""

    def windows(self) -> Iterator[WindowId]:
        """Ids of all stored windows, in no order; of what changes meanwhile some may be missed."""

    def check(self, progress: Progress | None = None) -> CheckReport:
        """Re-read and verify every block and window record; quarantine what is bad."""

    def stats(self) -> StoreStats:
        """Sizes and counters."""

    def close(self) -> None:
        """Flush and release. Idempotent."""


__all__ = [
    "BlockStore",
    "Buffer",
    "CheckReport",
    "EncryptedDown",
    "Forgotten",
    "Progress",
    "SealedWindow",
    "StoreStats",
    "WindowDown",
]
