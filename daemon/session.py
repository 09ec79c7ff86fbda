"""One connection from its Hello to its end.

Memory calls are answered one after the other, in order; every other call has a task of
its own. Whatever goes wrong here ends this connection and nothing else. One that goes away
ends its requests as a Cancel does: what there is of their answers is recorded.
"""

from __future__ import annotations

import logging
from typing import get_args

import trio
from msgspec import Struct

from daemon import api
from daemon.broker import Generation
from daemon.call_queue import CallQueue
from daemon.link import EngineLink, FromEngine
from daemon.memory_calls import MemoryCall, MemoryCalls
from daemon.parts import Parts
from daemon.wire import Peer, Wire
from glia.errors import BadRequest, GliaError, QuotaExceeded, RemoteProtocolError
from glia.local.messages import (
    PROTOCOL_VERSION,
    AddModel,
    Attach,
    Audit,
    Calibrate,
    Call,
    Cancel,
    ClientMessage,
    Done,
    Emitted,
    Failed,
    Generate,
    Generated,
    Hello,
    Progress,
    Ready,
    Replay,
    Sample,
    Shutdown,
    Welcome,
)

KINDS = ("client", "engine")
_MAX_CALLS = 1024
_WAITING_CALLS = (AddModel, Replay, Sample, Shutdown)  # for others; nobody waits for them
_MAX_AT_ONCE = 4  # of those that use threads: every connection shares these
_ENDING_S = 30.0  # for an engine to end what was cancelled, and for the disk
_MEMORY_CALLS = get_args(MemoryCall)
_CALLS_WITH_TASKS = (Generate, *get_args(api.ApiCall))
_FROM_ENGINE = get_args(FromEngine)
_log = logging.getLogger("gliad.session")


