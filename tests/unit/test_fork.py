"""Forks: sealed slots by reference, the tail copied on first write."""

from __future__ import annotations

import pytest

from glia.engine.sequence import Request, Sequence
from glia.errors import PoolExhausted
from tests.builders import TINY
from tests.engine_parts import Rig, make_rig
from tests.fake_model import AddingModel
from tests.unit.test_engine import cold, prompt


def started(length: int, num_tokens: int, **model: object) -> tuple[Rig, AddingModel, Sequence]:
    fake = AddingModel(TINY, 64, **model)  # type: ignore[arg-type]
    rig = make_rig(fake, TINY, 64)
    sequence = rig.engine.submit(Request(tuple(prompt(length)), 30))
    while len(sequence.answer) < num_tokens:
        rig.outcomes += rig.engine.step()
    return rig, fake, sequence


@pytest.mark.spec(6)
@pytest.mark.parametrize(("length", "num_tokens"), [(40, 3), (32, 1), (33, 17), (5, 1), (47, 2)])
def test_a_fork_shares_sealed_slots_and_copies_only_its_tail(length: int, num_tokens: int) -> None:
    rig, model, sequence = started(length, num_tokens)
    used = rig.engine.l0().used_bytes
    twin = rig.engine.fork(sequence)
    assert rig.engine.l0().used_bytes == used  # nothing is copied yet
    assert twin.table == sequence.table[: len(sequence.chain)]
    before = model.num_computed
    twin.tokens[-1] = (twin.tokens[-1] + 1) % model.vocab_size  # go another way
    changed = list(twin.tokens)
    rig.run()
    assert model.num_computed - before <= 2 * 31  # neither computed its prefix again
    assert rig.answer(sequence).tokens == cold(prompt(length), 30)
    left = 30 - num_tokens
    assert rig.answer(twin).tokens[num_tokens:] == cold(changed, left)
    for each in (sequence, twin):  # what was sealed of either are its own bytes
        rig.engine.evict_l0()
        again = rig.generate([*each.tokens, 1])
        assert again.usage.l1 == len(each.tokens) // 16 * 16
        assert again.tokens == cold([*each.tokens, 1])


def test_a_fork_goes_on_alike_when_nothing_differs() -> None:
    rig, _, sequence = started(40, 5)
    twin = rig.engine.fork(sequence)
    grandchild = rig.engine.fork(twin)
    rig.run()
    expected = cold(prompt(40), 30)
    for each in (sequence, twin, grandchild):
        assert rig.answer(each).tokens == expected
        assert rig.answer(each).usage.prompt_tokens == 40
    assert rig.answer(twin).tip == rig.answer(sequence).tip


def test_a_fork_of_windows_without_names_computes_them_again() -> None:
    rig, _, sequence = started(40, 20, decode_is_exact=False)
    twin = rig.engine.fork(sequence)
    rig.run()
    assert rig.answer(twin).tokens == rig.answer(sequence).tokens == cold(prompt(40), 30)


def test_a_fork_needs_room() -> None:
    fake = AddingModel(TINY, 6)
    rig = make_rig(fake, TINY, 6)
    sequence = rig.engine.submit(Request(tuple(prompt(40)), 30))
    rig.engine.step()
    with pytest.raises(PoolExhausted):
        rig.engine.fork(sequence)
    rig.run()
    with pytest.raises(ValueError, match="runs"):
        rig.engine.fork(sequence)
