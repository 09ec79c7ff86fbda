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

from glia.errors import NetworkError, RemoteProtocolError
from glia.graph.window import WindowRecord
from p2p.frames import LENGTH, Reader, encode_frame, send_body
from p2p.getter import Action, Ask, Close, Counts, Open, Session
from p2p.host import PeerId, Stream
from p2p.messages import GetBlocks, encode
from p2p.source import TICK_S, Verdict

RESET_S = 1.0
_log = logging.getLogger("gliad.p2p.fetching")


class Sink(Protocol):
    """Where whole windows go, in order, one at a time."""

    async def take(self, record: WindowRecord, particles: Sequence[bytes | None]) -> None:
        """Particles by layer, verified; None where the block was held here already."""


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
        reader = Reader(stream, lambda num: session.heard(peer, num, trio.current_time()))
        while (length := await reader.length()) is not None:
            size = session.expects(peer)
            if size is None:
                raise RemoteProtocolError("bytes that nobody asked for")
            if length == 0:
                session.absent(peer)
            elif length == size:
                session.arrived(peer, await reader.exactly(size))
            else:
                raise RemoteProtocolError(f"{length} bytes where a block has {size}")
            if reader.num_buffered < LENGTH.size + (session.expects(peer) or 0):
                self._step()  # all that came was looked at
                if session.ready() is not None or session.is_over:
                    self._wake.set()
