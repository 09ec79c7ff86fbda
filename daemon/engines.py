"""The engines there are: one per model and dtype, started on demand, started again after a crash.

An engine that gliad did not start may attach, too, and then serves its model.
"""

from __future__ import annotations

import logging
import math
from collections import deque

import trio

from daemon.engine_process import EngineCommand, run_engine
from daemon.link import Deliver, EngineLink
from daemon.models_registry import KnownModel
from glia.errors import BadRequest, EngineDied, GliaError
from glia.local.messages import Progress
from glia.local.values import EngineValue

_CRASH_WINDOW_S = 300.0
_GONE_S = 2.0  # for a process to end after its connection did
_log = logging.getLogger("gliad.engines")


class Engine:
    """One engine, whichever process it is in at the moment.

    Attributes:
        is_guest: whether somebody else started it.
        manifest: TOML of the manifest it was started with; of a guest it is not known.
        renamed: the manifest to start it with from now on, where that has moved.
        error: why it is not to be had, once it has failed.
        num_calls: Generate calls that wait for it or run in it.
    """

    def __init__(self, model: str, dtype: str) -> None:
        self.model = model
        self.is_guest = False
        self.manifest = ""
        self.renamed: KnownModel | None = None
        self.dtype = dtype
        self.pid: int | None = None
        self.link: EngineLink | None = None
        self.error: GliaError | None = None
        self.num_restarts = 0
        self.num_calls = 0
        self.scope = trio.CancelScope()
        self.ended = trio.Event()
        self._listeners: list[Deliver] = []
        self._changed = trio.Event()

    @property
    def ready_link(self) -> EngineLink | None:
        """Its connection, if it can run."""
        link = self.link
        return link if link is not None and link.ready.is_set() else None

    def change(self) -> None:
        """Wake those who wait for it."""
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    async def until_ready(self, deliver: Deliver) -> EngineLink:
        """Its connection, as soon as it can run; progress of loading goes to `deliver`.

        Raises: why it cannot.
        """
        self._listeners.append(deliver)
        try:
            while True:
                if self.ready_link is not None:
                    return self.ready_link
                if self.error is not None:
                    raise self.error
                await self._changed.wait()
        finally:
            self._listeners.remove(deliver)

    async def until_lost(self) -> None:
        """Return when its connection is gone."""
        while self.link is not None:
            await self._changed.wait()

    def tell(self, progress: Progress) -> None:
        """Loading goes on."""
        for deliver in self._listeners:
            deliver(progress)

    def value(self) -> EngineValue:
        """As `status` shows it."""
        link = self.ready_link
        state = "failed" if self.error else "starting"
        if link is not None:
            state = "running" if self.num_calls else "ready"
        return EngineValue(
            model=self.model,
            dtype=self.dtype,
            state=state,
            pid=self.pid,
            model_id=link.attach.model_id.hex() if link else None,
            numerics_class=link.attach.numerics_class if link else None,
            num_running=link.num_running if link else 0,
            num_waiting=link.num_waiting if link else 0,
            num_restarts=self.num_restarts,
            error=self.error.message if self.error else None,
        )


