"""Asks peers of the directory: for who is closer (p2p/lookup.py), then for what they keep."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Sequence

import trio

from p2p.host import PeerId
from p2p.lookup import LookUp

ASK_S = 3.0  # one peer
PATIENCE_S = 0.5  # then the next one is asked, too
LOOK_UP_S = 30.0
READ_S = 1.5  # of who keeps what is asked for: then who answered by then is asked for it
ENOUGH = 0.25  # of those that are asked what they keep: the rest may be there to delay
_log = logging.getLogger("gliad.p2p.looking")

Start = Callable[[Callable[[], Awaitable[None]]], None]


async def look_up(
    lookup: LookUp,
    ask: Callable[[PeerId], Awaitable[Sequence[PeerId]]],
    start: Start,
    limit_s: float = LOOK_UP_S,
) -> None:
    """Until it is over, or time is up. While nobody has answered, who is late is waited for.

    Args:
        ask: a peer for the closest that it knows, for ASK_S at most; may raise anything.
        start: runs something beside.
        limit_s: then it is over if anybody has answered.
    """
    end_s = trio.current_time() + limit_s
    changed = trio.Event()
    waiting: dict[PeerId, float] = {}
    num_asked = 0

    async def one(peer: PeerId) -> None:
        nonlocal num_asked
        num_asked += 1
        try:
            closer = await ask(peer)
        except Exception as error:  # a peer can make anything of an answer
            _log.debug("peer %s of the directory fails: %r", peer, error)
            lookup.failed(peer)
        else:
            lookup.answered(peer, closer)
        finally:
            num_asked -= 1
            waiting.pop(peer, None)
            changed.set()

    with trio.move_on_after(LOOK_UP_S):
        while not lookup.is_over or (num_asked and not lookup.closest()):
            is_late = trio.current_time() >= end_s
            if is_late and lookup.closest():
                break
            for peer in lookup.next():
                waiting[peer] = trio.current_time() + PATIENCE_S
                start(lambda peer=peer: one(peer))  # type: ignore[misc]
            soonest_s = min(waiting.values(), default=math.inf)
            with trio.move_on_at(soonest_s if is_late else min(soonest_s, end_s)):
                await changed.wait()
            changed = trio.Event()
            for peer in [each for each, at_s in waiting.items() if at_s <= trio.current_time()]:
                del waiting[peer]
                lookup.failed(peer)


async def ask_all(
    peers: Sequence[PeerId],
    ask: Callable[[PeerId], Awaitable[None]],
    start: Start,
    limit_s: float,
    enough: float = 1.0,
) -> int:
    """All of these at once. Returns: how many did not fail.

    Args:
        ask: may raise anything.
        enough: the share that is waited for, and PATIENCE_S; what comes later is not lost.
    """
    num_left, num_done = len(peers), 0
    is_over, is_enough = trio.Event(), trio.Event()

    async def one(peer: PeerId) -> None:
        nonlocal num_left, num_done
        try:
            with trio.fail_after(limit_s):
                await ask(peer)
            num_done += 1
        except Exception as error:  # a peer can make anything of an answer
            _log.debug("peer %s of the directory fails: %r", peer, error)
        finally:
            num_left -= 1
            if num_done >= enough * len(peers):
                is_enough.set()
            if not num_left:
                is_enough.set()
                is_over.set()

    for peer in peers:
        start(lambda peer=peer: one(peer))  # type: ignore[misc]
    if peers:
        await is_enough.wait()
        with trio.move_on_after(PATIENCE_S):
            await is_over.wait()
    return num_done
