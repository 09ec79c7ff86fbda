"""A share of the nodes takes what it wants, and shows nothing."""

from __future__ import annotations

import blake3

from simulations.scenario import Check, Outcome, Scenario, Setting, Value
from simulations.virtual.byzantine import Taker
from simulations.virtual.world import Town, World, live, quantile

_SHARES = (0.0, 0.5)


def town_of(setting: Setting, share: float) -> Town:
    return Town(
        num_nodes=setting.nodes,
        minutes=setting.minutes,
        seed=setting.seed,
        wants=1.0,
        num_chains=min(20, setting.nodes // 2),
        num_windows=16,
        odd=[Taker] * round(share * setting.nodes),
        odd_hold=False,
    )


def row_of(share: float, world: World) -> dict[str, Value]:
    result = world.result
    return {
        "free riders": f"{share:.0%}",
        "fetches": result.num_fetches,
        "whole": result.num_whole,
        "wrong": result.num_wrong,
        "median s": quantile(result.took_s, 0.5),
        "bytes of blocks a fetch": result.num_bytes / max(1, result.num_fetches),
        "blamed": len(world.blamed()),
    }


def run(setting: Setting) -> Outcome:
    worlds = [live(town_of(setting, share)) for share in _SHARES]
    rows = [row_of(share, world) for share, world in zip(_SHARES, worlds, strict=True)]
    riders = worlds[-1].result
    share_whole = riders.num_whole / max(1, riders.num_fetches)
    slower = float(rows[-1]["median s"]) / max(1e-9, float(rows[0]["median s"]))
    traces = "".join(world.result.trace for world in worlds)
    return Outcome(
        table=rows,
        checks=(
            Check("share fetched whole", share_whole, ">=", 0.995),
            Check("wrong particles taken", sum(int(row["wrong"]) for row in rows), "==", 0),
            Check("nodes blamed", sum(int(row["blamed"]) for row in rows), "==", 0),
            Check("median time, with / without free riders", slower, "<=", 2.0),
        ),
        trace=blake3.blake3(traces.encode()).hexdigest(),
    )


SCENARIO = Scenario(
    name="free-riders",
    claim="Half of the nodes may take and never give: what is shown is had, nearly as soon.",
    rows=(41,),
    world="virtual",
    usual=Setting(50, minutes=5),
    quick=Setting(16, minutes=1),
    least=12,
    run=run,
)
