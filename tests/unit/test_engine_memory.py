"""Who is sent away for whom: what is to be freed anyway is counted on."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from daemon.engine_memory import EngineMemory


@dataclass(eq=False)
class Tenant:
    used_s: float = 0.0
    is_busy: bool = False
    is_leaving: bool = False


@pytest.mark.parametrize("is_leaving", [False, True])
def test_nobody_leaves_for_room_that_one_on_its_way_out_will_give(is_leaving: bool) -> None:
    memory = EngineMemory[Tenant](3, 10.0)
    small, large = Tenant(used_s=1.0), Tenant(used_s=2.0)
    memory.ask_beside(small, 1)
    memory.ask_beside(large, 2)
    large.is_leaving = is_leaving
    new = Tenant()
    memory.ask(new, 2, now_s=3.0)
    settled = memory.settle(3.0)
    assert settled.granted == ()  # it is not gone yet
    assert settled.leaving == (() if is_leaving else (small, large))
    memory.forget(large)
    assert memory.settle(4.0).granted == (new,)
