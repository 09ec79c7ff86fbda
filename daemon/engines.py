"""The engines there are: one per model and dtype, started on demand, started again after a crash.

One that nobody has asked for a while is ended, and so are idle ones when another needs their
memory; what they had is in L1 and L2. An engine that gliad did not start may attach, too, and
then serves its model.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Protocol

import trio

from daemon.config import EngineConfig
from daemon.engine import Engine
from daemon.engine_life import RunProcess, live
from daemon.engine_memory import EngineMemory
from daemon.link import Deliver, EngineLink
from daemon.models_registry import KnownModel
from glia.errors import BadRequest, CapacityError, EngineDied, GliaError
from glia.local.messages import Progress
from glia.local.values import EngineValue

_CRASH_WINDOW_S = 300.0
_log = logging.getLogger("gliad.engines")


class NeedsPort(Protocol):
    """What engines need of memory (daemon.engine_need)."""

    async def expected(self, model: KnownModel, dtype: str) -> int:
        """Of one that is to be started."""

    def measured(self, resident_bytes: int) -> int:
        """Of one that is ready."""


class Engines:
    """All of them, by model and dtype.

    Args:
        run: runs one process.
        needs: what each needs.
        memory: what all of them have together.
    """

    def __init__(
        self,
        config: EngineConfig,
        run: RunProcess,
        needs: NeedsPort,
        memory: EngineMemory[Engine],
        nursery: trio.Nursery,
    ) -> None:
        self._config = config
        self._run = run
        self._needs = needs
        self._memory = memory
        self._nursery = nursery
        self._engines: dict[tuple[str, str], Engine] = {}  # those to be asked
        self._leaving: list[Engine] = []  # not to be asked any more, and not gone yet
        self._seen_bytes: dict[tuple[str, str], int] = {}  # by manifest and dtype

    def demand(self, model: KnownModel, dtype: str) -> Engine:
        """The engine for a model, started if there is none; a failed one is tried anew."""
        engine = self._engines.get((model.name, dtype))
        if engine is None or engine.error is not None or engine.is_leaving:
            engine = self._add(model, dtype)
            self._nursery.start_soon(self._supervise, engine, model)
        return engine

    @asynccontextmanager
    async def room_for(self, model: KnownModel, dtype: str, tell: Deliver) -> AsyncIterator[None]:
        """Memory as for one more engine, held meanwhile. Raises: CapacityError."""
        tenant = Engine(model.name, dtype, model, self._settle)
        try:
            with tenant.in_use(), tenant.heard_by(tell):
                await self._admit(tenant, model, beside=False)
                yield
        finally:
            self._memory.forget(tenant)
            self._settle()

    def preload(self, models: Iterable[tuple[KnownModel, str]]) -> None:
        """Start engines that nobody has asked for yet, as far as they fit beside each other."""
        wanted = [(self._add(model, dtype), model) for model, dtype in models]
        self._nursery.start_soon(self._preload, wanted)

    def fail(self, model: str, error: GliaError) -> None:
        """Show that a model cannot be had."""
        engine = self._engines[model, ""] = Engine(model, "")
        engine.error = error
        engine.ended.set()

    def is_outdated(self, model: KnownModel) -> bool:
        """Whether gliad started an engine for this name that is of another manifest."""
        named = (e.known for e in self._engines.values() if e.model == model.name)
        return any(known.text != model.text for known in named if known is not None)

    async def end(self, model: str) -> None:
        """End the engines that gliad started for a model name, and forget them."""
        named = [engine for engine in self._all() if engine.model == model]
        for engine in named:
            self._put_aside(engine)
            engine.error = EngineDied(f"the engine of {model} was ended", hint="ask again")
            engine.scope.cancel()
            engine.change()
        for engine in named:
            await engine.ended.wait()

    def attach(self, link: EngineLink) -> None:
        """An engine attached, ours or a user's. Raises: BadRequest where there is one already."""
        key = (link.attach.serves, link.attach.dtype)
        ours = (e for e in self._all() if e.pid == link.pid and (e.model, e.dtype) == key)
        engine = next(ours, None) or self._engines.get(key)
        if engine is None or engine.error is not None:
            engine = self._engines[key] = Engine(*key)
            engine.pid = link.pid
            engine.ended.set()
        if engine.link is not None or engine.pid != link.pid:
            raise BadRequest(f"{key[0]} in {key[1]} is served by another engine")
        engine.link = link

    def ready(self, link: EngineLink) -> Engine | None:
        """An attached engine can run. Returns it, if it is still wanted."""
        engine = self.of(link)
        if engine is None:
            return None
        _log.info("the engine of %s in %s can run", engine.model, engine.dtype)
        engine.loading = None
        if not engine.is_busy:
            engine.used_s = trio.current_time()
        if engine.known is not None and link.memory_bytes:
            size_bytes = self._needs.measured(link.memory_bytes)
            self._seen_bytes[engine.known.text, engine.dtype] = size_bytes
            self._memory.correct(engine, size_bytes)
        engine.change()
        self._settle()
        return engine

    def detach(self, link: EngineLink) -> None:
        """An engine's connection ended."""
        engine = self.of(link)
        if engine is not None:
            engine.link = None
            engine.change()
            if engine.known is None:
                del self._engines[engine.model, engine.dtype]
                engine.error = EngineDied(f"the engine of {engine.model} went away")

    def progress(self, pid: int, progress: Progress) -> None:
        """An engine that has not attached yet says how far it is."""
        for engine in self._all():
            if engine.pid == pid:
                engine.tell(progress.what, progress.done, progress.total)

    def of(self, link: EngineLink) -> Engine | None:
        """The engine at the other end of a connection, if it is still wanted."""
        return next((engine for engine in self._all() if engine.link is link), None)

    def links(self) -> list[EngineLink]:
        """Of all that can run."""
        found = [engine.ready_link for engine in self._all()]
        return [link for link in found if link is not None]

    def values(self) -> list[EngineValue]:
        """As `status` shows them."""
        return [engine.value(self._memory.held_by(engine) or 0) for engine in self._all()]

    def _all(self) -> list[Engine]:
        return [*self._engines.values(), *self._leaving]

    def _add(self, model: KnownModel, dtype: str) -> Engine:
        before = self._engines.get((model.name, dtype))
        if before is not None:
            self._put_aside(before)
        engine = Engine(model.name, dtype, model, self._settle)
        self._engines[model.name, dtype] = engine
        return engine

    def _put_aside(self, engine: Engine) -> None:
        """It is not to be asked any more; until it is gone it is kept in mind."""
        if self._engines.get((engine.model, engine.dtype)) is engine:
            del self._engines[engine.model, engine.dtype]
            if not engine.ended.is_set():
                self._leaving.append(engine)

    def _settle(self) -> None:
        """Let in whom there is memory for, and send away whom another needs it of."""
        settled = self._memory.settle(trio.current_time())
        for engine in settled.leaving:
            _log.info("the engine of %s in %s makes room", engine.model, engine.dtype)
            engine.leave()
        for engine in settled.granted:
            engine.change()

    async def _preload(self, wanted: list[tuple[Engine, KnownModel]]) -> None:
        for engine, known in wanted:
            admitted = trio.Event()
            self._nursery.start_soon(self._supervise, engine, known, admitted)
            await admitted.wait()

    async def _supervise(
        self, engine: Engine, known: KnownModel, admitted: trio.Event | None = None
    ) -> None:
        """All lives of an engine.

        Args:
            admitted: set when that is decided; of one that nobody has asked for.
        """
        try:
            with engine.scope:
                try:
                    await self._admit(engine, known, beside=admitted is not None)
                finally:
                    if admitted is not None:
                        admitted.set()
                await self._lives(engine)
        except GliaError as error:
            _log.warning("%s", error)
            engine.error = error
        except Exception:  # one engine's trouble is not the node's
            _log.exception("supervising the engine of %s failed", engine.model)
            engine.error = EngineDied(f"the engine of {engine.model} cannot be supervised")
        finally:
            self._gone(engine)

    def _gone(self, engine: Engine) -> None:
        engine.pid = None
        engine.ended.set()
        if engine in self._leaving:
            self._leaving.remove(engine)
        elif engine.is_leaving:
            self._put_aside(engine)
        self._memory.forget(engine)
        engine.change()
        self._settle()

    async def _admit(self, engine: Engine, known: KnownModel, *, beside: bool) -> None:
        """Return when there is memory for it. Raises: CapacityError."""
        seen_bytes = self._seen_bytes.get((known.text, engine.dtype), 0)
        need_bytes = max(await self._needs.expected(known, engine.dtype), seen_bytes)
        try:
            if beside and not engine.is_busy:
                self._memory.ask_beside(engine, need_bytes)
            else:
                self._memory.ask(engine, need_bytes, trio.current_time())
        except CapacityError as error:
            message = f"the engine of {engine.model} in {engine.dtype} {error.message}"
            raise CapacityError(message, hint=error.hint) from error
        self._settle()
        if self._memory.held_by(engine) is None:
            engine.tell("waiting for memory")
        while self._memory.held_by(engine) is None:
            if not engine.is_busy:  # nobody waits for it any more
                engine.leave()
            with trio.move_on_after(self._memory.patience_s):
                await engine.until_changed()
            self._settle()

    async def _lives(self, engine: Engine) -> None:
        crashes: deque[float] = deque()
        while engine.known is not None:
            death = await live(engine, engine.known, self._run, self._config)
            crashes.append(trio.current_time())
            while crashes[0] < trio.current_time() - _CRASH_WINDOW_S:
                crashes.popleft()
            _log.warning("%s", death.error)
            too_often = len(crashes) > self._config.max_restarts
            if not death.was_ready or too_often or engine.is_leaving:
                engine.error = death.error
                return
            engine.num_restarts += 1
