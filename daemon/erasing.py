"""Windows leave every tier of this node, and their bytes with them.

The caller has hidden them (daemon/hidden.py): nobody finds or enters them any more, so
what is still under way with them only has to end.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

import trio

from daemon.link import EngineLink
from daemon.memory import Memory
from daemon.telling import Tell, told_from_thread
from glia.errors import EngineDied
from glia.graph.ids import WindowId
from glia.store.base import Forgotten

_STEP_BYTES = 4 * 1024 * 1024  # zeroed at once on the trio thread: about a millisecond
_log = logging.getLogger("gliad.erasing")


async def erase(memory: Memory, window_ids: Collection[WindowId], tell: Tell) -> Forgotten:
    """Remove hidden windows from L1 and L2.

    Raises: StoreBroken, StoreFull (some of it is done then; it can be asked again).
    """
    names = frozenset(window_ids)
    await memory.writer.withdraw(names)
    await memory.loader.until_unpinned(names)
    memory.table.forget(names)
    memory.writer.tell_progress()
    await wipe(memory)
    told = told_from_thread(tell, "forgetting on disk", to_the_end=True)
    forgotten = await trio.to_thread.run_sync(memory.store.forget, names, told)
    memory.records.forget(names)
    return forgotten


async def erase_in_engines(links: Sequence[EngineLink], tell: Tell) -> None:
    """Remove from L0 what L1 and L2 do not have, once nothing is hidden any more.

    (An engine that seals the same anew waits until then, and answers nothing meanwhile.)
    That is more than what was erased: also what they had evicted, and what of a prompt or an
    answer nobody has recorded.

    Raises: QuotaExceeded where an engine does not listen.
    """
    for number, link in enumerate(links):
        tell("forgetting in engines", number, len(links))
        try:
            await link.forget_l0()
        except EngineDied:  # and its memory with it
            _log.info("an engine ended while it forgot")


async def until_given_up_ended(links: Sequence[EngineLink], tell: Tell) -> None:
    """Return when runs that were given up have ended: then all that they seal is there.

    Raises: QuotaExceeded where an engine does not listen.
    """
    await erase_in_engines([link for link in links if link.has_given_up], tell)


async def wipe(memory: Memory) -> None:
    """Zero what is free in the arena and was ever used.

    What is given back behind this while it goes on is of windows that stay, or is zeroed
    there (daemon/loading.py).
    """
    at = 0
    while at < memory.arena.size_bytes:
        room = _STEP_BYTES
        for start, end in memory.table.stale_ranges(at):
            end = min(end, start + room)
            memory.arena.zero(start, end)
            at, room = end, room - (end - start)
            if not room:
                break
        if room:
            return
        await trio.lowlevel.checkpoint()
