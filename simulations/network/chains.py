"""Public chains that nodes have, and the offer of those that one node has."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

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
    genesis_prefix,
    genesis_window,
)
from glia.graph.link import sign_link
from glia.graph.neuron import Signer
from glia.graph.profile import KvScheme, LayerShape, PositionMode, Profile
from glia.graph.spans import claims
from glia.graph.window import WindowRecord
from p2p.offer import Candidate, read_each

MODEL = ModelId(digest(b"simulated"))
PROFILE = Profile(16, KvScheme.F16, PositionMode.RELATIVE, (LayerShape(0, 1, 16),))
CLASS = "native:simulated"


@dataclass(frozen=True)
class Chain:
    """Windows with their particles, and links that attest all of them.

    Attributes:
        keys: the prefix key of genesis, then that of each window.
    """

    tokens: tuple[int, ...]
    keys: tuple[PrefixKey, ...]
    records: tuple[WindowRecord, ...]
    particles: tuple[bytes, ...]
    links: tuple[bytes, ...]


def make_chain(number: int, num_windows: int, signed_s: int) -> Chain:
    """Equal numbers give equal chains. Args: signed_s: seconds since 1970."""
    source = random.Random(f"chain {number}")
    size = PROFILE.block_size
    tokens = tuple(source.randrange(50_000) for _ in range(num_windows * size))
    records: list[WindowRecord] = []
    particles = []
    prev_window = genesis_window(MODEL, PROFILE.profile_id)
    prev_block = genesis_block(MODEL, PROFILE.profile_id, 0)
    for start in range(0, len(tokens), size):
        own = tokens[start : start + size]
        header = encode_header(MODEL, PROFILE, PROFILE.layers[0], prev_block, own)
        particles.append(header + source.randbytes(PROFILE.payload_bytes(PROFILE.layers[0])))
        prev_block = BlockId(digest(particles[-1]))
        records.append(
            WindowRecord(MODEL, PROFILE.profile_id, CLASS, prev_window, start, own, (prev_block,))
        )
        prev_window = records[-1].window_id
    signer = Signer(digest(b"signer %d" % number))
    links = [sign_link(signer, each, at, signed_s) for at, each in enumerate(claims(records, 0), 1)]
    root = genesis_prefix(MODEL, PROFILE.profile_id)
    keys = (root, *prefix_keys(MODEL, PROFILE, tokens))
    said = tuple(link.encoding for link in links[::-1])
    return Chain(tokens, keys, tuple(records), tuple(particles), said)


class Library:
    """What one node shows (p2p/offer.py). `is_liar`: a bit of each block is another."""

    def __init__(self) -> None:
        self.chains: dict[WindowId, Chain] = {}
        self.is_liar = False
        self._blocks: dict[bytes, bytes] = {}
        self._records: dict[bytes, tuple[Chain, int]] = {}

    def has(self, chain: Chain) -> bool:
        return chain.records[-1].window_id in self.chains

    def add(self, chain: Chain) -> None:
        self.chains[chain.records[-1].window_id] = chain
        for at, (record, particle) in enumerate(zip(chain.records, chain.particles, strict=True)):
            self._records[record.window_id] = chain, at
            self._blocks[record.blocks[0]] = particle

    def match(
        self, model_id: ModelId, profile_id: ProfileId, keys: Sequence[tuple[int, PrefixKey]]
    ) -> list[Candidate]:
        found = [
            Candidate(num, chain.records[num - 1].window_id, CLASS, chain.links)
            for chain in self.chains.values()
            for num, key in keys
            if num < len(chain.keys) and chain.keys[num] == key
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
        data = self._blocks.get(block_id)
        if data is None or not self.is_liar:
            return data
        return data[:-1] + bytes([data[-1] ^ 1])
