"""Conversations that are public in part, on nodes whose every byte is read (SECURITY F27)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import trio

from glia.graph.ids import digest
from simulations.scenario import Check, Outcome, Scenario, Setting, figures
from simulations.virtual.gliad import Neighbourhood, in_neighbourhood
from simulations.virtual.mixed import Said, Secrets, ask_for_all, conversations
from simulations.virtual.tap import Outbound, found_in

HOLD_S = 60.0
_PER_NODE = 12
_ANNOUNCED_S = 20.0  # for each conversation


@dataclass(frozen=True)
class Overheard:
    """All that left the nodes.

    Attributes:
        told_early: kinds of announcements made while everything was held yet.
        leaked, seen: sentinels of what is private, and of what is shown, in it.
    """

    out: Outbound
    told_early: frozenset[str]
    leaked: frozenset[bytes]
    seen: frozenset[bytes]
    num_announced: int
    trace: str


async def tell(world: Neighbourhood, said: Sequence[Sequence[Said]], secrets: Secrets) -> Overheard:
    """Every node has its conversations; then a stranger, who knows every name, asks for all.

    Args: said: by node.
    """
    out, stranger = Outbound(), world.net.host("stranger")
    for number in range(len(said)):
        gliad = await world.add(f"node {number}", HOLD_S)
        out.tap(gliad.peering.host)
        await gliad.peering.host.connect(stranger.addresses()[0])
    for gliad, conversations_of_it in zip(world.gliads, said, strict=True):
        for each in conversations_of_it:
            await gliad.answer(each.name, each.chain, each.messages)
            if each.by_hand is not None:
                await gliad.publisher.publish(each.name, each.by_hand, dry=False)
            await trio.sleep(0.1)
    told_early = {"provide", "put", "publish"} & out.kinds.keys()
    for gliad, conversations_of_it in zip(world.gliads, said, strict=True):
        for each in conversations_of_it:
            await ask_for_all(stranger, gliad.peering.host.peer_id, each)
    await trio.sleep(HOLD_S + _ANNOUNCED_S * sum(map(len, said)))
    return Overheard(
        out,
        frozenset(told_early),
        frozenset(found_in(out.bytes, secrets.private)),
        frozenset(found_in(out.bytes, secrets.shown)),
        sum(gliad.peering.counters["announced"] for gliad in world.gliads),
        world.net.trace.digest(),
    )


def mixed(num_nodes: int, num: int, seed: int) -> tuple[list[list[Said]], Secrets]:
    """So many conversations for each node, and what is secret of them."""
    rng, secrets = random.Random(f"mixed {seed}"), Secrets()
    everything = list(conversations(rng, num * num_nodes))
    for each in everything:
        secrets.add(each)
    secrets.settle(*(digest(f"node {number}".encode()) for number in range(num_nodes)))
    return [everything[number::num_nodes] for number in range(num_nodes)], secrets


def run(setting: Setting) -> Outcome:
    said, secrets = mixed(setting.nodes, _PER_NODE, setting.seed)
    heard = in_neighbourhood(setting.seed, lambda world: tell(world, said, secrets))
    return Outcome(
        table=figures(
            {
                "conversations": sum(map(len, said)),
                "bytes that left the nodes": len(heard.out.bytes),
                "sentinels of what is private": len(secrets.private),
                "of these found in the bytes": len(heard.leaked),
                "sentinels of what is public": len(secrets.shown),
                "of those found": len(heard.seen),
                "boundaries announced": heard.num_announced,
                "look-ups in the directory": heard.out.kinds.get("providers", 0),
            }
        ),
        checks=(
            Check("private sentinels in the bytes", len(heard.leaked), "==", 0),
            Check("kinds of announcements before the hold ended", len(heard.told_early), "==", 0),
            Check("share of public ones found, so the search finds what is there",
                  len(heard.seen) / len(secrets.shown), ">=", 0.8),
            Check("boundaries announced", heard.num_announced, ">=", 1),
        ),
        trace=heard.trace,
    )  # fmt: skip


SCENARIO = Scenario(
    name="privacy",
    claim="Of conversations that are public in part, nothing private is on any wire.",
    rows=(33, 47, 50),
    faults=("F27",),
    world="virtual",
    usual=Setting(10),
    quick=Setting(2),
    run=run,
)
