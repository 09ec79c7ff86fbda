"""Which network sockets a process has, as the kernel lists them."""

from __future__ import annotations

import ipaddress
import os
from contextlib import suppress
from pathlib import Path

_KINDS = ("tcp", "tcp6", "udp", "udp6", "raw", "raw6")


def network_sockets(pid: int) -> list[tuple[str, str, int]]:
    """Of each: its kind, the local address, the local port. Unix sockets are none."""
    inodes = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            target = os.readlink(fd)
            inodes.add(target.removeprefix("socket:[").removesuffix("]"))
    found = []
    for kind in _KINDS:
        for line in Path(f"/proc/{pid}/net/{kind}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[9] in inodes:
                address, port = fields[1].split(":")
                found.append((kind, _text(address), int(port, 16)))
    return found


def addresses_of(pid: int) -> set[str]:
    """The local addresses of a process's network sockets."""
    return {address for _, address, _ in network_sockets(pid)}


def _text(address: str) -> str:
    """The kernel writes each 32 bits of an address in the machine's order."""
    words = [address[at : at + 8] for at in range(0, len(address), 8)]
    return str(ipaddress.ip_address(b"".join(bytes.fromhex(word)[::-1] for word in words)))
