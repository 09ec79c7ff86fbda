"""A stream between two hosts, and the two ends of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio

from glia.errors import PeerLost
from p2p.host import PeerId
from p2p.testing.pipe import Pipe
from p2p.testing.road import Road

Note = Callable[..., None]


class SimStream:
    """One end. After a cancelled read or write only `reset` is of use, and that is enforced.

    Attributes:
        is_torn: it was reset here, or is to be.
    """

    def __init__(self, peer: PeerId, inbound: Pipe, outbound: Pipe, road: Road, note: Note) -> None:
        self._peer = peer
        self._in, self._out = inbound, outbound
        self._road = road  # from here to the peer
        self._note = note
        self.is_torn = False

    @property
    def peer(self) -> PeerId:
        return self._peer

    async def receive_some(self, max_bytes: int) -> bytes:
        with self._whole():
            data = await self._in.receive(max_bytes)
        self._note("received", len(data))
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        with self._whole():
            await self._out.send(bytes(data))
        self._note("sent", len(data))

    async def finish(self) -> None:
        await trio.lowlevel.checkpoint()
        with self._whole():
            self._out.finish()
        self._note("finished")

    async def reset(self) -> None:
        self._note("reset")
        self.is_torn = True
        self.lose()
        with trio.CancelScope(shield=True):
            await trio.lowlevel.checkpoint()

    def lose(self, *, is_told: bool = True) -> None:
        """Reset, at once here and, if it is told, as soon as it is heard of there."""
        self.stop_reading(is_told=is_told)
        self._out.writer.lose()
        if is_told:
            self._out.reader.tell(self._road.arrival_s(0, trio.current_time()))

    def stop_reading(self, *, is_told: bool = True) -> None:
        """What still comes in is refused; what was sent out is delivered."""
        self._in.reader.lose()
        if is_told:
            self._in.writer.tell(self._road.arrival_s(0, trio.current_time()))

    def wake(self) -> None:
        """A road was cut, or has healed."""
        for pipe in (self._in, self._out):
            pipe.reader.wake()
            pipe.writer.wake()

    @contextmanager
    def _whole(self) -> Iterator[None]:
        if self.is_torn:
            raise PeerLost("the stream was reset, or a read or write of it cancelled")
        try:
            yield
        except trio.Cancelled:
            self.is_torn = True
            raise


def stream_pair(
    peers: tuple[PeerId, PeerId], roads: tuple[Road, Road], notes: tuple[Note, Note]
) -> tuple[SimStream, SimStream]:
    """Two ends of one stream. `peers`, `notes`: of each end's owner; `roads`: from each."""
    there, back = Pipe(roads[0], roads[1]), Pipe(roads[1], roads[0])
    return (
        SimStream(peers[1], back, there, roads[0], notes[0]),
        SimStream(peers[0], there, back, roads[1], notes[1]),
    )
