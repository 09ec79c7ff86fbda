"""Frames of the local API, sans-IO: u32 little-endian length, then one msgpack message.

Nothing here reads or writes a socket. See daemon/spec/local-api.md.
"""

from __future__ import annotations

import struct

import msgspec
from msgspec import Struct

from glia.errors import LocalProtocolError, RemoteProtocolError
from glia.local.messages import (
    MAX_FRAME_BYTES,
    ClientMessage,
    DaemonMessage,
    client_decoder,
    daemon_decoder,
    encoder,
)

_LENGTH = struct.Struct("<I")


def encode_frame(message: Struct) -> bytearray:
    """A message with its length before it. Raises: LocalProtocolError over 1 MiB."""
    frame = bytearray(_LENGTH.size)
    encoder.encode_into(message, frame, _LENGTH.size)
    length = len(frame) - _LENGTH.size
    if length > MAX_FRAME_BYTES:
        kind = type(message).__name__
        raise LocalProtocolError(f"a {kind} of {length} bytes does not fit a frame")
    _LENGTH.pack_into(frame, 0, length)
    return frame


class FrameParser:
    """Bytes in, whole frames out; holds at most one partial frame."""

    def __init__(self) -> None:
        self._pending = bytearray()

    @property
    def num_pending(self) -> int:
        """Bytes of a frame that has not ended yet."""
        return len(self._pending)

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that end in `data`, in order.

        Raises: RemoteProtocolError for an empty frame or one over 1 MiB, before it is buffered.
        """
        self._pending += data
        frames: list[bytes] = []
        at = 0
        while len(self._pending) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._pending, at)
            if not 1 <= length <= MAX_FRAME_BYTES:
                raise RemoteProtocolError(f"a frame cannot be {length} bytes long")
            start, end = at + _LENGTH.size, at + _LENGTH.size + length
            if end > len(self._pending):
                break
            frames.append(bytes(self._pending[start:end]))
            at = end
        del self._pending[:at]
        return frames


def decode_from_client(frame: bytes) -> ClientMessage:
    """What a client or engine sent. Raises: RemoteProtocolError."""
    try:
        return client_decoder.decode(frame)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"not a message of the local API: {error}") from error


def decode_from_daemon(frame: bytes) -> DaemonMessage:
    """What gliad sent. Raises: RemoteProtocolError."""
    try:
        return daemon_decoder.decode(frame)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"not a message of the local API: {error}") from error
