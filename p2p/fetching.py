"""The I/O around a fetch session: streams to its peers, whole windows to a sink.

Tasks run in the caller's nursery, two a peer: one reads, one writes, so that neither waits
for the other. Nothing of a peer is raised into the nursery. When `run` ends, however it
ends, all of them are cancelled and their streams reset.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import trio

from glia.errors import NetworkError, PeerLost, RemoteProtocolError
from glia.graph.window import WindowRecord
from p2p.frames import encode_frame, send_body
from p2p.getter import Action, Ask, Close, Counts, Open, Session
from p2p.host import PeerId, Stream
from p2p.incoming import Incoming
from p2p.messages import GetBlocks, encode
from p2p.source import TICK_S, Verdict

RESET_S = 1.0
_READ_BYTES = 200 * 1024  # what one record of a bulk stream brings; see p2p/answers.py
_log = logging.getLogger("gliad.p2p.fetching")


class Sink(Protocol):
    """Where whole windows go, in order, one at a time."""

    async def take(self, record: WindowRecord, particles: Sequence[memoryview | None]) -> None:
        """Particles by layer, verified; None where the block was held here already.

        Good until this returns: who keeps them copies them.
        """


@dataclass(eq=False)
class _Line:
    """To one peer."""

    requests: trio.MemorySendChannel[bytes]
    unsent: trio.MemoryReceiveChannel[bytes]
    reading: trio.CancelScope = field(default_factory=trio.CancelScope)
    writing: trio.CancelScope = field(default_factory=trio.CancelScope)

    def close(self) -> None:
        self.reading.cancel()
        self.writing.cancel()


class Fetch:
    """Runs one session.

    Args:
        open_stream: a stream to a peer that speaks /glia/blocks/1. Raises: NetworkError.
        tell: hears how each peer did, as soon as it is done with. Never raises.
    """

    def __init__(
        self,
        session: Session,
        open_stream: Callable[[PeerId], Awaitable[Stream]],
        sink: Sink,
        tell: Callable[[Close], None],
        nursery: trio.Nursery,
    ) -> None:
        self._session, self._open_stream = session, open_stream
        self._sink, self._tell, self._nursery = sink, tell, nursery
        self._lines: dict[PeerId, _Line] = {}
        self._wake = trio.Event()

    async def run(self) -> Counts:
        """Until all that can be had was taken. Raises: what the sink raises."""
        try:
            self._step()
            while not self._session.is_over:
                await self._deliver()
                self._step()
                if not self._session.is_over and self._session.ready() is None:
                    await self._changed()
        finally:
            self._session.cancel()
            self._step()
        return self._session.counts

    def cancel(self) -> None:
        """Want nothing more: `run` returns with what was taken."""
        self._session.cancel()
        self._wake.set()

    async def _deliver(self) -> None:
        while (window := self._session.ready()) is not None:
            await self._sink.take(window.record, window.particles)
            if self._session.is_over:  # cancelled meanwhile
                return
            self._session.delivered()
            self._step()

    async def _changed(self) -> None:
        self._wake = trio.Event()
        with trio.move_on_after(TICK_S):
            await self._wake.wait()

    def _step(self) -> None:
        for action in self._session.step(trio.current_time()):
            self._do(action)

    def _do(self, action: Action) -> None:
        if isinstance(action, Open):
            # the session's credit bounds what is unsent
            line = _Line(*trio.open_memory_channel[bytes](math.inf))
            self._lines[action.peer] = line
            self._nursery.start_soon(self._run_peer, action.peer, line)
        elif isinstance(action, Ask):
            frame = encode_frame(encode(GetBlocks(action.ids)))
            self._lines[action.peer].requests.send_nowait(frame)
        else:
            self._lines.pop(action.peer).close()
            self._tell(action)

    async def _run_peer(self, peer: PeerId, line: _Line) -> None:
        verdict = Verdict.LOST
        try:
            with line.reading:
                await self._talk(peer, line)
        except NetworkError as error:
            _log.debug("fetching from %s: %s", peer, error)
        except RemoteProtocolError as error:
            _log.info("fetching from %s: %s", peer, error)
            verdict = Verdict.LIED
        except Exception:
            _log.exception("fetching from %s failed", peer)
        if self._lines.get(peer) is line:
            self._session.ended(peer, verdict)
            self._step()
            self._wake.set()

    async def _talk(self, peer: PeerId, line: _Line) -> None:
        stream = await self._open_stream(peer)
        try:
            self._session.opened(peer, trio.current_time())
            self._nursery.start_soon(self._write, line, stream)
            self._step()
            await self._read(peer, stream)
        finally:
            with trio.CancelScope(deadline=trio.current_time() + RESET_S, shield=True):
                await stream.reset()

    async def _write(self, line: _Line, stream: Stream) -> None:
        with line.writing:
            try:
                async for frame in line.unsent:
                    await send_body(stream, frame)
            except NetworkError:
                line.reading.cancel()

    async def _read(self, peer: PeerId, stream: Stream) -> None:
        session = self._session
        incoming = Incoming(lambda: session.expects(peer), lambda data: session.arrived(peer, data))
        while data := await stream.receive_some(_READ_BYTES):
            session.heard(peer, len(data), trio.current_time())
            incoming.took(data)
            self._step()
            if session.ready() is not None or session.is_over:
                self._wake.set()
        if not incoming.is_between:
            raise PeerLost("the stream ended in the middle of a block")
