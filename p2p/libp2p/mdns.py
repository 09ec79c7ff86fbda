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
ON, ALONE = "on", "alone"
_MAX_ADDRESSES = 8
_MAX_WAITING = 32  # services that were heard of and not yet asked
_ASK_MS = 3000
_LOOK_S = 15.0  # whether the interfaces are still the same
_MAX_TEXT_BYTES = 255  # of one record, with its key
_log = logging.getLogger("gliad.p2p.mdns")


class Neighbours:
    """Tells the LAN where this node is, and of each other that it hears of.

    Nothing is sent on an interface that none of the addresses is of, nor on loopback. What
    does not work (multicast that is not allowed, say) is tried again, and ends nothing else.

    Args:
        addresses: where this node is now: interfaces come and go.
        on_found: told of each other.

    Attributes:
        state: "on", "alone" where there is no interface but loopback, or what does not work.
    """

    def __init__(
        self, addresses: Callable[[], Sequence[Address]], on_found: Callable[[Found], None]
    ) -> None:
        self._addresses, self._on_found = addresses, on_found
        self.state = ALONE

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            told = self.state
            try:
                await self._while_here(self._here())
            except Exception as error:  # the library raises what comes
                self.state = str(error) or repr(error)
                if self.state != told:
                    _log.warning("nodes on this LAN are not found: %s", self.state)
            await trio.sleep(_LOOK_S)

    def _here(self) -> list[Address]:
        """Addresses that a neighbour can dial."""
        return [address for address in self._addresses() if _interface_of(address) is not None]

    async def _while_here(self, addresses: list[Address]) -> None:
        """For as long as these are the addresses. Raises: OSError, and what zeroconf raises."""
        interfaces = sorted({ip for each in addresses if (ip := _interface_of(each)) is not None})
        if not interfaces:
            self.state = ALONE
            return
        heard, names = trio.open_memory_channel[str](_MAX_WAITING)
        zeroconf = await trio.to_thread.run_sync(partial(Zeroconf, interfaces=interfaces))
        try:
            own = _service(addresses, interfaces)
            await trio.to_thread.run_sync(zeroconf.register_service, own)
            browser = ServiceBrowser(zeroconf, SERVICE, handlers=[_teller(heard)])
            self.state = ON
            try:
                while self._here() == addresses:
                    name = own.name
                    with trio.move_on_after(_LOOK_S):
                        name = await names.receive()
                    if name != own.name:
                        await _ask(zeroconf, name, self._on_found)
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


def _interface_of(address: Address) -> str | None:
    """The IP address that others on the LAN may reach, None where it is none."""
    try:
        found = ipaddress.ip_address(address.split("/")[2])
    except ValueError:
        return None
    return None if found.is_loopback or found.is_unspecified else str(found)
