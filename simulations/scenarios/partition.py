"""The network is cut in two for a minute, both sides publish, and it heals (SECURITY F25)."""

from __future__ import annotations

import trio

from simulations.scenario import Check, Outcome, Scenario, Setting, figures
from simulations.virtual.node import Node
from simulations.virtual.world import Town, World, in_town

_CUT_S = 60.0
_NUM_NEW = 4  # published while it is cut
_NUM_ASKING = 4  # on either side


def sides_of(world: World) -> list[list[Node]]:
    """Some of the nodes where others meet are on either side."""
    return [world.nodes[::2], world.nodes[1::2]]


async def cut_and_heal(world: World) -> Outcome:
    """Everybody who asks wants all that it lacks, as soon as the network is whole."""
    sides = sides_of(world)
    names = [[node.name for node in side] for side in sides]
    world.net.split(*names)
    await trio.sleep(5)
    for number, chain in enumerate(world.new_chains(_NUM_NEW)):
        sides[number % 2][-1 - number // 2].publish(chain)
    await trio.sleep(_CUT_S - 5)
    world.net.join(*names)
    healed_s = trio.current_time()
    missing = [
        (node, chain)
        for side in sides
        for node in side[2 : 2 + _NUM_ASKING]
        for chain in world.chains
        if not node.library.has(chain)
    ]
    took_s: list[float] = []

    async def fetch(node: Node, number: int) -> None:
        fetched = await node.fetch(world.chains[number])
        if fetched.is_whole and not fetched.is_wrong:
            took_s.append(trio.current_time() - healed_s)

    async with trio.open_nursery() as nursery:
        for node, chain in missing:
            nursery.start_soon(fetch, node, world.chains.index(chain))
    last_s = max(took_s, default=0.0)
    return Outcome(
        table=figures(
            {
                "nodes on a side": len(sides[0]),
                "chains, published while cut": _NUM_NEW,
                "chains, all": len(world.chains),
                "fetches after it healed": len(missing),
                "the last one ended after (s)": last_s,
            }
        ),
        checks=(
            Check("fetched whole and right", len(took_s), "==", len(missing)),
            Check("seconds after it healed", last_s, "<=", 30.0),
            Check("fetches", len(missing), ">=", 10),
        ),
        trace=world.net.trace.digest(),
    )


def run(setting: Setting) -> Outcome:
    town = Town(setting.nodes, seed=setting.seed, num_chains=6, num_windows=16)
    return in_town(town, cut_and_heal)


SCENARIO = Scenario(
    name="partition",
    claim="Within 30 s after a network that was cut for 60 s is whole, all of it is reached.",
    rows=(41,),
    faults=("F25",),
    world="virtual",
    usual=Setting(50),
    quick=Setting(24),
    least=20,
    run=run,
)
