"""Whose connections are counted together."""

from __future__ import annotations

from ipaddress import IPv6Address


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
