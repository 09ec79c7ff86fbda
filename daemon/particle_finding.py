"""Who has a particle, by its name alone: connected peers, then those of the directory."""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass, field

import trio

from daemon.peering import Peering
from glia.errors import BadRequest, HashMismatch, NetworkError, RemoteProtocolError
from glia.local.values import SourceValue
from p2p.choosing import in_drawn_order
from p2p.host import Found as Provider
from p2p.host import PeerId
from p2p.messages import PARTICLE
from p2p.particles import ask_particle

_MAX_CONNECTED = 32
_MAX_PROVIDERS = 128
_MAX_MET = 16  # asked, and met at once
_MAX_AT_ONCE = 4  # each may send as much as the largest particle
_DIRECTORY_S = 10.0
_MEET_S = 3.0  # one of them: anybody may be in the directory, with addresses where nobody is
_RESET_S = 1.0
_log = logging.getLogger("gliad.fetch")


@dataclass
class Found:
    """What came of it.

    Attributes:
        peers: that have it, the first to answer first.
        num_asked, num_unheard: peers that were asked, and that did not answer.
    """

    particle: bytes | None = None
    peers: list[PeerId] = field(default_factory=list)
    num_asked: int = 0
    num_unheard: int = 0

    @property
    def source(self) -> SourceValue:
        """Who gave it."""
        return SourceValue(self.peers[0], 1, len(self.particle or b""), "done")


async def find_particle(peering: Peering, name: bytes) -> Found:
    """The particle, verified, and who has it. Nothing of a peer's is raised."""
    found = Found()
    connected = {each.peer for each in peering.host.connections()}
    await _ask_all(peering, name, peering.ledger.ranked(connected)[:_MAX_CONNECTED], found)
    if found.particle is None:
        met = await _met(peering, name)
        others = [peer for peer in met if peer not in connected][:_MAX_MET]
        await _ask_all(peering, name, peering.ledger.ranked(others), found)
        for peer, is_new in met.items():
            if is_new and peer not in found.peers:
                await peering.part(peer)
    return found


async def _ask_all(peering: Peering, name: bytes, peers: list[PeerId], found: Found) -> None:
    limiter = trio.CapacityLimiter(_MAX_AT_ONCE)
    found.num_asked += len(peers)
    async with trio.open_nursery() as nursery:
        for peer in peers:
            nursery.start_soon(_ask, peering, name, peer, found, limiter)


async def _ask(
    peering: Peering, name: bytes, peer: PeerId, found: Found, limiter: trio.CapacityLimiter
) -> None:
    async with limiter:
        try:
            stream = await peering.open_stream(peer, PARTICLE)
            try:
                particle = await ask_particle(stream, name)
            finally:
                with trio.CancelScope(deadline=trio.current_time() + _RESET_S, shield=True):
                    await stream.reset()
        except NetworkError as error:
            found.num_unheard += 1
            _log.debug("asking %s: %s", peer, error)
        except (HashMismatch, RemoteProtocolError) as error:
            _log.info("asking %s: %s", peer, error)
            peering.lied(peer)
        else:
            if particle is not None:
                found.particle = particle
                found.peers.append(peer)


async def _met(peering: Peering, name: bytes) -> dict[PeerId, bool]:
    """Peers of the directory that can be reached, several tried at once; whether each is new."""
    met: dict[PeerId, bool] = {}
    limiter = trio.CapacityLimiter(_MAX_MET)

    async def meet(each: Provider) -> None:
        async with limiter:
            try:
                with trio.move_on_after(_MEET_S):
                    met[each.peer] = await peering.meet(each)
            except (NetworkError, BadRequest) as error:
                _log.debug("%s of the directory: %s", each.peer, error)
        if len(met) >= _MAX_MET:
            nursery.cancel_scope.cancel()

    with trio.move_on_after(_DIRECTORY_S):
        providers = await peering.directory.providers(name, _MAX_PROVIDERS)
        source, is_proven = random.SystemRandom(), peering.ledger.is_proven
        async with trio.open_nursery() as nursery:
            for each in in_drawn_order(providers, source, is_proven):
                nursery.start_soon(meet, each)
    return met
