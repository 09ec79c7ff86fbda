"""Exceptions thrown into a connection's code at its k-th await, whichever task that is in.

A coroutine is driven by hand: what it yields goes on to trio, and at the chosen resumption
it gets an exception instead of what trio has for it. Tasks that it starts are driven, too.
Work in a thread ends first, and then fails: no thread is left alone.
"""

from __future__ import annotations

import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import trio


class Injected(Exception):
    """Nothing in the product knows of it."""


class Plan:
    """Throw at await number `at`.

    Attributes:
        num_seen: awaits so far.
        where: that one, once it was thrown at.
    """

    def __init__(self, at: int) -> None:
        self.at = at
        self.num_seen = 0
        self.where = ""

    def throws_now(self, where: str) -> bool:
        self.num_seen += 1
        if self.num_seen - 1 == self.at:
            self.where = where
        return self.num_seen - 1 == self.at


PLAN: ContextVar[Plan | None] = ContextVar("plan", default=None)

# Within trio, where nothing is ever raised: nurseries' ends, locks, the wait for a thread.
_NEVER_RAISE = {"_nested_child_finished", "to_thread_run_sync", "acquire"}
_SHIELDED = trio._core._traps.CancelShieldedCheckpoint


def _awaits(coroutine: Any) -> Iterator[types.CodeType]:
    """The code of each frame that waits, outermost first."""
    while coroutine is not None:
        code = getattr(coroutine, "cr_code", None) or getattr(coroutine, "gi_code", None)
        if code is not None:
            yield code
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)


def _place(coroutine: Any) -> str | None:
    """The innermost function of the product that waits; None where nothing is raised."""
    codes = list(_awaits(coroutine))
    if any(code.co_name in _NEVER_RAISE for code in codes):
        return None
    ours = [code.co_qualname for code in codes if "/daemon/" in code.co_filename]
    return ours[-1] if ours else "elsewhere"


@types.coroutine
def driven(coroutine: Coroutine[Any, Any, Any], plan: Plan) -> Generator[Any, Any, Any]:
    """Await a coroutine by the plan."""
    step: Callable[[], Any] = lambda: coroutine.send(None)  # noqa: E731
    while True:
        try:
            yielded = step()
        except StopIteration as stop:
            return stop.value
        place = None if yielded is _SHIELDED else _place(coroutine)
        throws = place is not None and plan.throws_now(place)
        try:
            value = yield yielded
        except BaseException as error:
            step = lambda error=error: coroutine.throw(error)  # noqa: E731
        else:
            step = lambda value=value: coroutine.send(value)  # noqa: E731
        if throws:
            step = lambda: coroutine.throw(Injected("injected"))  # noqa: E731


@contextmanager
def injecting() -> Iterator[None]:
    """Tasks and threads that are started under a plan follow it."""
    real_start, real_thread = trio.Nursery.start_soon, trio.to_thread.run_sync

    def start_soon(
        nursery: trio.Nursery, call: Callable[..., Awaitable[Any]], *args: Any, name: object = None
    ) -> None:
        plan = PLAN.get()
        if plan is None:
            real_start(nursery, call, *args, name=name)
            return

        async def wrapped() -> None:
            await driven(call(*args), plan)  # type: ignore[arg-type]

        real_start(nursery, wrapped, name=name or call)

    async def run_sync(work: Callable[..., Any], *args: Any, **how: Any) -> Any:
        result = await real_thread(work, *args, **how)
        plan = PLAN.get()
        if plan is not None and plan.throws_now(getattr(work, "__qualname__", "a thread")):
            raise Injected("injected")
        return result

    trio.Nursery.start_soon = start_soon  # type: ignore[method-assign]
    trio.to_thread.run_sync = run_sync  # type: ignore[assignment]
    try:
        yield
    finally:
        trio.Nursery.start_soon = real_start  # type: ignore[method-assign]
        trio.to_thread.run_sync = real_thread
