"""The proofs of p2p/spec/bearing.md, from that page alone."""

from __future__ import annotations

from blake3 import blake3


def read_proofs(
    secret: bytes, asks: str, answers: str, one: bytes, other: bytes
) -> tuple[bytes, bytes]:
    key = blake3(secret, derive_key_context="glia 2026 v1 soul stream").digest()
    both = asks.encode() + b"\0" + answers.encode() + b"\0" + one + other
    return (
        blake3(b"glia 2026 v1 bearing answers\0" + both, key=key).digest(),
        blake3(b"glia 2026 v1 bearing asks\0" + both, key=key).digest(),
    )
