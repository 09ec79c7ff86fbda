"""F24, F25: nodes that come and go, and a network that is cut and heals, on virtual time."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import replace

import pytest

from simulations.scenario import Setting
from simulations.scenarios import churn, partition
from simulations.virtual.world import Town, live

IS_FULL = bool(os.environ.get("GLIA_FULL"))
SETTING = Setting(50, minutes=10) if IS_FULL else Setting(50, minutes=2)
SEEDS = range(50) if IS_FULL else [1]
SMALL = Town(num_nodes=14, minutes=1, num_chains=4, num_windows=16, wants=2.0, churn=0.2)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Peers that go are no news here."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.fault("F24")
@pytest.mark.parametrize("seed", SEEDS)
def test_f24_what_an_honest_node_has_is_fetched_while_nodes_come_and_go(seed: int) -> None:
    result = live(churn.town_of(replace(SETTING, seed=seed))).result
    share = result.num_whole / result.num_fetches
    print(f"F24 seed {seed}: {result.num_fetches} fetches, whole {share:.4f} limit 0.995")
    print(f"F24 seed {seed}: wrong {result.num_wrong} limit 0, lies {result.num_lies}")
    assert result.num_fetches >= 20
    assert result.num_gone >= 10
    assert result.num_lies
    assert share >= 0.995
    assert result.num_wrong == 0


@pytest.mark.fault("F24")
def test_f24_equal_seeds_give_equal_traces() -> None:
    one, two, other = (live(replace(SMALL, seed=seed)).result for seed in (3, 3, 4))
    assert one == two
    assert one.trace != other.trace
    assert one.num_fetches


@pytest.mark.fault("F25")
def test_f25_a_network_that_was_cut_for_60_s_finds_everything_within_30_s() -> None:
    outcome = partition.run(Setting(24, seed=5))
    print("F25", outcome.checks)
    assert outcome.holds
    assert {check.what: check.found for check in outcome.checks}["fetches"] >= 30
