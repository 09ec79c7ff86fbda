"""Through whom this machine reaches other networks, as the kernel's tables say."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_TABLES = Path("/proc/net")
_IPV4, _IPV6 = "route", "ipv6_route"
_HOP_IPV4, _HOP_IPV6 = 2, 4  # the column of the next hop


def gateways(tables: Path = _TABLES) -> frozenset[str]:
    """Their IP addresses. Raises: OSError, where there is no table of IPv4."""
    found = [
        socket.inet_ntop(socket.AF_INET, bytes.fromhex(hop)[::-1])
        for hop in _hops(tables / _IPV4, _HOP_IPV4, 8)
    ]
    with suppress(FileNotFoundError):  # a kernel without IPv6
        found += [
            socket.inet_ntop(socket.AF_INET6, bytes.fromhex(hop))
            for hop in _hops(tables / _IPV6, _HOP_IPV6, 32)
        ]
    return frozenset(found)


def _hops(table: Path, column: int, num_digits: int) -> Iterator[str]:
    for line in table.read_text(encoding="ascii").splitlines():
        words = line.split()
        if len(words) > column and len(words[column]) == num_digits and words[column].strip("0"):
            yield words[column]
