"""Engines without processes, on a mock clock: how long they load and run, and what they need."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio
import trio.testing
from msgspec import Struct

from daemon.broker import Generation
from daemon.config import EngineConfig
from daemon.engine import Engine
from daemon.engine_memory import EngineMemory
from daemon.engines import Engines
from daemon.link import EngineLink
from daemon.models_registry import KnownModel
from glia.errors import EngineDied, GliaError
from glia.graph.manifest import Manifest
from glia.local import messages as m
from glia.local import values
from tests.builders import CLASS, MODEL, TINY

PATIENCE_S = 10.0


@dataclass
class Kind:
    """How the engines of one model behave.

    Attributes:
        need: what is expected; `turns_out` is what one says once it is ready, 0: nothing.
        end_s: how long the process takes to end.
    """

    need: int = 1
    turns_out: int = 0
    load_s: float = 5.0
    run_s: float = 1.0
    end_s: float = 0.5
    is_deaf: bool = False
    dies_ready: bool = False


def known(name: str) -> KnownModel:
    return KnownModel(name, Path(f"/{name}.model"), name, Manifest(name))


class CheckedMemory(EngineMemory[Engine]):
    """Says how far it was ever over its budget."""

    most = 0

    def settle(self, now_s: float) -> Any:
        settled = super().settle(now_s)
        self.most = max(self.most, self.held_bytes)
        return settled


@dataclass
class World:
    """All engines, and what has happened.

    Attributes:
        processes: model names of the processes that run, one entry each.
        most: the most that running processes were expected to need together.
    """

    kinds: dict[str, Kind]
    budget: int
    config: EngineConfig
    nursery: trio.Nursery
    processes: Counter[str] = field(default_factory=Counter)
    most: int = 0
    num_started: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._pids = itertools.count(100)
        self.memory = CheckedMemory(self.budget, PATIENCE_S)
        self.engines = Engines(self.config, self.run, self, self.memory, self.nursery)
        self.links: dict[str, EngineLink] = {}

    async def expected(self, model: KnownModel, dtype: str) -> int:
        await trio.sleep(0)
        return self.kinds[model.name].need

    def measured(self, resident_bytes: int) -> int:
        return resident_bytes

    async def run(self, model: KnownModel, dtype: str, started: Callable[[int], None]) -> GliaError:
        """One process: loads, serves, ends when cancelled."""
        kind, pid = self.kinds[model.name], next(self._pids)
        started(pid)
        self.num_started[model.name] += 1
        self.processes[model.name] += 1
        self.most = max(self.most, self.expected_bytes())
        link = None
        try:
            await trio.sleep(kind.load_s)
            link = self._attach(model.name, dtype, pid)
            await trio.sleep(0 if kind.dies_ready else math.inf)
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(kind.end_s)
            self.processes[model.name] -= 1
            if link is not None:
                link.close()
                self.engines.detach(link)
        return EngineDied(f"{model.name} ended")

    def expected_bytes(self) -> int:
        return sum(self.kinds[name].need * count for name, count in self.processes.items())

    async def request(
        self,
        name: str,
        dtype: str = "float32",
        tell: Callable[[str], None] = lambda _: None,
    ) -> m.Generated:
        """As the broker does it."""
        call = m.Generate(1, name, dtype, [1], 1, values.SamplingValue(), [], [])
        generation = Generation(call)
        engine = self.engines.demand(known(name), dtype)
        with engine.in_use():
            return await generation.run(
                engine,
                lambda e: tell(e.what) if isinstance(e, m.Progress) else None,
                _take_anyone,
                lambda link, number: None,
            )

    def states(self) -> dict[str, str]:
        return {value.model: value.state for value in self.engines.values()}

    def _attach(self, name: str, dtype: str, pid: int) -> EngineLink:
        shapes = [values.ShapeValue(s.layer, s.kv_heads, s.head_dim) for s in TINY.layers]
        profile = values.ProfileValue(TINY.block_size, TINY.scheme, TINY.mode, shapes)
        attach = m.Attach(1, MODEL, profile, CLASS, serves=name, dtype=dtype)
        wire: Any = _Wire(self, name)
        link = wire.link = self.links[name] = EngineLink(wire, attach, pid)
        self.engines.attach(link)
        link.on_message(m.Ready(1, 0, [], self.kinds[name].turns_out))
        self.engines.ready(link)
        return link


class _Wire:
    """What an engine is told, it does."""

    link: EngineLink

    def __init__(self, world: World, name: str) -> None:
        self._world, self._kind = world, world.kinds[name]

    def post(self, message: Struct) -> None:
        if isinstance(message, m.Run) and not self._kind.is_deaf:
            self._world.nursery.start_soon(self._answer, message.id, self._kind.run_s)
        elif isinstance(message, m.CancelRun):
            self._world.nursery.start_soon(self._answer, message.target, 0.0)

    async def _answer(self, run_id: int, after_s: float) -> None:
        await trio.sleep(after_s)
        if not self.link.closed.is_set() and run_id in self.link._calls:
            usage = values.UsageValue(1, 1, values.CachedValue(), 1)
            self.link.heard()
            self.link.on_message(m.Generated(run_id, [2], "length", None, usage, 1.0, {}))


def in_world(
    kinds: dict[str, Kind],
    budget: int,
    what: Callable[[World], Awaitable[None]],
    **settings: Any,
) -> World:
    """Run something in a world of its own, on a clock that jumps."""
    worlds: list[World] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            config = EngineConfig(**{"idle_unload_s": 0.0, **settings})
            worlds.append(World(kinds, budget, config, nursery))
            await what(worlds[0])
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    return worlds[0]


async def _take_anyone(attach: m.Attach) -> None:
    """Nothing is to be done before a request runs."""
