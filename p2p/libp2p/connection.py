"""The library's connection, which ends when the task that takes its streams does."""

from __future__ import annotations

import trio
from libp2p.network.connection.swarm_connection import SwarmConn

_CLOSE_BOUND_S = 5.0


class GuardedConnection(SwarmConn):
    """Without that task its streams would never be answered, and it stays listed as alive."""

    async def start(self) -> None:
        try:
            await super().start()
        finally:
            self.event_started.set()
            with trio.move_on_after(_CLOSE_BOUND_S, shield=True):
                await self.close()
