"""Messages of the directory, each read whole and refused before it is looked into."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import trio
import varint
from libp2p.abc import IMuxedConn, INetStream
from libp2p.utils.varint import read_varint_prefixed_bytes_limited

from glia.errors import PeerRefused
from p2p.crowds import crowd_of
from p2p.libp2p import caps
from p2p.libp2p.yamux import GuardedYamux
from p2p.rates import Rates


def crowd_behind(connection: IMuxedConn) -> str:
    """Whose connections are counted with this one; "" where the socket does not say."""
    remote = cast(GuardedYamux, connection).get_remote_address()
    return crowd_of(str(remote[0])) if remote else ""


def kad_rates() -> Rates:
    """How often a node's directory may be asked."""
    return Rates(
        peer=caps.KAD_PEER, crowd=caps.KAD_CROWD, sure=caps.KAD_SURE, shared=caps.KAD_SHARED
    )


class MeteredStream:
    """An inbound stream as the library's handler uses one, which reads what is admitted alone.

    Args:
        admits: whether a message is looked into that costs so much.
    """

    metric_send_channel = None

    def __init__(self, stream: INetStream, admits: Callable[[float], bool]) -> None:
        self._stream, self._admits = stream, admits
        self._rest = b""

    @property
    def muxed_conn(self) -> IMuxedConn:
        return self._stream.muxed_conn

    async def read(self, n: int) -> bytes:
        """Raises: PeerRefused, and what the library's reading does."""
        if not self._rest:
            data = await read_varint_prefixed_bytes_limited(
                self._stream, caps.MAX_KAD_MESSAGE_BYTES
            )
            if not self._admits(1 + len(data) // caps.KAD_BYTES_PER_COST):
                raise PeerRefused("the peer asks the directory too often")
            self._rest = varint.encode(len(data)) + data
        await trio.lowlevel.checkpoint()
        part, self._rest = self._rest[:n], self._rest[n:]
        return part

    async def write(self, data: bytes) -> None:
        await self._stream.write(data)

    async def close(self) -> None:
        await self._stream.close()

    async def reset(self) -> None:
        await self._stream.reset()
