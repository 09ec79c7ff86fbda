"""Everything stored, hashed again: L1 in the arena, then L2 on disk."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

import trio
from blake3 import blake3

from daemon.memory import Memory
from glia.errors import Cancelled, GliaError
from glia.graph.ids import BlockId, WindowId
from glia.store.base import CheckReport

_log = logging.getLogger("gliad.check")
_GROUP_WINDOWS = 32
_TELL_EVERY_S = 0.1

Tell = Callable[[str, int, int], None]


async def check_everything(memory: Memory, tell: Tell) -> tuple[CheckReport, CheckReport]:
    """Verify every block of both tiers; what is bad leaves its tier.

    Cancelling ends it within moments, though it works in a thread.

    Returns: what was found in L1, and in L2.
    """
    await memory.writer.flush_all()
    arena = await _check_l1(memory, tell)
    disk = await _check_l2(memory, tell)
    if arena.bad or disk.bad:
        _log.warning("check set bad blocks aside: %d in L1, %d in L2", arena.bad, disk.bad)
    return arena, disk


async def _check_l1(memory: Memory, tell: Tell) -> CheckReport:
    """A bad window that is in use stays until it is not: it is counted each time."""
    names = memory.table.names()
    checked = bad = bad_windows = 0
    for start in range(0, len(names), _GROUP_WINDOWS):
        group = [name for name in names[start : start + _GROUP_WINDOWS] if name in memory.table]
        for name in group:
            memory.table.pin(name)
        try:
            num_bad = await trio.to_thread.run_sync(_hash, memory, group)
        finally:
            memory.loader.unpin(group)
        for name, count in zip(group, num_bad, strict=True):
            checked += len(memory.table.ranges(name))
            bad += count
            bad_windows += bool(count)
            if count:
                memory.table.discard(name)
        tell("checking L1", start + len(group), len(names))
    return CheckReport(checked, bad, len(names), bad_windows)


def _hash(memory: Memory, names: Sequence[WindowId]) -> list[int]:
    """How many blocks of each window are not what they are called."""
    counts: list[int] = []
    for name in names:
        record = memory.table.record(name)
        blocks = record.blocks if record is not None else ()
        ranges = memory.table.ranges(name)
        counts.append(
            sum(
                BlockId(blake3(memory.arena.view[at : at + size]).digest()) != block_id
                for block_id, (at, size) in zip(blocks, ranges, strict=True)
            )
        )
    return counts


async def _check_l2(memory: Memory, tell: Tell) -> CheckReport:
    unwanted = threading.Event()
    told_s = 0.0

    def progress(done: int, total: int) -> None:
        nonlocal told_s
        if unwanted.is_set():
            raise Cancelled("nobody waits for this check any more")
        if done >= total or time.monotonic() - told_s > _TELL_EVERY_S:
            told_s = time.monotonic()
            trio.from_thread.run_sync(tell, "checking L2", done, total)

    async def watch() -> None:
        try:
            await trio.sleep_forever()
        finally:
            unwanted.set()

    outcome: CheckReport | GliaError = Cancelled("cancelled before it began")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        with trio.CancelScope(shield=True):
            try:
                outcome = await trio.to_thread.run_sync(memory.store.check, progress)
            except GliaError as error:  # out of the nursery as it is, not in a group
                outcome = error
        nursery.cancel_scope.cancel()
    if isinstance(outcome, GliaError):
        raise outcome
    return outcome
