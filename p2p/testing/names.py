"""Peer ids and addresses of hosts that are only names."""

from __future__ import annotations

import re

import blake3

from glia.errors import BadRequest
from glia.graph.claims import PeerKey
from p2p.host import Address, PeerId
from p2p.peer_key import peer_of

_ADDRESS = re.compile(r"/ip4/[0-9.]{7,15}/tcp/[0-9]{1,5}/p2p/([1-9A-HJ-NP-Za-km-z]{40,60})")


def peer_id_of(seed: int, name: str) -> PeerId:
    """Looks like the id of an Ed25519 key; nobody has the key."""
    key = blake3.blake3(f"peer {seed} {name}".encode()).digest()
    return peer_of(PeerKey(key))


def address_of(number: int, peer: PeerId) -> Address:
    """Of the host that came as the `number`th."""
    low = number + 1
    return Address(f"/ip4/10.{low >> 16 & 255}.{low >> 8 & 255}.{low & 255}/tcp/4001/p2p/{peer}")


def peer_in(address: Address) -> PeerId:
    """Who is said to be there. Raises: BadRequest."""
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise BadRequest(f"{address!r} is no address of a peer", hint="gliad id")
    return PeerId(found[1])
