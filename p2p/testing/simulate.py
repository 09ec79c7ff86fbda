"""Run a world on virtual time, so that equal seeds give equal runs."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import trio
import trio.testing
from trio._core import _run

T = TypeVar("T")


def simulate(main: Callable[..., Awaitable[T]], *args: Any, seed: int = 0) -> T:
    """`trio.run(main, *args)` on a clock that jumps whenever every task waits.

    trio draws the order of tasks that are ready at once from a generator of its own, which
    it keeps to itself: here it is seeded, and put back. A call in a worker thread is no task
    that waits for the clock, so time runs on while it works.
    """
    ordered: random.Random = _run._r
    before, was_sorted = ordered.getstate(), _run._ALLOW_DETERMINISTIC_SCHEDULING
    setattr(_run, "_ALLOW_DETERMINISTIC_SCHEDULING", True)  # noqa: B010 - a Final of trio's
    ordered.seed(seed)
    try:
        return trio.run(main, *args, clock=trio.testing.MockClock(autojump_threshold=0))
    finally:
        setattr(_run, "_ALLOW_DETERMINISTIC_SCHEDULING", was_sorted)  # noqa: B010
        ordered.setstate(before)
