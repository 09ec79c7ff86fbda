"""A chain of windows that two processes can make alike, and the offer of its blocks."""

from __future__ import annotations

import random
from collections.abc import Sequence

from glia.graph.block import encode_header
from glia.graph.chain import prefix_keys
from glia.graph.ids import (
    BlockId,
    ModelId,
    PrefixKey,
    ProfileId,
    WindowId,
    digest,
    genesis_block,
    genesis_window,
)
from glia.graph.window import WindowRecord
from p2p.offer import Candidate, read_each
from simulations.bench.store import PROFILE

NUM_WINDOWS = 64  # of 2 MiB
_MODEL = ModelId(digest(b"bench"))
_SIZE = PROFILE.block_size


class Chain:
    """Windows that both processes can make; as an `Offer`, what it matches and its blocks."""

    profile = PROFILE

    def __init__(self) -> None:
        source = random.Random(8)
        tokens = [source.randrange(50_000) for _ in range(_SIZE * NUM_WINDOWS)]
        self.keys = list(prefix_keys(_MODEL, PROFILE, tokens))
        self.windows: list[WindowRecord] = []
        self._blocks: dict[bytes, bytes] = {}
        payload = source.randbytes(PROFILE.payload_bytes(PROFILE.layers[0]))
        for number in range(NUM_WINDOWS):
            self._add(number, tuple(tokens[_SIZE * number :][:_SIZE]), payload)
        self.num_bytes = sum(map(len, self._blocks.values()))

    def _add(self, number: int, tokens: tuple[int, ...], payload: bytes) -> None:
        before = self.windows[-1] if self.windows else None
        names = []
        for at, shape in enumerate(PROFILE.layers):
            genesis = genesis_block(_MODEL, PROFILE.profile_id, shape.layer)
            prev = before.blocks[at] if before else genesis
            particle = encode_header(_MODEL, PROFILE, shape, prev, tokens) + payload
            names.append(BlockId(digest(particle)))
            self._blocks[names[-1]] = particle
        genesis_id = genesis_window(_MODEL, PROFILE.profile_id)
        self.windows.append(
            WindowRecord(
                model_id=_MODEL,
                profile_id=PROFILE.profile_id,
                numerics_class="native:bench",
                prev=before.window_id if before else genesis_id,
                position_start=_SIZE * number,
                tokens=tokens,
                blocks=tuple(names),
            )
        )

    def read_blocks(
        self, block_ids: Sequence[BlockId], into: memoryview
    ) -> list[memoryview | None]:
        return read_each(self._blocks.get, block_ids, into)

    def block(self, block_id: BlockId) -> bytes:
        """Its bytes."""
        return self._blocks[block_id]

    def has_block(self, block_id: BlockId) -> bool:
        return block_id in self._blocks

    def match(
        self, model_id: ModelId, profile_id: ProfileId, keys: Sequence[tuple[int, PrefixKey]]
    ) -> list[Candidate]:
        tip = self.windows[-1]
        if (NUM_WINDOWS, self.keys[-1]) not in keys:
            return []
        return [Candidate(NUM_WINDOWS, tip.window_id, tip.numerics_class)]

    def records(self, tip: WindowId, num_windows: int, start: int) -> list[bytes]:
        return []

    def record(self, window_id: WindowId) -> bytes | None:
        return None

    def next_links(self, window_id: WindowId) -> list[bytes]:
        return []
