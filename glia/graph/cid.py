"""Names of particles as CIDs and back, without a table. Pure. See spec/10-cid.md.

A block id or window id is plain BLAKE3 over the particle's bytes: what any content store
computes for a CIDv1 with codec raw and hash blake3-256. So a CID is four constant bytes
before the name, and there is nothing that could need a table of codecs.
"""

from __future__ import annotations

import base64

from glia.errors import BadRequest
from glia.graph.ids import ID_BYTES

_HEAD = bytes((0x01, 0x55, 0x1E, ID_BYTES))  # CIDv1, raw, blake3-256, its length
_BASE32 = "b"  # multibase: lower case, no padding
CID_BYTES = len(_HEAD) + ID_BYTES
_NUM_CHARACTERS = 59


def cid_bytes(name: bytes) -> bytes:
    """The binary CID of a block or window, 36 bytes."""
    return _HEAD + name


def cid_text(name: bytes) -> str:
    """The CID of a block or window in base32, 59 characters."""
    return _BASE32 + base64.b32encode(_HEAD + name).decode().rstrip("=").lower()


def name_of_cid(cid: bytes) -> bytes:
    """The inverse of cid_bytes. Raises: BadRequest."""
    if len(cid) != CID_BYTES or not cid.startswith(_HEAD):
        raise BadRequest(
            f"not the CID of a particle: {cid[:CID_BYTES].hex()}",
            hint="a particle's CID is version 1, codec raw, hash blake3-256",
        )
    return cid[len(_HEAD) :]


def parse_cid(text: str) -> bytes:
    """The inverse of cid_text; no other spelling is taken. Raises: BadRequest."""
    name = b""
    if len(text) == _NUM_CHARACTERS and text.isascii():
        try:
            name = base64.b32decode(text[1:].upper() + "======")[len(_HEAD) :]
        except ValueError:
            name = b""
    if len(name) != ID_BYTES or cid_text(name) != text:
        raise BadRequest(
            f"not the CID of a particle: {text[:80]!r}",
            hint="a particle's CID is version 1, codec raw, hash blake3-256, in base32: bafk...",
        )
    return name
