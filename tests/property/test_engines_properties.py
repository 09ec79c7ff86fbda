"""Any requests, any sizes, any engine that dies: never over the budget, and every request ends."""

from __future__ import annotations

from dataclasses import dataclass

import trio
from hypothesis import given
from hypothesis import strategies as st

from glia.errors import CapacityError, EngineDied
from tests.engines_parts import Kind, World, in_world

NAMES = "abcd"
BUDGET = 6


@dataclass(frozen=True)
class Ask:
    """A request: so long after the one before, given up after `patience_s`."""

    after_s: float
    name: str
    dtype: str
    patience_s: float


def kinds(turns_out: st.SearchStrategy[int]) -> st.SearchStrategy[dict[str, Kind]]:
    one = st.builds(
        Kind,
        need=st.integers(1, BUDGET + 1),
        turns_out=turns_out,
        load_s=st.sampled_from([0.0, 1.0, 7.0]),
        run_s=st.sampled_from([0.0, 0.5, 4.0, 30.0]),
        end_s=st.sampled_from([0.0, 2.0]),
        is_deaf=st.integers(0, 7).map(lambda n: n == 0),
        dies_ready=st.integers(0, 7).map(lambda n: n == 0),
    )
    return st.fixed_dictionaries(dict.fromkeys(NAMES, one))


ASKS = st.lists(
    st.builds(
        Ask,
        after_s=st.sampled_from([0.0, 0.0, 0.1, 3.0, 20.0, 100.0]),
        name=st.sampled_from(NAMES),
        dtype=st.sampled_from(["float32", "bfloat16"]),
        patience_s=st.sampled_from([0.0, 2.0, 1e6, 1e6, 1e6]),
    ),
    max_size=25,
)


def play(kinds: dict[str, Kind], asks: list[Ask], idle_s: float) -> tuple[World, list[str]]:
    """Make all requests; how each ended."""
    ends: list[str] = []

    async def one(world: World, ask: Ask) -> None:
        with trio.move_on_after(ask.patience_s) as scope:
            try:
                await world.request(ask.name, ask.dtype)
                ends.append("answered")
            except EngineDied:
                ends.append("died")
            except CapacityError:
                assert kinds[ask.name].need > BUDGET or kinds[ask.name].turns_out > BUDGET
                ends.append("too large")
        if scope.cancelled_caught:
            ends.append("given up")

    async def what(world: World) -> None:
        with trio.fail_after(1e5):
            async with trio.open_nursery() as nursery:
                for ask in asks:
                    await trio.sleep(ask.after_s)
                    nursery.start_soon(one, world, ask)
        await trio.sleep(1e4)
        busy = [e for e in world.engines.values() if e.state == "running"]
        assert not busy
        assert world.memory.held_bytes <= BUDGET

    world = in_world(kinds, BUDGET, what, idle_unload_s=idle_s, stall_timeout_s=50.0)
    return world, ends


@given(kinds(st.just(0)), ASKS, st.sampled_from([0.0, 5.0]))
def test_never_over_the_budget_and_every_request_ends(
    kinds: dict[str, Kind], asks: list[Ask], idle_s: float
) -> None:
    world, ends = play(kinds, asks, idle_s)
    assert len(ends) == len(asks)
    assert world.memory.most <= BUDGET
    assert world.most <= BUDGET  # and so were the processes that ran
    sound = all(not (k.is_deaf or k.dies_ready or k.need > BUDGET) for k in kinds.values())
    if sound:
        assert set(ends) <= {"answered", "given up"}


@given(kinds(st.integers(0, BUDGET + 1)), ASKS, st.sampled_from([0.0, 5.0]))
def test_engines_that_turn_out_otherwise_hold_up_nobody(
    kinds: dict[str, Kind], asks: list[Ask], idle_s: float
) -> None:
    _, ends = play(kinds, asks, idle_s)
    assert len(ends) == len(asks)
