"""Hosts that know each other and nothing else: to look at the directory alone."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import trio

from p2p.host import Limits
from p2p.testing.host import SimHost
from p2p.testing.internet import Internet
from p2p.testing.road import Link
from p2p.testing.simulate import simulate
from simulations.virtual.roads import published_roads

T = TypeVar("T")
MANY = Limits(max_connections=10_000)


def in_crowd(
    seed: int,
    main: Callable[[Internet], Awaitable[T]],
    road: Callable[[str, str], Link] | None = None,
) -> T:
    """On an internet that ends when `main` has. `road`: between two hosts; None: as published."""

    async def run() -> T:
        async with trio.open_nursery() as nursery:
            ended = await main(Internet(nursery, seed, road or published_roads(seed)))
            nursery.cancel_scope.cancel()
        return ended

    return simulate(run, seed=seed)


async def meet_somebody(hosts: Sequence[SimHost], source: random.Random) -> None:
    """Each in turn connects to one that came before it."""
    for at, host in enumerate(hosts[1:], 1):
        await host.connect(source.choice(hosts[:at]).addresses()[0])


async def all_join(net: Internet, hosts: Sequence[SimHost]) -> None:
    """They know others, and are known, as after some minutes on the network."""
    await trio.sleep(10)
    for host in hosts:
        net.start(host.directory.join)
    await trio.sleep(60)
