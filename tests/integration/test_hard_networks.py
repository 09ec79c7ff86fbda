"""Real gliads with SmolLM2 among peers that die, stall and lie, on links that are slow or cut:
the answer is that of a cold run."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from simulations.shaped.hosts import Hosts
from simulations.shaped.shape import Shape
from tests.hard_parts import NUM_TOKENS, World, answer, name_of, new_world
from tests.node_parts import FULL

BAD = ("killed", "stalls", "flipped", "other blocks", "other chain")
LIARS = ("flipped", "other blocks", "other chain")
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
    yield world.hosts
    world.hosts.shape(Shape())


@pytest.mark.parametrize("kind", BAD)
def test_what_peers_do_is_not_in_the_answer(kind: str, world: World) -> None:
    """One is killed with SIGKILL in the middle, one stopped, three lie; another is honest."""
    with world.peer(kind) as bad, world.peer("honest") as honest:
        names = [name_of(each) for each in (bad, honest)]
        world.ask(BAD.index(kind), lambda _: (bad.data_dir / "turned").exists())
        told = {each["peer"]: each for each in world.asker.json("peers")}
        assert told[names[0]]["num_bad"] == (kind in LIARS)
        assert told[names[0]]["blocks_in"] < NUM_TOKENS // 16 * 30
        assert told[names[1]]["num_bad"] == 0
        assert bool(told[names[0]]["connection"]) == (kind != "killed")
    assert world.asker.json("check")["bad"] == 0


def test_a_network_that_is_cut_in_the_middle_and_heals(world: World, hosts: Hosts) -> None:
    during, after = SEEDS[-4:-2]
    with world.peer("honest"):
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
    with world.peer("honest"):
        hosts.shape(Shape(rate=1.25e6, delay_s=0.01, loss=0.01))
        slow = answer(world.asker, behind)
        assert slow.tokens == world.cold[behind].tokens
        assert slow.usage.cached.peers <= 0.1 * NUM_TOKENS
        asking_ms = slow.timings_ms["find"] + slow.timings_ms.get("fetch", 0.0)
        print(f"asked for {asking_ms:.0f} ms, alone {world.alone.timings_ms['prefill']:.0f} ms")
        assert asking_ms <= 0.05 * world.alone.timings_ms["prefill"] + 100
        hosts.shape(Shape())
        fast = world.ask(over, lambda found: found.usage.cached.peers >= MOST)
        print(f"first token {fast.ttft_ms:.0f} ms, alone {world.alone.ttft_ms:.0f} ms")
        assert fast.ttft_ms - fast.timings_ms["load"] < world.alone.timings_ms["prefill"]
