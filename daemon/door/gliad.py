"""Work for worker threads that talks to gliad: glia.client is synchronous."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import trio

from glia.client import Client

T = TypeVar("T")


class Gliad:
    """Connections to gliad, one for each piece of work, so many at once at most."""

    def __init__(self, socket: Path, max_calls: int) -> None:
        self._socket = socket
        self._limiter = trio.CapacityLimiter(max_calls)

    async def ask(self, work: Callable[[Client], T]) -> T:
        """What `work` returns, given a connection. Cancelling waits for it to end.

        `work` may call `is_given_up` and `tell`. Raises: NotRunning, and what `work` raises.
        """

        def connected() -> T:
            with Client.connect(self._socket, name="http", timeout_s=0.0) as client:
                return work(client)

        return await trio.to_thread.run_sync(connected, limiter=self._limiter)


def is_given_up() -> bool:
    """In a worker thread: whether nobody waits for its work any more."""
    try:
        trio.from_thread.check_cancelled()
    except trio.Cancelled:
        return True
    return False


def tell(take: Callable[[bytes], Awaitable[None]], data: bytes) -> None:
    """In a worker thread: have `take` called in the task that waits, and wait for it.

    Says nothing where the work is given up: that ends by itself.
    """
    with suppress(trio.Cancelled):
        trio.from_thread.run(take, data)
