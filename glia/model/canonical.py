"""One binary form for JSON values, so that what is equal hashes equal (spec/6-model-id.md).

value = "n" | "t" | "f"                      null, true, false
      | "i" u16 length, decimal digits       integers, and floats that are whole
      | "d" 8 bytes IEEE 754 little-endian   other floats
      | "s" u32 length, UTF-8
      | "l" u32 count, values
      | "m" u32 count, (string, value) sorted by the string's UTF-8 bytes
"""

from __future__ import annotations

import math
import struct
from typing import Any

from glia.errors import BadModelFile

MAX_DEPTH = 64
_EXACT = 2**53


def encode_value(value: Any) -> bytes:
    """The canonical bytes of a JSON value.

    Raises: BadModelFile for what JSON cannot hold, lone surrogates, depth over 64.
    """
    out = bytearray()
    _put(out, value, 0)
    return bytes(out)


def _put(out: bytearray, value: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise BadModelFile("a JSON value is nested too deeply")
    if isinstance(value, str):
        _put_text(out, value)
    elif value is None or isinstance(value, bool):
        out += {None: b"n", True: b"t", False: b"f"}[value]
    elif isinstance(value, int | float):
        _put_number(out, value)
    elif isinstance(value, list):
        out += b"l" + struct.pack("<I", len(value))
        for item in value:
            _put(out, item, depth + 1)
    elif isinstance(value, dict):
        out += b"m" + struct.pack("<I", len(value))
        for key in sorted(value, key=_utf8):
            _put_text(out, key)
            _put(out, value[key], depth + 1)
    else:
        raise BadModelFile(f"not a JSON value: {type(value).__name__}")


def _put_text(out: bytearray, text: str) -> None:
    data = _utf8(text)
    out += b"s" + struct.pack("<I", len(data)) + data


def _put_number(out: bytearray, number: int | float) -> None:
    if isinstance(number, float) and not math.isfinite(number):
        raise BadModelFile("a JSON number is out of range")
    if isinstance(number, float) and not (number.is_integer() and abs(number) < _EXACT):
        out += b"d" + struct.pack("<d", number)
        return
    digits = b"%d" % int(number)
    out += b"i" + struct.pack("<H", len(digits)) + digits


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BadModelFile("a JSON string is not valid Unicode") from error
