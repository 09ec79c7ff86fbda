"""Deterministic CBOR, as little of it as what is signed here needs. See spec/14-capability.md.

Unsigned integers, bytes, text, arrays, and maps whose keys are unsigned integers; lengths in
their shortest form, keys sorted and once each, no tags, nothing nested deeper than four. So a
value has one encoding, and whatever decodes encodes to the same bytes again. An own reader,
because the libraries act on tags, big numbers and references while they decode (SECURITY T28).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from glia.errors import MalformedParticle

Value = int | bytes | str | Sequence["Value"] | Mapping[int, "Value"]

MAX_DEPTH = 4
_MAX_U64 = 2**64 - 1
_UINT, _BYTES, _TEXT, _ARRAY, _MAP = 0, 2, 3, 4, 5
_ONE_BYTE = 24  # the first argument that is not in the head itself; 24 to 27: 1, 2, 4, 8 bytes


def encode(value: Value) -> bytes:
    """The one encoding of a value. Raises: ValueError for what has none."""
    if isinstance(value, bytes):
        return _head(_BYTES, len(value)) + value
    if isinstance(value, str):
        text = value.encode()
        return _head(_TEXT, len(text)) + text
    if isinstance(value, int) and not isinstance(value, bool):
        return _head(_UINT, value)
    if isinstance(value, Mapping):
        pairs = [_head(_UINT, key) + encode(value[key]) for key in sorted(value)]
        return _head(_MAP, len(value)) + b"".join(pairs)
    if isinstance(value, Sequence):
        return _head(_ARRAY, len(value)) + b"".join(map(encode, value))
    raise ValueError(f"not in the profile: {value!r}")


def decode(data: bytes) -> Value:
    """The value of which this is the encoding. Raises: MalformedParticle."""
    value, at = _value(data, 0, MAX_DEPTH)
    if at != len(data):
        raise MalformedParticle(f"{len(data) - at} bytes behind a value")
    return value


def _head(kind: int, argument: int) -> bytes:
    if not 0 <= argument <= _MAX_U64:
        raise ValueError(f"not an unsigned integer of 64 bits: {argument}")
    if argument < _ONE_BYTE:
        return bytes((kind << 5 | argument,))
    power = next(power for power in range(4) if argument < 1 << (8 << power))
    return bytes((kind << 5 | _ONE_BYTE + power,)) + argument.to_bytes(1 << power, "big")


def _value(data: bytes, at: int, depth: int) -> tuple[Value, int]:
    """The value that begins at `at`, and where it ends."""
    kind, argument, at = _head_at(data, at)
    if kind == _UINT:
        return argument, at
    if argument > len(data) - at:  # an item has a byte at least: nothing larger is begun
        raise MalformedParticle(f"a length of {argument} with {len(data) - at} bytes left")
    if kind == _BYTES:
        return data[at : at + argument], at + argument
    if kind == _TEXT:
        try:
            return data[at : at + argument].decode(), at + argument
        except UnicodeDecodeError as error:
            raise MalformedParticle("text that is not UTF-8") from error
    if kind not in (_ARRAY, _MAP) or depth == 0:
        raise MalformedParticle(f"type {kind} at depth {MAX_DEPTH - depth}")
    return (_array if kind == _ARRAY else _map)(data, at, argument, depth - 1)


def _array(data: bytes, at: int, length: int, depth: int) -> tuple[Value, int]:
    values = []
    for _ in range(length):
        value, at = _value(data, at, depth)
        values.append(value)
    return values, at


def _map(data: bytes, at: int, length: int, depth: int) -> tuple[Value, int]:
    values: dict[int, Value] = {}
    last = -1
    for _ in range(length):
        kind, key, at = _head_at(data, at)
        if kind != _UINT or key <= last:
            raise MalformedParticle("a map's keys are not numbers in order")
        last = key
        values[key], at = _value(data, at, depth)
    return values, at


def _head_at(data: bytes, at: int) -> tuple[int, int, int]:
    """Type, argument in its shortest form, and where the head ends."""
    if at >= len(data):
        raise MalformedParticle("a value is cut short")
    kind, low = data[at] >> 5, data[at] & 31
    if low < _ONE_BYTE:
        return kind, low, at + 1
    num_bytes = 1 << low - _ONE_BYTE
    argument = int.from_bytes(data[at + 1 : at + 1 + num_bytes], "big")
    least = _ONE_BYTE if num_bytes == 1 else 1 << 4 * num_bytes
    if num_bytes > 8 or at + 1 + num_bytes > len(data) or argument < least:
        raise MalformedParticle("a number that is not in its shortest form")
    return kind, argument, at + 1 + num_bytes
