"""All scenarios, by name."""

from __future__ import annotations

from simulations.scenarios import churn, eclipse, liars, partition, scale, sybils

SCENARIOS = {
    module.SCENARIO.name: module.SCENARIO
    for module in (churn, partition, liars, sybils, eclipse, scale)
}
