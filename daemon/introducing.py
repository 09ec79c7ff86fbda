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
    """The introductions of one host's peers.

    Whoever is asked is connected then, and no more tasks wait than are asked: peers that come
    and go without end leave nothing behind, and nobody is dialled.
    """

    def __init__(self, host: Host, ledger: Ledger) -> None:
        self._host, self._ledger = host, ledger
        self._known: dict[PeerId, _Tries] = {}
        self._asked: set[PeerId] = set()
        self._wake = trio.Event()

    def wake(self) -> None:
        """Who is connected has changed."""
        self._wake.set()

    async def run(self) -> None:
        """For ever."""
        async with trio.open_nursery() as nursery:
            while True:
                self._wake = trio.Event()
                for peer, tries in self._due():
                    self._asked.add(peer)
                    nursery.start_soon(self._ask, peer, tries)
                with trio.move_on_after(_AGAIN_S):
                    await self._wake.wait()

    def _due(self) -> list[tuple[PeerId, _Tries]]:
        """Whom to ask now, as far as there is room: who was never asked goes first."""
        now_s = trio.current_time()
        connected = [each.peer for each in self._host.connections()]
        self._known = {peer: self._known.get(peer, _Tries()) for peer in connected}
        due = [
            (peer, tries)
            for peer, tries in self._known.items()
            if tries.num_left and now_s >= tries.next_s and peer not in self._asked
        ]
        due.sort(key=lambda each: -each[1].num_left)
        return due[: _MAX_ASKED - len(self._asked)]

    async def _ask(self, peer: PeerId, tries: _Tries) -> None:
        tries.num_left -= 1
        tries.next_s = trio.current_time() + _AGAIN_S
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
        finally:
            self._asked.discard(peer)
            self.wake()
