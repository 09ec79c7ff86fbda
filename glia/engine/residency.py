"""L0's names: which window stands in which slot, who uses it, what goes when room is needed.

A slot is in one of four states:

    free        no name, no references
    own         no name, one reference: a sequence writes it
    shared      a name, one reference or more: never written
    kept        a name, no references: given to the next who asks for the name, or evicted,
                least recently used first

References pin: a sequence holds one to each slot of its table from admission to its end,
so no dispatch can ever lose a slot it reads.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from glia.engine.placement import FreeSlots
from glia.engine.promise import promise
from glia.errors import PoolExhausted
from glia.graph.ids import WindowId


@dataclass(frozen=True, slots=True)
class L0Stats:
    """Sizes now, and counters since the start, in windows where not in bytes."""

    used_bytes: int
    cap_bytes: int
    num_windows: int
    num_hits: int
    num_misses: int
    num_evicted: int


class Residency:
    """Owner of all slots of one pool.

    Args:
        num_slots: N.
        slot_bytes: one window in all layers, as the pool keeps it.
    """

    def __init__(self, num_slots: int, slot_bytes: int) -> None:
        self._num_slots = num_slots
        self._slot_bytes = slot_bytes
        self._free = FreeSlots(num_slots)
        self._references = [0] * num_slots
        self._slots: dict[WindowId, int] = {}
        self._names: dict[int, WindowId] = {}
        self._kept: OrderedDict[int, None] = OrderedDict()
        self._num_hits = self._num_misses = self._num_evicted = 0

    def take(self, count: int, after: int | None = None) -> list[int]:
        """Slots to write, each with one reference; evicts kept ones where none is free.

        Such that follow each other (and the slot `after`), if that costs no more than
        evicting `count` kept ones.

        Raises: PoolExhausted where there are not so many; nothing is taken then.
        """
        if count > len(self._free) + len(self._kept):
            raise PoolExhausted(
                f"L0 has no {count} slots that nobody uses",
                hint="wait for running requests, or raise [l0] size in glia.toml",
            )
        while len(self._free) < count:
            self._evict_oldest()
        start = self._free.run(count, after)
        for _ in range(min(count, len(self._kept))):
            if start is not None:
                break
            self._evict_oldest()
            start = self._free.run(count, after)
        taken = self._free.take(count, start)
        for slot in taken:
            self._references[slot] = 1
        return taken

    def share(self, window_id: WindowId) -> int | None:
        """A reference to the slot that stands for this window, if one does."""
        slot = self._slots.get(window_id)
        if slot is not None:
            self.share_slots((slot,))
        return slot

    def share_slots(self, slots: Sequence[int]) -> None:
        """One more reference to each of these named slots."""
        for slot in slots:
            promise(slot in self._names, "only a sealed slot is shared")
            self._references[slot] += 1
            self._kept.pop(slot, None)

    def adopt(self, window_id: WindowId, slot: int) -> int:
        """Let an own slot stand for a name.

        Returns: the slot the caller has its reference to now: this one, or the one that
            stood for the name before (this one is then free).
        """
        promise(self._references[slot] == 1, "only an own slot gets a name")
        promise(slot not in self._names, "a slot has one name")
        known = self.share(window_id)
        if known is not None:
            self.release((slot,))
            return known
        self._slots[window_id] = slot
        self._names[slot] = window_id
        return slot

    def release(self, slots: Sequence[int]) -> None:
        """Give references back. A chain's last window becomes the least recently used."""
        for slot in reversed(slots):
            self._references[slot] -= 1
            promise(self._references[slot] >= 0, "a reference is given back once")
            if self._references[slot] == 0:
                if slot in self._names:
                    self._kept[slot] = None
                else:
                    self._free.give(slot)

    def evict_all(self) -> tuple[int, int]:
        """Drop all that nobody uses. Returns: (bytes, windows) given back."""
        count = len(self._kept)
        while self._kept:
            self._evict_oldest()
        return count * self._slot_bytes, count

    def drop(self, window_ids: Collection[WindowId]) -> tuple[int, int]:
        """Drop these, of those that nobody uses. Returns: (bytes, windows) given back."""
        for name in window_ids:
            slot = self._slots[name]
            del self._kept[slot]
            self._free_named(slot)
        return len(window_ids) * self._slot_bytes, len(window_ids)

    @property
    def unused(self) -> list[WindowId]:
        """Windows that no sequence uses, least recently used first."""
        return [self._names[slot] for slot in self._kept]

    @property
    def free_slots(self) -> list[int]:
        """Slots without a name and without a user; some hold what was there before."""
        return list(self._free)

    def count_lookup(self, num_hits: int, num_misses: int) -> None:
        """Windows of a prompt that were found here, and that were not."""
        self._num_hits += num_hits
        self._num_misses += num_misses

    def stats(self) -> L0Stats:
        """Sizes and counters."""
        return L0Stats(
            used_bytes=(self._num_slots - len(self._free)) * self._slot_bytes,
            cap_bytes=self._num_slots * self._slot_bytes,
            num_windows=len(self._slots),
            num_hits=self._num_hits,
            num_misses=self._num_misses,
            num_evicted=self._num_evicted,
        )

    def check(self, tables: Sequence[Sequence[int]]) -> None:
        """The invariants, given the block tables of all live sequences."""
        held = Counter(slot for table in tables for slot in table)
        every = range(self._num_slots)
        unused = {slot for slot in every if not self._references[slot]}
        promise([held[slot] for slot in every] == self._references, "references are the tables'")
        promise({s: n for n, s in self._slots.items()} == self._names, "names go both ways")
        promise(set(self._kept) == unused & set(self._names), "kept is named and unused")
        promise(set(self._free) == unused - set(self._kept), "free is neither named nor used")
        promise(len(self._free) == len(set(self._free)), "free slots are counted")

    def _evict_oldest(self) -> None:
        slot, _ = self._kept.popitem(last=False)
        self._free_named(slot)
        self._num_evicted += 1

    def _free_named(self, slot: int) -> None:
        del self._slots[self._names.pop(slot)]
        self._free.give(slot)
