"""Grants: what makes a node a member, in one message that can be handed over in any way.

The group's keys, wrapped for the member alone; its capability; the last revocation list; and
where the next grant is to be had. See spec/15-group.md.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

from glia.errors import BadRequest, MalformedParticle
from glia.graph.capability import Chain, parse_chain
from glia.graph.cbor import decode, encode
from glia.graph.claims import PeerKey
from glia.graph.cose import parse_sign1, sign1
from glia.graph.group import GroupId
from glia.graph.member import Box, Card, Keys, wrap
from glia.graph.neuron import NeuronId, Signer
from glia.graph.revoked import Revoked, parse_revoked
from glia.graph.scope import Op

MAX_GRANT_BYTES = 60 * 1024
MAX_NAME_BYTES = 64
MAX_HOMES = 8
MAX_HOME_BYTES = 256

CARD_TEXT = "glia-card:"
GRANT_TEXT = "glia-grant:"
_CONTEXT = b"glia-grant-v1\0"


@dataclass(frozen=True)
class Given:
    """What a grant says.

    Attributes:
        name: of the group, as whoever grants calls it.
        keys: None for a relay, which is given none.
        chain: the capability. Whoever signed its last token signed the grant.
        revoked: the group's list, and its encoding.
        homes: addresses of the node that grants, where the next one is to be had.
    """

    name: str
    time_s: int
    chain: Chain
    keys: Keys | None
    revoked: Revoked
    revoked_encoding: bytes
    homes: tuple[str, ...]

    @property
    def group(self) -> GroupId:
        """Whose it is."""
        return self.chain.scope.group


def sign_grant(signer: Signer, card: Card, given: Given) -> bytes:
    """A grant for whoever the card is of. Raises: ValueError, MalformedParticle (a bad card)."""
    if signer.neuron != given.chain.tokens[-1].claims.issuer or given.chain.holder != card.peer:
        raise ValueError("a grant is signed by who signed its capability, for who holds that")
    if (given.keys is None) is not (Op.RELAY in given.chain.scope.ops):
        raise ValueError("whoever relays has no keys, and whoever does not has")
    if not _fits(given.name, given.homes):
        raise ValueError(f"not a grant: {given.name!r}, {given.homes}")
    payload = encode(
        {
            1: given.name,
            2: given.time_s,
            3: given.chain.encoding,
            4: b"" if given.keys is None else wrap(given.keys, card.box, given.group),
            5: given.revoked_encoding,
            6: list(given.homes),
        }
    )
    return sign1(signer, _CONTEXT + given.group, payload).encoding


def parse_grant(data: bytes, box: Box, peer: PeerKey | None = None) -> Given:
    """Bytes become a grant for this node; strict, signed, and its keys unwrapped.

    That its capability holds now is for its servers to say.
    Args: peer: this node's key, None where it has none as it is on no network.
    Raises: MalformedParticle.
    """
    if len(data) > MAX_GRANT_BYTES:
        raise MalformedParticle(f"a grant cannot be {len(data)} bytes")
    message = parse_sign1(data)
    match decode(message.payload):
        case {
            1: str() as name, 2: int() as time_s, 3: bytes() as chain_bytes,
            4: bytes() as wrapped, 5: bytes() as revoked_bytes, 6: list() as homes, **rest,
        } if not rest:  # fmt: skip
            chain = parse_chain(chain_bytes)
        case _:
            raise MalformedParticle("not a grant")
    texts = tuple(home for home in homes if isinstance(home, str))
    if len(texts) != len(homes) or not _fits(name, texts):
        raise MalformedParticle("a grant's fields are out of range")
    group = chain.scope.group
    if chain.fault or not all(token.is_signed for token in chain.tokens):
        raise MalformedParticle("a grant whose capability does not hold together")
    if not message.is_by(NeuronId(chain.tokens[-1].claims.issuer), _CONTEXT + group):
        raise MalformedParticle("a grant that was not signed by who may grant")
    if peer is not None and chain.holder != peer:
        raise MalformedParticle("a grant for another node")
    revoked = parse_revoked(revoked_bytes, group)
    keys = _keys(wrapped, box, chain)
    return Given(name, time_s, chain, keys, revoked, revoked_bytes, texts)


def _keys(wrapped: bytes, box: Box, chain: Chain) -> Keys | None:
    """Raises: MalformedParticle."""
    if Op.RELAY in chain.scope.ops:
        if wrapped:
            raise MalformedParticle("a grant with keys for a node that relays")
        return None
    keys = box.open(wrapped, chain.scope.group)
    if not keys.are_of(chain.tokens[0].claims.issuer):
        raise MalformedParticle("a grant with an epoch that the group's issuer did not begin")
    return keys


def as_text(kind: str, data: bytes) -> str:
    """A card or grant as one line that survives a chat. Args: kind: CARD_TEXT or GRANT_TEXT."""
    return kind + base64.urlsafe_b64encode(data).decode().rstrip("=")


def of_text(kind: str, text: str) -> bytes:
    """The inverse of as_text; white space around and in it is nothing. Raises: BadRequest."""
    words = "".join(text.split())
    what = kind.rstrip(":")
    if not words.startswith(kind):
        raise BadRequest(f"no {what}: {text[:40]!r}", hint=f"it begins with {kind}")
    digits = words[len(kind) :]
    try:
        return base64.b64decode(digits + "=" * (-len(digits) % 4), b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRequest(f"a {what} that is damaged", hint="copy it as a whole") from error


def _fits(name: str, homes: tuple[str, ...]) -> bool:
    return (
        1 <= len(name.encode()) <= MAX_NAME_BYTES
        and name.isprintable()
        and len(homes) <= MAX_HOMES
        and all(len(home) <= MAX_HOME_BYTES and _is_plain(home) for home in homes)
    )


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()
