"""A stream of /glia/group/blocks/1 as one of /glia/blocks/1: blocks go in, and come, by their own
names; on the wire are those of ciphertexts, which are checked and opened here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from glia.errors import IntegrityError, RemoteProtocolError
from glia.graph.encrypted import open_block
from glia.graph.ids import ID_BYTES, BlockId, digest
from p2p.frames import LENGTH, encode_frame, send_body
from p2p.host import PeerId, Stream
from p2p.incoming import Incoming
from p2p.membership import Sealed
from p2p.messages import GetBlocks, decode_blocks_request, encode

_NOBODYS = BlockId(bytes(ID_BYTES))  # asked for in place of what nobody named


class GroupBlocks:
    """A Stream (p2p/host.py), over one on which it was shown who asks.

    Args: sealed: what a block is asked for as; None where nobody said.
    """

    def __init__(self, stream: Stream, sealed: Callable[[BlockId], Sealed | None]) -> None:
        self._stream, self._sealed = stream, sealed
        self._owed: deque[tuple[BlockId, Sealed | None]] = deque()
        self._incoming = Incoming(self._expects, self._take)
        self._opened = bytearray()

    @property
    def peer(self) -> PeerId:
        return self._stream.peer

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Args: data: one frame, whole. Raises: PeerLost, RemoteProtocolError."""
        request = decode_blocks_request(bytes(data[LENGTH.size :]))
        names = [BlockId(each) for each in request.ids]
        sealed = [self._sealed(name) for name in names]
        self._owed.extend(zip(names, sealed, strict=True))
        ids = tuple(_NOBODYS if each is None else each.name for each in sealed)
        await send_body(self._stream, encode_frame(encode(GetBlocks(ids))))

    async def receive_some(self, max_bytes: int) -> bytes:
        """Raises: PeerLost, RemoteProtocolError (not the bytes that a ciphertext's name says)."""
        while not self._opened:
            data = await self._stream.receive_some(max_bytes)
            if not data:
                return b""
            self._incoming.took(data)
        found = bytes(self._opened[:max_bytes])
        del self._opened[:max_bytes]
        return found

    async def finish(self) -> None:
        """See Stream."""
        await self._stream.finish()

    async def reset(self) -> None:
        """See Stream."""
        await self._stream.reset()

    def _expects(self) -> int | None:
        if not self._owed:
            return None
        sealed = self._owed[0][1]
        return 0 if sealed is None else sealed.size_bytes

    def _take(self, particle: memoryview) -> None:
        name, sealed = self._owed.popleft()
        block = memoryview(b"")
        if particle and sealed is not None:
            if digest(particle) != sealed.name:
                raise RemoteProtocolError("a ciphertext that is not the named one")
            try:
                block = open_block(sealed.epoch, particle, name)
            except IntegrityError:  # whoever sealed it: nobody has the block under this name
                block = memoryview(b"")
        self._opened += LENGTH.pack(len(block))
        self._opened += block
