"""All scenarios, by name."""

from __future__ import annotations

from simulations.scenarios import (
    announcing,
    cache_pressure,
    churn,
    eclipse,
    flock,
    fork_storm,
    free_riders,
    gliads,
    growth,
    liars,
    moving,
    partition,
    privacy,
    scale,
    shared_prompt,
    slow_links,
    sybils,
)

SCENARIOS = {
    module.SCENARIO.name: module.SCENARIO
    for module in (
        shared_prompt,
        flock,
        fork_storm,
        slow_links,
        privacy,
        announcing,
        churn,
        partition,
        liars,
        free_riders,
        sybils,
        eclipse,
        scale,
        growth,
        gliads,
        moving,
        cache_pressure,
    )
}
