"""Whose requests are worked on: one at a time a peer, whatever number of streams it opens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio

from p2p.host import PeerId


@dataclass(slots=True)
class _Line:
    lock: trio.Lock = field(default_factory=trio.Lock)
    num_in_it: int = 0


class Turns:
    """A line for each peer, as long as somebody stands in it."""

    def __init__(self) -> None:
        self._lines: dict[PeerId, _Line] = {}

    @property
    def num_peers(self) -> int:
        """Peers with a request under way or waiting."""
        return len(self._lines)

    @asynccontextmanager
    async def of(self, peer: PeerId) -> AsyncIterator[None]:
        """Wait for the peer's turn, and have it."""
        line = self._lines.setdefault(peer, _Line())
        line.num_in_it += 1
        try:
            async with line.lock:
                yield
        finally:
            line.num_in_it -= 1
            if not line.num_in_it:
                del self._lines[peer]
