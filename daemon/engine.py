"""One engine, whichever process it is in at the moment: who asks it, what it is doing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio
from msgspec import structs

from daemon.link import Deliver, EngineLink
from daemon.models_registry import KnownModel
from glia.errors import GliaError
from glia.local.messages import Progress
from glia.local.values import EngineValue


class Engine:
    """An engine of a model in a dtype, from the first demand until it is not to be had any more.

    Args:
        on_idle: called when no request is left.

    Attributes:
        known: the manifest to start it with; None of a guest, which somebody else started.
        is_leaving: whether it takes no new requests and ends when it has answered those it has.
        error: why it is not to be had, once it has failed.
        num_calls: Generate calls that wait for it or run in it.
        used_s: when it was asked last, or got ready unasked (trio's clock).
        loading: how far it is, until it is ready.
    """

    def __init__(
        self,
        model: str,
        dtype: str,
        known: KnownModel | None = None,
        on_idle: Callable[[], None] = lambda: None,
    ) -> None:
        self.model = model
        self.dtype = dtype
        self.known = known
        self.pid: int | None = None
        self.link: EngineLink | None = None
        self.error: GliaError | None = None
        self.is_leaving = False
        self.num_restarts = 0
        self.num_calls = 0
        self.used_s = trio.current_time()
        self.scope = trio.CancelScope()
        self.ended = trio.Event()
        self.loading: Progress | None = None
        self._on_idle = on_idle
        self._listeners: list[Deliver] = []
        self._changed = trio.Event()

    @property
    def is_busy(self) -> bool:
        """Whether a request waits for it or runs in it."""
        return self.num_calls > 0

    @property
    def ready_link(self) -> EngineLink | None:
        """Its connection, if it can run: not one that was given up and is not gone yet."""
        link = self.link
        can_run = link is not None and link.ready.is_set() and not link.closed.is_set()
        return link if can_run else None

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """While a request waits for it or runs in it; it does not leave meanwhile."""
        self.num_calls += 1
        self.change()
        try:
            yield
        finally:
            self.num_calls -= 1
            self.used_s = trio.current_time()
            self.change()
            if not self.is_busy:
                self._became_idle()

    def leave(self) -> None:
        """Take no new requests, and end as soon as none is left."""
        self.is_leaving = True
        if not self.is_busy:
            self.scope.cancel()

    def _became_idle(self) -> None:
        if self.is_leaving:
            self.scope.cancel()
        self._on_idle()

    def change(self) -> None:
        """Wake those who wait for it."""
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    async def until_changed(self) -> None:
        """Return when something about it has changed."""
        await self._changed.wait()

    async def until_ready(self, deliver: Deliver) -> EngineLink:
        """Its connection, as soon as it can run; progress of loading goes to `deliver`.

        Raises: why it cannot.
        """
        with self.heard_by(deliver):
            while True:
                if self.ready_link is not None:
                    return self.ready_link
                if self.error is not None:
                    raise self.error
                await self._changed.wait()

    @contextmanager
    def heard_by(self, deliver: Deliver) -> Iterator[None]:
        """How far it is goes there meanwhile."""
        if self.loading is not None:
            deliver(self.loading)
        self._listeners.append(deliver)
        try:
            yield
        finally:
            self._listeners.remove(deliver)

    async def until_lost(self) -> None:
        """Return when its connection is gone."""
        while self.link is not None:
            await self._changed.wait()

    async def until_unused(self, limit_s: float) -> None:
        """Return when it has not been asked for so long."""
        while True:
            left_s = self.used_s + limit_s - trio.current_time()
            if self.is_busy:
                await self._changed.wait()
            elif left_s > 0:
                await trio.sleep(left_s)
            else:
                return

    def tell(self, what: str, done: int = 0, total: int = 0) -> None:
        """Loading goes on."""
        self.loading = Progress(0, what, done, total)
        for deliver in self._listeners:
            deliver(self.loading)

    def value(self, memory_bytes: int) -> EngineValue:
        """As `status` shows it."""
        value = EngineValue(
            model=self.model,
            dtype=self.dtype,
            state=self._state(),
            pid=self.pid,
            num_restarts=self.num_restarts,
            error=self.error.message if self.error else None,
            memory_bytes=memory_bytes,
            idle_s=0.0 if self.is_busy else trio.current_time() - self.used_s,
        )
        loading, link = self.loading, self.ready_link
        if loading is not None and self.error is None:
            value = structs.replace(
                value, loading=loading.what, done=loading.done, total=loading.total
            )
        if link is not None:
            value = structs.replace(
                value,
                model_id=link.attach.model_id.hex(),
                numerics_class=link.attach.numerics_class,
                num_running=link.num_running,
                num_waiting=link.num_waiting,
            )
        return value

    def _state(self) -> str:
        if self.ready_link is not None:
            return "running" if self.is_busy else "ready"
        return "failed" if self.error else "starting"
