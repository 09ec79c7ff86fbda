"""Blocks: the door."""

from __future__ import annotations

import pytest

from glia.errors import HashMismatch, MalformedParticle
from glia.graph.block import encode_header, header_prefix, parse_block
from glia.graph.ids import BlockId, digest, genesis_block
from glia.graph.profile import PositionMode, Profile
from tests.builders import MODEL, TINY, WIDE, make_chain, make_profile, make_tokens

ABSOLUTE = make_profile(mode=PositionMode.ABSOLUTE)
SHAPE = TINY.layers[0]
GENESIS = genesis_block(MODEL, TINY.profile_id, 0)
TOKENS = make_tokens(16)


@pytest.mark.spec(3)
def test_the_seed_shape_is_64_kib_after_a_192_byte_header() -> None:
    particle = make_chain(1, profile=WIDE).particles[0][0]
    assert len(particle) == 192 + 65_536
    assert len(parse_block(particle, WIDE).payload) == 65_536


def test_the_payload_is_a_read_only_view() -> None:
    particle = bytearray(make_chain(1).particles[0][0])
    payload = parse_block(particle, TINY).payload
    assert payload.readonly
    particle[-1] ^= 0xFF
    assert payload[-1] == particle[-1]


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_any_buffer_is_read(wrap: type[bytes]) -> None:
    chain = make_chain(2)
    for block_id, particle in chain.blocks():
        assert parse_block(wrap(particle), TINY, block_id).block_id == block_id


@pytest.mark.spec(61)
def test_every_flipped_bit_is_noticed() -> None:
    block_id, particle = next(iter(make_chain(1).blocks()))
    for bit in range(8 * len(particle)):
        bad = bytearray(particle)
        bad[bit // 8] ^= 1 << bit % 8
        with pytest.raises(HashMismatch):
            parse_block(bad, TINY, block_id)


@pytest.mark.parametrize("length", [0, 1, 31, 32, 127, 128, 191])
def test_truncated_headers_are_malformed(length: int) -> None:
    with pytest.raises(MalformedParticle):
        parse_block(make_chain(1).particles[0][0][:length], TINY)


@pytest.mark.spec(8)
def test_relative_blocks_hash_no_position_and_absolute_ones_do() -> None:
    def name(profile: Profile, anchor: int) -> bytes:
        return digest(encode_header(MODEL, profile, SHAPE, GENESIS, TOKENS, anchor))

    names = {name(TINY, 0), name(ABSOLUTE, 0), name(ABSOLUTE, 16), name(ABSOLUTE, 2**48)}
    assert len(names) == 4
    for profile, anchor in ((TINY, 16), (TINY, -1), (ABSOLUTE, -1), (ABSOLUTE, 2**48 + 1)):
        with pytest.raises(ValueError, match="anchor"):
            name(profile, anchor)


@pytest.mark.spec(8)
def test_one_mode_is_not_read_as_the_other() -> None:
    header = encode_header(MODEL, ABSOLUTE, SHAPE, GENESIS, TOKENS, 32)
    particle = header + bytes(ABSOLUTE.payload_bytes(SHAPE))
    assert parse_block(particle, ABSOLUTE).position_anchor == 32
    with pytest.raises(MalformedParticle):
        parse_block(particle, TINY)


@pytest.mark.parametrize("num_tokens", [0, 1, 15, 17, 32])
@pytest.mark.spec(4)
def test_only_a_full_window_makes_a_header(num_tokens: int) -> None:
    with pytest.raises(ValueError, match="16 tokens"):
        encode_header(MODEL, TINY, SHAPE, GENESIS, make_tokens(num_tokens))


def test_the_prefix_of_a_header_is_constant_in_relative_mode() -> None:
    prefix = header_prefix(MODEL, TINY, SHAPE)
    assert len(prefix) == 96
    chain = make_chain(3)
    for record, particles in zip(chain.records, chain.particles, strict=True):
        assert particles[0].startswith(prefix)
        assert digest(particles[0]) == record.blocks[0]


def test_errors_name_the_block_that_was_asked_for() -> None:
    asked = BlockId(bytes(range(32)))
    with pytest.raises(HashMismatch, match="000102030405"):
        parse_block(b"x" * 320, TINY, asked)
