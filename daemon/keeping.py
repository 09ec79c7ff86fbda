"""Keeps connections: dials who is to be there, and asks who is there whether it still is."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

import trio

from daemon.reaching import reach
from glia.errors import BadRequest, NetworkError
from p2p.host import Found, Host, PeerId
from p2p.ledger import Ledger
from p2p.redialling import Redialling

PING_S = 30.0
_TICK_S = 1.0
_MAX_DIALS = 8
_MAX_PINGS = 16
_MAX_MISSED = 2  # pings in a row; then the connection is no more than a memory
_log = logging.getLogger("gliad.peering")


@dataclass(slots=True)
class _Pings:
    next_s: float = 0.0
    num_missed: int = 0


class Keeping:
    """The connections of one host."""

    def __init__(self, host: Host, kept: Redialling, ledger: Ledger) -> None:
        self._host, self._kept, self._ledger = host, kept, ledger
        self._dials = trio.CapacityLimiter(_MAX_DIALS)
        self._pings = trio.CapacityLimiter(_MAX_PINGS)
        self._known: dict[PeerId, _Pings] = {}

    async def run(self) -> None:
        """For ever."""
        async with trio.open_nursery() as nursery:
            while True:
                now_s = trio.current_time()
                connected = [each.peer for each in self._host.connections()]
                for found in self._kept.due(connected, now_s):
                    nursery.start_soon(self._dial, found)
                self._known = {peer: self._known.get(peer, _Pings()) for peer in connected}
                for peer, pings in self._known.items():
                    if now_s >= pings.next_s:
                        pings.next_s = now_s + PING_S
                        nursery.start_soon(self._ping, peer, pings)
                await trio.sleep(_TICK_S)

    async def _dial(self, found: Found) -> None:
        async with self._dials:
            try:
                await reach(self._host, found.addresses)
            except (NetworkError, BadRequest) as error:
                _log.debug("peer %s: %s", found.peer, error)

    async def _ping(self, peer: PeerId, pings: _Pings) -> None:
        async with self._pings:
            try:
                rtt_s = await self._host.ping(peer)
            except NetworkError as error:
                pings.num_missed += 1
                _log.debug("peer %s: %s", peer, error)
                if pings.num_missed >= _MAX_MISSED:
                    await self._host.disconnect(peer)
            else:
                pings.num_missed = 0
                self._ledger.measured(peer, time.time(), rtt_s=rtt_s)
