"""Nodes come and go, a twentieth of all segments is lost, and two nodes lie (SECURITY F24)."""

from __future__ import annotations

from simulations.scenario import Check, Outcome, Scenario, Setting, figures
from simulations.virtual.byzantine import Liar
from simulations.virtual.world import Town, live, quantile

_NUM_LIARS = 2


def town_of(setting: Setting) -> Town:
    """A fifth of the nodes goes every minute."""
    return Town(
        num_nodes=setting.nodes,
        minutes=setting.minutes,
        seed=setting.seed,
        churn=0.2,
        loss=0.05,
        wants=0.5 if setting.minutes >= 2 else 2.0,
        num_chains=min(30, setting.nodes // 2),
        odd=[Liar] * _NUM_LIARS,
    )


def run(setting: Setting) -> Outcome:
    """Fetches count for which an honest holder was online from end to end."""
    result = live(town_of(setting)).result
    share = result.num_whole / max(1, result.num_fetches)
    return Outcome(
        table=figures(
            {
                "fetches, a holder online": result.num_fetches,
                "fetched whole": result.num_whole,
                "time, median (s)": quantile(result.took_s, 0.5),
                "time, 99 % (s)": quantile(result.took_s, 0.99),
                "fetches, no holder stayed": result.num_without_holder,
                "nodes that went": result.num_gone,
                "lies noticed": result.num_lies,
                "announcements": result.announcements,
                "messages of the directory": result.directory_messages,
                "bytes asked and fetched": result.sent_bytes,
                "bytes of blocks": result.num_bytes,
            }
        ),
        checks=(
            Check("share fetched whole", share, ">=", 0.995),
            Check("wrong particles taken", result.num_wrong, "==", 0),
            Check("fetches", result.num_fetches, ">=", 1),
        ),
        trace=result.trace,
    )


SCENARIO = Scenario(
    name="churn",
    claim="While nodes come and go, what an honest node that stays has is fetched, and is right.",
    rows=(41, 61),
    faults=("F24",),
    world="virtual",
    usual=Setting(50, minutes=10),
    quick=Setting(14, minutes=1),
    least=10,
    run=run,
)
