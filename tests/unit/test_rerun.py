"""Single windows of a log, run again on the windows before them as they are claimed."""

from __future__ import annotations

import pytest
import torch

from glia.engine.rerun import Rerun, Unit
from glia.engine.sampler import Sampler
from glia.errors import NotFound, PoolExhausted, PromptError
from glia.graph.answers import ChosenSpan
from glia.graph.ids import WindowId
from glia.graph.sampling import Sampling
from tests.builders import TINY
from tests.engine_parts import Rig, make_memory, make_rig
from tests.fake_model import AddingModel
from tests.unit.test_engine import fresh, prompt
from tests.unit.test_replay import HOT, talk

SIZE = TINY.block_size


def units_of(log: list[int], spans: list[ChosenSpan], *places: int) -> list[Unit]:
    return [Unit(at, tuple(log[at * SIZE : (at + 1) * SIZE]), tuple(spans)) for at in places]


def chain_of(rig: Rig, log: list[int]) -> list[WindowId]:
    return rig.memory.match(log, exact=True)


@pytest.fixture
def said() -> tuple[Rig, list[int], list[ChosenSpan], list[WindowId]]:
    rig = fresh()
    log, spans, _ = talk(rig, (20, 30, HOT), (5, 9, Sampling()), (7, 60, HOT))
    return rig, log, spans, chain_of(rig, log)


def test_every_window_holds_by_itself_and_tells_what_follows_from_it(
    said: tuple[Rig, list[int], list[ChosenSpan], list[WindowId]],
) -> None:
    rig, log, spans, chain = said
    everything = units_of(log, spans, *range(len(chain) + 1))
    told: list[int] = []
    for found in (
        rig.engine.rerun(chain, everything),
        [rig.engine.rerun(chain, [unit])[0] for unit in reversed(everything)][::-1],
    ):
        assert [each.is_equal for each in found] == [True] * len(chain) + [None]
        told = [token for each in found for token in each.told]
        assert told == [token for span in spans for token in log[span.start : span.end]]


def test_it_leaves_nothing_behind(
    said: tuple[Rig, list[int], list[ChosenSpan], list[WindowId]],
) -> None:
    rig, log, spans, chain = said
    rig.engine.evict_l0()
    rig.engine.forget_l0()  # zeroes what nobody uses
    rig.engine.rerun(chain, units_of(log, spans, 2, 5))
    rig.engine.check()
    assert (rig.engine.l0().num_windows, rig.memory.num_leases) == (0, 0)
    model = rig.engine._model
    assert isinstance(model, AddingModel)
    assert not any(layer.any() for layer in model.pool)


def test_a_token_or_a_seed_that_is_another_is_told(
    said: tuple[Rig, list[int], list[ChosenSpan], list[WindowId]],
) -> None:
    rig, log, spans, chain = said
    other = [*log]
    other[40] = (other[40] + 1) % 97
    (found,) = rig.engine.rerun(chain, units_of(other, spans, 2))
    assert found.is_equal is False
    cold = [ChosenSpan(20, 50, Sampling())]
    assert rig.engine.rerun(chain, units_of(log, cold, 2))[0].told != tuple(log[33:49])


def test_what_is_claimed_is_what_it_is_computed_from() -> None:
    """Another chain's windows in front: each byte of what follows is another."""
    rig = fresh()
    log, spans, _ = talk(rig, (70, 30, HOT))
    chain = chain_of(rig, log)
    rig.generate(prompt(64, seed=9), 1)
    mixed = [*chain_of(rig, [*prompt(64, seed=9), 1])[:2], *chain[2:]]
    found = rig.engine.rerun(mixed, units_of(log, spans, 2))
    assert found[0].is_equal is False


def test_what_cannot_be_is_refused(
    said: tuple[Rig, list[int], list[ChosenSpan], list[WindowId]],
) -> None:
    rig, log, spans, chain = said
    with pytest.raises(PromptError, match="vocabulary"):
        rig.engine.rerun(chain, [Unit(1, (97,) * SIZE, ())])
    with pytest.raises(PromptError, match="context"):
        rig.engine.rerun(chain, [Unit(8192 // SIZE, (1,), ())])
    small = make_rig(AddingModel(TINY, 3), TINY, 3, memory=rig.memory)
    with pytest.raises(PoolExhausted):
        small.engine.rerun(chain, units_of(log, spans, 5))
    assert small.engine.rerun(chain, units_of(log, spans, 2))[0].is_equal
    empty = make_rig(AddingModel(TINY, 64), TINY, 64, memory=make_memory(TINY, "native:adding"))
    with pytest.raises(NotFound):
        empty.engine.rerun(chain, units_of(log, spans, 5))
    empty.engine.check()
    assert empty.engine.rerun([], units_of(log, [], 0)) == [Rerun(None, ())]


@pytest.mark.parametrize("num", [0, 1, 15, 16, 1000])
def test_a_sampler_skips_what_it_would_have_drawn(num: int) -> None:
    logits = torch.linspace(0, 1, 97)
    one, other = Sampler(HOT), Sampler(HOT)
    for _ in range(num):
        one.choose(logits)
    other.skip(num)
    assert [one.choose(logits) for _ in range(8)] == [other.choose(logits) for _ in range(8)]
