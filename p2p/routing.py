"""Who keeps the records of a key: the peers closest to it, and those where nodes meet anyway."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import cache, partial

import trio

from p2p.contacts import Contacts
from p2p.density import Density
from p2p.host import PeerId
from p2p.looking import ASK_S, LOOK_UP_S, Start, look_up
from p2p.lookup import NUM_CLOSEST, LookUp

_NUM_WIDE = 100  # where the closest are too close
_MAX_RENDEZVOUS = 8
_NUM_REFRESHED = 5  # keys that a node looks up when it comes
_TEND_S = 15.0
_TENDED = 8  # at once: what makes others ask for this costs them a question each
_log = logging.getLogger("gliad.p2p.routing")


class Routing:
    """One node's view of the directory.

    Args:
        contacts: whom it knows.
        neighbours: peers that may be asked, the closest to a key first.
        ask: a peer for those closest to a key that it knows; may raise anything.
        distance: of a peer from a key.
        start: runs something beside.

    Attributes:
        rendezvous: peers that are told and asked whatever the key, as far as they are connected.
        num_crowded: keys to which others were too close.
    """

    def __init__(
        self,
        contacts: Contacts,
        neighbours: Callable[[bytes], Sequence[PeerId]],
        ask: Callable[[PeerId, bytes], Awaitable[Sequence[PeerId]]],
        distance: Callable[[PeerId, bytes], int],
        start: Start,
    ) -> None:
        self._contacts = contacts
        self._neighbours, self._ask = neighbours, ask
        self._distance, self._start = distance, start
        self._density = Density()
        self.rendezvous: Callable[[], Sequence[PeerId]] = lambda: ()
        self.num_crowded = 0

    async def join(self, own: bytes) -> None:
        """Know who is near and some who are far, how many there are, and be known by them.

        Args: own: this node's id; the directory's keys are others.
        """
        for number in range(_NUM_REFRESHED):
            await self.closest(own + bytes(number))

    async def tend(self, own: bytes) -> None:
        """See who is there, for ever. Args: own: as `join`."""
        while True:
            await trio.sleep(_TEND_S)
            is_new = trio.Event()
            self._contacts.on_new = is_new.set
            with trio.move_on_at(self._contacts.due_s()):
                await is_new.wait()
                await trio.sleep_until(self._contacts.due_s())
            for peer in self._contacts.due(trio.current_time(), _TENDED):
                self._start(partial(self._check, peer, own))

    async def keepers(self, key: bytes, limit_s: float = LOOK_UP_S) -> list[PeerId]:
        """Whom to tell of a key, and to ask for it: who answered in time."""
        closest = await self.closest(key, limit_s)
        meeting = [peer for peer in self.rendezvous() if peer not in closest]
        return [*closest, *meeting[:_MAX_RENDEZVOUS]]

    async def closest(self, key: bytes, limit_s: float = LOOK_UP_S) -> list[PeerId]:
        """The closest that answer; more than usual where these are suspiciously close."""
        distance = cache(lambda peer: self._distance(peer, key))
        lookup = LookUp(self._neighbours(key), distance)
        ask = partial(self._closer, key)
        await look_up(lookup, ask, self._start, limit_s)
        found = lookup.closest()
        if len(found) == NUM_CLOSEST and self._density.is_crowded(key, list(map(distance, found))):
            _log.warning("peers have made ids to be the closest to %s", key.hex())
            self.num_crowded += 1
            lookup.widen(_NUM_WIDE)
            await look_up(lookup, ask, self._start, limit_s)
            found = lookup.closest()
        return found

    async def _closer(self, key: bytes, peer: PeerId) -> Sequence[PeerId]:
        try:
            with trio.fail_after(ASK_S):
                closer = await self._ask(peer, key)
        except Exception:
            self._contacts.failed(peer)
            raise
        self._contacts.answered(peer, trio.current_time())
        return closer

    async def _check(self, peer: PeerId, own: bytes) -> None:
        try:
            await self._closer(own, peer)
        except Exception as error:  # a peer can make anything of an answer
            _log.debug("peer %s of the directory is gone: %r", peer, error)
