"""COSE_Sign1 with Ed25519: what groups sign. See spec/14-capability.md.

A context that stands in no message is signed with each, so that none is taken for another kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from glia.errors import MalformedParticle
from glia.graph.cbor import decode, encode
from glia.graph.ids import digest
from glia.graph.neuron import SIGNATURE_BYTES, NeuronId, Signer, is_signed

_PROTECTED = bytes.fromhex("a10127")  # {alg: EdDSA}


@dataclass(frozen=True)
class Sign1:
    """A payload and somebody's signature, which is not yet believed.

    Attributes:
        encoding: the whole message.
    """

    payload: bytes
    signature: bytes
    encoding: bytes

    @cached_property
    def message_id(self) -> bytes:
        """BLAKE3-256 of the encoding."""
        return digest(self.encoding)

    def is_by(self, key: NeuronId, context: bytes) -> bool:
        """Whether the key signed it in this context."""
        return is_signed(key, _signed(context, self.payload), self.signature)


def sign1(signer: Signer, context: bytes, payload: bytes) -> Sign1:
    """A payload in somebody's name."""
    signature = signer.sign(_signed(context, payload))
    return Sign1(payload, signature, encode([_PROTECTED, {}, payload, signature]))


def sign_apart(signer: Signer, context: bytes, payload: bytes) -> bytes:
    """The signature alone, of a payload that whoever reads it makes himself (detached content)."""
    return signer.sign(_signed(context, payload))


def is_signed_apart(key: NeuronId, context: bytes, payload: bytes, signature: bytes) -> bool:
    """Whether the key signed what `sign_apart` signs."""
    return is_signed(key, _signed(context, payload), signature)


def parse_sign1(data: bytes) -> Sign1:
    """Bytes become a message; its signature is not verified. Raises: MalformedParticle."""
    match decode(data):
        case [protected, dict() as others, bytes() as payload, bytes() as signature] if (
            protected == _PROTECTED and not others and len(signature) == SIGNATURE_BYTES
        ):
            return Sign1(payload, signature, data)
    raise MalformedParticle("not a COSE_Sign1 message that was signed with Ed25519")


def _signed(context: bytes, payload: bytes) -> bytes:
    return encode(["Signature1", _PROTECTED, context, payload])
