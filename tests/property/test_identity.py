"""Names: every input counts, encodings are injective, foreign bytes give two errors at most."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glia.errors import HashMismatch, MalformedParticle
from glia.graph.block import encode_header, parse_block
from glia.graph.ids import BlockId, ModelId, ProfileId, WindowId, digest
from glia.graph.profile import KvScheme, LayerShape, PositionMode, Profile
from glia.graph.window import WindowRecord, parse_window

names = st.binary(min_size=32, max_size=32)
token_ids = st.integers(0, 2**32 - 1)


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    layers = draw(st.lists(st.integers(0, 1023), min_size=1, max_size=4, unique=True))
    shapes = [
        LayerShape(layer, draw(st.integers(1, 3)), draw(st.integers(1, 4)))
        for layer in sorted(layers)
    ]
    return Profile(
        draw(st.sampled_from((16, 32))),
        draw(st.sampled_from(KvScheme)),
        draw(st.sampled_from(PositionMode)),
        tuple(shapes),
    )


@dataclass(frozen=True)
class Inputs:
    """All that a block's name depends on."""

    model_id: ModelId
    profile: Profile
    shape: LayerShape
    prev: BlockId
    tokens: tuple[int, ...]
    anchor: int
    payload: bytes

    def particle(self) -> bytes:
        header = encode_header(
            self.model_id, self.profile, self.shape, self.prev, self.tokens, self.anchor
        )
        return header + self.payload


@st.composite
def blocks(draw: st.DrawFn, of: Profile | None = None) -> Inputs:
    profile = of or draw(profiles())
    shape = draw(st.sampled_from(profile.layers))
    size, num_bytes = profile.block_size, profile.payload_bytes(shape)
    absolute = profile.mode is PositionMode.ABSOLUTE
    return Inputs(
        ModelId(draw(names)),
        profile,
        shape,
        BlockId(draw(names)),
        tuple(draw(st.lists(token_ids, min_size=size, max_size=size))),
        draw(st.integers(0, 2**48)) if absolute else 0,
        draw(st.binary(min_size=num_bytes, max_size=num_bytes)),
    )


@st.composite
def windows(draw: st.DrawFn) -> WindowRecord:
    size = draw(st.sampled_from((16, 32, 256)))
    return WindowRecord(
        model_id=ModelId(draw(names)),
        profile_id=ProfileId(draw(names)),
        numerics_class=draw(
            st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1)
        ),
        prev=WindowId(draw(names)),
        position_start=size * draw(st.integers(0, 2**40)),
        tokens=tuple(draw(st.lists(token_ids, min_size=size, max_size=size))),
        blocks=tuple(BlockId(name) for name in draw(st.lists(names, min_size=1, max_size=5))),
    )


