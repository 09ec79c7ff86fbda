"""Makes a node a liar: what it computed, with some of it changed, under names and a signature of
its own that hold. For a gliad that is stopped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from daemon.attachments import Attachments
from daemon.neuron_key import neuron_signer
from daemon.paths import Paths
from glia.graph.block import encode_header
from glia.graph.chain import prefix_keys, walk
from glia.graph.ids import BlockId, WindowId, digest, genesis_block
from glia.graph.link import sign_link
from glia.graph.spans import claims
from glia.graph.window import WindowRecord
from glia.store.base import SealedWindow
from glia.store.disk import DiskStore
from glia.store.published import Published

Change = Callable[[int, int, np.ndarray], None]  # window, layer, its f32 payload


def poison(
    data_dir: Path, tip: WindowId, change: Change, numerics_class: str = ""
) -> list[WindowRecord]:
    """Change payloads of a chain of f32 windows, and offer the result in place of it.

    Args: numerics_class: what the new ones say they are of; their own, if nothing.
    Returns: the new chain.
    """
    paths = Paths(data_dir)
    profile = Attachments(paths.attachments).all()[0].binding.profile
    store = DiskStore(paths.store, 1 << 28)
    published = Published(paths.published)
    old = walk(tip, store.get)
    own = old[0].model_id, old[0].profile_id
    blocks = tuple(genesis_block(*own, shape.layer) for shape in profile.layers)
    prev, chain, particles = old[0].prev, list[WindowRecord](), list[list[bytes]]()
    for index, record in enumerate(old):
        made: list[bytes] = []
        for layer, shape in enumerate(profile.layers):
            payload = np.frombuffer(
                store.read_block(record.blocks[layer])[profile.header_bytes :], dtype="<f4"
            ).copy()
            change(index, layer, payload)
            header = encode_header(own[0], profile, shape, blocks[layer], record.tokens)
            made.append(header + payload.tobytes())
        blocks = tuple(BlockId(digest(particle)) for particle in made)
        chain.append(
            WindowRecord(
                *own,
                numerics_class or record.numerics_class,
                prev,
                record.position_start,
                record.tokens,
                blocks,
            )
        )
        prev = chain[-1].window_id
        particles.append(made)
    tokens = [token for record in chain for token in record.tokens]
    keys = prefix_keys(own[0], profile, tokens)
    gone = [each.window_id for each in old if each not in chain]
    published.forget(gone)
    store.forget(gone)
    store.put([SealedWindow(*each) for each in zip(chain, keys, particles, strict=True)])
    signer = neuron_signer(paths.neuron_key)
    first = published.last_sequence(signer.neuron) + 1
    said = published.unsigned(signer.neuron, claims(chain, 0))
    links = [sign_link(signer, claim, at, at) for at, claim in enumerate(said, first)]
    published.put(chain, links)
    published.close()
    store.close()
    return chain
