"""Public chains that nodes have."""

from __future__ import annotations

import random
from dataclasses import dataclass

from glia.graph.block import encode_header
from glia.graph.chain import prefix_keys
from glia.graph.ids import (
    BlockId,
    ModelId,
    PrefixKey,
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
