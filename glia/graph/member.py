"""Who may become a member, and how a group's secrets reach it. See spec/15-group.md.

A card says in a neuron's name which peer is its node and to which key secrets for it are
encrypted. That key is its own (X25519), and signs nothing: no key is used for two things.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from glia.errors import MalformedParticle
from glia.graph.cbor import Value, decode, encode
from glia.graph.claims import PeerKey
from glia.graph.cose import parse_sign1, sign1
from glia.graph.epoch_statement import is_stated
from glia.graph.group import SECRET_BYTES, Epoch, GroupId, GroupSecret
from glia.graph.ids import ID_BYTES
from glia.graph.neuron import SIGNATURE_BYTES, NeuronId, Signer

MAX_CARD_BYTES = 512
MAX_EPOCHS = 64

_CARD_CONTEXT = b"glia-card-v1\0"
_WRAP_CONTEXT = b"glia-wrap-v2\0"
_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)


class Box:
    """The private half of the key that secrets come to."""

    def __init__(self, seed: bytes) -> None:
        """Args: seed: 32 secret bytes."""
        self._key = X25519PrivateKey.from_private_bytes(seed)
        self.key = self._key.public_key().public_bytes_raw()

    def open(self, wrapped: bytes, group: GroupId) -> Keys:
        """The keys that were wrapped for it. Raises: MalformedParticle."""
        try:
            plain = _SUITE.decrypt(wrapped, self._key, _WRAP_CONTEXT + group)
        except (InvalidTag, ValueError) as error:
            raise MalformedParticle("a group's keys that were not wrapped for this node") from error
        return _keys(decode(plain))


@dataclass(frozen=True)
class Card:
    """What a node says of itself to join a group.

    Attributes:
        peer: its node's key, which its connections prove.
        box: the X25519 key that the group's secrets are encrypted to.
    """

    neuron: NeuronId
    peer: PeerKey
    box: bytes
    time_s: int


@dataclass(frozen=True)
class Keys:
    """What a member knows that others do not.

    Attributes:
        epochs: in order, the newest last.
        statements: what the issuer signed of each of them, in the same order.
    """

    secret: GroupSecret = field(repr=False)
    epochs: tuple[Epoch, ...]
    statements: tuple[bytes, ...]

    @property
    def current(self) -> Epoch:
        """What is published is encrypted under it."""
        return self.epochs[-1]

    def are_of(self, issuer: NeuronId) -> bool:
        """Whether the group's issuer said all of it."""
        pairs = zip(self.epochs, self.statements, strict=True)
        return all(is_stated(issuer, epoch, self.secret, said) for epoch, said in pairs)


def sign_card(signer: Signer, peer: PeerKey, box: bytes, time_s: int) -> bytes:
    """A card in the neuron's name."""
    return sign1(
        signer, _CARD_CONTEXT, encode({1: signer.neuron, 2: peer, 3: box, 4: time_s})
    ).encoding


def parse_card(data: bytes) -> Card:
    """Bytes become a card; strict, and its neuron signed it. Raises: MalformedParticle."""
    if len(data) > MAX_CARD_BYTES:
        raise MalformedParticle(f"a card cannot be {len(data)} bytes")
    message = parse_sign1(data)
    match decode(message.payload):
        case {
            1: bytes() as neuron,
            2: bytes() as peer,
            3: bytes() as box,
            4: int() as time_s,
            **rest,
        } if not rest and {len(neuron), len(peer), len(box)} == {ID_BYTES}:
            if message.is_by(NeuronId(neuron), _CARD_CONTEXT):
                return Card(NeuronId(neuron), PeerKey(peer), box, time_s)
            raise MalformedParticle("a card that its neuron did not sign")
    raise MalformedParticle("not a card")


def wrap(keys: Keys, box: bytes, group: GroupId) -> bytes:
    """A group's keys for one member. Raises: MalformedParticle for a key of small order."""
    told = list(zip(keys.epochs, keys.statements, strict=True))[-MAX_EPOCHS:]
    epochs: list[Value] = [[epoch.number, epoch.key, said] for epoch, said in told]
    plain = encode({1: keys.secret, 2: epochs})
    try:
        return _SUITE.encrypt(plain, X25519PublicKey.from_public_bytes(box), _WRAP_CONTEXT + group)
    except ValueError as error:
        raise MalformedParticle("a card whose key is none") from error


def _keys(fields: Value) -> Keys:
    match fields:
        case {1: bytes() as secret, 2: [*pairs], **rest} if (
            not rest and len(secret) == SECRET_BYTES
        ):
            epochs = tuple(map(_epoch, pairs))
            numbers = [epoch.number for epoch, _ in epochs]
            if 1 <= len(epochs) <= MAX_EPOCHS and numbers == sorted(set(numbers)):
                statements = tuple(said for _, said in epochs)
                return Keys(GroupSecret(secret), tuple(each for each, _ in epochs), statements)
    raise MalformedParticle("not a group's keys")


def _epoch(said: Value) -> tuple[Epoch, bytes]:
    match said:
        case [int() as number, bytes() as key, bytes() as signature] if (
            len(signature) == SIGNATURE_BYTES
        ):
            try:
                return Epoch(number, key), signature
            except ValueError as error:
                raise MalformedParticle("not an epoch of a group") from error
    raise MalformedParticle("not an epoch of a group")