class Engines:
    """All of them, by model and dtype."""

    def __init__(self, command: EngineCommand, nursery: trio.Nursery) -> None:
        self._command = command
        self._nursery = nursery
        self._engines: dict[tuple[str, str], Engine] = {}

    def demand(self, model: KnownModel, dtype: str) -> Engine:
        """The engine for a model, started if there is none; a failed one is tried anew."""
        engine = self._engines.get((model.name, dtype))
        if engine is None or engine.error is not None:
            engine = self._engines[model.name, dtype] = Engine(model.name, dtype)
            engine.manifest = model.text
            self._nursery.start_soon(self._supervise, engine, model)
        return engine

    def is_outdated(self, model: KnownModel) -> bool:
        """Whether gliad started an engine for this name that is of another manifest."""
        named = [engine for engine in self._engines.values() if engine.model == model.name]
        return any(e.manifest != model.text for e in named if not e.is_guest)

    async def end(self, model: str) -> None:
        """End the engines that gliad started for a model name, and forget them."""
        ended = [self._engines.pop(key) for key in list(self._engines) if key[0] == model]
        for engine in ended:
            engine.error = EngineDied(f"the engine of {model} was ended", hint="ask again")
            engine.scope.cancel()
            engine.change()
        for engine in ended:
            await engine.ended.wait()

    def attach(self, link: EngineLink) -> None:
        """An engine attached, ours or a user's. Raises: BadRequest where there is one already."""
        key = (link.attach.serves, link.attach.dtype)
        engine = self._engines.get(key)
        if engine is None or engine.error is not None:
            engine = self._engines[key] = Engine(*key)
            engine.pid = link.pid
            engine.is_guest = True
            engine.ended.set()
        if engine.link is not None or engine.pid != link.pid:
            raise BadRequest(f"{key[0]} in {key[1]} is served by another engine")
        engine.link = link

    def ready(self, link: EngineLink) -> None:
        """An attached engine can run."""
        engine = self._of(link)
        if engine is not None:
            _log.info("the engine of %s in %s can run", engine.model, engine.dtype)
            engine.change()

    def detach(self, link: EngineLink) -> None:
        """An engine's connection ended."""
        engine = self._of(link)
        if engine is not None:
            engine.link = None
            engine.change()
            if engine.is_guest:
                del self._engines[engine.model, engine.dtype]
                engine.error = EngineDied(f"the engine of {engine.model} went away")

    def progress(self, pid: int, progress: Progress) -> None:
        """An engine that has not attached yet says how far it is."""
        for engine in self._engines.values():
            if engine.pid == pid:
                engine.tell(progress)

    def links(self) -> list[EngineLink]:
        """Of all that can run."""
        found = [engine.ready_link for engine in self._engines.values()]
        return [link for link in found if link is not None]

    def values(self) -> list[EngineValue]:
        """As `status` shows them."""
        return [engine.value() for engine in self._engines.values()]

    def _of(self, link: EngineLink) -> Engine | None:
        engine = self._engines.get((link.attach.serves, link.attach.dtype))
        return engine if engine is not None and engine.link is link else None

    async def _supervise(self, engine: Engine, known: KnownModel) -> None:
        crashes: deque[float] = deque()
        limit = self._command.config.engine.max_restarts
        try:
            with engine.scope:
                while True:
                    error, was_ready = await self._run(engine, engine.renamed or known)
                    crashes.append(trio.current_time())
                    while crashes[0] < trio.current_time() - _CRASH_WINDOW_S:
                        crashes.popleft()
                    _log.warning("%s", error)
                    if not was_ready or len(crashes) > limit:
                        engine.error = error
                        return
                    engine.num_restarts += 1
        except Exception:  # one engine's trouble is not the node's
            _log.exception("supervising the engine of %s failed", engine.model)
            engine.error = EngineDied(f"the engine of {engine.model} cannot be supervised")
        finally:
            engine.pid = None
            engine.ended.set()
            engine.change()

    async def _run(self, engine: Engine, known: KnownModel) -> tuple[GliaError, bool]:
        """One life of an engine. Returns why it ended, and whether it could ever run."""
        timeout_s = self._command.config.engine.start_timeout_s
        error: GliaError = EngineDied(
            f"the engine of {engine.model} was not ready after {timeout_s:g} s",
            hint="raise engine.start_timeout_s in glia.toml",
        )
        was_ready = False

        async def watch() -> None:
            nonlocal error, was_ready
            with trio.move_on_after(timeout_s) as await_end:
                await engine.until_ready(lambda _: None)
                was_ready = True
                error = EngineDied(f"the engine of {engine.model} closed its connection")
                await_end.deadline = math.inf
                await engine.until_lost()
                await trio.sleep(_GONE_S)
            nursery.cancel_scope.cancel()

        def started(pid: int) -> None:
            engine.pid = pid
            _log.info("the engine of %s in %s starts: pid %d", engine.model, engine.dtype, pid)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            error = await run_engine(self._command, known, engine.dtype, started)
            nursery.cancel_scope.cancel()
        engine.pid = None
        with trio.move_on_after(_GONE_S):
            await engine.until_lost()
        return error, was_ready
