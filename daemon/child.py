"""A process that gliad started: what it says goes to the log, and how it is ended."""

from __future__ import annotations

import logging
import signal

import trio

_LINE_BYTES = 2000
_TERMINATE_S = 1.5


async def log_lines(process: trio.Process, log: logging.Logger, prefix: str = "") -> None:
    """Log every line that it writes to stderr, until that is closed; lines are cut."""
    if process.stderr is None:
        return
    pending = b""
    async for data in process.stderr:
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            log.info("%s%s", prefix, line[:_LINE_BYTES].decode(errors="replace"))
        pending = pending[:_LINE_BYTES]


async def end(process: trio.Process) -> None:
    """SIGTERM, and SIGKILL where that is not enough."""
    if process.returncode is None:
        process.terminate()
        with trio.move_on_after(_TERMINATE_S):
            await process.wait()
    if process.returncode is None:
        process.kill()
        await process.wait()


def how_ended(code: int) -> str:
    """What a return code says: by a signal, or with an exit code."""
    return f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
