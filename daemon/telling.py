"""How far something in a worker thread is, told on the trio thread, not too often."""

from __future__ import annotations

import time
from collections.abc import Callable

import trio

_EVERY_S = 0.1

Tell = Callable[[str, int, int], None]  # (what, done, total), on the trio thread
Told = Callable[[int, int], None]  # (done, total), in a worker thread


def tell_nobody(_what: str, _done: int, _total: int) -> None:
    """For what nobody waits for."""


def told_from_thread(tell: Tell, what: str, *, to_the_end: bool = False) -> Told:
    """`tell` for the thread that does `what`. It ends the thread's work where gliad ends.

    Args:
        to_the_end: not that: the work leaves nothing whole in the middle.
    """
    last_s = 0.0

    def told(done: int, total: int) -> None:
        nonlocal last_s
        if not to_the_end:
            trio.from_thread.check_cancelled()
        now_s = time.monotonic()
        if done >= total or now_s - last_s > _EVERY_S:
            last_s = now_s
            trio.from_thread.run_sync(tell, what, done, total)

    return told