class Session:
    """A client or an engine that said Hello."""

    def __init__(self, parts: Parts, wire: Wire, peer: Peer) -> None:
        self._parts = parts
        self._wire = wire
        self._peer = peer
        self._memory_calls = MemoryCalls(parts.memory, parts.areas, f"pid {peer.pid}")
        self._queue = CallQueue()
        self._at_once = trio.Semaphore(_MAX_AT_ONCE)
        self._generations: dict[int, Generation] = {}
        self._link: EngineLink | None = None
        self._num_calls = 0
        self._is_engine = False
        self._reading = trio.CancelScope()

    def welcome(self, hello: Hello) -> None:
        """Answer the Hello. Raises: RemoteProtocolError for another version or kind."""
        if hello.protocol != PROTOCOL_VERSION:
            raise RemoteProtocolError(
                f"protocol {hello.protocol} is not spoken here, {PROTOCOL_VERSION} is",
                hint="use the client that came with this gliad",
            )
        if hello.kind not in KINDS:
            raise RemoteProtocolError(f"a connection is one of {KINDS}, not {hello.kind!r}")
        self._is_engine = hello.kind == "engine"
        arena = self._parts.memory.arena
        welcome = Welcome(
            id=hello.id,
            protocol=PROTOCOL_VERSION,
            version=self._parts.version,
            pid=self._parts.pid,
            arena_bytes=arena.size_bytes,
        )
        self._wire.post(welcome, arena.fd)

    async def run(self, first: list[ClientMessage]) -> None:
        """Serve until the other side goes away. Raises: RemoteProtocolError, OSError."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._answer_memory_calls)
                nursery.start_soon(self._stop_reading_when_lost)
                try:
                    await self._read(first, nursery)
                    self._wire.lose()
                finally:
                    await self._end_generations()
                nursery.cancel_scope.cancel()
        finally:
            self._memory_calls.close()
            if self._link is not None:
                self._link.close()
                self._parts.engines.detach(self._link)

    async def _read(self, first: list[ClientMessage], nursery: trio.Nursery) -> None:
        messages: list[ClientMessage] | None = first
        with self._reading:
            while messages is not None:
                for message in messages:
                    await self._take(message, nursery)
                messages = await self._wire.receive()

    async def _stop_reading_when_lost(self) -> None:
        await self._wire.lost.wait()
        self._reading.cancel()

    async def _end_generations(self) -> None:
        """Cancel them all, and return when they are recorded."""
        under_way = list(self._generations.values())
        for generation in under_way:
            generation.cancel()
        with trio.move_on_after(_ENDING_S):
            for generation in under_way:
                await generation.ended.wait()

    async def _take(self, message: ClientMessage, nursery: trio.Nursery) -> None:
        if self._link is not None:
            self._link.heard()
        if isinstance(message, _MEMORY_CALLS):
            await self._queue.put(message)
        elif isinstance(message, _FROM_ENGINE):
            self._from_engine(message)
        elif isinstance(message, Cancel):
            generation = self._generations.get(message.target)
            if generation is not None:
                generation.cancel()
            self._wire.post(Done(message.id))
        elif isinstance(message, _CALLS_WITH_TASKS):
            if self._num_calls >= _MAX_CALLS:
                self._fail(message, QuotaExceeded(f"a client has at most {_MAX_CALLS} calls"))
                return
            self._num_calls += 1
            if isinstance(message, Generate):  # here, so that a Cancel right behind finds it
                self._register(message)
            nursery.start_soon(self._answer, message)
        else:
            raise RemoteProtocolError(f"a {type(message).__name__} has no place here")

    async def _answer_memory_calls(self) -> None:
        while True:
            call = await self._queue.take()
            await self._wire.ready()
            try:
                reply, fd = await self._memory_calls.answer(call)
                if isinstance(call, Attach):
                    self._attach(call)
            except GliaError as error:
                self._fail(call, error)
            else:
                self._wire.post(reply, fd)
                if fd is not None:
                    await self._wire.drained()

    async def _answer(self, call: Generate | api.ApiCall) -> None:
        try:
            if isinstance(call, Generate):
                reply: Struct = await self._generate(call)
            else:
                reply = await self._answer_api(call)
            self._wire.post(reply)
        except GliaError as error:
            self._fail(call, error)
        finally:
            self._num_calls -= 1
        if isinstance(call, Shutdown):
            try:
                with trio.move_on_after(1.0):
                    await self._wire.drained()
            finally:  # whoever asked may be gone as soon as it has its reply
                self._parts.stopping.set()

    async def _answer_api(self, call: api.ApiCall) -> Struct:
        if isinstance(
            call, AddModel | Audit | Calibrate | Replay | Sample | Shutdown
        ):  # these wait for others, and nobody for them
            return await api.answer(self._parts, call, self._deliver)
        async with self._at_once:
            await self._wire.ready()
            return await api.answer(self._parts, call, self._deliver)

    def _register(self, call: Generate) -> None:
        if call.id in self._generations:
            raise RemoteProtocolError(f"call {call.id} is under way already")
        self._generations[call.id] = Generation(call)

    async def _generate(self, call: Generate) -> Generated:
        generation = self._generations[call.id]
        try:
            return await self._parts.broker.generate(generation, self._deliver)
        finally:
            del self._generations[call.id]
            generation.ended.set()

    def _deliver(self, event: Progress | Emitted) -> None:
        """Post an event; called from an engine's task, which our trouble must not end."""
        try:
            self._wire.post(event)
        except GliaError:
            self._wire.lose()

    def _attach(self, call: Attach) -> None:
        """An engine that serves a model becomes one that can be asked. Raises: BadRequest."""
        if call.serves and not self._is_engine:
            raise BadRequest("a client serves no model", hint="say Hello as an engine")
        if call.serves:
            link = EngineLink(self._wire, call, self._peer.pid)
            self._parts.engines.attach(link)
            self._link = link

    def _from_engine(self, message: FromEngine) -> None:
        if self._link is not None and (self._link.ready.is_set() or message.id):
            self._link.on_message(message)
            if isinstance(message, Ready):
                engine = self._parts.engines.ready(self._link)
                if engine is not None:
                    self._parts.broker.loaded(engine, self._link)
        elif isinstance(message, Progress):
            self._parts.engines.progress(self._peer.pid, message)
        else:
            raise RemoteProtocolError(f"a {type(message).__name__} from what serves nothing")

    def _fail(self, call: Call, error: GliaError) -> None:
        self._wire.post(Failed(call.id, error.code, error.message, error.hint))
