"""Seeded particles, windows and chains of any profile. No part of the product is faked here."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from glia.graph.block import encode_header
from glia.graph.chain import prefix_keys
from glia.graph.ids import (
    BlockId,
    ModelId,
    PrefixKey,
    WindowId,
    digest,
    genesis_block,
    genesis_window,
)
from glia.graph.link import sign_link
from glia.graph.neuron import Signer
from glia.graph.profile import KvScheme, LayerShape, PositionMode, Profile
from glia.graph.spans import claims
from glia.graph.window import WindowRecord
from glia.store.base import SealedWindow

MODEL = ModelId(bytes(range(32)))
CLASS = "native:test"


def make_profile(
    *,
    block_size: int = 16,
    num_layers: int = 2,
    kv_heads: int = 1,
    head_dim: int = 4,
    scheme: KvScheme = KvScheme.F16,
    mode: PositionMode = PositionMode.RELATIVE,
) -> Profile:
    """A profile whose layers are alike; small unless told otherwise."""
    shapes = tuple(LayerShape(layer, kv_heads, head_dim) for layer in range(num_layers))
    return Profile(block_size, scheme, mode, shapes)


TINY = make_profile()
SMALL = make_profile(num_layers=1, head_dim=16)


@dataclass(frozen=True)
class Chain:
    """Windows one after the other, with the bytes of their blocks.

    Attributes:
        particles: per window, the particles (header || payload) of all layers, in order.
        keys: per window, its prefix key.
        links: that attest all of it, as they travel, the nearest to the tip first.
    """

    profile: Profile
    model_id: ModelId
    tokens: tuple[int, ...]
    records: tuple[WindowRecord, ...]
    particles: tuple[tuple[bytes, ...], ...]
    keys: tuple[PrefixKey, ...]
    links: tuple[bytes, ...] = ()

    @property
    def window_ids(self) -> list[WindowId]:
        return [record.window_id for record in self.records]

    @property
    def tip(self) -> WindowId:
        return self.records[-1].window_id

    def blocks(self) -> Iterator[tuple[BlockId, bytes]]:
        """Every block's name and bytes, in (window, layer) order."""
        for record, particles in zip(self.records, self.particles, strict=True):
            yield from zip(record.blocks, particles, strict=True)


def make_tokens(num_tokens: int, seed: int = 0) -> tuple[int, ...]:
    """Token ids below 50,000."""
    rng = random.Random(f"tokens {seed}")
    return tuple(rng.randrange(50_000) for _ in range(num_tokens))


def make_payload(num_bytes: int, *key: object) -> bytes:
    """Bytes that follow from `key` alone."""
    return random.Random(repr(key)).randbytes(num_bytes)


def make_chain(
    num_windows: int,
    *,
    profile: Profile = TINY,
    seed: int = 0,
    model_id: ModelId = MODEL,
    numerics_class: str = CLASS,
    tokens: Sequence[int] | None = None,
    base: Chain | None = None,
) -> Chain:
    """A chain of `num_windows` windows, after those of `base` if given.

    Payloads follow from all tokens up to their window's end, the layer, the class and
    the model, as those of a real model do: equal prefixes give equal windows.

    Args:
        tokens: of the new windows, num_windows * block_size; seeded ones if None.
    """
    size = profile.block_size
    new = tuple(tokens) if tokens is not None else make_tokens(num_windows * size, seed)
    assert len(new) == num_windows * size
    records = list(base.records) if base else []
    particles = list(base.particles) if base else []
    known = (base.tokens if base else ()) + new
    for index in range(len(records), len(records) + num_windows):
        seen = known[: (index + 1) * size]
        before = records[-1] if records else None
        window = _particles(model_id, profile, numerics_class, seen, before)
        particles.append(window)
        records.append(
            WindowRecord(
                model_id=model_id,
                profile_id=profile.profile_id,
                numerics_class=numerics_class,
                prev=before.window_id if before else genesis_window(model_id, profile.profile_id),
                position_start=index * size,
                tokens=seen[-size:],
                blocks=tuple(BlockId(digest(particle)) for particle in window),
            )
        )
    return Chain(
        profile=profile,
        model_id=model_id,
        tokens=known,
        records=tuple(records),
        particles=tuple(particles),
        keys=tuple(prefix_keys(model_id, profile, known)),
    )


def _particles(
    model_id: ModelId,
    profile: Profile,
    numerics_class: str,
    seen: tuple[int, ...],
    before: WindowRecord | None,
) -> tuple[bytes, ...]:
    size = profile.block_size
    anchor = len(seen) - size if profile.mode is PositionMode.ABSOLUTE else 0
    made = []
    for index, shape in enumerate(profile.layers):
        prev = (
            before.blocks[index]
            if before
            else genesis_block(model_id, profile.profile_id, shape.layer)
        )
        header = encode_header(model_id, profile, shape, prev, seen[-size:], anchor)
        num_bytes = profile.payload_bytes(shape)
        made.append(header + make_payload(num_bytes, model_id, numerics_class, shape.layer, seen))
    return tuple(made)


def links_of(chain: Chain, signer: Signer, signed_s: int, num_before: int = 0) -> tuple[bytes, ...]:
    """Links of one neuron for all of it, as they travel, the nearest to the tip first."""
    said = claims(chain.records, num_before)
    links = [sign_link(signer, claim, n, signed_s).encoding for n, claim in enumerate(said, 1)]
    return tuple(links[::-1])


def sealed(chain: Chain, numbers: Iterable[int] | None = None) -> list[SealedWindow]:
    """Windows of a chain as they go down."""
    return [
        SealedWindow(chain.records[n], chain.keys[n], chain.particles[n])
        for n in (range(len(chain.records)) if numbers is None else numbers)
    ]


def public_chain(number: int, num_windows: int, signed_s: int) -> Chain:
    """Small blocks, and links. Equal numbers give equal chains. Args: signed_s: since 1970."""
    chain = make_chain(num_windows, profile=SMALL, seed=number)
    signer = Signer(digest(b"signer %d" % number))
    return replace(chain, links=links_of(chain, signer, signed_s))
