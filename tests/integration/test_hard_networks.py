"""Real gliads with SmolLM2 among peers that die, stall and lie, on links that are slow or cut:
the answer is that of a cold run."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from simulations.shaped.hosts import Hosts
from simulations.shaped.shape import Shape
from tests.hard_parts import NUM_TOKENS, World, answer, new_world
from tests.node_parts import FULL, until

LIARS = ("flipped", "other blocks", "other chain")
BAD = ("killed", "stalls", *LIARS)
NUM_BLOCKS = NUM_TOKENS // 16 * 30
MOST = 0.9 * NUM_TOKENS
CUT_S = 60 if FULL else 4
SEEDS = range(len(BAD) + 4)


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with new_world(SEEDS) as made:
        yield made


@pytest.fixture
def hosts(world: World) -> Iterator[Hosts]:
    """Their link is as fast as it can be before and after."""
    if world.hosts is None:
        pytest.skip("no network namespaces, or no TUN devices, can be made here")
    world.bad.end()
    world.honest.become("honest")
    yield world.hosts
    world.hosts.shape(Shape())


@pytest.mark.parametrize("kind", BAD)
def test_what_peers_do_is_not_in_the_answer(kind: str, world: World) -> None:
    """One is killed with SIGKILL in the middle, one stopped, three lie; another is honest."""
    bad, honest = world.bad.become(kind), world.honest.become("honest")
    try:
        world.ask(
            BAD.index(kind),
            lambda _: world.bad.has_turned and (kind not in LIARS or world.num_bad(bad) > 0),
        )
        told = {each["peer"]: each for each in world.asker.json("peers")}
        assert (told[bad]["num_bad"] > 0) == (kind in LIARS)
        assert told[bad]["blocks_in"] < NUM_BLOCKS
        assert told[honest]["num_bad"] == 0
        until(lambda: (bad in world.asker.connected()) == (kind != "killed"))
        assert world.asker.json("check")["bad"] == 0
    finally:
        if kind == "stalls":
            world.bad.end()


def test_a_network_that_is_cut_and_heals(world: World, hosts: Hosts) -> None:
    during, after = SEEDS[-4:-2]
    hosts.shape(Shape(is_cut=True))
    began_s = time.monotonic()
    cut = answer(world.asker, during)
    assert cut.tokens == world.cold[during].tokens
    assert cut.usage.computed == NUM_TOKENS
    time.sleep(max(0.0, began_s + CUT_S - time.monotonic()))
    hosts.shape(Shape())
    world.ask(after, lambda found: found.usage.cached.peers >= MOST, 30 + 2 * CUT_S)


def test_behind_a_slow_link_it_computes_and_over_a_fast_one_it_fetches(
    world: World, hosts: Hosts
) -> None:
    behind, over = SEEDS[-2:]
    hosts.shape(Shape(rate=1.25e6, delay_s=0.01, loss=0.01))
    slow = answer(world.asker, behind)
    assert slow.tokens == world.cold[behind].tokens
    waited_ms = slow.timings_ms["find"] + slow.timings_ms.get("fetch", 0.0)
    alone_ms = world.alone.timings_ms["prefill"]
    print(f"waited {waited_ms:.0f} ms; alone it computes for {alone_ms:.0f} ms")
    assert slow.usage.cached.peers <= 0.2 * NUM_TOKENS
    assert waited_ms <= 0.05 * alone_ms + 100
    hosts.shape(Shape())
    world.honest.become("honest")  # and how slow it was is forgotten
    fast = world.ask(over, lambda found: found.usage.cached.peers >= MOST)
    took_ms = fast.ttft_ms - fast.timings_ms["load"]
    print(f"first token after {took_ms:.0f} ms")
    assert took_ms < alone_ms
