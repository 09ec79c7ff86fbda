"""The CBOR that is signed: one encoding a value, and a library that reads all of it agrees."""

from __future__ import annotations

import os
import random
import time
from contextlib import suppress
from typing import Any

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glia.errors import MalformedParticle
from glia.graph.cbor import decode, encode

FULL = bool(os.environ.get("GLIA_FULL"))

uints = st.integers(0, 2**64 - 1)
leaves = uints | st.binary(max_size=40) | st.text(max_size=20)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(uints, inner, max_size=4),
    max_leaves=12,
).filter(lambda value: depth(value) <= 4)


def depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    is_nested = isinstance(value, dict | list)
    return int(is_nested) + max(map(depth, inner), default=0)


@given(values)
def test_it_is_what_a_library_makes_and_reads(value: Any) -> None:
    data = encode(value)
    assert decode(data) == value
    assert cbor2.loads(data) == value
    assert cbor2.dumps(value, canonical=True) == data


@settings(max_examples=2_000 if FULL else 300)
@given(st.binary(max_size=40))
def test_what_decodes_encodes_to_the_same_bytes(data: bytes) -> None:
    try:
        value = decode(data)
    except MalformedParticle:
        return
    assert encode(value) == data


@pytest.mark.fault("F34")
def test_mutants_of_what_decodes_are_refused_or_encode_to_themselves() -> None:
    draw = random.Random(7)
    whole = encode({1: [b"x" * 30, "text", {2: 300, 70000: [1, 2**40]}], 100: b"", 256: 2**64 - 1})
    for _ in range(100_000 if FULL else 5_000):
        data = bytearray(whole)
        for _ in range(draw.randint(1, 3)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        with suppress(MalformedParticle):
            assert encode(decode(bytes(data))) == bytes(data)


REFUSED = {
    "nothing": "",
    "a byte too many": "0000",
    "a negative number": "20",
    "a tag": "c000",
    "a big number": "c249010000000000000000",
    "a shared reference": "d81c80",
    "a float": "f90000",
    "true": "f5",
    "null": "f6",
    "an unending array": "9fff",
    "unending bytes": "5f4100ff",
    "a reserved length": "1c",
    "a long 23": "1817",
    "a long 255": "1900ff",
    "a long 65535": "1a0000ffff",
    "a long 2^32 - 1": "1b00000000ffffffff",
    "a long length": "580141",
    "a cut number": "19ff",
    "cut bytes": "41",
    "2^40 bytes": "5b0000010000000000",
    "2^40 items": "9b0000010000000000",
    "2^40 pairs": "bb0000010000000000",
    "a cut map": "a100",
    "text that is no UTF-8": "61ff",
    "keys out of order": "a202000100",
    "a key twice": "a201000100",
    "a key that is text": "a1616100",
    "a key that is an array": "a18000",
    "five deep": "818181818100",
}


@pytest.mark.fault("F34")
@pytest.mark.parametrize("data", [pytest.param(bytes.fromhex(d), id=n) for n, d in REFUSED.items()])
def test_refused(data: bytes) -> None:
    with pytest.raises(MalformedParticle):
        decode(data)


@pytest.mark.parametrize("value", [-1, 2**64, True, None, 1.0, {-1: 0}, {"a": 0}, [None]])
def test_values_that_have_no_encoding(value: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        decode(encode(value))


@pytest.mark.fault("F34")
@pytest.mark.parametrize("first", [0x81, 0x5B, 0x9B, 0xA1, 0xC0])
def test_bombs_are_refused_soon(first: int) -> None:
    """Nests, lengths and tags without end, in the 64 KiB that the largest message has."""
    bomb = bytes([first]) * 65536
    began_s = time.process_time()
    with pytest.raises(MalformedParticle):
        decode(bomb)
    assert time.process_time() - began_s < 0.05
