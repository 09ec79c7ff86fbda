"""F20: who announces a key first, under many names, keeps nobody from finding who has it."""

from __future__ import annotations

import os

import pytest

from p2p.testing.internet import LINK
from simulations.scenarios.sybils import A_WORLD, KINDS, Kind, crowded

NUM_KEEPERS = 30
NUM_LOOK_UPS = 200 if os.environ.get("GLIA_FULL") else A_WORLD  # each by one that goes then


@pytest.mark.fault("F20")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_sybils", [20, 100])
def test_f20_the_honest_provider_is_used(num_sybils: int, kind: Kind) -> None:
    for where, timeout_s, road in (("near", 3.0, lambda *_: LINK), ("far", 10.0, None)):
        found = crowded(kind, num_sybils, NUM_KEEPERS, 0, NUM_LOOK_UPS, timeout_s, road)
        share = found.num_used / NUM_LOOK_UPS
        print(
            f"F20 {num_sybils} sybils, {kind}, {where}: honest provider used {share:.3f} limit 0.95"
        )
        assert share >= 0.95
