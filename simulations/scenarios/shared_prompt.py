"""Agents on nodes of one LAN, and one system prompt: it is computed once."""

from __future__ import annotations

import trio

from simulations.scenario import Check, Outcome, Scenario, Setting, Value
from simulations.virtual.chains import Chain
from simulations.virtual.gliad import (
    HOLD_S,
    PROFILE,
    Answered,
    Neighbourhood,
    chain_of,
    in_neighbourhood,
    labels_of,
)
from simulations.virtual.roads import LAN

_SYSTEM_WINDOWS = 64
_SUFFIX_WINDOWS = 4
_AGENTS_PER_NODE = 2


def conversations(num: int, seed: int) -> list[Chain]:
    """Each begins with the system prompt, and goes on alone."""
    system = chain_of(_SYSTEM_WINDOWS, 1000 * seed)
    return [chain_of(_SUFFIX_WINDOWS, 1000 * seed + number, system) for number in range(1, num + 1)]


async def talk(world: Neighbourhood, num_nodes: int, seed: int) -> Outcome:
    """One agent after the other; those of one node one after the other, too."""
    chains = conversations(_AGENTS_PER_NODE * num_nodes, seed)
    size = PROFILE.block_size
    rows: list[dict[str, Value]] = []
    answers: list[Answered] = []
    num_wrong = 0
    for number in range(num_nodes):
        gliad = await world.add(f"node {number}")
        for agent in range(_AGENTS_PER_NODE):
            chain = chains[_AGENTS_PER_NODE * number + agent]
            labels = labels_of(chain, _SYSTEM_WINDOWS)
            answered = await gliad.answer(f"agent{agent}", chain, labels)
            answers.append(answered)
            num_wrong += not await gliad.holds(chain)
            rows.append(
                {
                    "node": number,
                    "agent": agent,
                    "here": size * answered.num_here,
                    "from peers": size * answered.num_fetched,
                    "computed": size * answered.num_computed,
                    "first token s": answered.took_s,
                }
            )
        await trio.sleep(2 * HOLD_S)
    num_computed = size * sum(each.num_computed for each in answers)
    least = size * (_SYSTEM_WINDOWS + len(answers) * _SUFFIX_WINDOWS)
    alone = size * len(answers) * (_SYSTEM_WINDOWS + _SUFFIX_WINDOWS)
    stored = [gliad.store.stats().used_bytes for gliad in world.gliads]
    window_bytes = PROFILE.window_particle_bytes
    own = (_SYSTEM_WINDOWS + _AGENTS_PER_NODE * _SUFFIX_WINDOWS) * window_bytes
    return Outcome(
        table=rows,
        checks=(
            Check("tokens computed, beyond one system prompt and the suffixes",
                  num_computed - least, "==", 0),
            Check("tokens computed / without sharing", num_computed / alone, "<=", 1.0),
            Check("bytes stored by a node / a prompt and its suffixes",
                  max(stored) / own, "<=", 1.1),
            Check("conversations with a wrong block", num_wrong, "==", 0),
        ),
        trace=world.net.trace.digest(),
    )  # fmt: skip


def run(setting: Setting) -> Outcome:
    return in_neighbourhood(
        setting.seed, lambda world: talk(world, setting.nodes, setting.seed), LAN
    )


SCENARIO = Scenario(
    name="shared-prompt",
    claim="Agents with one system prompt compute it once, on all nodes together.",
    rows=(51,),
    world="virtual",
    usual=Setting(12),
    quick=Setting(3),
    least=2,
    run=run,
)
