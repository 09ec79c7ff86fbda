"""A share of the nodes lies, boasts, gives nothing or is silent."""

from __future__ import annotations

import blake3

from simulations.scenario import Check, Curve, Outcome, Picture, Scenario, Setting, Value
from simulations.virtual.byzantine import LIARS
from simulations.virtual.world import Town, World, live, quantile

_SHARES = (0.1, 0.2, 0.3)


def town_of(setting: Setting, share: float) -> Town:
    """Every kind of liar in turn; each of them announces every chain."""
    num_odd = max(1, round(share * setting.nodes))
    return Town(
        num_nodes=setting.nodes,
        minutes=setting.minutes,
        seed=setting.seed,
        wants=1.0 if setting.minutes >= 5 else 3.0,
        num_chains=min(20, setting.nodes // 3),
        num_windows=16,
        odd=[LIARS[number % len(LIARS)] for number in range(num_odd)],
    )


def row_of(share: float, world: World) -> dict[str, Value]:
    """What came of one town."""
    result, blamed = world.result, world.blamed()
    liars = {node.name for node in world.odd}
    return {
        "liars": f"{share:.0%}",
        "fetches": result.num_fetches,
        "whole": result.num_whole,
        "wrong": result.num_wrong,
        "median s": quantile(result.took_s, 0.5),
        "95 % s": quantile(result.took_s, 0.95),
        "lies noticed": result.num_lies,
        "liars blamed": len(blamed.keys() & liars),
        "honest blamed": len(blamed.keys() - liars),
    }


def run(setting: Setting) -> Outcome:
    worlds = [live(town_of(setting, share)) for share in _SHARES]
    rows = [row_of(share, world) for share, world in zip(_SHARES, worlds, strict=True)]
    num = sum(world.result.num_fetches for world in worlds)
    num_whole = sum(world.result.num_whole for world in worlds)
    times = [quantile(world.result.took_s, 0.5) for world in worlds]
    return Outcome(
        table=rows,
        checks=(
            Check("wrong particles taken", sum(int(r["wrong"]) for r in rows), "==", 0),
            Check("honest nodes blamed", sum(int(r["honest blamed"]) for r in rows), "==", 0),
            Check("share fetched whole", num_whole / max(1, num), ">=", 0.995),
            Check("lies noticed", sum(int(r["lies noticed"]) for r in rows), ">=", 1),
        ),
        trace=blake3.blake3("".join(world.result.trace for world in worlds).encode()).hexdigest(),
        picture=Picture(
            "share of liars", "s to a whole chain, median", [Curve("", _SHARES, times)]
        ),
    )


SCENARIO = Scenario(
    name="liars",
    claim="With 10 to 30 % of liars nothing wrong is taken, and nobody honest is blamed.",
    rows=(41, 61),
    world="virtual",
    usual=Setting(50, minutes=5),
    quick=Setting(16, minutes=0.5),
    least=12,
    run=run,
)
