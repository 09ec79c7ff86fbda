"""Bytes from outside, read from front to back; what does not fit is MalformedParticle."""

from __future__ import annotations

import struct
from typing import Any

from glia.errors import MalformedParticle

_LENGTH = struct.Struct("<H")


class Fields:
    """Owned by whoever decodes.

    Args:
        what: is being decoded, as `a trace`.

    Attributes:
        at: how many bytes were read.
    """

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._what = what
        self.at = 0

    def take(self, num_bytes: int) -> bytes:
        """The next so many. Raises: MalformedParticle."""
        self.at += num_bytes
        if self.at > len(self._data):
            raise MalformedParticle(f"{self._what} is too short")
        return self._data[self.at - num_bytes : self.at]

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """The next ones, so laid out. Raises: MalformedParticle."""
        return layout.unpack(self.take(layout.size))

    def each(self, count: int, least_bytes: int) -> range:
        """For so many of at least this size, where there is room. Raises: MalformedParticle."""
        if count * least_bytes > len(self._data) - self.at:
            raise MalformedParticle(f"{self._what} is too short")
        return range(count)

    def text(self, most: int, length: struct.Struct = _LENGTH) -> str:
        """A length in bytes, then UTF-8. Raises: MalformedParticle."""
        (num_bytes,) = self.unpack(length)
        if num_bytes > most:
            raise MalformedParticle(f"a text in {self._what} is too long")
        try:
            return self.take(num_bytes).decode()
        except UnicodeDecodeError as error:
            raise MalformedParticle(f"a text in {self._what} is not UTF-8") from error

    def end(self) -> None:
        """Nothing is left. Raises: MalformedParticle."""
        if self.at != len(self._data):
            raise MalformedParticle(f"{self._what} is too long")


def encode_text(text: str, length: struct.Struct = _LENGTH) -> bytes:
    """Its length in bytes, then UTF-8."""
    data = text.encode()
    return length.pack(len(data)) + data
