"""Token ids and their one binary form: u32, little-endian."""

from __future__ import annotations

import struct
from collections.abc import Sequence

TOKEN_BYTES = 4


def pack_tokens(tokens: Sequence[int]) -> bytes:
    """Tokens as u32 little-endian. Raises: struct.error where one does not fit."""
    return struct.pack(f"<{len(tokens)}I", *tokens)


def unpack_tokens(data: bytes | memoryview) -> tuple[int, ...]:
    """The inverse of pack_tokens; the length is the caller's promise."""
    return struct.unpack(f"<{len(data) // TOKEN_BYTES}I", data)
