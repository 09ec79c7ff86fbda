"""The door for foreign bytes, and the walk from a tip: whom each kind of bad bytes blames."""

from __future__ import annotations

from dataclasses import replace

import pytest

from glia.errors import HashMismatch, MalformedParticle
from glia.graph.block import encode_header
from glia.graph.ids import BlockId, ModelId, WindowId, digest, genesis_block
from glia.graph.profile import PositionMode
from glia.graph.window import WindowRecord
from p2p.door import Expected, expected_blocks, take_block, take_record
from p2p.walking import Question, Walk, record_bytes
from tests.builders import MODEL, make_chain, make_profile, make_tokens
from tests.exchange_parts import question_of

CHAIN = make_chain(6)
PROFILE = CHAIN.profile
RECORD, BEFORE = CHAIN.records[3], CHAIN.records[2]
DATA = CHAIN.particles[3][1]
EXPECTED = expected_blocks(RECORD, BEFORE, PROFILE)[1]


@pytest.mark.spec(41)
@pytest.mark.parametrize("mode", list(PositionMode))
def test_what_was_asked_for_comes_in(mode: PositionMode) -> None:
    chain = make_chain(3, profile=make_profile(mode=mode))
    for at, record in enumerate(chain.records):
        before = chain.records[at - 1] if at else None
        for expected, data in zip(
            expected_blocks(record, before, chain.profile), chain.particles[at], strict=True
        ):
            assert expected.size_bytes == len(data)
            take_block(data, expected)


