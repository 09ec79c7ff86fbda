"""One life of an engine: from the start of its process to its end, watched meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import trio

from daemon.config import EngineConfig
from daemon.engine import Engine
from daemon.engine_process import EngineCommand, run_engine
from daemon.models_registry import KnownModel
from glia.errors import EngineDied, GliaError

GONE_S = 2.0  # for a process to end after its connection did
_STALL_LOOKS = 10  # so many times in stall_timeout_s it is looked at
_log = logging.getLogger("gliad.engines")

# Runs a process until it ends and says why it did; is told the pid. Cancelling ends it.
RunProcess = Callable[[KnownModel, str, Callable[[int], None]], Awaitable[GliaError]]


@dataclass(frozen=True)
class Death:
    """Why a life ended. `was_ready`: whether it could ever run."""

    error: GliaError
    was_ready: bool


def process_of(command: EngineCommand) -> RunProcess:
    """Engines as real processes."""
    return partial(run_engine, command)


async def live(engine: Engine, known: KnownModel, run: RunProcess, config: EngineConfig) -> Death:
    """Run an engine's process until it ends, hangs, or has gone unused; cancelling ends it."""
    watcher = _Watcher(engine, config)

    def started(pid: int) -> None:
        engine.pid = pid
        _log.info("the engine of %s in %s starts: pid %d", engine.model, engine.dtype, pid)

    async def watch(scope: trio.CancelScope) -> None:
        await watcher.watch()
        scope.cancel()

    engine.tell("starting")
    error: GliaError | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch, nursery.cancel_scope)
        error = await run(known, engine.dtype, started)
        nursery.cancel_scope.cancel()
    engine.pid = None
    with trio.move_on_after(GONE_S):
        await engine.until_lost()
    return Death(watcher.error or error or _closed(engine), watcher.was_ready)


class _Watcher:
    """Sees what the end of a process does not tell.

    Attributes:
        error: why it is to be ended, if so.
    """

    def __init__(self, engine: Engine, config: EngineConfig) -> None:
        self._engine = engine
        self._config = config
        self.error: GliaError | None = None
        self.was_ready = False

    async def watch(self) -> None:
        """Return when it is to be ended."""
        limit_s = self._config.start_timeout_s
        with trio.move_on_after(limit_s) as starting:
            await self._engine.until_ready(lambda _: None)
            self.was_ready = True
        if starting.cancelled_caught:
            self.error = EngineDied(
                f"the engine of {self._engine.model} was not ready after {limit_s:g} s",
                hint="raise engine.start_timeout_s in glia.toml",
            )
            return
        async with trio.open_nursery() as nursery:

            async def first(happens: Callable[[], Awaitable[None]]) -> None:
                await happens()
                nursery.cancel_scope.cancel()

            nursery.start_soon(first, self._lost)
            nursery.start_soon(first, self._stalled)
            if self._config.idle_unload_s:
                nursery.start_soon(self._unused)

    async def _lost(self) -> None:
        await self._engine.until_lost()
        await trio.sleep(GONE_S)
        self.error = _closed(self._engine)

    async def _stalled(self) -> None:
        limit_s = self._config.stall_timeout_s
        while (link := self._engine.link) is None or link.silent_s < limit_s:
            await trio.sleep(limit_s / _STALL_LOOKS)
        self.error = EngineDied(
            f"the engine of {self._engine.model} said nothing for {link.silent_s:,.0f} s "
            "while it was asked, and was ended",
            hint="ask again; raise engine.stall_timeout_s in glia.toml if it is that slow",
        )
        link.close(self.error)

    async def _unused(self) -> None:
        await self._engine.until_unused(self._config.idle_unload_s)
        _log.info("the engine of %s in %s is idle: it ends", self._engine.model, self._engine.dtype)
        self._engine.leave()


def _closed(engine: Engine) -> EngineDied:
    return EngineDied(f"the engine of {engine.model} closed its connection")
