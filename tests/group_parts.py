"""A group with an issuer and people in it, for tests of rights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from daemon.group_file import GroupFiles
from daemon.group_rights import Identity
from daemon.groups import Groups
from glia.graph import capability
from glia.graph.capability import Chain, attenuate, grant
from glia.graph.cbor import encode
from glia.graph.claims import Claims, PeerKey, encode_claims
from glia.graph.cose import sign1
from glia.graph.epoch_statement import state_epoch
from glia.graph.group import Epoch, GroupSecret, group_id_of
from glia.graph.member import Box, Keys
from glia.graph.neuron import Signer
from glia.graph.revoked import Revoked, parse_revoked, sign_revoked
from glia.graph.rights import Verifier
from glia.graph.scope import Op, Scope
from p2p.host import PeerId
from p2p.peer_key import peer_of
from tests.vectors.make import seed

NOW_S = 1_800_000_000
ISSUER = Signer(seed("the issuer", 32))
GROUP = group_id_of(ISSUER.neuron)
PEOPLE = [Signer(seed(f"person {number}", 32)) for number in range(4)]
SERVER = PeerKey(Signer(seed("the server", 32)).neuron)
OTHER_ISSUER = Signer(seed("another issuer", 32))
ALL = Op.FETCH | Op.ANNOUNCE | Op.DELEGATE


def key(number: int) -> PeerKey:
    """Of one of the people."""
    return PeerKey(PEOPLE[number].neuron)


def scope(**changes: Any) -> Scope:
    """All of the group for a day, or less."""
    return replace(Scope(GROUP, GROUP, ALL, 1, NOW_S, NOW_S + 86400), **changes)


def keys_of(secret: GroupSecret, *epochs: Epoch, issuer: Signer = ISSUER) -> Keys:
    """As the issuer signed them."""
    said = tuple(state_epoch(issuer, each, secret) for each in epochs)
    return Keys(secret, epochs, said)


def token_id(number: int) -> bytes:
    """Of the `number`th token."""
    return seed(f"token id {number}", 16)


def chain_of(*scopes: Scope) -> Chain:
    """Handed on from person to person, with these scopes."""
    chain = grant(ISSUER, key(0), scopes[0], NOW_S, token_id(0))
    for number, each in enumerate(scopes[1:], 1):
        giver, taker = PEOPLE[number - 1], key(number)
        chain = attenuate(chain, giver, taker, each, NOW_S, token_id(number))
    return chain


def forged(*claims: tuple[Signer, Claims]) -> bytes:
    """Tokens as somebody signed them, whatever they say; each names the one before it."""
    tokens: list[bytes] = []
    before: bytes | None = None
    for signer, said in claims:
        said = replace(said, parent=before) if before is not None else said
        message = sign1(signer, capability._CONTEXT + said.scope.group, encode_claims(said))
        tokens.append(message.encoding)
        before = message.message_id
    return encode(tokens)


def revoked(
    sequence: int = 1,
    time_s: int = NOW_S,
    *,
    min_epoch: int = 1,
    tokens: Sequence[bytes] = (),
    holders: Sequence[PeerKey] = (),
) -> Revoked:
    """A list, as it is after it was sent."""
    said = Revoked(
        ISSUER.neuron, sequence, time_s, min_epoch, frozenset(tokens), frozenset(holders)
    )
    return parse_revoked(sign_revoked(ISSUER, said), GROUP)


def verifier(said: Revoked | None = None) -> Verifier:
    """Of the group, at SERVER, that has a list."""
    made = Verifier(GROUP, SERVER)
    made.revoked = said or revoked()
    return made


class Clock:
    """What time it is, for a node's groups."""

    def __init__(self) -> None:
        self.now_s = float(NOW_S)

    def __call__(self) -> float:
        return self.now_s


@dataclass(frozen=True)
class NamedIdentity(Identity):
    """Of a host that has a peer id, and no key."""

    name: PeerKey

    @property
    def peer_key(self) -> PeerKey:
        return self.name


def groups_of(
    directory: Path,
    name: str,
    now: Callable[[], float],
    key: PeerKey | None = None,
    *,
    offline: bool = False,
) -> Groups:
    """A node's, as it is at a start. Args: key: of its peer; else it has one that it can use."""
    neuron, peer = Signer(seed(f"neuron {name}", 32)), Signer(seed(f"peer {name}", 32))
    identity = NamedIdentity(neuron, peer, key or PeerKey(peer.neuron))
    files = GroupFiles(directory / name / "groups")
    (directory / name).mkdir(exist_ok=True, mode=0o700)
    box = partial(Box, seed(f"box {name}", 32))
    return Groups(files, box, None if offline else identity, now)


def peer_named(name: str) -> PeerId:
    """The peer id of the node of that name."""
    return peer_of(PeerKey(Signer(seed(f"peer {name}", 32)).neuron))
