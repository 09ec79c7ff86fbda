"""Reads p2p/spec/exchange.md and particle.md by the page alone; shares no code with ours."""

from __future__ import annotations

from typing import Any


def read_frame(data: bytes) -> list[Any]:
    """The message of one frame. Raises: ValueError."""
    length = int.from_bytes(data[:4], "big")
    if not 1 <= length <= 65_536 or len(data) != 4 + length:
        raise ValueError("not a frame")
    value, end = _value(data, 4)
    if end != len(data) or not isinstance(value, list) or not value:
        raise ValueError("not a message")
    _check(value)
    return value


def read_particle_request(data: bytes) -> bytes:
    """The name that is asked for. Raises: ValueError."""
    if data[:8] != bytes.fromhex("0000002401551e20") or len(data) != 40:
        raise ValueError("not a request")
    return data[8:]


def read_body(data: bytes) -> bytes | None:
    """A particle, or None where it is absent."""
    length = int.from_bytes(data[:4], "big")
    if len(data) != 4 + length:
        raise ValueError("not a body")
    return data[4:] or None


def _value(data: bytes, at: int) -> tuple[Any, int]:
    """One msgpack value of the kinds that the page uses, and where it ends."""
    first, at = data[at], at + 1
    if first < 0x80:
        return first, at
    if 0x90 <= first <= 0x9F:
        return _array(data, at, first & 15)
    if 0xA0 <= first <= 0xBF:
        return _text(data, at, first & 31)
    if first in (0xC2, 0xC3):
        return first == 0xC3, at
    sizes = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD9: 1, 0xDC: 2}
    if first not in sizes:
        raise ValueError(f"kind {first:x}")
    number = int.from_bytes(data[at : at + sizes[first]], "big")
    at += sizes[first]
    if first in (0xC4, 0xC5, 0xC6):
        if at + number > len(data):
            raise ValueError("cut short")
        return data[at : at + number], at + number
    if first == 0xD9:
        return _text(data, at, number)
    return _array(data, at, number) if first == 0xDC else (number, at)


def _array(data: bytes, at: int, num: int) -> tuple[list[Any], int]:
    values = []
    for _ in range(num):
        value, at = _value(data, at)
        values.append(value)
    return values, at


def _text(data: bytes, at: int, size: int) -> tuple[str, int]:
    return data[at : at + size].decode(), at + size


def _check(message: list[Any]) -> None:
    """The fields of a request for blocks; the others' are compared with the vectors."""
    kinds = {
        "Find", "GetRecords", "NextBlocks", "FoundChains", "RecordPart", "Links",
        "GetBlocks", "Have", "Held",
    }  # fmt: skip
    if message[0] not in kinds:
        raise ValueError("an unknown message")
    if message[0] in ("Have", "GetBlocks"):
        ids = message[1]
        if not 1 <= len(ids) <= 1024:
            raise ValueError("too few or too many ids")
        if not all(isinstance(each, bytes) and len(each) == 32 for each in ids):
            raise ValueError("not names")
