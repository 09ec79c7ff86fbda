"""The world: hosts, the roads between them, and what goes wrong with either."""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import trio

from p2p.host import Limits, PeerId
from p2p.testing.host import SimHost
from p2p.testing.names import address_of, peer_id_of
from p2p.testing.records import Validate, take_all
from p2p.testing.road import Link, Road
from p2p.testing.trace import Trace

_DEAD_AFTER_S = 30.0  # a connection that says nothing for so long is given up
LINK = Link()
LIMITS = Limits()
_log = logging.getLogger("gliad.p2p.testing")


class Internet:
    """Hosts by name. Equal seeds and equal calls give equal worlds (`simulate`).

    Args:
        nursery: handlers and what is under way run in it; to cancel it ends the world.
        seed: of everything that is drawn.
        link: between hosts for which nothing else is said: of all of them, or of each two.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        seed: int = 0,
        link: Link | Callable[[str, str], Link] = LINK,
    ) -> None:
        self._nursery = nursery
        self._seed = seed
        self._link_of = (lambda *_: link) if isinstance(link, Link) else link
        self._hosts: dict[str, SimHost] = {}
        self._numbers: dict[str, int] = {}
        self._names: dict[PeerId, str] = {}
        self._roads: dict[tuple[str, str], Road] = {}
        self._silent: dict[str, list[str]] = {}
        self._began_s = trio.current_time()
        self.trace = Trace()

    def host(
        self,
        name: str,
        *,
        limits: Limits = LIMITS,
        validate: Validate = take_all,
    ) -> SimHost:
        """The host of that name: a new one, or again after it was killed or has vanished.

        Again it has the same peer id and address, and remembers nothing.
        """
        number = self._numbers.setdefault(name, len(self._numbers))
        peer = peer_id_of(self._seed, name)
        self._names[peer] = name
        for silent in self._silent.pop(name, ()):
            self.heal(name, silent)
        for other in self._hosts.values():
            other.drop(peer)
        made = SimHost(self, name, peer, address_of(number, peer), limits, validate)
        self._hosts[name] = made
        self.note("host", name)
        return made

    def link(self, one: str, other: str, **changes: float) -> None:
        """Change what `Link` says of both directions between two hosts."""
        for road in self._between(one, other):
            road.link = replace(road.link, **changes)

    def cut(self, one: str, other: str) -> None:
        """Nothing arrives any more between two hosts, and nobody is told.

        What is sent meanwhile arrives after `heal`. Connections that last so for
        30 s are lost.
        """
        now_s = trio.current_time()
        for road in self._between(one, other):
            road.cut(now_s)
        self.note("cut", one, other)
        self.start(self._give_up, self._hosts[one], self._hosts[other], now_s)

    def heal(self, one: str, other: str) -> None:
        """The opposite."""
        for road in self._between(one, other):
            road.heal(trio.current_time())
        self.note("heal", one, other)
        for name in (one, other):
            if name in self._hosts:
                self._hosts[name].wake()

    def split(self, *groups: Iterable[str]) -> None:
        """Cut every road from one group to another."""
        for one, other in _across(groups):
            self.cut(one, other)

    def join(self, *groups: Iterable[str]) -> None:
        """Heal every road from one group to another."""
        for one, other in _across(groups):
            self.heal(one, other)

    def kill(self, name: str) -> None:
        """End a host's process: its peers' connections are reset at once."""
        self.note("kill", name)
        self._hosts.pop(name).end(is_told=True)

    def vanish(self, name: str) -> None:
        """Take a host away without a word: its peers find out by their time-outs."""
        self.note("vanish", name)
        gone = self._hosts[name]
        self._silent[name] = [other for other in self._hosts if other != name]
        for other in self._silent[name]:
            self.cut(name, other)
        del self._hosts[name]
        gone.end(is_told=False)

    def at(self, peer: PeerId) -> SimHost | None:
        """The host that has this peer id, if it is there."""
        return self._hosts.get(self._names.get(peer, ""))

    def hosts(self) -> list[SimHost]:
        """All that are there, oldest first."""
        return list(self._hosts.values())

    def road(self, start: str, end: str) -> Road:
        """From one host to another."""
        road = self._roads.get((start, end))
        if road is None:
            source = random.Random(f"{self._seed} {start} {end}")  # noqa: S311 - no secret
            road = self._roads[start, end] = Road(self._link_of(start, end), source)
        return road

    def note(self, kind: str, *details: str | int) -> None:
        """Add an event to the trace."""
        self.trace.add(trio.current_time() - self._began_s, kind, *details)

    def start(self, work: Callable[..., Awaitable[object]], *args: Any) -> None:
        """Run something beside; what it raises ends no one else's world."""
        self._nursery.start_soon(_contained, work, args)

    def _between(self, one: str, other: str) -> tuple[Road, Road]:
        return self.road(one, other), self.road(other, one)

    async def _give_up(self, one: SimHost, other: SimHost, cut_at_s: float) -> None:
        await trio.sleep(_DEAD_AFTER_S)
        if self.road(one.name, other.name).cut_at_s == cut_at_s:
            one.drop(other.peer_id)
            other.drop(one.peer_id)


async def _contained(work: Callable[..., Awaitable[object]], args: tuple[Any, ...]) -> None:
    try:
        await work(*args)
    except Exception:
        _log.exception("something beside failed")


def _across(groups: tuple[Iterable[str], ...]) -> Iterator[tuple[str, str]]:
    for one, other in combinations([list(group) for group in groups], 2):
        yield from product(one, other)
