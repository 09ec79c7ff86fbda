"""Neurons: who signs. An Ed25519 key pair; its public key is its name. See spec/9-link.md."""

from __future__ import annotations

from typing import NewType

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from glia.errors import BadRequest

NeuronId = NewType("NeuronId", bytes)  # the public key

SEED_BYTES = 32
SIGNATURE_BYTES = 64

# Points of small order, without the sign bit: for such a key anybody can sign anything.
_WEAK = frozenset(
    bytes.fromhex(text)
    for text in (
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    )
)


class Signer:
    """A neuron's private half. It never shows its seed."""

    def __init__(self, seed: bytes) -> None:
        """Args: seed: 32 secret bytes. Raises: BadRequest for another length."""
        if len(seed) != SEED_BYTES:
            raise BadRequest(f"a neuron's seed has {SEED_BYTES} bytes, not {len(seed)}")
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.neuron = NeuronId(self._key.public_key().public_bytes_raw())

    def sign(self, message: bytes) -> bytes:
        """64 bytes; the same ones for the same message."""
        return self._key.sign(message)


def is_signed(neuron: NeuronId, message: bytes, signature: bytes) -> bool:
    """Whether the neuron signed the message. False for a name that is no key, or a weak one."""
    if neuron[:-1] + bytes([neuron[-1] & 0x7F]) in _WEAK:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(neuron).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True
