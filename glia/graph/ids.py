"""Names. Each kind of 32-byte name is a type of its own, so that none is used for another.

Blocks and windows are named by the BLAKE3 of their bytes; everything that is a
function of inputs alone (genesis, prefix keys, profile, model) is derived with
a context string of its own (BLAKE3 derive_key mode). See spec/1-ids.md.
"""

from __future__ import annotations

from typing import NewType

from blake3 import blake3

from glia.errors import BadRequest

BlockId = NewType("BlockId", bytes)
WindowId = NewType("WindowId", bytes)
PrefixKey = NewType("PrefixKey", bytes)
ModelId = NewType("ModelId", bytes)
ProfileId = NewType("ProfileId", bytes)

ID_BYTES = 32

_GENESIS_BLOCK = "glia 2026 v1 genesis block"
_GENESIS_WINDOW = "glia 2026 v1 genesis window"
_GENESIS_PREFIX = "glia 2026 v1 genesis prefix"
_PREFIX = "glia 2026 v1 prefix"


def derive(context: str, material: bytes) -> bytes:
    """BLAKE3 in derive_key mode: 32 bytes that no other context can produce."""
    return blake3(material, derive_key_context=context).digest()


def digest(particle: bytes | bytearray | memoryview) -> bytes:
    """BLAKE3-256 of a particle: its name."""
    return blake3(particle).digest()


def genesis_block(model_id: ModelId, profile_id: ProfileId, layer: int) -> BlockId:
    """The block before the first one of a layer; anybody can compute it."""
    material = model_id + profile_id + layer.to_bytes(2, "little")
    return BlockId(derive(_GENESIS_BLOCK, material))


def genesis_window(model_id: ModelId, profile_id: ProfileId) -> WindowId:
    """The window before the first one."""
    return WindowId(derive(_GENESIS_WINDOW, model_id + profile_id))


def genesis_prefix(model_id: ModelId, profile_id: ProfileId) -> PrefixKey:
    """The prefix key of no tokens."""
    return PrefixKey(derive(_GENESIS_PREFIX, model_id + profile_id))


def next_prefix(prev: PrefixKey, token_bytes: bytes) -> PrefixKey:
    """The prefix key after one more window, whose tokens are given as u32 little-endian."""
    return PrefixKey(derive(_PREFIX, prev + token_bytes))


MIN_START_BYTES = 4
_START_HINT = "a name is 64 hex digits; the first 8 of them, or more, an even number, do"


def short(name: bytes) -> str:
    """The first 12 hex digits, for people."""
    return name.hex()[:12]


def parse_start(text: str) -> bytes:
    """A 32-byte name from 64 hex digits, or how one begins: MIN_START_BYTES at least.

    Raises: BadRequest.
    """
    try:
        start = bytes.fromhex(text)
    except ValueError:
        start = b""
    if not MIN_START_BYTES <= len(start) <= ID_BYTES or len(text) != 2 * len(start):
        raise BadRequest(f"not a name: {text[:80]!r}", hint=_START_HINT)
    return start
