"""What an answer to a peer holds: which candidates, which links, which records. Decisions only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from glia.graph.encrypted import parse_record
from glia.graph.ids import WindowId
from p2p.frames import LENGTH
from p2p.messages import (
    MAX_CANDIDATES,
    MAX_LINK_BYTES,
    MAX_LINKS,
    MAX_PART_RECORDS,
    FoundChain,
    FoundChains,
    Held,
    RecordPart,
)
from p2p.offer import Candidate, Offer

_PART_BYTES = 56 * 1024  # of a frame's 64 KiB; the rest is lengths, names and the last record
_LINKS_BYTES = 56 * 1024
# three blocks of 64 KiB; of much larger pieces the C library keeps none (glia/allocator.py)
_BODIES_BYTES = 200 * 1024


def best_candidates(found: Sequence[Candidate], classes: Sequence[str]) -> list[Candidate]:
    """Those of the classes that the getter takes, the longest first, then the better class."""
    taken = [each for each in found if not classes or each.numerics_class in classes]
    taken.sort(key=lambda each: _rank(each, classes))
    return taken[:MAX_CANDIDATES]


def _rank(candidate: Candidate, classes: Sequence[str]) -> tuple[int, int]:
    place = classes.index(candidate.numerics_class) if classes else 0
    return -candidate.num_windows, place


def found_chains(candidates: Sequence[Candidate]) -> FoundChains:
    """As it travels: the links of the first candidate go before those of the next."""
    left = _LINKS_BYTES
    chains = []
    for each in candidates:
        links = links_that_fit(each.links, left)
        left -= _travelling_bytes(links)
        chains.append(FoundChain(each.num_windows, each.tip, each.numerics_class, links))
    return FoundChains(tuple(chains))


def links_that_fit(links: Sequence[bytes], most_bytes: int = _LINKS_BYTES) -> tuple[bytes, ...]:
    """The first of them, as far as they fit a frame."""
    fitting: list[bytes] = []
    for link in links[:MAX_LINKS]:
        most_bytes -= _travelling_bytes([link])
        if len(link) > MAX_LINK_BYTES or most_bytes < 0:
            break
        fitting.append(link)
    return tuple(fitting)


def _travelling_bytes(links: Sequence[bytes]) -> int:
    return sum(len(link) + 3 for link in links)


def bitmap(held: Sequence[bool]) -> Held:
    """One bit each, the lowest first."""
    bits = bytearray((len(held) + 7) // 8)
    for index, is_held in enumerate(held):
        bits[index // 8] |= is_held << index % 8
    return Held(bytes(bits))


def bodies(found: Sequence[memoryview | None]) -> Iterator[bytes]:
    """Particles as they travel, several at once; None is one that is absent."""
    parts: list[bytes | memoryview] = []
    size = 0
    for particle in found:
        length = 0 if particle is None else len(particle)
        if parts and size + length > _BODIES_BYTES:
            yield b"".join(parts)
            parts, size = [], 0
        parts.append(LENGTH.pack(length))
        parts.append(particle or b"")
        size += LENGTH.size + length
    yield b"".join(parts)


class PartReader:
    """Reads a chain's records from the tip back, a frame at a time."""

    def __init__(self, offer: Offer, tip: WindowId, num_windows: int, start: int) -> None:
        self._offer = offer
        self._tip, self._end, self._start = tip, num_windows, start
        self._at_once = 1  # until it is known how large a record is
        self.is_over = False

    def read(self) -> RecordPart:
        """The next part; the last one says so. In a worker thread."""
        start = max(self._start, self._end - self._at_once)
        found = self._offer.records(self._tip, self._end, start) if start < self._end else []
        kept = self._newest(found)
        if kept:
            self._end -= len(kept)
            self._tip = parse_record(kept[-1]).prev
        self.is_over = not kept or self._end <= self._start
        return RecordPart(tuple(kept), self.is_over)

    def _newest(self, found: Sequence[bytes]) -> list[bytes]:
        """As many as fit a part, newest first; at least one."""
        kept: list[bytes] = []
        left = _PART_BYTES
        for encoding in reversed(found):
            left -= len(encoding) + 3
            if kept and left < 0:
                break
            kept.append(encoding)
        if kept:
            average = sum(map(len, kept)) // len(kept) + 3
            self._at_once = max(1, min(MAX_PART_RECORDS, _PART_BYTES // average))
        return kept
