"""Asks each peer that connects which neuron it signs as, once a connection."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

import trio

from glia.errors import NetworkError, PeerRefused, RemoteProtocolError
from p2p.host import Host, PeerId
from p2p.introducing import INTRODUCTION, ask_neuron
from p2p.ledger import Ledger

_MAX_ASKED = 8  # at once
_MAX_TRIES = 3
_AGAIN_S = 10.0
_RESET_S = 1.0
_log = logging.getLogger("gliad.peering")


@dataclass(slots=True)
class _Tries:
    num_left: int = _MAX_TRIES
    next_s: float = 0.0


class Introducing:
    """The introductions of one host's peers."""

    def __init__(self, host: Host, ledger: Ledger) -> None:
        self._host, self._ledger = host, ledger
        self._limiter = trio.CapacityLimiter(_MAX_ASKED)
        self._known: dict[PeerId, _Tries] = {}
        self._wake = trio.Event()

    def wake(self) -> None:
        """Who is connected has changed."""
        self._wake.set()

    async def run(self) -> None:
        """For ever."""
        async with trio.open_nursery() as nursery:
            while True:
                self._wake = trio.Event()
                now_s = trio.current_time()
                connected = [each.peer for each in self._host.connections()]
                self._known = {peer: self._known.get(peer, _Tries()) for peer in connected}
                for peer, tries in self._known.items():
                    if tries.num_left and now_s >= tries.next_s:
                        tries.num_left -= 1
                        tries.next_s = now_s + _AGAIN_S
                        nursery.start_soon(self._ask, peer, tries)
                with trio.move_on_after(_AGAIN_S):
                    await self._wake.wait()

    async def _ask(self, peer: PeerId, tries: _Tries) -> None:
        async with self._limiter:
            try:
                stream = await self._host.open(peer, INTRODUCTION)
                try:
                    neuron = await ask_neuron(stream)
                finally:
                    with trio.CancelScope(deadline=trio.current_time() + _RESET_S, shield=True):
                        await stream.reset()
            except (PeerRefused, RemoteProtocolError) as error:
                tries.num_left = 0
                _log.debug("peer %s does not say which neuron it is: %s", peer, error)
            except NetworkError as error:
                _log.debug("peer %s: %s", peer, error)
            except Exception:
                _log.exception("asking peer %s which neuron it is failed", peer)
            else:
                tries.num_left = 0
                self._ledger.signs_as(peer, neuron, time.time())
