"""Capabilities: a group's issuer, or a holder after it, says who may have what, and until when.

A token is a CWT in a COSE_Sign1 that names the key of its holder, which the connection proves:
a stolen one is of no use. A holder may hand on less than it has. See spec/14-capability.md.
`glia.graph.rights` decides whether a chain of them holds; here they are made and read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from glia.errors import MalformedParticle
from glia.graph.cbor import decode, encode
from glia.graph.claims import Claims, PeerKey, are_claims, encode_claims, parse_claims
from glia.graph.cose import Sign1, parse_sign1, sign1
from glia.graph.group import group_id_of
from glia.graph.neuron import NeuronId, Signer
from glia.graph.scope import Op, Scope

MAX_CHAIN_BYTES = 2048
MAX_DEPTH = 3

_CONTEXT = b"glia-cap-v1\0"


@dataclass(frozen=True)
class Token:
    """Signed claims."""

    claims: Claims
    message: Sign1

    @property
    def is_signed(self) -> bool:
        """Whether its issuer signed it, which takes 0.1 ms to see."""
        return self.message.is_by(self.claims.issuer, _CONTEXT + self.claims.scope.group)


@dataclass(frozen=True)
class Chain:
    """Tokens from the issuer's to the holder's."""

    tokens: tuple[Token, ...]

    @property
    def holder(self) -> PeerKey:
        """Who may use it."""
        return self.tokens[-1].claims.holder

    @property
    def scope(self) -> Scope:
        """What it allows: the last token's, as each is within the one before it."""
        return self.tokens[-1].claims.scope

    @cached_property
    def encoding(self) -> bytes:
        """The canonical bytes. Raises: ValueError where parse_chain would refuse them."""
        data = encode([token.message.encoding for token in self.tokens])
        if len(data) > MAX_CHAIN_BYTES or len(self.tokens) > MAX_DEPTH:
            raise ValueError(f"a chain of {len(self.tokens)} tokens and {len(data)} bytes")
        return data

    @property
    def fault(self) -> str | None:
        """Why it does not hang together, signatures apart; None where it does."""
        root = self.tokens[0].claims
        if root.parent is not None or group_id_of(root.issuer) != root.scope.group:
            return "it does not begin with the group's issuer"
        for before, after in pairwise(self.tokens):
            giver, taker = before.claims, after.claims
            if taker.parent != before.message.message_id or taker.issuer != NeuronId(giver.holder):
                return "a token is not the one before it's"
            if Op.DELEGATE not in giver.scope.ops or not taker.scope.is_within(giver.scope):
                return "a token allows more than the one before it may hand on"
        return None


def grant(signer: Signer, holder: PeerKey, scope: Scope, issued_s: int, token_id: bytes) -> Chain:
    """A chain of one token, by the group's issuer. Raises: ValueError."""
    return _extended((), Claims(signer.neuron, holder, scope, issued_s, token_id), signer)


def attenuate(
    chain: Chain, signer: Signer, holder: PeerKey, scope: Scope, issued_s: int, token_id: bytes
) -> Chain:
    """What the chain's holder hands on. Raises: ValueError where that is more than it may."""
    parent = chain.tokens[-1].message.message_id
    claims = Claims(signer.neuron, holder, scope, issued_s, token_id, parent)
    return _extended(chain.tokens, claims, signer)


def _extended(before: tuple[Token, ...], claims: Claims, signer: Signer) -> Chain:
    if not are_claims(claims):
        raise ValueError(f"not a token: {claims}")
    message = sign1(signer, _CONTEXT + claims.scope.group, encode_claims(claims))
    chain = Chain((*before, Token(claims, message)))
    if chain.fault:
        raise ValueError(chain.fault)
    _ = chain.encoding  # within its limits, or ValueError
    return chain


def parse_chain(data: bytes) -> Chain:
    """Bytes become tokens; strict: re-encoding gives the input. Nothing is verified.

    Raises: MalformedParticle.
    """
    if len(data) > MAX_CHAIN_BYTES:
        raise MalformedParticle(f"a capability cannot be {len(data)} bytes")
    parts = decode(data)
    if not isinstance(parts, list) or not 1 <= len(parts) <= MAX_DEPTH:
        raise MalformedParticle(f"not one to {MAX_DEPTH} tokens")
    return Chain(tuple(map(_parse_token, parts)))


def _parse_token(data: object) -> Token:
    if not isinstance(data, bytes):
        raise MalformedParticle("not a token")
    message = parse_sign1(data)
    return Token(parse_claims(message.payload), message)
