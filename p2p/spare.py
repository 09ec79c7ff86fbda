"""Streams to known peers that are open before they are needed.

To open one costs a round trip (its protocol is agreed on); a question, or the first request
for blocks, then costs one and not two.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

import trio

from glia.errors import NetworkError
from p2p.host import Host, PeerId, Stream

MAX_SPARES = 16
FRESH_S = 45.0  # the other side lets an idle stream go after 60 s
RESET_S = 1.0
_log = logging.getLogger("gliad.p2p.spare")


@dataclass(frozen=True, slots=True)
class _Spare:
    stream: Stream
    opened_s: float


class SpareStreams:
    """At most one a peer, of one protocol; those of MAX_SPARES peers.

    Args:
        opens: a new one. Raises: as Host.open.
        nursery: streams are opened, and those that went stale are reset, in it.
    """

    def __init__(
        self, host: Host, opens: Callable[[PeerId], Awaitable[Stream]], nursery: trio.Nursery
    ) -> None:
        self._host, self._opens, self._nursery = host, opens, nursery
        self._spares: dict[PeerId, _Spare] = {}
        self._opening: set[PeerId] = set()

    def prepare(self, peers: Iterable[PeerId]) -> None:
        """Have one for each of these that is connected, as far as there is room."""
        connected = {each.peer for each in self._host.connections()}
        for peer in list(self._spares):
            if not self._is_good(peer):
                self._nursery.start_soon(self._reset, self._spares.pop(peer).stream)
        for peer in peers:
            num = len(self._spares) + len(self._opening)
            is_there = peer in self._spares or peer in self._opening
            if peer in connected and not is_there and num < MAX_SPARES:
                self._opening.add(peer)
                self._nursery.start_soon(self._prepare, peer)

    async def open(self, peer: PeerId) -> Stream:
        """A stream to a peer: the spare one, or a new one. Raises: as Host.open."""
        is_good = self._is_good(peer)
        spare = self._spares.pop(peer, None)
        if spare is not None and is_good:
            return spare.stream
        if spare is not None:
            await self._reset(spare.stream)
        return await self._opens(peer)

    def _is_good(self, peer: PeerId) -> bool:
        """Whether there is one that is fresh, over a connection that it was opened on."""
        spare = self._spares.get(peer)
        if spare is None or trio.current_time() - spare.opened_s > FRESH_S:
            return False
        since_s = [each.since_s for each in self._host.connections() if each.peer == peer]
        return bool(since_s) and min(since_s) <= spare.opened_s

    async def _prepare(self, peer: PeerId) -> None:
        try:
            stream = await self._opens(peer)
            self._spares[peer] = _Spare(stream, trio.current_time())
        except NetworkError as error:
            _log.debug("no spare stream to %s: %s", peer, error)
        except Exception:
            _log.exception("no spare stream to %s", peer)
        finally:
            self._opening.discard(peer)

    async def _reset(self, stream: Stream) -> None:
        with trio.CancelScope(deadline=trio.current_time() + RESET_S, shield=True):
            await stream.reset()
