"""Peer ids and addresses: the port's text, and the library's objects."""

from __future__ import annotations

from libp2p.abc import IHost
from libp2p.peer.id import ID
from multiaddr import Multiaddr

from glia.errors import BadRequest
from p2p.host import Address, PeerId


def peer_text(peer: ID) -> PeerId:
    """As the port names it."""
    return PeerId(peer.to_base58())


def peer_object(peer: PeerId) -> ID:
    """Raises: BadRequest."""
    try:
        found = ID.from_base58(peer)
        Multiaddr(f"/p2p/{peer}")
    except Exception as error:  # the library has no class for it
        raise BadRequest(f"not a peer id: {peer!r}") from error
    return found


def parse_address(address: str) -> tuple[Multiaddr, PeerId]:
    """An address that can be dialled, and whom it names. Raises: BadRequest."""
    hint = "as /ip4/192.0.2.1/tcp/4001/p2p/12D3Koo..., which `gliad id` shows on that node"
    try:
        found = Multiaddr(address)
        names = [protocol.name for protocol in found.protocols()]
        if names[1:] != ["tcp", "p2p"] or names[0] not in ("ip4", "ip6", "dns4", "dns6", "dns"):
            raise ValueError("not of IP or DNS, TCP and a peer id")
        peer = found.value_for_protocol("p2p")
    except Exception as error:  # the library raises what comes
        raise BadRequest(f"not an address of a peer: {address!r}", hint=hint) from error
    return found, PeerId(str(peer))


def address_text(address: Multiaddr, peer: PeerId) -> Address:
    """With the peer's id, once."""
    text = str(address).split("/p2p/", 1)[0]
    return Address(f"{text}/p2p/{peer}")


def dialable(addresses: list[Multiaddr], peer: PeerId) -> tuple[Address, ...]:
    """Those of a peer's addresses that this node dials: names that a peer tells are none."""
    found = []
    for address in addresses:
        text = address_text(address, peer)
        if text.startswith("/dns"):
            continue
        try:
            parse_address(text)
        except BadRequest:
            continue
        found.append(text)
    return tuple(dict.fromkeys(found))


def own_addresses(host: IHost) -> list[Address]:
    """Where a host can be dialled."""
    peer = peer_text(host.get_id())
    return [address_text(address, peer) for address in host.get_addrs()]
