"""Who has a particle, by its name alone: connected peers, then those of the directory."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import trio

from daemon.peering import Peering
from glia.errors import BadRequest, HashMismatch, NetworkError, RemoteProtocolError
from glia.local.values import SourceValue
from p2p.host import PeerId
from p2p.messages import PARTICLE
from p2p.particles import ask_particle

_MAX_CONNECTED = 32
_MAX_PROVIDERS = 16
_MAX_AT_ONCE = 4  # each may send as much as the largest particle
_DIRECTORY_S = 10.0
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
        met = [peer for peer in await _met(peering, name) if peer not in connected]
        await _ask_all(peering, name, peering.ledger.ranked(met), found)
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


async def _met(peering: Peering, name: bytes) -> list[PeerId]:
    """Peers of the directory that can be reached."""
    met: list[PeerId] = []
    with trio.move_on_after(_DIRECTORY_S):
        for each in await peering.directory.providers(name, _MAX_PROVIDERS):
            try:
                await peering.meet(each)
                met.append(each.peer)
            except (NetworkError, BadRequest) as error:
                _log.debug("%s of the directory: %s", each.peer, error)
    return met
