"""Finding nodes on the same LAN (RFC 6762, 6763), on zeroconf.

The library's own hears every libp2p program's service, keeps what it hears without bound,
and does so from another thread. This one has a service of its own, and hands what it finds
to trio.
"""

from __future__ import annotations

import ipaddress
import logging
import secrets
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import trio
from multiaddr import Multiaddr
from zeroconf import ServiceBrowser, ServiceInfo, ServiceStateChange, Zeroconf

from glia.errors import BadRequest
from p2p.host import Address, Found, PeerId
from p2p.libp2p.names import parse_address

SERVICE = "_glia._udp.local."
_MAX_ADDRESSES = 8
_MAX_WAITING = 32  # services that were heard of and not yet asked
_ASK_MS = 3000
_MAX_TEXT_BYTES = 255  # of one record, with its key
_log = logging.getLogger("gliad.p2p.mdns")


async def find_neighbours(addresses: Sequence[Address], on_found: Callable[[Found], None]) -> None:
    """Tell the LAN where this node is, and `on_found` of each other, until cancelled.

    Nothing is sent on an interface that none of the addresses is of.
    """
    interfaces = sorted({ip for address in addresses if (ip := _ip_of(address)) is not None})
    if not interfaces:
        return
    heard, names = trio.open_memory_channel[str](_MAX_WAITING)
    zeroconf = await trio.to_thread.run_sync(partial(Zeroconf, interfaces=interfaces))
    try:
        own = _service(addresses, interfaces)
        await trio.to_thread.run_sync(zeroconf.register_service, own)
        browser = ServiceBrowser(zeroconf, SERVICE, handlers=[_teller(heard)])
        try:
            async for name in names:
                if name != own.name:
                    await _ask(zeroconf, name, on_found)
        finally:
            browser.cancel()
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(zeroconf.close)


def _teller(heard: trio.MemorySendChannel[str]) -> Callable[..., None]:
    """What zeroconf's thread calls; what is too much is heard again when it is announced again."""
    token = trio.lowlevel.current_trio_token()

    def put(name: str) -> None:
        try:
            heard.send_nowait(name)
        except (trio.WouldBlock, trio.BrokenResourceError):
            _log.debug("a neighbour is not asked now: %s", name)

    def tell(name: str, state_change: ServiceStateChange, **rest: Any) -> None:
        if state_change is not ServiceStateChange.Removed:
            try:
                token.run_sync_soon(put, name)
            except trio.RunFinishedError:
                _log.debug("a neighbour is heard of after the end")

    return tell


async def _ask(zeroconf: Zeroconf, name: str, on_found: Callable[[Found], None]) -> None:
    try:
        info = await trio.to_thread.run_sync(zeroconf.get_service_info, SERVICE, name, _ASK_MS)
    except Exception as error:  # of a malformed answer, or a name that is none
        _log.debug("a neighbour cannot be asked: %r", error)
        return
    found = found_in(info.properties if info is not None else {})
    if found is not None:
        on_found(found)


def found_in(texts: dict[bytes, bytes | None]) -> Found | None:
    """The peer that a service's records name, with its addresses; None where they name none."""
    peer: PeerId | None = None
    addresses: list[Address] = []
    for text in list(texts.values())[:_MAX_ADDRESSES]:
        try:
            address = Address((text or b"").decode())
            _, named = parse_address(address)
        except (BadRequest, UnicodeDecodeError):
            continue
        if peer in (None, named):
            peer = named
            addresses.append(address)
    return Found(peer, tuple(addresses)) if peer is not None else None


def _service(addresses: Sequence[Address], interfaces: list[str]) -> ServiceInfo:
    """A name that is drawn anew each time: it is of no use to follow a node by."""
    name = f"{secrets.token_hex(16)}.{SERVICE}"
    texts = {
        f"dnsaddr{number}": address
        for number, address in enumerate(addresses[:_MAX_ADDRESSES])
        if len(address) + len(f"dnsaddr{number}=") <= _MAX_TEXT_BYTES
    }
    port = int(Multiaddr(addresses[0]).value_for_protocol("tcp") or 0)
    return ServiceInfo(
        SERVICE,
        name,
        port=port,
        properties=texts,
        server=f"{name.split('.')[0]}.local.",
        parsed_addresses=interfaces,
    )


def _ip_of(address: Address) -> str | None:
    """The IPv4 or IPv6 literal of an address."""
    text = address.split("/")[2]
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None
