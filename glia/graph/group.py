"""Groups: who may read aggregate windows. Their names, where their domain begins, their epochs.

A group's secret salts its domain for good: from the first group window on, nobody who lacks it
can compute a name from tokens. An epoch's key encrypts what is published while it lasts; a new
epoch begins when a member leaves. See spec/15-group.md.

Convergent: in an epoch equal particles have equal ciphertexts, so these are one block wherever
they are kept; and whoever lacks the key can guess nothing, as it is what they converge on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NewType

from blake3 import blake3
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from glia.errors import HashMismatch, MalformedParticle
from glia.graph.ids import BlockId, PrefixKey, WindowId, derive, digest, short
from glia.graph.neuron import NeuronId
from glia.graph.profile import Profile

GroupId = NewType("GroupId", bytes)
GroupSecret = NewType("GroupSecret", bytes)  # salts the domain; the same in all epochs
EpochId = NewType("EpochId", bytes)  # says nothing of the group, nor of the key
SealedId = NewType("SealedId", bytes)  # names a ciphertext: anybody can check it
LookupKey = NewType("LookupKey", bytes)  # stands for a name that only members may know

SECRET_BYTES = 32
MAX_EPOCH = 2**32 - 1

_GROUP = "glia 2026 v1 group"
_GROUP_BLOCK = "glia 2026 v1 group block"
_GROUP_WINDOW = "glia 2026 v1 group window"
_GROUP_PREFIX = "glia 2026 v1 group prefix"
_EPOCH = "glia 2026 v1 group epoch"
_OF_SALT = "glia 2026 v1 group secret"
_LOOKUP = "glia agg lookup v1"
_ENCRYPTION = "glia agg enc v1"

VERSION = 1
_NONCE = bytes(12)  # fixed: a key encrypts one plaintext only, as it is made from its hash
_TAG_BYTES = 16
_LENGTH_BYTES = 4
_RECORD_UNIT_BYTES = 4096


def group_id_of(issuer: NeuronId) -> GroupId:
    """The group of an issuer's key; the key is made for it, and stands for nothing else."""
    return GroupId(derive(_GROUP, issuer))


def secret_id(secret: GroupSecret) -> bytes:
    """What a secret is called where it must not stand; commits to it."""
    return derive(_OF_SALT, secret)


# -- where the domain begins -----------------------------------------------------------------


def domain_block(prev: BlockId, secret: GroupSecret) -> BlockId:
    """The previous block of the first group window in a layer, after `prev` (or genesis)."""
    return BlockId(derive(_GROUP_BLOCK, prev + secret))


def domain_window(prev: WindowId, secret: GroupSecret) -> WindowId:
    """The previous window of the first group window, after `prev` (or genesis)."""
    return WindowId(derive(_GROUP_WINDOW, prev + secret))


def domain_prefix(prev: PrefixKey, secret: GroupSecret) -> PrefixKey:
    """The prefix key that the first group window's is made from, after `prev` (or genesis)."""
    return PrefixKey(derive(_GROUP_PREFIX, prev + secret))


# -- epochs ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Epoch:
    """One key of a group. Whoever has it reads what was published under it, for ever.

    Attributes:
        number: 1, 2, 3, ...
        key: 32 secret bytes.
    """

    number: int
    key: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not (1 <= self.number <= MAX_EPOCH and len(self.key) == SECRET_BYTES):
            raise ValueError(f"not an epoch: number {self.number}, {len(self.key)} bytes")

    @cached_property
    def epoch_id(self) -> EpochId:
        """Stands on ciphertexts; commits to the key."""
        return EpochId(derive(_EPOCH, self.key))

    @cached_property
    def k_id(self) -> bytes:
        """What look-up keys are made with."""
        return derive(_LOOKUP, self.key)

    @cached_property
    def k_enc(self) -> bytes:
        """What particles are encrypted with."""
        return derive(_ENCRYPTION, self.key)

    def lookup_key(self, name: bytes) -> LookupKey:
        """Under which a block, window or prefix key is asked for."""
        return LookupKey(blake3(name, key=self.k_id).digest())


# -- particles -------------------------------------------------------------------------------


def block_bytes(profile: Profile) -> int:
    """What all block particles of a profile are padded to, and length and tag come on top."""
    return max(profile.particle_sizes)


def record_bytes(record: bytes) -> int:
    """What a window record, or what else is no block, is padded to: whole 4 KiB with length."""
    whole = -(-(_LENGTH_BYTES + len(record)) // _RECORD_UNIT_BYTES)
    return whole * _RECORD_UNIT_BYTES - _LENGTH_BYTES


def sealed_bytes(size_bytes: int) -> int:
    """The length of a ciphertext of something padded to `size_bytes`."""
    return _LENGTH_BYTES + size_bytes + _TAG_BYTES


def seal(epoch: Epoch, particle: bytes | memoryview, size_bytes: int) -> bytes:
    """The ciphertext of a particle, padded to `size_bytes`: of equal ones an equal one."""
    if len(particle) > size_bytes:
        raise ValueError(f"{len(particle)} bytes cannot be padded to {size_bytes}")
    plain = bytearray(_LENGTH_BYTES + size_bytes)
    plain[:_LENGTH_BYTES] = len(particle).to_bytes(_LENGTH_BYTES, "little")
    plain[_LENGTH_BYTES : _LENGTH_BYTES + len(particle)] = particle
    cipher = ChaCha20Poly1305(_key(epoch, digest(particle)))
    return cipher.encrypt(_NONCE, bytes(plain), _head(epoch.epoch_id))


def sealed_id(epoch_id: EpochId, sealed: bytes | memoryview) -> SealedId:
    """A ciphertext's public name. Whoever relays it checks it with this, and cannot read it."""
    return SealedId(blake3(_head(epoch_id)).update(sealed).digest())


def unseal(epoch: Epoch, sealed: bytes | memoryview, name: bytes) -> memoryview:
    """The particle of which this is the ciphertext.

    Args: name: BLAKE3 of the particle, a block or window id. It is checked again: the
        cipher alone does not commit to its key.
    Raises:
        HashMismatch: not of this particle, epoch or length: blames whoever carried it.
        MalformedParticle: rightly sealed, and padded as `seal` does not.
    """
    cipher = ChaCha20Poly1305(_key(epoch, name))
    try:
        plain = memoryview(cipher.decrypt(_NONCE, sealed, _head(epoch.epoch_id)))
    except InvalidTag:
        raise HashMismatch(f"particle {short(name)}: another's ciphertext") from None
    end = _LENGTH_BYTES + int.from_bytes(plain[:_LENGTH_BYTES], "little")
    if end > len(plain) or bytes(plain[end:]) != bytes(len(plain) - end):
        raise MalformedParticle(f"particle {short(name)} is padded wrongly")
    particle = plain[_LENGTH_BYTES:end]
    if digest(particle) != name:
        raise HashMismatch(f"particle {short(name)}: the bytes are not the named ones")
    return particle


def _key(epoch: Epoch, name: bytes) -> bytes:
    return blake3(name, key=epoch.k_enc).digest()


def _head(epoch_id: EpochId) -> bytes:
    return bytes((VERSION,)) + epoch_id
