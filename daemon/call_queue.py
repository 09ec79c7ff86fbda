"""Memory calls of one connection that wait for their turn: few, and not large together.

A token takes 5 bytes in a frame and 40 as a number here, so calls are counted by tokens, too.
"""

from __future__ import annotations

from collections import deque

import trio

from daemon.memory_calls import MemoryCall
from glia.local.messages import Match, Seal

_MAX_CALLS = 256
_MAX_TOKENS = 2**18  # or one call, however large


class CallQueue:
    """First in, first out; for one reader and one that answers."""

    def __init__(self) -> None:
        self._calls: deque[MemoryCall] = deque()
        self._num_tokens = 0
        self._changed = trio.Event()

    async def put(self, call: MemoryCall) -> None:
        """Queue a call, as soon as there is room."""
        num_tokens = _num_tokens(call)
        while self._calls and (
            len(self._calls) >= _MAX_CALLS or self._num_tokens + num_tokens > _MAX_TOKENS
        ):
            await self._changed.wait()
        self._calls.append(call)
        self._num_tokens += num_tokens
        self._change()

    async def take(self) -> MemoryCall:
        """The oldest, as soon as there is one."""
        while not self._calls:
            await self._changed.wait()
        call = self._calls.popleft()
        self._num_tokens -= _num_tokens(call)
        self._change()
        return call

    def _change(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()


def _num_tokens(call: MemoryCall) -> int:
    return len(call.tokens) if isinstance(call, Match | Seal) else 0
