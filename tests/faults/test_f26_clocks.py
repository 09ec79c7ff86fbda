"""F26, on the network: what is of the future is refused, and wrong clocks touch no time-out."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
import trio

from glia.graph.link import MAX_FUTURE_S, Link, sign_link
from glia.graph.neuron import Signer
from glia.graph.spans import claims
from p2p import values
from p2p.attesting import links_that_hold
from p2p.testing.simulate import simulate
from simulations.virtual.machine import world_s
from simulations.virtual.world import Town, World
from tests.builders import make_chain

CHAIN = make_chain(3)
DAY_S = 86_400.0
NOW_S = 1_900_000_000


def link_of(time_s: int) -> Link:
    (claim,) = claims(CHAIN.records, 0)
    return sign_link(Signer(bytes(32)), claim, 1, time_s)


@pytest.mark.fault("F26")
@pytest.mark.parametrize("ahead_s", [MAX_FUTURE_S, MAX_FUTURE_S + 1, 10 * DAY_S])
def test_f26_a_record_of_the_future_is_refused_everywhere(
    ahead_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the directory, and by who is asked to believe it; an old one is none the worse."""
    monkeypatch.setattr(values.time, "time", lambda: float(NOW_S))
    key, is_taken = CHAIN.keys[-1], ahead_s <= 120
    link = link_of(int(NOW_S + ahead_s))
    assert values.is_value(key, link.encoding) is is_taken
    hold, _ = links_that_hold([link.encoding], CHAIN.records, [key, *CHAIN.keys], NOW_S)
    assert bool(hold) is is_taken
    assert values.is_value(key, link_of(NOW_S - int(1000 * DAY_S)).encoding)
    assert MAX_FUTURE_S == 120


@pytest.fixture
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.fault("F26")
@pytest.mark.usefixtures("quiet")
def test_f26_time_outs_are_the_same_whatever_the_clocks_say() -> None:
    right = run_with(lambda number: world_s)
    wrong = run_with(clock_of)
    print(f"F26 fetches with right clocks {right}, with wrong ones {wrong}")
    assert right["whole"] == wrong["whole"] == right["fetches"] == wrong["fetches"]
    assert wrong["longest ms"] <= 1.5 * right["longest ms"] + 1000


def clock_of(number: int) -> Callable[[], float]:
    """A day ahead, a day behind, or back by an hour now and then."""
    if number % 3 < 2:
        return lambda: world_s() + (DAY_S if number % 3 else -DAY_S)
    return lambda: world_s() - 3600.0 * (int(trio.current_time()) // 20 % 2)


def run_with(clock: Callable[[int], Callable[[], float]]) -> Counter[str]:
    """Each chain is fetched by each of some nodes."""
    town = Town(num_nodes=16, num_chains=4, num_windows=16, seed=9)

    async def main() -> Counter[str]:
        counts = Counter[str]()
        async with trio.open_nursery() as nursery:
            world = World(nursery, town)
            for number, node in enumerate(world.nodes):
                node.set_clock(clock(number))
            await world.begin()
            for chain in world.chains:
                for node in world.nodes[4:12]:
                    if not node.library.has(chain):
                        fetched = await node.fetch(chain)
                        counts["fetches"] += 1
                        counts["whole"] += fetched.is_whole
                        took_ms = round(1000 * fetched.took_s)
                        counts["longest ms"] = max(counts["longest ms"], took_ms)
            nursery.cancel_scope.cancel()
        return counts

    return simulate(main, seed=9)
