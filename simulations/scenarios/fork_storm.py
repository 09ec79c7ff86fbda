"""A conversation is forked on many nodes at one moment, and many times on each."""

from __future__ import annotations

import trio

from simulations.scenario import Check, Outcome, Scenario, Setting, Value
from simulations.virtual.chains import Chain
from simulations.virtual.gliad import (
    HOLD_S,
    PROFILE,
    Answered,
    Gliad,
    Neighbourhood,
    chain_of,
    in_neighbourhood,
    labels_of,
)
from simulations.virtual.roads import LAN

_TRUNK_WINDOWS = 96
_BRANCH_WINDOWS = 3
_FORKS_PER_NODE = 8


def cut(chain: Chain, num: int) -> Chain:
    """Its first windows."""
    return chain_of(num, 0, None, chain.tokens[: num * PROFILE.block_size])


async def storm(world: Neighbourhood, num_nodes: int, seed: int) -> Outcome:
    """Forks leave the trunk at its whole length and before it; all of a node begin at once."""
    trunk = chain_of(_TRUNK_WINDOWS, seed)
    first = await world.add("first")
    await first.answer("trunk", trunk, labels_of(trunk, _TRUNK_WINDOWS))
    nodes = [await world.add(f"node {number}") for number in range(1, num_nodes)]
    await trio.sleep(2 * HOLD_S)
    for node in nodes:  # each has the trunk before it is forked there
        await node.answer("trunk", trunk, labels_of(trunk, _TRUNK_WINDOWS))
    answers: dict[str, list[Answered]] = {node.name: [] for node in nodes}
    num_wrong = 0

    async def fork(node: Gliad, number: int) -> None:
        nonlocal num_wrong
        at = _TRUNK_WINDOWS - _TRUNK_WINDOWS * number // (2 * _FORKS_PER_NODE)
        chain = chain_of(_BRANCH_WINDOWS, 7000 + number, cut(trunk, at))
        labels = labels_of(chain, 0)
        answers[node.name].append(await node.answer(f"fork{number}", chain, labels))
        num_wrong += not await node.holds(chain)

    async with trio.open_nursery() as nursery:
        for node in nodes:
            for number in range(_FORKS_PER_NODE):
                nursery.start_soon(fork, node, number)
    own = (_TRUNK_WINDOWS + _FORKS_PER_NODE * _BRANCH_WINDOWS) * PROFILE.window_particle_bytes
    rows: list[dict[str, Value]] = [
        {
            "node": node.name,
            "forks": len(answers[node.name]),
            "windows computed": sum(each.num_computed for each in answers[node.name]),
            "of them new": _FORKS_PER_NODE * _BRANCH_WINDOWS,
            "stored / trunk and branches": node.store.stats().used_bytes / own,
        }
        for node in nodes
    ]
    beyond = sum(int(row["windows computed"]) - int(row["of them new"]) for row in rows)
    return Outcome(
        table=rows,
        checks=(
            Check("windows computed beyond the branches", beyond, "==", 0),
            Check("bytes stored / trunk and branches",
                  max(float(row["stored / trunk and branches"]) for row in rows), "<=", 1.1),
            Check("forks with a wrong block", num_wrong, "==", 0),
        ),
        trace=world.net.trace.digest(),
    )  # fmt: skip


def run(setting: Setting) -> Outcome:
    return in_neighbourhood(
        setting.seed, lambda world: storm(world, setting.nodes, setting.seed), LAN
    )


SCENARIO = Scenario(
    name="fork-storm",
    claim="Forks of a conversation cost what is new in them, in tokens computed and bytes stored.",
    rows=(51,),
    world="virtual",
    usual=Setting(12),
    quick=Setting(4),
    least=2,
    run=run,
)
