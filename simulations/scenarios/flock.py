"""Nodes join those that have a conversation, with more and more of it at home."""

from __future__ import annotations

import trio

from simulations.scenario import Check, Outcome, Scenario, Setting, Value
from simulations.virtual.gliad import (
    HOLD_S,
    PROFILE,
    Neighbourhood,
    chain_of,
    in_neighbourhood,
    labels_of,
)
from simulations.virtual.roads import LAN

_NUM_WINDOWS = 96


async def join_all(world: Neighbourhood, num_nodes: int, seed: int) -> Outcome:
    """Each has the first windows by itself; then it wants all of it, twice."""
    chain, num_layers = chain_of(_NUM_WINDOWS, seed), len(PROFILE.layers)
    first = await world.add("first")
    await first.answer("story", chain, labels_of(chain, _NUM_WINDOWS))
    await trio.sleep(2 * HOLD_S)
    rows: list[dict[str, Value]] = []
    num_wrong = 0
    for number in range(1, num_nodes):
        gliad = await world.add(f"node {number}")
        num_own = _NUM_WINDOWS * (number - 1) // num_nodes
        if num_own:
            head = chain_of(num_own, 0, None, chain.tokens[: num_own * PROFILE.block_size])
            await gliad.answer("mine", head, labels_of(head, 0))
        joined = await gliad.answer("story", chain, labels_of(chain, _NUM_WINDOWS))
        again = await gliad.answer("again", chain, labels_of(chain, _NUM_WINDOWS))
        num_wrong += not await gliad.holds(chain)
        rows.append(
            {
                "node": number,
                "blocks here": num_layers * num_own,
                "lacking": num_layers * (_NUM_WINDOWS - num_own),
                "downloaded": joined.num_blocks,
                "computed": num_layers * joined.num_computed,
                "at the second join": again.num_blocks + num_layers * again.num_computed,
                "first token s": joined.took_s,
            }
        )
        await trio.sleep(2 * HOLD_S)
    off = sum(abs(int(row["downloaded"]) - int(row["lacking"])) for row in rows)
    return Outcome(
        table=rows,
        checks=(
            Check("blocks too many or too few", off, "==", 0),
            Check("computed", sum(int(row["computed"]) for row in rows), "==", 0),
            Check("at second joins", sum(int(row["at the second join"]) for row in rows), "==", 0),
            Check("nodes with a wrong block", num_wrong, "==", 0),
        ),
        trace=world.net.trace.digest(),
    )


def run(setting: Setting) -> Outcome:
    return in_neighbourhood(
        setting.seed, lambda world: join_all(world, setting.nodes, setting.seed), LAN
    )


SCENARIO = Scenario(
    name="flock",
    claim="Who joins a flock downloads exactly the blocks that it lacks; a second join, none.",
    rows=(43,),
    world="virtual",
    usual=Setting(12),
    quick=Setting(4),
    least=2,
    run=run,
)
