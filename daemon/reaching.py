"""Connecting to a peer where the user says that it is: by address, or by a name for one.

Only names that the user gave are looked up. What peers say of peers has addresses: else any
peer could have this node ask for names of its choice.
"""

from __future__ import annotations

from collections.abc import Sequence

import trio

from glia.errors import PeerUnreachable
from p2p.host import Address, Host

_LOOK_UP_S = 5.0
_FAMILIES = {
    "dns": trio.socket.AF_UNSPEC,
    "dns4": trio.socket.AF_INET,
    "dns6": trio.socket.AF_INET6,
}


async def reach(host: Host, addresses: Sequence[Address]) -> None:
    """Connect to one peer at the first of its addresses where it is.

    Raises: PeerUnreachable, PeerRefused (it is banned), BadRequest.
    """
    why = PeerUnreachable("no address of it is known")
    for address in addresses:
        try:
            await _reach(host, address)
        except PeerUnreachable as error:
            why = error
        else:
            return
    raise why


async def _reach(host: Host, address: Address) -> None:
    why = PeerUnreachable(f"{address}: the name stands for no address")
    for place in await _places(address):
        try:
            await host.connect(place)
        except PeerUnreachable as error:
            why = error
        else:
            return
    raise why


async def _places(address: Address) -> list[Address]:
    """The IP addresses of a name; itself where there is none. Raises: PeerUnreachable."""
    _, kind, name, rest = address.split("/", 3)
    if kind not in _FAMILIES:
        return [address]
    try:
        with trio.fail_after(_LOOK_UP_S):
            found = await trio.socket.getaddrinfo(
                name, None, family=_FAMILIES[kind], type=trio.socket.SOCK_STREAM
            )
    except (OSError, UnicodeError, trio.TooSlowError) as error:
        raise PeerUnreachable(f"{address}: the name cannot be looked up: {error}") from error
    ips = dict.fromkeys(str(place[0]) for *_, place in found)
    return [Address(f"/{'ip6' if ':' in ip else 'ip4'}/{ip}/{rest}") for ip in ips if "%" not in ip]
