"""A Soul: what stays one and the same while it moves from Body to Body. See spec/18-checkpoint.md.

One secret; of it follow a key that signs and a key that things are encrypted to.
"""

from __future__ import annotations

from typing import NewType

from blake3 import blake3
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from glia.errors import BadCheckpoint, BadRequest
from glia.graph.ids import derive
from glia.graph.neuron import Signer

SoulId = NewType("SoulId", bytes)  # the public key that it signs with

SECRET_BYTES = 32
SALT_BYTES = 16
SEALED_MORE_BYTES = 48  # that what is sealed has more than what is in it
LOCKED_BYTES = 8 + SALT_BYTES + SECRET_BYTES + 16

_SIGN = "glia 2026 v1 soul sign"
_BOX = "glia 2026 v1 soul box"
_STREAM = "glia 2026 v1 soul stream"
_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)
_LOCKED_HEAD = b"GSKY\1\0\0\0"
_SCRYPT_COST = 2**17  # 128 MiB, once
_NONCE = bytes(12)  # each salt gives another key, which encrypts once


class Soul:
    """Its private half. It never shows its secret.

    Attributes:
        name: the public key that it signs with.
        signer: signs for it.
    """

    def __init__(self, secret: bytes) -> None:
        """Args: secret: 32 secret bytes. Raises: BadRequest for another length."""
        if len(secret) != SECRET_BYTES:
            raise BadRequest(f"a Soul's secret has {SECRET_BYTES} bytes, not {len(secret)}")
        self.signer = Signer(derive(_SIGN, secret))
        self.name = SoulId(self.signer.neuron)
        self._box = X25519PrivateKey.from_private_bytes(derive(_BOX, secret))
        self._stream_key = derive(_STREAM, secret)

    def prove(self, said: bytes) -> bytes:
        """32 bytes that say to who has the secret, and to nobody else, that this one does.

        To everybody else they are like any others.
        """
        return blake3(said, key=self._stream_key).digest()

    def seal(self, plain: bytes, context: bytes) -> bytes:
        """Encrypt for this Soul alone; 48 bytes longer."""
        return _SUITE.encrypt(plain, self._box.public_key(), context + self.name)

    def open(self, sealed: bytes, context: bytes) -> bytes:
        """What was sealed for it. Raises: BadCheckpoint."""
        try:
            return _SUITE.decrypt(sealed, self._box, context + self.name)
        except (InvalidTag, ValueError) as error:
            raise BadCheckpoint("what is in it was not encrypted to this Soul") from error


def lock_secret(secret: bytes, passphrase: str, salt: bytes) -> bytes:
    """A Soul's secret as it can be carried elsewhere: worthless without the passphrase.

    Args: salt: 16 random bytes, new each time.
    """
    key = _key_of(passphrase, salt)
    return _LOCKED_HEAD + salt + ChaCha20Poly1305(key).encrypt(_NONCE, secret, _LOCKED_HEAD)


def is_locked(data: bytes) -> bool:
    """Whether these are bytes of a secret that wants a passphrase."""
    return data.startswith(_LOCKED_HEAD)


def unlock_secret(data: bytes, passphrase: str) -> bytes:
    """The secret. Raises: BadRequest (another passphrase, or other bytes)."""
    if not is_locked(data) or len(data) != LOCKED_BYTES:
        raise BadRequest("not a Soul's key", hint="gliad soul export FILE writes one")
    salt, encrypted = data[8 : 8 + SALT_BYTES], data[8 + SALT_BYTES :]
    try:
        return ChaCha20Poly1305(_key_of(passphrase, salt)).decrypt(_NONCE, encrypted, _LOCKED_HEAD)
    except InvalidTag as error:
        raise BadRequest(
            "the passphrase is another one, or the Soul's key was altered", hint="try again"
        ) from error


def _key_of(passphrase: str, salt: bytes) -> bytes:
    return Scrypt(salt, length=32, n=_SCRYPT_COST, r=8, p=1).derive(passphrase.encode())
