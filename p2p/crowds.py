"""Whose connections are counted together."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv6Address

from p2p.host import Connection, PeerId


def crowd_of(ip: str) -> str:
    """What one household has: an address of IPv4, but 2**64 of IPv6, which count as one.

    Args: ip: as a socket tells it.
    """
    if ":" not in ip:
        return ip
    address = IPv6Address(ip)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{IPv6Address(int(address) >> 64 << 64)}/64"


def crowd_among(connections: Sequence[Connection], peer: PeerId) -> str:
    """A peer's, where it is connected; all others are of one, as their address is not known."""
    ips = (each.remote_ip for each in connections if each.peer == peer)
    ip = next(ips, "")
    return crowd_of(ip) if ip else ""
