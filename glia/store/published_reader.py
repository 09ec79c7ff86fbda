"""What is published, as it is asked for: by prefix key, by name, by what it continues.

See spec/12-published.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from glia.graph.ids import BlockId, ModelId, PrefixKey, ProfileId, WindowId
from glia.graph.link import decode_link
from glia.graph.window import WindowRecord
from glia.store.loose import LooseIndex
from glia.store.published_rows import (
    MAX_PER_KEY,
    TIP,
    PublishedWindow,
    announced_key,
    attested_prefix,
    block_prefix,
    decode_number,
    decode_window,
    last_name,
    link_key,
    names_in,
    next_prefix_of,
    prefix_row_key,
    tip_prefix,
    window_key,
)

MAX_CHAIN_LINKS = 128  # that come with a match
_KEYS_AT_ONCE = 128
_MAX_NEXT = 1024  # windows that continue one, of which links are looked for
_ALL = 2**31


@dataclass(frozen=True, slots=True)
class Match:
    """A published chain whose first `num_windows` windows have a prefix key that was asked for.

    Attributes:
        tip: the last of these.
        links: up to MAX_CHAIN_LINKS: those that attest the tip, then one for each span before,
            back to genesis.
    """

    num_windows: int
    tip: WindowId
    numerics_class: str
    links: tuple[bytes, ...]


class PublishedReader:
    """Reads the index. Thread-safe; blocking: call it from worker threads.

    Every method raises StoreBroken where the file system or LevelDB refuses.
    """

    def __init__(self, index: LooseIndex) -> None:
        self._index = index
        self._counting = threading.Lock()
        self._num_asked = self._num_matched = 0

    def match(
        self,
        model_id: ModelId,
        profile_id: ProfileId,
        keys: Sequence[tuple[int, PrefixKey]],
        is_here: Callable[[WindowRecord], bool] = lambda _: True,
    ) -> list[Match]:
        """The longest published chains for (num_windows, key), longest first.

        All windows of the longest key, and of shorter ones those of further numerics classes;
        at most MAX_PER_KEY. Args: is_here: tells of which windows there is more than the record.
        """
        found: dict[WindowId, Match] = {}
        classes: set[str] = set()
        for count, names in self._named(keys):
            if found and len(names) == 1:
                continue  # a window of a chain that was found
            here = [
                Match(count, name, record.numerics_class, ())
                for name in names
                if (record := self._record_at(name, count)) is not None
                and (record.model_id, record.profile_id) == (model_id, profile_id)
                and record.numerics_class not in classes
                and is_here(record)
            ]
            classes.update(match.numerics_class for match in here)
            found |= {match.tip: match for match in here}
            if len(found) >= MAX_PER_KEY:
                break
        with self._counting:
            self._num_asked += 1
            self._num_matched += bool(found)
        return [
            Match(
                each.num_windows, each.tip, each.numerics_class, tuple(self.chain_links(each.tip))
            )
            for each in list(found.values())[:MAX_PER_KEY]
        ]

    def records(self, tip: WindowId, num_windows: int, start: int = 0) -> list[bytes]:
        """The encodings of windows `start` to `num_windows` - 1 of the chain that ends in `tip`.

        In order; empty where the tip is not published, or not at that place.
        """
        row = self.window(tip)
        if row is None or row.num_windows != num_windows or not 0 <= start < num_windows:
            return []
        found = [row.encoding for row in self.back(row, num_windows - start)]
        return found[::-1] if len(found) == num_windows - start else []

    def window(self, window_id: WindowId) -> PublishedWindow | None:
        """A published window, and its place in its chain."""
        value = self._index.get(window_key(window_id))
        return decode_window(window_id, value) if value is not None else None

    def record(self, window_id: WindowId) -> bytes | None:
        """The encoding of a published window."""
        row = self.window(window_id)
        return row.record().encoding if row is not None else None

    def named(self, keys: Sequence[PrefixKey]) -> list[WindowId]:
        """Published windows with one of these prefix keys; of each key the newest few."""
        rows = self._index.get_many(list(map(prefix_row_key, keys)))
        return [name for row in rows for name in names_in(row)]

    def is_final(self, window_id: WindowId, now_s: float) -> bool:
        """Whether a window is published and its hold is over: it may have been announced."""
        row = self.window(window_id)
        return row is not None and row.hold_until_s <= now_s

    def has_block(self, block_id: BlockId) -> bool:
        """Whether a published window names the block."""
        prefix = block_prefix(block_id)
        return bool(self._index.keys_from(prefix, prefix, 1))

    def have_blocks(self, block_ids: Sequence[BlockId]) -> list[bool]:
        """The same for several, four times as fast as one by one."""
        return self._index.have_prefixes([block_prefix(name) for name in block_ids])

    def windows_with(self, block_id: BlockId) -> list[WindowId]:
        """Published windows that name a block."""
        keys = self._index.keys(block_prefix(block_id))
        return [WindowId(last_name(key)) for key in keys]

    def next_windows(self, window_id: WindowId, most: int = _ALL) -> list[WindowId]:
        """Published windows that continue this one, or a genesis; at most so many of them."""
        return [WindowId(name) for name in self._names(next_prefix_of(window_id), most)]

    def next_links(self, window_id: WindowId) -> list[bytes]:
        """Links that attest a window after this one: those based on it, and on one before it.

        At most MAX_CHAIN_LINKS: the windows after a genesis are all conversations' first.
        """
        found: dict[bytes, None] = {}
        for name in self.next_windows(window_id, _MAX_NEXT):
            found |= dict.fromkeys(self.links(name, MAX_CHAIN_LINKS))
            if len(found) >= MAX_CHAIN_LINKS:
                break
        return list(found)[:MAX_CHAIN_LINKS]

    def links(self, window_id: WindowId, most: int = _ALL) -> list[bytes]:
        """Links that attest this window, at most so many of them."""
        names = self._names(attested_prefix(window_id), most)
        rows = self._index.get_many([link_key(name) for name in names])
        return [row for row in rows if row is not None]

    def chain_links(self, tip: WindowId, most: int = MAX_CHAIN_LINKS) -> list[bytes]:
        """Links that attest a chain: all to its tip, then one for each span before it.

        They end where a window is attested by nobody. Args: most: MAX_PER_KEY or more.
        """
        here = self.links(tip, MAX_PER_KEY)
        found = list(here)
        while here and len(found) < most:
            widest = min((decode_link(data).claim for data in here), key=lambda c: c.num_before)
            if not widest.num_before:
                break
            here = self.links(widest.base, MAX_CHAIN_LINKS)
            here = sorted(here, key=lambda data: _rank(data, widest.base))[:1]
            found += here
        return found

    def tips(self, model_id: ModelId | None = None) -> list[PublishedWindow]:
        """The published windows that nothing published continues, of all models or of one."""
        prefix = tip_prefix(model_id) if model_id is not None else TIP
        rows = [self.window(WindowId(last_name(key))) for key in self._index.keys(prefix)]
        return [row for row in rows if row is not None]

    def back(self, row: PublishedWindow, num: int = _ALL) -> Iterator[PublishedWindow]:
        """A window and those before it, the last one first; at most so many."""
        for _ in range(num):
            yield row
            before = self.window(row.record().prev)
            if before is None:
                return
            row = before

    def windows_at(self, tip: WindowId, counts: Collection[int]) -> list[PublishedWindow]:
        """The windows of a chain at which it is so many windows long, the longest first."""
        row = self.window(tip)
        if row is None or not counts:
            return []
        back = self.back(row, row.num_windows - min(counts) + 1)
        return [row for row in back if row.num_windows in counts]

    def announced_s(self, window_ids: Sequence[WindowId]) -> list[int]:
        """When each window was last announced, seconds since 1970; 0 for never."""
        rows = self._index.get_many([announced_key(name) for name in window_ids])
        return [decode_number(row) for row in rows]

    def _names(self, prefix: bytes, most: int) -> list[bytes]:
        """The last names of a prefix's first keys."""
        return [last_name(key) for key in self._index.keys_from(prefix, prefix, most)]

    def _named(self, keys: Sequence[tuple[int, PrefixKey]]) -> Iterator[tuple[int, list[WindowId]]]:
        """Counts and the windows with their key, longest first, those with any."""
        ordered = sorted(set(keys), reverse=True)
        for at in range(0, len(ordered), _KEYS_AT_ONCE):
            some = ordered[at : at + _KEYS_AT_ONCE]
            rows = self._index.get_many([prefix_row_key(key) for _, key in some])
            for (count, _), row in zip(some, rows, strict=True):
                if row is not None:
                    yield count, names_in(row)[::-1]

    def _record_at(self, window_id: WindowId, count: int) -> WindowRecord | None:
        row = self.window(window_id)
        return row.record() if row is not None and row.num_windows == count else None


def _rank(data: bytes, window_id: WindowId) -> tuple[bool, int]:
    """Links that end in a window first, of these the one that attests most."""
    claim = decode_link(data).claim
    return claim.tip != window_id, claim.num_before
