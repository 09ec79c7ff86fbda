"""A stream of the port on a stream of libp2p."""

from __future__ import annotations

import trio
from libp2p.abc import INetStream
from libp2p.io.exceptions import IOException
from libp2p.network.connection.exceptions import RawConnError
from libp2p.network.stream.net_stream import NetStream
from libp2p.stream_muxer.exceptions import MuxedStreamEOF, MuxedStreamError

from glia.errors import PeerLost
from p2p.host import PeerId
from p2p.libp2p.names import peer_text

_ERRORS = (MuxedStreamError, IOException, RawConnError, OSError)
_RESET_BOUND_S = 2.0


class LibP2PStream:
    """Keeps `p2p.host.Stream`. The muxer's stream is used directly: the layer between them
    takes a reset for an error of its own, and a lock for each call."""

    def __init__(self, stream: INetStream) -> None:
        assert isinstance(stream, NetStream)  # noqa: S101 - the swarm makes no others
        self._stream = stream.muxed_stream
        self._peer = peer_text(stream.muxed_conn.peer_id)
        self._is_reset = False

    @property
    def peer(self) -> PeerId:
        return self._peer

    async def receive_some(self, max_bytes: int) -> bytes:
        self._check()
        try:
            return await self._stream.read(max_bytes)
        except MuxedStreamEOF:
            return b""
        except _ERRORS as error:
            raise PeerLost(f"peer {self._peer} ended a stream: {error}") from error

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self._check()
        try:
            await self._stream.write(data)  # type: ignore[arg-type]
        except _ERRORS as error:
            raise PeerLost(f"peer {self._peer} ended a stream: {error}") from error

    async def finish(self) -> None:
        self._check()
        try:
            await self._stream.close()
        except _ERRORS as error:
            raise PeerLost(f"peer {self._peer} ended a stream: {error}") from error

    async def reset(self) -> None:
        if self._is_reset:
            return
        self._is_reset = True
        with trio.move_on_after(_RESET_BOUND_S, shield=True):
            try:
                await self._stream.reset()
            except _ERRORS:
                return

    def _check(self) -> None:
        if self._is_reset:
            raise PeerLost("the stream was reset here")
