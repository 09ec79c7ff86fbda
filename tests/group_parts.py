"""A group with an issuer and people in it, for tests of rights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from glia.graph.capability import Chain, Op, PeerKey, Scope, attenuate, grant
from glia.graph.group import group_id_of
from glia.graph.neuron import Signer
from glia.graph.revoked import Revoked, parse_revoked, sign_revoked
from glia.graph.rights import Verifier
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
