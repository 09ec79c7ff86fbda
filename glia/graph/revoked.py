"""Revocation lists: who may no longer, said by a group's issuer. See spec/14-capability.md.

Each has a number, and stands for a day: a server that has none so fresh serves nobody.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from glia.errors import MalformedParticle
from glia.graph.cbor import Value, decode, encode
from glia.graph.claims import TOKEN_ID_BYTES, Claims, PeerKey
from glia.graph.cose import parse_sign1, sign1
from glia.graph.group import MAX_EPOCH, GroupId, group_id_of
from glia.graph.ids import ID_BYTES
from glia.graph.neuron import NeuronId, Signer

MAX_LIST_BYTES = 48 * 1024
MAX_HOLDERS = 1024
MAX_TOKENS = 512
STALE_S = 24 * 3600
MAX_FUTURE_S = 120

_CONTEXT = b"glia-revoked-v1\0"
_ISSUER, _SEQUENCE, _TIME, _MIN_EPOCH, _TOKENS, _HOLDERS = range(1, 7)
_MAX_U64 = 2**64 - 1


@dataclass(frozen=True)
class Revoked:
    """What is revoked in a group.

    Attributes:
        sequence: larger in each later list.
        time_s: when it was signed, seconds since 1970, UTC.
        min_epoch: tokens of epochs before it are no longer good.
        tokens, holders: whose id, or whose key as that of a holder, is here is no longer good,
            nor what was handed on from it.
    """

    issuer: NeuronId
    sequence: int
    time_s: int
    min_epoch: int = 1
    tokens: frozenset[bytes] = frozenset()
    holders: frozenset[PeerKey] = frozenset()

    @property
    def group(self) -> GroupId:
        """Whose list it is."""
        return group_id_of(self.issuer)

    def names(self, claims: Claims) -> bool:
        """Whether a token is no longer good."""
        return (
            claims.scope.epoch < self.min_epoch
            or claims.token_id in self.tokens
            or claims.holder in self.holders
        )

    def is_stale(self, now_s: float) -> bool:
        """Whether it is too old to serve by, or from the future."""
        return not -MAX_FUTURE_S <= now_s - self.time_s <= STALE_S

    def follows(self, before: Revoked) -> bool:
        """Whether it takes the place of a list: an issuer's numbers never fall, nor its epochs."""
        return (
            self.issuer == before.issuer
            and self.sequence > before.sequence
            and self.min_epoch >= before.min_epoch
        )


def sign_revoked(signer: Signer, revoked: Revoked) -> bytes:
    """A list in its issuer's name. Raises: ValueError where parse_revoked would refuse it."""
    if not _fits(revoked) or signer.neuron != revoked.issuer:
        raise ValueError(f"not a revocation list: {revoked}")
    return sign1(signer, _CONTEXT + revoked.group, _encode(revoked)).encoding


def parse_revoked(data: bytes, group: GroupId) -> Revoked:
    """Bytes become the list of a group; strict, and its issuer signed it.

    Raises: MalformedParticle.
    """
    if len(data) > MAX_LIST_BYTES:
        raise MalformedParticle(f"a revocation list cannot be {len(data)} bytes")
    message = parse_sign1(data)
    revoked = _read(decode(message.payload))
    if not _fits(revoked) or _encode(revoked) != message.payload or revoked.group != group:
        raise MalformedParticle("a revocation list of another group, or out of range")
    if not message.is_by(revoked.issuer, _CONTEXT + group):
        raise MalformedParticle("a revocation list that the group's issuer did not sign")
    return revoked


def _encode(revoked: Revoked) -> bytes:
    fields: dict[int, Value] = {
        _ISSUER: revoked.issuer,
        _SEQUENCE: revoked.sequence,
        _TIME: revoked.time_s,
        _MIN_EPOCH: revoked.min_epoch,
        _TOKENS: sorted(revoked.tokens),
        _HOLDERS: sorted(revoked.holders),
    }
    return encode(fields)


def _read(fields: Value) -> Revoked:
    """Typed fields; that they are all, and in range, is for the caller to see."""
    match fields:
        case {
            1: bytes() as issuer, 2: int() as sequence, 3: int() as time_s,
            4: int() as min_epoch, 5: list() as tokens, 6: list() as holders,
        } if len(issuer) == ID_BYTES:  # fmt: skip
            return Revoked(
                issuer=NeuronId(issuer),
                sequence=sequence,
                time_s=time_s,
                min_epoch=min_epoch,
                tokens=frozenset(_each(tokens, TOKEN_ID_BYTES)),
                holders=frozenset(map(PeerKey, _each(holders, ID_BYTES))),
            )
    raise MalformedParticle("not a revocation list")


def _each(values: list[Value], length: int) -> Iterator[bytes]:
    for value in values:
        if not isinstance(value, bytes) or len(value) != length:
            raise MalformedParticle(f"what is revoked is not named by {length} bytes")
        yield value


def _fits(revoked: Revoked) -> bool:
    return (
        0 <= revoked.sequence <= _MAX_U64
        and 0 <= revoked.time_s <= _MAX_U64
        and 1 <= revoked.min_epoch <= MAX_EPOCH
        and len(revoked.tokens) <= MAX_TOKENS
        and len(revoked.holders) <= MAX_HOLDERS
    )
