"""F24, F25: nodes that come and go, and a network that is cut and heals, on virtual time."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from dataclasses import replace

import pytest
import trio

from p2p.testing.simulate import simulate
from simulations.network import __main__ as command
from simulations.network.world import Setting, World, simulate_network

IS_FULL = bool(os.environ.get("GLIA_FULL"))
SETTING = Setting() if IS_FULL else Setting(minutes=2, num_chains=12, num_windows=16)
SEEDS = range(50) if IS_FULL else [1]
SMALL = Setting(num_nodes=14, minutes=1, num_chains=4, num_windows=16, wants=2.0)
HALF = 12  # nodes on either side of the partition


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Peers that go are no news here."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.fault("F24")
@pytest.mark.parametrize("seed", SEEDS)
def test_f24_what_an_honest_node_has_is_fetched_while_nodes_come_and_go(seed: int) -> None:
    result = simulate_network(replace(SETTING, seed=seed))
    share = result.num_whole / result.num_fetches
    print(f"F24 seed {seed}: {result.num_fetches} fetches, whole {share:.4f} limit 0.995")
    print(f"F24 seed {seed}: wrong {result.num_wrong} limit 0, lies {result.num_lies}")
    assert result.num_fetches >= 20
    assert result.num_gone >= 10
    assert result.num_lies
    assert share >= 0.995
    assert result.num_wrong == 0


@pytest.mark.fault("F24")
def test_f24_equal_seeds_give_equal_traces(capsys: pytest.CaptureFixture[str]) -> None:
    one, two, other = (simulate_network(replace(SMALL, seed=seed)) for seed in (3, 3, 4))
    assert one == two
    assert one.trace != other.trace
    assert one.num_fetches
    words = ["--nodes", "14", "--minutes", "0.2", "--liars", "0", "--seed", "3", "--json"]
    assert command.main(words) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["setting"]["num_nodes"] == 14
    assert len(shown["trace"]) == 64


@pytest.mark.fault("F25")
def test_f25_a_network_that_was_cut_for_60_s_finds_everything_within_30_s() -> None:
    setting = Setting(num_nodes=2 * HALF, num_chains=6, num_windows=16, num_liars=0, seed=5)

    async def main() -> tuple[int, float]:
        async with trio.open_nursery() as nursery:
            world = World(nursery, setting)
            await world.begin()
            sides = world.nodes[::2], world.nodes[1::2]  # some of the bootstrap nodes on each
            names = [[node.name for node in side] for side in sides]
            world.net.split(*names)
            await trio.sleep(5)
            new = world.new_chains(4)
            for chain, side in zip(new, [*sides, *sides], strict=True):
                side[-1 if chain is new[0] else -2].publish(chain)
            await trio.sleep(55)
            world.net.join(*names)
            healed_s = trio.current_time()
            missing = [
                (node, chain)
                for side in sides
                for node in side[-6:-2]
                for chain in [*world.chains, *new]
                if not node.library.has(chain)
            ]
            async with trio.open_nursery() as fetching:
                for node, chain in missing:
                    fetching.start_soon(node.fetch, chain)
            took_s = trio.current_time() - healed_s
            assert all(node.library.has(chain) for node, chain in missing)
            nursery.cancel_scope.cancel()
        return len(missing), took_s

    num, took_s = simulate(main, seed=5)
    print(f"F25 {num} fetches across, all done {took_s:.1f} s after the network healed, limit 30")
    assert num >= 30
    assert took_s <= 30