def flipped(data: bytes, bit: int) -> bytes:
    out = bytearray(data)
    out[bit // 8 % len(out)] ^= 1 << bit % 8
    return bytes(out)


def other_profiles(profile: Profile) -> list[Profile]:
    """The profile with one thing changed, each in its turn."""
    first = profile.layers[0]
    wider = replace(first, kv_heads=first.kv_heads + 1)
    deeper = replace(first, head_dim=first.head_dim + 1)
    turned = LayerShape(first.layer, first.head_dim, first.kv_heads)
    return [
        replace(profile, block_size=profile.block_size + 16),
        *(replace(profile, scheme=scheme) for scheme in KvScheme),
        *(replace(profile, mode=mode) for mode in PositionMode),
        replace(profile, layers=(wider, *profile.layers[1:])),
        replace(profile, layers=(deeper, *profile.layers[1:])),
        replace(profile, layers=(turned, *profile.layers[1:])),
        replace(
            profile, layers=profile.layers[1:] or (replace(first, layer=(first.layer + 1) % 9),)
        ),
    ]


@pytest.mark.spec(7)
@given(blocks(), st.data())
def test_any_changed_input_changes_the_block_id(block: Inputs, data: st.DataObject) -> None:
    row = 2 * block.shape.head_dim * block.profile.scheme.itemsize  # K, then V, of one head
    at_k = data.draw(st.integers(0, row // 2 - 1), "K byte")
    at_v = row // 2 + at_k
    bit = data.draw(st.integers(0, 255), "bit")
    index = data.draw(st.integers(0, block.profile.block_size - 1), "token")
    token = block.tokens[index] ^ (1 << bit % 32)
    variants = [
        block,
        replace(block, model_id=ModelId(flipped(block.model_id, bit))),
        replace(block, prev=BlockId(flipped(block.prev, bit))),
        replace(block, tokens=(*block.tokens[:index], token, *block.tokens[index + 1 :])),
        replace(block, payload=flipped(block.payload, 8 * at_k + bit % 8)),
        replace(block, payload=flipped(block.payload, 8 * at_v + bit % 8)),
        *(replace(block, shape=shape) for shape in block.profile.layers if shape != block.shape),
    ]
    if block.profile.mode is PositionMode.ABSOLUTE:
        variants.append(replace(block, anchor=block.anchor - 1 if block.anchor else 16))
    ids = {digest(variant.particle()) for variant in variants}
    assert len(ids) == len(variants)


@pytest.mark.spec(7, 8, 56)
@given(blocks())
def test_another_profile_is_another_name_for_the_same_bytes(block: Inputs) -> None:
    others = {other for other in other_profiles(block.profile) if other != block.profile}
    assert len({other.profile_id for other in others} | {block.profile.profile_id}) == 1 + len(
        others
    )
    for other in others:
        if block.shape in other.layers and other.block_size == block.profile.block_size:
            anchor = block.anchor if other.mode is PositionMode.ABSOLUTE else 0
            stranger = replace(block, profile=other, anchor=anchor)
            assert digest(stranger.particle()) != digest(block.particle())
            with pytest.raises(MalformedParticle):
                parse_block(block.particle(), other)


@pytest.mark.spec(7)
@given(blocks())
def test_a_block_is_read_back_from_its_bytes(block: Inputs) -> None:
    """Reading is the inverse of writing, so writing is injective."""
    particle = block.particle()
    read = parse_block(particle, block.profile, BlockId(digest(particle)))
    assert block == Inputs(
        read.model_id,
        block.profile,
        read.shape,
        read.prev,
        read.tokens,
        read.position_anchor,
        bytes(read.payload),
    )
    assert read.profile_id == block.profile.profile_id


@pytest.mark.spec(7)
@given(windows())
def test_a_window_is_read_back_from_its_bytes(record: WindowRecord) -> None:
    assert parse_window(record.encoding, record.window_id) == record


@pytest.mark.spec(7)
@given(profiles())
def test_a_profile_can_be_read_back_from_its_bytes(profile: Profile) -> None:
    magic, version, scheme, mode, size, num_layers = struct.unpack_from(
        "<4sHBBHH", profile.encode()
    )
    assert (magic, version) == (b"GPRF", 1)
    layers = tuple(
        LayerShape(*entry) for entry in struct.iter_unpack("<HHH", profile.encode()[12:])
    )
    assert len(layers) == num_layers
    assert Profile(size, KvScheme(scheme), PositionMode(mode), layers) == profile


@pytest.mark.spec(7)
@given(windows(), st.integers(0, 255), st.data())
def test_any_changed_input_changes_the_window_id(
    record: WindowRecord, bit: int, data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, len(record.tokens) - 1))
    tokens = list(record.tokens)
    tokens[index] ^= 1 << bit % 32
    which = data.draw(st.integers(0, len(record.blocks) - 1))
    changed = list(record.blocks)
    changed[which] = BlockId(flipped(changed[which], bit))
    variants = [
        record,
        replace(record, model_id=ModelId(flipped(record.model_id, bit))),
        replace(record, profile_id=ProfileId(flipped(record.profile_id, bit))),
        replace(record, prev=WindowId(flipped(record.prev, bit))),
        replace(record, numerics_class=record.numerics_class + "x"),
        replace(record, position_start=record.position_start + len(tokens)),
        replace(record, tokens=tuple(tokens)),
        replace(record, blocks=tuple(changed)),
        replace(record, blocks=(*record.blocks, record.blocks[0])),
    ]
    assert len({variant.window_id for variant in variants}) == len(variants)


def mutated(data: st.DataObject, good: bytes) -> bytes:
    """`good` with bytes changed, cut out or put in; may be `good` itself."""
    out = bytearray(good)
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, max(0, min(len(out), 256) - 1)))
        gone = data.draw(st.integers(0, 8))
        out[at : at + gone] = data.draw(st.binary(max_size=8))
    return bytes(out)


SMALL = Profile(16, KvScheme.F16, PositionMode.RELATIVE, (LayerShape(0, 1, 1), LayerShape(3, 1, 2)))


@given(st.binary(max_size=600))
def test_any_bytes_are_a_particle_or_malformed(data: bytes) -> None:
    for read in (lambda: parse_block(data, SMALL), lambda: parse_window(data)):
        with pytest.raises(MalformedParticle):
            read()


@pytest.mark.spec(61)
@given(blocks(of=SMALL), st.data())
def test_a_mutated_block_is_refused_or_is_another_block(block: Inputs, data: st.DataObject) -> None:
    good = block.particle()
    bad = mutated(data, good)
    if bad == good:
        assert parse_block(bad, SMALL, BlockId(digest(good)))
        return
    with pytest.raises(HashMismatch):
        parse_block(bad, SMALL, BlockId(digest(good)))
    try:
        read = parse_block(bad, SMALL)
    except MalformedParticle:
        return
    again = encode_header(read.model_id, SMALL, read.shape, read.prev, read.tokens)
    assert again + bytes(read.payload) == bad
    assert read.block_id == digest(bad) != digest(good)


@pytest.mark.spec(61)
@given(windows(), st.data())
def test_a_mutated_window_is_refused_or_is_another_window(
    record: WindowRecord, data: st.DataObject
) -> None:
    good = record.encoding
    bad = mutated(data, good)
    if bad == good:
        assert parse_window(bad, record.window_id) == record
        return
    with pytest.raises(HashMismatch):
        parse_window(bad, record.window_id)
    try:
        read = parse_window(bad)
    except MalformedParticle:
        return
    assert read.encoding == bad
    assert read.window_id == digest(bad) != record.window_id
