"""Nodes made ids to be the closest to a key, and drop its records (SECURITY F21).

They name each other to whoever asks for the closest. What is on the network is found all the
same: where nodes meet anyway, and because look-ups see that the closest are too close.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from p2p.testing.host import SimHost
from p2p.testing.internet import Internet
from p2p.testing.kad import distance
from p2p.testing.names import peer_id_of
from simulations.scenario import Check, Outcome, Scenario, Setting, Value
from simulations.virtual.crowd import MANY, all_join, in_crowd

KEY = bytes(range(32))
_NUM_BOOTSTRAP = 3
_ATTACKERS = 45 / 200  # of all nodes
_MOST_LOOK_UPS = 40


@dataclass(frozen=True)
class Eclipse:
    """What came of look-ups. `num_alarms`: those that saw that the closest are too close."""

    num_look_ups: int
    num_found: int
    num_alarms: int
    trace: str

    @property
    def share(self) -> float:
        return self.num_found / self.num_look_ups


def attackers(honest: Sequence[str], num: int, seed: int) -> list[str]:
    """Names of nodes whose ids are closer to the key than any honest one."""
    nearest = min(distance(peer_id_of(seed, name), KEY) for name in honest)
    found: list[str] = []
    number = 0
    while len(found) < num:
        name = f"attacker {number}"
        if distance(peer_id_of(seed, name), KEY) < nearest:
            found.append(name)
        number += 1
    return found


async def grow(net: Internet, num_nodes: int, seed: int, *, use_rendezvous: bool) -> list[SimHost]:
    """All of them, connected and known to each other. Returns: the honest ones."""
    num_bad = round(_ATTACKERS * num_nodes)
    names = [f"node {number}" for number in range(num_nodes - num_bad)]
    honest = [net.host(name, limits=MANY) for name in names]
    bad = [net.host(name, limits=MANY) for name in attackers(names, num_bad, seed)]
    bootstrap = honest[:_NUM_BOOTSTRAP]
    later = [*honest[_NUM_BOOTSTRAP:], *bad]
    for host in random.Random(seed).sample(later, len(later)):
        for other in bootstrap:
            await host.connect(other.addresses()[0])
    for host in bad:
        host.records.drops = True
        host.records.names = [other.peer_id for other in bad]
    if use_rendezvous:
        for host in honest:
            meeting = [each.peer_id for each in bootstrap if each is not host]
            host.directory.rendezvous = lambda meeting=meeting: meeting  # type: ignore[misc]
    await all_join(net, honest)
    return honest


def eclipse(
    num_nodes: int, seed: int, num_look_ups: int, *, use_rendezvous: bool = True
) -> Eclipse:
    """Look-ups of honest nodes for what another one provides."""

    async def main(net: Internet) -> Eclipse:
        honest = await grow(net, num_nodes, seed, use_rendezvous=use_rendezvous)
        publisher, *getters = random.Random(seed).sample(honest[_NUM_BOOTSTRAP:], num_look_ups + 1)
        await publisher.directory.provide(KEY)
        num_found = 0
        for getter in getters:
            found = await getter.directory.providers(KEY, 128)
            num_found += publisher.peer_id in [each.peer for each in found]
        num_alarms = sum(getter.directory.num_crowded for getter in getters)
        return Eclipse(num_look_ups, num_found, num_alarms, net.trace.digest())

    return in_crowd(seed, main)


def run(setting: Setting) -> Outcome:
    num_honest = setting.nodes - round(_ATTACKERS * setting.nodes)
    num_look_ups = min(_MOST_LOOK_UPS, num_honest - _NUM_BOOTSTRAP - 1)
    found = eclipse(setting.nodes, setting.seed, num_look_ups)
    alone = eclipse(setting.nodes, setting.seed, num_look_ups, use_rendezvous=False)
    rows: list[dict[str, Value]] = [
        {
            "where others meet": where,
            "look-ups": each.num_look_ups,
            "found": each.num_found,
            "alarms": each.num_alarms,
        }
        for where, each in (("asked", found), ("not asked", alone))
    ]
    return Outcome(
        table=rows,
        checks=(Check("share found", found.share, ">=", 0.95),),
        trace=found.trace,
    )


SCENARIO = Scenario(
    name="eclipse",
    claim="Where attackers are the closest to a key and drop its records, these are found.",
    rows=(41,),
    faults=("F21",),
    world="virtual",
    usual=Setting(200),
    quick=Setting(60),
    least=40,
    run=run,
)
