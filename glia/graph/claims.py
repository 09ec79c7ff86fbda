"""A token's claims: a CWT claims set, to be signed. See spec/14-capability.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NewType

from glia.errors import MalformedParticle
from glia.graph.cbor import Value, decode, encode
from glia.graph.group import MAX_EPOCH, GroupId
from glia.graph.ids import ID_BYTES, ModelId
from glia.graph.neuron import NeuronId
from glia.graph.scope import MAX_OPS, MAX_ROOTS, Op, Scope

PeerKey = NewType("PeerKey", bytes)  # the Ed25519 key that a peer's id is made of

MAX_LIFE_S = 24 * 3600
TOKEN_ID_BYTES = 16

_MAX_U64 = 2**64 - 1
_ISS, _SUB, _AUD, _EXP, _NBF, _IAT, _CTI, _CNF = range(1, 9)
_OPS, _MODEL, _ROOTS, _BYTES, _EPOCH, _PARENT = range(100, 106)
_KID = 3  # RFC 8747: the holder's key by its identifier, which is the key


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


def encode_claims(claims: Claims) -> bytes:
    """The canonical bytes."""
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


def parse_claims(data: bytes) -> Claims:
    """Bytes become claims; strict: re-encoding gives the input. Raises: MalformedParticle."""
    match decode(data):
        case dict() as fields:
            claims = _claims(fields)
            if are_claims(claims) and encode_claims(claims) == data:
                return claims
    raise MalformedParticle("a token's claims are not those of a capability")


def _claims(fields: Mapping[int, Value]) -> Claims:
    """Typed fields; that they are all, and in range, is for the caller to see."""
    model, parent = fields.get(_MODEL), fields.get(_PARENT)
    roots, rate = fields.get(_ROOTS), fields.get(_BYTES)
    scope = Scope(
        group=GroupId(_named(fields, _SUB)),
        audience=_named(fields, _AUD),
        ops=Op(min(_number(fields.get(_OPS)), MAX_OPS + 1)),
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


def are_claims(claims: Claims) -> bool:
    """Whether parse_claims would take them."""
    scope = claims.scope
    return (
        0 <= claims.issued_s <= scope.not_before_s < scope.expires_s
        and scope.expires_s <= min(claims.issued_s + MAX_LIFE_S, _MAX_U64)
        and 1 <= scope.ops <= MAX_OPS
        and 1 <= scope.epoch <= MAX_EPOCH
        and (scope.roots is None or 1 <= len(scope.roots) <= MAX_ROOTS)
        and 0 <= (scope.bytes_per_hour or 0) <= _MAX_U64
    )
