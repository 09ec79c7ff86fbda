"""Capabilities: a group's issuer, or a holder after it, says who may have what, and until when.

A token is a CWT in a COSE_Sign1 that names the key of its holder, which the connection proves:
a stolen one is of no use. A holder may hand on less than it has. See spec/14-capability.md.
`glia.graph.rights` decides whether a chain of them holds; here they are made and read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntFlag
from functools import cached_property
from itertools import pairwise
from typing import NewType

from glia.errors import MalformedParticle
from glia.graph.cbor import Value, decode, encode
from glia.graph.cose import Sign1, parse_sign1, sign1
from glia.graph.group import MAX_EPOCH, GroupId, group_id_of
from glia.graph.ids import ID_BYTES, ModelId
from glia.graph.neuron import NeuronId, Signer

PeerKey = NewType("PeerKey", bytes)  # the Ed25519 key that a peer's id is made of

MAX_CHAIN_BYTES = 2048
MAX_DEPTH = 3
MAX_ROOTS = 8
MAX_LIFE_S = 24 * 3600
TOKEN_ID_BYTES = 16

_CONTEXT = b"glia-cap-v1\0"
_MAX_U64 = 2**64 - 1
_ISS, _SUB, _AUD, _EXP, _NBF, _IAT, _CTI, _CNF = range(1, 9)
_OPS, _MODEL, _ROOTS, _BYTES, _EPOCH, _PARENT = range(100, 106)
_KID = 3  # RFC 8747: the holder's key by its identifier, which is the key


class Op(IntFlag):
    """What may be done."""

    FETCH = 1
    ANNOUNCE = 2
    DELEGATE = 4


@dataclass(frozen=True)
class Scope:
    """What a token allows. None stands for no limit.

    Attributes:
        audience: the group: at all its servers; or one server's peer key.
        epoch: the group's when it was issued.
        roots: look-up keys of the chains that it is for.
    """

    group: GroupId
    audience: bytes
    ops: Op
    epoch: int
    not_before_s: int
    expires_s: int
    model_id: ModelId | None = None
    roots: frozenset[bytes] | None = None
    bytes_per_hour: int | None = None

    def is_within(self, other: Scope) -> bool:
        """Whether it allows nothing that the other does not. A partial order."""
        return (
            self.group == other.group
            and other.audience in (self.audience, other.group)
            and self.ops & other.ops == self.ops
            and self.epoch <= other.epoch
            and other.not_before_s <= self.not_before_s
            and self.expires_s <= other.expires_s
            and other.model_id in (None, self.model_id)
            and (other.roots is None or (self.roots is not None and self.roots <= other.roots))
            and _is_at_most(self.bytes_per_hour, other.bytes_per_hour)
        )

    def allows(self, op: Op, model_id: ModelId, root: bytes | None = None) -> bool:
        """Whether one thing may be done. Args: root: a chain's look-up key, where it is known."""
        return (
            op in self.ops
            and self.model_id in (None, model_id)
            and (self.roots is None or root in self.roots)
        )


@dataclass(frozen=True)
class Claims:
    """What a token says.

    Attributes:
        issuer: the group's, or the holder of the token before it.
        holder: whose connections it is good for.
        parent: the id of the token before it, None of a root.
    """

    issuer: NeuronId
    holder: PeerKey
    scope: Scope
    issued_s: int
    token_id: bytes
    parent: bytes | None = None


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
    if not _fits(claims):
        raise ValueError(f"not a token: {claims}")
    message = sign1(signer, _CONTEXT + claims.scope.group, _encode(claims))
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
    match decode(message.payload):
        case dict() as fields:
            claims = _claims(fields)
            if _fits(claims) and _encode(claims) == message.payload:
                return Token(claims, message)
    raise MalformedParticle("a token's claims are not those of a capability")


def _encode(claims: Claims) -> bytes:
    scope = claims.scope
    fields: dict[int, Value | None] = {
        _ISS: claims.issuer.hex(),
        _SUB: scope.group.hex(),
        _AUD: scope.audience.hex(),
        _EXP: scope.expires_s,
        _NBF: scope.not_before_s,
        _IAT: claims.issued_s,
        _CTI: claims.token_id,
        _CNF: {_KID: claims.holder},
        _OPS: int(scope.ops),
        _MODEL: scope.model_id,
        _ROOTS: None if scope.roots is None else sorted(scope.roots),
        _BYTES: scope.bytes_per_hour,
        _EPOCH: scope.epoch,
        _PARENT: claims.parent,
    }
    return encode({key: value for key, value in fields.items() if value is not None})


def _claims(fields: Mapping[int, Value]) -> Claims:
    """Typed fields; that they are all, and in range, is for the caller to see."""
    model, parent = fields.get(_MODEL), fields.get(_PARENT)
    roots, rate = fields.get(_ROOTS), fields.get(_BYTES)
    scope = Scope(
        group=GroupId(_named(fields, _SUB)),
        audience=_named(fields, _AUD),
        ops=Op(min(_number(fields.get(_OPS)), 8)),
        epoch=_number(fields.get(_EPOCH)),
        not_before_s=_number(fields.get(_NBF)),
        expires_s=_number(fields.get(_EXP)),
        model_id=None if model is None else ModelId(_bytes(model)),
        roots=None if roots is None else _roots(roots),
        bytes_per_hour=None if rate is None else _number(rate),
    )
    confirmed = fields.get(_CNF)
    if not isinstance(confirmed, dict):
        raise MalformedParticle("a token that names no holder")
    return Claims(
        issuer=NeuronId(_named(fields, _ISS)),
        holder=PeerKey(_bytes(confirmed.get(_KID))),
        scope=scope,
        issued_s=_number(fields.get(_IAT)),
        token_id=_bytes(fields.get(_CTI), TOKEN_ID_BYTES),
        parent=None if parent is None else _bytes(parent),
    )


def _named(fields: Mapping[int, Value], key: int) -> bytes:
    """A 32-byte name in 64 hex digits: CWT has text there. Any other spelling fails later."""
    text = fields.get(key)
    if isinstance(text, str) and len(text) == 2 * ID_BYTES:
        try:
            return bytes.fromhex(text)
        except ValueError:
            pass
    raise MalformedParticle(f"claim {key} is no name")


def _number(value: object) -> int:
    if not isinstance(value, int):
        raise MalformedParticle("a claim is no number")
    return value


def _bytes(value: object, length: int = ID_BYTES) -> bytes:
    if not isinstance(value, bytes) or len(value) != length:
        raise MalformedParticle(f"a claim is not {length} bytes")
    return value


def _roots(value: object) -> frozenset[bytes]:
    if not isinstance(value, Sequence):
        raise MalformedParticle("a token's roots are no array")
    return frozenset(map(_bytes, value))


def _fits(claims: Claims) -> bool:
    scope = claims.scope
    return (
        0 <= claims.issued_s <= scope.not_before_s < scope.expires_s
        and scope.expires_s <= min(claims.issued_s + MAX_LIFE_S, _MAX_U64)
        and 1 <= scope.ops <= 7
        and 1 <= scope.epoch <= MAX_EPOCH
        and (scope.roots is None or 1 <= len(scope.roots) <= MAX_ROOTS)
        and 0 <= (scope.bytes_per_hour or 0) <= _MAX_U64
    )


def _is_at_most(rate: int | None, most: int | None) -> bool:
    return most is None or (rate is not None and rate <= most)
