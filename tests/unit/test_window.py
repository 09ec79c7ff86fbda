"""Window records."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from glia.errors import HashMismatch, MalformedParticle
from glia.graph.ids import BlockId, WindowId
from glia.graph.window import is_numerics_class, parse_window
from tests.builders import make_chain

RECORD = make_chain(2).records[1]


@pytest.mark.spec(23)
def test_a_record_commits_to_every_layer_and_to_the_window_before() -> None:
    swapped = replace(RECORD, blocks=RECORD.blocks[::-1])
    other_past = replace(RECORD, prev=WindowId(bytes(32)))
    assert len({RECORD.window_id, swapped.window_id, other_past.window_id}) == 3


@pytest.mark.spec(61)
def test_every_flipped_bit_is_noticed() -> None:
    data = RECORD.encoding
    for bit in range(8 * len(data)):
        bad = bytearray(data)
        bad[bit // 8] ^= 1 << bit % 8
        with pytest.raises(HashMismatch):
            parse_window(bytes(bad), RECORD.window_id)


@pytest.mark.parametrize("length", range(0, len(RECORD.encoding), 7))
def test_truncated_records_are_malformed(length: int) -> None:
    with pytest.raises(MalformedParticle):
        parse_window(RECORD.encoding[:length])


@pytest.mark.parametrize(
    "change",
    [
        {"numerics_class": ""},
        {"numerics_class": "x" * 257},
        {"numerics_class": "line\nbreak"},
        {"numerics_class": "é"},
        {"numerics_class": "\udcff"},
        {"tokens": ()},
        {"tokens": (1,) * 15},
        {"tokens": (1,) * 272},
        {"blocks": ()},
        {"blocks": (BlockId(bytes(32)),) * 1025},
        {"position_start": -16},
        {"position_start": 8},
        {"position_start": 2**48 + 16},
        {"proof": b"x"},
    ],
)
def test_what_could_not_be_read_is_not_written(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        _ = replace(RECORD, **change).encoding


def test_the_largest_record_is_read() -> None:
    largest = replace(
        RECORD,
        numerics_class="~" * 256,
        tokens=(2**32 - 1,) * 256,
        blocks=(BlockId(bytes(32)),) * 1024,
        position_start=2**48,
    )
    assert parse_window(largest.encoding, largest.window_id) == largest
    assert len(largest.encoding) == 120 + 1024 + 32 * 1024 + 256


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_any_buffer_is_read(wrap: type[bytes]) -> None:
    assert parse_window(wrap(RECORD.encoding), RECORD.window_id) == RECORD


def test_classes_are_printable_ascii() -> None:
    assert is_numerics_class(b"native:tiles128,2.13.0+cpu,avx512 bf16")
    for name in (b"", b"x" * 257, b"\x00", b"tab\t", "ü".encode(), b"\x7f"):
        assert not is_numerics_class(name)


def test_records_are_values() -> None:
    assert replace(RECORD) == RECORD
    assert RECORD.end == 32
    with pytest.raises(FrozenInstanceError):
        RECORD.position_start = 0  # type: ignore[misc]
