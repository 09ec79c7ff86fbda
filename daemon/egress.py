"""The one door to the outside: what peers may be told and given (SECURITY T11, T13).

It names nothing but what is in the published index, so a private window cannot be asked for
here at all. Bytes come from L2, hashed as they are read; what L2 has dropped is absent, as
what nobody ever had.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from glia.graph.ids import BlockId, ModelId, PrefixKey, ProfileId, WindowId
from glia.graph.window import WindowRecord, parse_window
from glia.store.published_reader import PublishedReader
from p2p.offer import Candidate


class Particles(Protocol):
    """Bytes by name, as L2 has them."""

    def read_blocks(
        self, block_ids: Sequence[BlockId], into: memoryview
    ) -> list[memoryview | None]:
        """As many of the first ones as fit, verified; None where one is not here."""

    def has_block(self, block_id: BlockId) -> bool:
        """Whether the index names it."""


def read_those(
    particles: Particles, block_ids: Sequence[BlockId], may: Sequence[bool], into: memoryview
) -> list[memoryview | None]:
    """`Offer.read_blocks` of those that may be read; what may not is absent."""
    named = [name for name, is_named in zip(block_ids, may, strict=True) if is_named]
    read = particles.read_blocks(named, into) if named else []
    found: list[memoryview | None] = []
    at = 0
    for is_named in may:
        if not is_named:
            found.append(None)
        elif at < len(read):
            found.append(read[at])
            at += 1
        else:
            break
    return found


class Egress:
    """The Offer of this node (p2p/offer.py)."""

    def __init__(self, published: PublishedReader, particles: Particles) -> None:
        self._published = published
        self._particles = particles

    def match(
        self,
        model_id: ModelId,
        profile_id: ProfileId,
        keys: Sequence[tuple[int, PrefixKey]],
    ) -> list[Candidate]:
        """See Offer. L2 evicts leaves before roots: where a tip is here, all before it is."""
        found = self._published.match(model_id, profile_id, keys, self._is_here)
        return [
            Candidate(each.num_windows, each.tip, each.numerics_class, each.links) for each in found
        ]

    def records(self, tip: WindowId, num_windows: int, start: int) -> list[bytes]:
        """See Offer."""
        return self._published.records(tip, num_windows, start)

    def record(self, window_id: WindowId) -> bytes | None:
        """See Offer."""
        return self._published.record(window_id)

    def read_blocks(
        self, block_ids: Sequence[BlockId], into: memoryview
    ) -> list[memoryview | None]:
        """See Offer."""
        may = self._published.have_blocks(block_ids)
        return read_those(self._particles, block_ids, may, into)

    def has_block(self, block_id: BlockId) -> bool:
        """See Offer."""
        return self._published.has_block(block_id) and self._particles.has_block(block_id)

    def next_links(self, window_id: WindowId) -> list[bytes]:
        """See Offer."""
        return self._published.next_links(window_id)

    def has_window(self, window_id: WindowId) -> bool:
        """Whether it is published and all its blocks are here, and so those of all before it."""
        encoding = self._published.record(window_id)
        return encoding is not None and self._is_here(parse_window(encoding, window_id))

    def _is_here(self, record: WindowRecord) -> bool:
        return all(map(self._particles.has_block, record.blocks))
