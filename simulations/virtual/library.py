"""What one node shows of its chains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import trio

from glia.graph.ids import BlockId, ModelId, PrefixKey, ProfileId, WindowId
from p2p.offer import Candidate, read_each
from simulations.virtual.chains import CLASS, Chain

T = TypeVar("T")


class Library:
    """Everything of some chains (p2p/offer.py). `is_honest`: it is what it shows."""

    is_honest = True

    def __init__(self) -> None:
        self.chains: dict[WindowId, Chain] = {}
        self._blocks: dict[bytes, bytes] = {}
        self._records: dict[bytes, tuple[Chain, int]] = {}

    def has(self, chain: Chain) -> bool:
        return chain.tip in self.chains

    def add(self, chain: Chain) -> None:
        self.chains[chain.tip] = chain
        for at, record in enumerate(chain.records):
            self._records[record.window_id] = chain, at
        self._blocks.update(chain.blocks())

    def match(
        self, model_id: ModelId, profile_id: ProfileId, keys: Sequence[tuple[int, PrefixKey]]
    ) -> list[Candidate]:
        found = [
            Candidate(num, chain.records[num - 1].window_id, CLASS, chain.links)
            for chain in self.chains.values()
            for num, key in keys
            if num <= len(chain.keys) and chain.keys[num - 1] == key
        ]
        return sorted(found, key=lambda each: -each.num_windows)

    def records(self, tip: WindowId, num_windows: int, start: int) -> list[bytes]:
        chain, at = self._records.get(tip, (None, -1))
        if chain is None or at != num_windows - 1:
            return []
        return [record.encoding for record in chain.records[start:num_windows]]

    def record(self, window_id: WindowId) -> bytes | None:
        chain, at = self._records.get(window_id, (None, -1))
        return chain.records[at].encoding if chain else None

    def read_blocks(
        self, block_ids: Sequence[BlockId], into: memoryview
    ) -> list[memoryview | None]:
        return read_each(self._block, block_ids, into)

    def has_block(self, block_id: BlockId) -> bool:
        return block_id in self._blocks

    def next_links(self, window_id: WindowId) -> list[bytes]:
        return []

    def _block(self, block_id: BlockId) -> bytes | None:
        return self._blocks.get(block_id)

    async def answer(self, call: Callable[[], T], /) -> T:
        """Calls of an offer in a dict do not block, and need no thread."""
        await trio.lowlevel.checkpoint()
        return call()
