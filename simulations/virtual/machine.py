"""What a machine gives and no seed does: threads, the time of day, entropy."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import trio

STARTED_S = 1_900_000_000.0


def world_s() -> float:
    """Seconds since 1970, where every clock is right."""
    return STARTED_S + trio.current_time()


@contextmanager
def of_seed(seed: int) -> Iterator[None]:
    """Until it ends, all of them follow from the seed and from virtual time.

    What would run in a thread runs at once: virtual time would run on while a thread works.
    """
    source = random.Random(f"machine {seed}")

    async def at_once(call: Callable[..., Any], *args: Any, **_: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return call(*args)

    def now_s() -> float:
        return world_s() if trio.lowlevel.in_trio_run() else STARTED_S

    changes: list[tuple[Any, str, Any]] = [
        (trio.to_thread, "run_sync", at_once),
        (time, "time", now_s),
        (secrets, "token_bytes", lambda num=32: source.randbytes(num)),
        (random, "SystemRandom", lambda: random.Random(source.random())),
    ]
    before = [getattr(owner, name) for owner, name, _ in changes]
    for owner, name, value in changes:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for (owner, name, _), value in zip(changes, before, strict=True):
            setattr(owner, name, value)
