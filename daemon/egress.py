"""The one door to the outside: what peers may be told and given (SECURITY T11, T13).

It names nothing but what is in the published index, so a private window cannot be asked for
here at all. Bytes come from L2, hashed as they are read; what L2 has dropped is absent, as
what nobody ever had.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from glia.errors import IntegrityError, NotFound
from glia.graph.ids import BlockId, ModelId, PrefixKey, ProfileId, WindowId
from glia.graph.window import WindowRecord, parse_window
from glia.store.published import Published
from p2p.offer import Candidate


class Particles(Protocol):
    """Bytes by name, as L2 has them."""

    def read_block(self, block_id: BlockId) -> bytes:
        """Verified. Raises: NotFound, HashMismatch."""

    def has_block(self, block_id: BlockId) -> bool:
        """Whether the index names it."""


class Egress:
    """The Offer of this node (p2p/offer.py)."""

    def __init__(self, published: Published, particles: Particles) -> None:
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

    def block(self, block_id: BlockId) -> bytes | None:
        """See Offer."""
        if not self._published.has_block(block_id):
            return None
        try:
            return self._particles.read_block(block_id)
        except (NotFound, IntegrityError):
            return None

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
