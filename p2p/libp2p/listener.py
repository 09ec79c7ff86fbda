"""TCP in: the library's listener shares its port with whoever asks, and dies of an error."""

from __future__ import annotations

import logging
from contextlib import suppress

import trio
from libp2p.abc import IListener, IRawConnection
from libp2p.custom_types import THandler
from libp2p.io.trio import TrioTCPStream
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.transport.exceptions import OpenConnectionError
from libp2p.transport.tcp.tcp import TCP
from libp2p.utils.multiaddr_utils import extract_ip_from_multiaddr, multiaddr_from_socket
from multiaddr import Multiaddr

_BACKLOG = 128
_RETRY_S = 0.1
_log = logging.getLogger("gliad.p2p.libp2p")


class TCPStream(TrioTCPStream):
    """The library's knows the other end's address of IPv4 alone: all of IPv6 counted as one."""

    def get_remote_address(self) -> tuple[str, int] | None:
        """Of the other end, also after it went; None if that was before anybody asked."""
        if self._cached_remote_address is None:
            with suppress(OSError):
                host, port, *_ = self.stream.socket.getpeername()
                self._cached_remote_address = str(host), int(port)
        return self._cached_remote_address


class Listener(IListener):
    """Sockets without SO_REUSEPORT: a second node on the same port is told so.

    Attributes:
        background_nursery: set by the swarm before `listen`.
    """

    background_nursery: trio.Nursery

    def __init__(self, handler: THandler) -> None:
        self._handler = handler
        self._sockets: list[trio.SocketListener] = []

    async def listen(self, maddr: Multiaddr) -> None:
        """Raises: OpenConnectionError."""
        host, port = extract_ip_from_multiaddr(maddr), maddr.value_for_protocol("tcp")
        try:
            opened = await trio.open_tcp_listeners(int(port or 0), host=host, backlog=_BACKLOG)
        except (OSError, ValueError) as error:
            raise OpenConnectionError(f"cannot listen on {maddr}: {error}") from error
        for each in opened:
            self._sockets.append(each)
            self.background_nursery.start_soon(self._accept, each)

    async def _accept(self, listener: trio.SocketListener) -> None:
        while True:
            try:
                stream = await listener.accept()
            except trio.ClosedResourceError:
                return
            except OSError as error:  # as out of descriptors: some are closed soon
                _log.warning("cannot accept a connection: %s", error)
                await trio.sleep(_RETRY_S)
            else:
                self.background_nursery.start_soon(self._serve, stream)

    async def _serve(self, stream: trio.SocketStream) -> None:
        try:
            await self._handler(TCPStream(stream))
        except Exception:
            _log.exception("an inbound connection failed")
        finally:
            await trio.aclose_forcefully(stream)

    def get_addrs(self) -> tuple[Multiaddr, ...]:
        return tuple(multiaddr_from_socket(each.socket) for each in self._sockets)

    async def close(self) -> None:
        self.shut()
        await trio.lowlevel.checkpoint()

    def shut(self) -> None:
        """Close the sockets."""
        for each in self._sockets:
            each.socket.close()
        self._sockets.clear()


class GuardedTCP(TCP):
    """The library's dialler with this listener, for addresses alone.

    The library looks up every name that a peer tells of itself or of others.
    """

    async def dial(self, maddr: Multiaddr) -> IRawConnection:
        """Raises: OpenConnectionError."""
        if next(iter(maddr.protocols())).name not in ("ip4", "ip6"):
            raise OpenConnectionError(f"{maddr} is no address")
        dialled = await super().dial(maddr)
        if isinstance(dialled, RawConnection) and isinstance(dialled.stream, TrioTCPStream):
            dialled.stream = TCPStream(dialled.stream.stream)
        return dialled

    def create_listener(self, handler_function: THandler) -> Listener:  # type: ignore[override]
        return Listener(handler_function)
