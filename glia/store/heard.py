"""Links that others sent: hints, bounded, in files of their own. See spec/12-published.md.

Apart from what this node offers, so that nothing a stranger sends is in those files. The
caller has parsed each link (its signer signed it); whether its windows are as it says is
known when they are fetched.

l + link id                     -> the link
k + prefix key + link id        -> when it came: a number that grows
f + base + link id              -> (empty)
o + when it came                -> link id
t + when it came                -> link id, of a signer whose word was taken
s + signer + when it came       -> link id
c + signer                      -> how many of them there are
next                            -> the next such number
num                             -> how many links there are
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from glia.graph.ids import PrefixKey, WindowId
from glia.graph.link import Link, decode_link
from glia.store.index import Change
from glia.store.loose import LooseIndex
from glia.store.published_rows import decode_number, encode_number, last_name

MAX_LINKS = 50_000
MAX_PER_PREFIX = 8
MAX_PER_SIGNER = 2  # of these

_LARGE = 8  # who has that part of all makes room for its own
_VERSION = 1
_NEXT, _NUM = b"next", b"num"
_ORDER, _TAKEN, _SIGNER, _COUNT = b"o", b"t", b"s", b"c"
_ARRIVAL = struct.Struct(">Q")  # in key order


@dataclass(frozen=True, slots=True)
class HeardStats:
    """What there is now, and counters since opening."""

    num_links: int
    num_refused: int
    num_dropped: int
    num_set_aside: int


class Heard:
    """Links of others. Thread-safe, blocking; raises StoreBroken as Published does."""

    def __init__(self, path: Path, max_links: int = MAX_LINKS) -> None:
        """Open or create. Raises: StoreBroken, StoreFull, StoreLocked, StoreVersion."""
        self._index = LooseIndex(path, _VERSION)
        self._max = max_links
        self._lock = threading.Lock()
        self._num_refused = self._num_dropped = 0

    def add(self, link: Link, *, is_taken: bool = False) -> bool:
        """Keep a link; False where it is known, or there are enough for its prefix key.

        Of one signer the newest MAX_PER_SIGNER are kept, of all signers the first
        MAX_PER_PREFIX: who comes late pushes out nobody else, unless its signer's word is
        taken here (`is_taken`): then the oldest goes. In all the oldest go first, those of
        signers whose word is not taken before all others; who has a large part of them loses
        its own. Not synced: after a crash the last ones may be missing. Raises: StoreFull.
        """
        with self._lock:
            if self._index.get(b"l" + link.link_id) is not None:
                return False
            known = self._under(b"k" + link.claim.prefix_key)
            own = [each for each in known if each.signer == link.signer]
            gone: list[Link] = []
            if len(own) >= MAX_PER_SIGNER:
                oldest = min(own, key=lambda each: (each.sequence, each.link_id))
                if oldest.sequence >= link.sequence:
                    self._num_refused += 1
                    return False
                gone.append(oldest)
            elif len(known) >= MAX_PER_PREFIX and is_taken:
                gone.append(min(known, key=self._arrival))
            elif len(known) >= MAX_PER_PREFIX:
                self._num_refused += 1
                return False
            elif self._num() >= self._max:
                is_large = self._num_of(link.signer) >= self._max // _LARGE
                own_first = self._first(_SIGNER + link.signer) if is_large else []
                gone += own_first or self._first(_ORDER) or self._first(_TAKEN)
            changes = [change for each in gone for change in self._without(each)]
            counts = self._counts(link, gone)
            self._write([*changes, *self._with(link, is_taken), *counts], 1 - len(gone))
            self._num_dropped += len(gone)
            return True

    def find(self, keys: Sequence[PrefixKey]) -> list[Link]:
        """Links whose tip has one of these prefix keys, in the order of the keys."""
        return [link for key in keys for link in self._under(b"k" + key)]

    def next_links(self, window_id: WindowId) -> list[Link]:
        """Links based on a window."""
        return self._under(b"f" + window_id)

    def drop(self, links: Sequence[Link]) -> None:
        """These turned out to be wrong, or their signer is not believed. Raises: StoreFull."""
        with self._lock:
            for link in links:
                if changes := self._without(link):
                    self._write([*changes, *self._counts(None, [link])], -1)

    def stats(self) -> HeardStats:
        """Sizes and counters."""
        return HeardStats(
            self._num(), self._num_refused, self._num_dropped, self._index.num_set_aside
        )

    def close(self) -> None:
        """Idempotent."""
        self._index.close()

    def _num(self) -> int:
        return decode_number(self._index.get(_NUM))

    def _write(self, changes: Sequence[Change], more: int) -> None:
        count = (_NUM, encode_number(self._num() + more))
        self._index.write([*changes, count], sync=False)

    def _under(self, prefix: bytes) -> list[Link]:
        names = [last_name(key) for key in self._index.keys(prefix)]
        rows = self._index.get_many([b"l" + name for name in names])
        return [decode_link(row) for row in rows if row is not None]

    def _arrival(self, link: Link) -> int:
        return decode_number(self._index.get(b"k" + link.claim.prefix_key + link.link_id))

    def _first(self, prefix: bytes) -> list[Link]:
        """The oldest of those; none where there is none."""
        rows = [self._index.get(key) or b"" for key in self._index.keys_from(prefix, prefix, 1)]
        links = self._index.get_many([b"l" + name for name in rows])
        return [decode_link(row) for row in links if row is not None]

    def _num_of(self, signer: bytes) -> int:
        return decode_number(self._index.get(_COUNT + signer))

    def _counts(self, new: Link | None, gone: Sequence[Link]) -> list[Change]:
        """How many each signer has once these are gone, and a new one has come."""
        nums = {link.signer: self._num_of(link.signer) for link in gone}
        for link in gone:
            nums[link.signer] = max(0, nums[link.signer] - 1)
        if new is not None:
            nums[new.signer] = nums.get(new.signer, self._num_of(new.signer)) + 1
        return [
            (_COUNT + signer, encode_number(num) if num else None) for signer, num in nums.items()
        ]

    def _with(self, link: Link, is_taken: bool) -> list[Change]:
        arrival = decode_number(self._index.get(_NEXT))
        order = _TAKEN if is_taken else _ORDER
        return [
            (b"l" + link.link_id, link.encoding),
            (b"k" + link.claim.prefix_key + link.link_id, encode_number(arrival)),
            (b"f" + link.claim.base + link.link_id, b""),
            (order + _ARRIVAL.pack(arrival), link.link_id),
            (_SIGNER + link.signer + _ARRIVAL.pack(arrival), link.link_id),
            (_NEXT, encode_number(arrival + 1)),
        ]

    def _without(self, link: Link) -> list[Change]:
        key = b"k" + link.claim.prefix_key + link.link_id
        value = self._index.get(key)
        if value is None:
            return []
        arrival = _ARRIVAL.pack(decode_number(value))
        return [
            (b"l" + link.link_id, None),
            (key, None),
            (b"f" + link.claim.base + link.link_id, None),
            (_ORDER + arrival, None),
            (_TAKEN + arrival, None),
            (_SIGNER + link.signer + arrival, None),
        ]