@pytest.mark.spec(41)
def test_any_flipped_bit_blames_the_carrier() -> None:
    for bit in range(0, 8 * len(DATA), 13):
        spoiled = bytearray(DATA)
        spoiled[bit // 8] ^= 1 << bit % 8
        with pytest.raises(HashMismatch):
            take_block(bytes(spoiled), EXPECTED)


@pytest.mark.spec(41)
@pytest.mark.parametrize("data", [b"", DATA[:-1], DATA + b"x", DATA[:100], bytes(2**20)])
def test_cut_and_oversize_bytes_blame_the_carrier(data: bytes) -> None:
    with pytest.raises(HashMismatch):
        take_block(data, EXPECTED)


def written(**changes: object) -> tuple[bytes, Expected]:
    """A block that its writer made otherwise than its window says, rightly named."""
    values: dict[str, object] = {
        "model_id": MODEL,
        "profile": PROFILE,
        "shape": PROFILE.layers[1],
        "prev": BEFORE.blocks[1],
        "tokens": RECORD.tokens,
        **changes,
    }
    data = encode_header(**values) + DATA[PROFILE.header_bytes :]  # type: ignore[arg-type]
    return data, replace(EXPECTED, block_id=BlockId(digest(data)))


@pytest.mark.spec(18, 41)
@pytest.mark.parametrize(
    "changes",
    [
        {"model_id": ModelId(bytes(32))},
        {"shape": PROFILE.layers[0]},
        {"prev": CHAIN.records[1].blocks[1]},
        {"prev": genesis_block(MODEL, PROFILE.profile_id, 1)},
        {"tokens": BEFORE.tokens},
        {"profile": make_profile(num_layers=3)},
    ],
)
def test_another_model_layer_place_or_profile_blames_the_writer(changes: dict[str, object]) -> None:
    take_block(*written())
    with pytest.raises(MalformedParticle):
        take_block(*written(**changes))


def test_an_anchor_elsewhere_blames_the_writer() -> None:
    chain = make_chain(3, profile=make_profile(mode=PositionMode.ABSOLUTE))
    elsewhere = replace(chain.records[2], position_start=16)
    expected = expected_blocks(elsewhere, chain.records[1], chain.profile)[0]
    with pytest.raises(MalformedParticle):
        take_block(chain.particles[2][0], expected)


def test_a_payload_of_another_length_blames_the_writer() -> None:
    for data in (DATA + b"x", DATA[:-1], DATA[:192], DATA[:10]):
        with pytest.raises(MalformedParticle):
            take_block(data, replace(EXPECTED, block_id=BlockId(digest(data))))


def test_one_block_in_two_layers_blames_the_writer() -> None:
    twice = replace(RECORD, blocks=(RECORD.blocks[0],) * 2)
    with pytest.raises(MalformedParticle):
        expected_blocks(twice, BEFORE, PROFILE)


@pytest.mark.spec(41)
def test_records_of_another_kind_are_refused() -> None:
    record = take_record(RECORD.encoding, RECORD.window_id, MODEL, PROFILE)
    assert record == RECORD
    with pytest.raises(HashMismatch):
        take_record(BEFORE.encoding, RECORD.window_id, MODEL, PROFILE)
    with pytest.raises(MalformedParticle):
        take_record(RECORD.encoding, RECORD.window_id, ModelId(bytes(32)), PROFILE)
    for profile in (make_profile(num_layers=3), make_profile(block_size=32)):
        with pytest.raises(MalformedParticle):
            take_record(RECORD.encoding, RECORD.window_id, MODEL, profile)


# -- walking ------------------------------------------------------------------------------


def newest_first(*records: WindowRecord) -> list[bytes]:
    return [record.encoding for record in records[::-1]]


def walk_of(question: Question | None = None, num_windows: int = 6) -> Walk:
    return Walk(question or question_of(CHAIN), CHAIN.tip, num_windows)


@pytest.mark.parametrize("at_once", [1, 2, 6])
def test_a_walk_gives_the_chain(at_once: int) -> None:
    walk = walk_of()
    encodings = newest_first(*CHAIN.records)
    for at in range(0, 6, at_once):
        assert not walk.is_over
        walk.take(encodings[at : at + at_once])
    assert walk.is_over
    assert walk.records == list(CHAIN.records)
    assert walk.base is None
    walk.take([b"whatever comes behind the end"])


def test_a_walk_ends_at_what_is_here() -> None:
    def held(window_id: WindowId) -> WindowRecord | None:
        return CHAIN.records[2] if window_id == CHAIN.records[2].window_id else None

    walk = walk_of(question_of(CHAIN, held=held))
    walk.take(newest_first(*CHAIN.records))
    assert walk.records == list(CHAIN.records[3:])
    assert walk.base == CHAIN.records[2]
    whole = walk_of(question_of(CHAIN, held=lambda _: CHAIN.records[-1]))
    assert whole.is_over
    assert whole.records == []


def test_a_walk_that_is_led_astray() -> None:
    other = make_chain(6, seed=7)
    with pytest.raises(HashMismatch):
        walk_of().take(newest_first(other.records[-1]))
    with pytest.raises(MalformedParticle, match="asked for"):
        walk_of(question_of(CHAIN, tokens=other.tokens)).take(newest_first(*CHAIN.records))
    with pytest.raises(MalformedParticle, match="asked for"):
        walk_of(question_of(CHAIN, classes=("native:other",))).take(newest_first(*CHAIN.records))
    for num_windows in (5, 7):
        with pytest.raises(MalformedParticle, match="asked for"):
            walk_of(num_windows=num_windows).take(newest_first(*CHAIN.records))
    with pytest.raises(MalformedParticle, match="asked for"):
        walk_of(question_of(CHAIN, held=lambda _: other.records[-1]))


def test_a_canonical_window_that_continues_another_class_is_refused() -> None:
    native = make_chain(2, numerics_class="native:test")
    false = make_chain(1, tokens=make_tokens(16, 5), numerics_class="canonical", base=native)
    with pytest.raises(MalformedParticle, match="is canonical"):
        Walk(question_of(false), false.tip, 3).take(newest_first(*false.records))

    def held(window_id: WindowId) -> WindowRecord | None:
        return native.records[-1] if window_id == native.tip else None

    with pytest.raises(MalformedParticle, match="is canonical"):
        Walk(question_of(false, held=held), false.tip, 3).take([false.records[-1].encoding])


def test_a_chain_without_its_genesis() -> None:
    first = replace(CHAIN.records[0], prev=WindowId(bytes(32)))
    walk = Walk(question_of(CHAIN), first.window_id, 1)
    with pytest.raises(MalformedParticle, match="genesis"):
        walk.take([first.encoding])


def test_any_tokens_may_be_taken() -> None:
    walk = walk_of(question_of(CHAIN, tokens=None))
    walk.take(newest_first(*CHAIN.records))
    assert walk.is_over


def test_a_records_size_is_known_before() -> None:
    assert all(len(record.encoding) <= record_bytes(PROFILE) for record in CHAIN.records)
    named = replace(RECORD, numerics_class="x" * 256)
    assert len(named.encoding) == record_bytes(PROFILE)
