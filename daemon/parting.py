"""What a Body gives to the next one of its Soul: the windows of conversations that moved away.

A door of its own, beside daemon/egress.py, which names what is published and nothing else. This
one is made for one stream, after its peer proved the Soul's secret, if the user allows it at all
(checkpoint.give_windows); it holds what may be named, and has no way to anything else
(glia/spec/18-checkpoint.md).
"""

from __future__ import annotations

from collections.abc import Sequence

from daemon.egress import Particles, read_those
from glia.graph.ids import (
    BlockId,
    ModelId,
    PrefixKey,
    ProfileId,
    WindowId,
    genesis_prefix,
    next_prefix,
)
from glia.graph.tokens import pack_tokens
from glia.graph.window import WindowRecord
from p2p.offer import Candidate


class Parting:
    """An Offer (p2p/offer.py) of these chains, from genesis each; of none, it offers nothing.

    Blocking: it hashes all their tokens.
    """

    def __init__(self, chains: Sequence[Sequence[WindowRecord]], particles: Particles) -> None:
        self._particles = particles
        self._records: dict[WindowId, WindowRecord] = {}
        self._found: dict[PrefixKey, list[tuple[int, WindowRecord]]] = {}
        for chain in chains:
            self._add(chain)
        blocks = (name for record in self._records.values() for name in record.blocks)
        self._blocks = frozenset(blocks)

    def _add(self, chain: Sequence[WindowRecord]) -> None:
        if not chain:
            return
        key = genesis_prefix(chain[0].model_id, chain[0].profile_id)
        for num, record in enumerate(chain, 1):
            key = next_prefix(key, pack_tokens(record.tokens))
            if record.window_id not in self._records:
                self._records[record.window_id] = record
                self._found.setdefault(key, []).append((num, record))

    def match(
        self,
        model_id: ModelId,
        profile_id: ProfileId,
        keys: Sequence[tuple[int, PrefixKey]],
    ) -> list[Candidate]:
        """See Offer. Without links: who asks knows whose windows these are."""
        found = [
            Candidate(num, record.window_id, record.numerics_class)
            for wanted, key in keys
            for num, record in self._found.get(key, ())
            if (num, record.model_id, record.profile_id) == (wanted, model_id, profile_id)
        ]
        return sorted(found, key=lambda each: -each.num_windows)

    def records(self, tip: WindowId, num_windows: int, start: int) -> list[bytes]:
        """See Offer."""
        chain: list[WindowRecord] = []
        name = tip
        while (record := self._records.get(name)) is not None:
            chain.append(record)
            name = record.before
        if len(chain) != num_windows:
            return []
        return [record.encoding for record in chain[::-1][start:]]

    def record(self, window_id: WindowId) -> bytes | None:
        """See Offer."""
        record = self._records.get(window_id)
        return record.encoding if record is not None else None

    def read_blocks(
        self, block_ids: Sequence[BlockId], into: memoryview
    ) -> list[memoryview | None]:
        """See Offer."""
        may = [name in self._blocks for name in block_ids]
        return read_those(self._particles, block_ids, may, into)

    def has_block(self, block_id: BlockId) -> bool:
        """See Offer."""
        return block_id in self._blocks and self._particles.has_block(block_id)

    def next_links(self, window_id: WindowId) -> list[bytes]:
        """See Offer."""
        return []
