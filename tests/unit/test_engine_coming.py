"""A sequence whose prefix peers are sending takes it as it comes; others go on meanwhile."""

from __future__ import annotations

from collections.abc import Sequence as Several

import pytest
import torch

from glia.engine.finding import Finding
from glia.engine.memory import Leased
from glia.engine.outcome import Emitted
from glia.engine.sequence import Request
from glia.errors import ArenaExhausted, GliaError, StoreBroken
from tests.builders import TINY
from tests.engine_parts import Rig, Trusting, computed_elsewhere, make_rig
from tests.fake_model import AddingModel
from tests.unit.test_engine import prompt

SIZE = TINY.block_size
NUM = 20
TOKENS = tuple(prompt(NUM * SIZE + 5))
COLD, WINDOWS = computed_elsewhere(TOKENS)


class Sent:
    """A rig to which peers send windows, so many before each lease."""

    def __init__(self, *num_each: int, examiner: Trusting | None = None) -> None:
        model = AddingModel(TINY, 128)
        self.rig = make_rig(model, TINY, 128, prefill_tokens=4 * SIZE, examiner=examiner)
        self._each = list(num_each)
        self.num_leases = 0
        self.rig.memory.send(WINDOWS[:NUM])
        self.rig.memory.on_lease = self._on_lease

    def _on_lease(self) -> None:
        self.num_leases += 1
        if self._each:
            self.rig.memory.came(self._each.pop(0))
        else:
            self.rig.memory.lost()


def check(rig: Rig, sent: Sent, num: int) -> None:
    """The answer is that of a cold run; so many windows of it are a peer's."""
    answer = rig.generate(TOKENS)
    assert (answer.tokens, answer.tip) == (COLD.tokens, COLD.tip)
    assert answer.usage.peers == num * SIZE
    assert answer.usage.computed == len(TOKENS) - num * SIZE
    assert answer.usage.prompt_tokens == len(TOKENS)
    assert rig.memory.num_leases == 0


@pytest.mark.parametrize(
    "each", [(NUM,), (0, NUM), (5, 7, 8), (1,) * NUM, (0, 0, 3, 0, 17), (19, 1)]
)
def test_all_of_it_is_taken_as_it_comes(each: tuple[int, ...]) -> None:
    sent = Sent(*each)
    check(sent.rig, sent, NUM)


@pytest.mark.parametrize("each", [(), (0,), (5,), (5, 7), (1, 0, 0, 2), (19,)])
def test_where_no_more_comes_the_rest_is_computed(each: tuple[int, ...]) -> None:
    sent = Sent(*each)
    check(sent.rig, sent, sum(each))


def test_each_is_looked_at_before_it_is_used() -> None:
    examiner = Trusting()
    sent = Sent(5, 7, 8, examiner=examiner)
    check(sent.rig, sent, NUM)
    assert examiner.num_checked == NUM


@pytest.mark.parametrize("bad", [0, 3, 9, 19])
def test_nothing_behind_a_bad_one_is_used_or_waited_for(bad: int) -> None:
    class Strict(Trusting):
        def check(
            self, tokens: Several[int], windows: Several[torch.Tensor], is_canonical: Several[bool]
        ) -> list[Finding]:
            found = super().check(tokens, windows, is_canonical)
            own = TOKENS[bad * SIZE : (bad + 1) * SIZE]
            cut = [tuple(tokens[at : at + SIZE]) for at in range(0, len(tokens), SIZE)]
            return [
                Finding("false", "layer 0") if each == own else f
                for each, f in zip(cut, found, strict=True)
            ]

    sent = Sent(5, 7, 3, 5, examiner=Strict())
    check(sent.rig, sent, bad)


@pytest.mark.parametrize("bad", [2, 8])
def test_one_that_is_computed_again_and_is_false_ends_it(bad: int) -> None:
    class Strict(Trusting):
        def audit(self, *_: object, is_canonical: bool) -> Finding:
            return Finding("false", "all layers")

    sent = Sent(5, 7, 8, examiner=Strict())
    sent.rig.memory.audits.add(WINDOWS[bad].record.window_id)
    check(sent.rig, sent, bad)


def test_another_answer_goes_on_with_a_token_a_step() -> None:
    sent = Sent(*(1,) * NUM)
    engine = sent.rig.engine
    other = engine.submit(Request(tuple(prompt(30, seed=9)), 40))
    while not other.answer:
        sent.rig.outcomes += engine.step()
    waits = engine.submit(Request(TOKENS, 8))
    num_steps = 0
    while not waits.answer:
        before = len(other.answer)
        sent.rig.outcomes += engine.step()
        num_steps += 1
        assert len(other.answer) == before + 1
        assert sent.num_leases <= num_steps
    assert num_steps >= NUM
    sent.rig.run()
    assert sent.rig.answer(waits).tokens == COLD.tokens
    assert sent.rig.emitted(other) == list(other.answer)
    assert any(isinstance(each, Emitted) for each in sent.rig.outcomes)


def test_one_that_is_cancelled_while_it_waits_ends_at_the_next_step() -> None:
    sent = Sent(*(1,) * NUM)
    sequence = sent.rig.engine.submit(Request(TOKENS, 8))
    for _ in range(5):
        assert sent.rig.engine.step() == []
    sent.rig.engine.cancel(sequence)
    sent.rig.run()
    assert sent.rig.answer(sequence).finish_reason == "cancelled"
    assert sent.rig.memory.num_leases == 0
    assert sent.rig.engine.idle


def test_what_is_in_l0_already_is_shared() -> None:
    sent = Sent(3, 17)
    sent.rig.memory.lost()
    early = sent.rig.generate(TOKENS)
    assert early.usage.computed == len(TOKENS)
    names = [window.record.window_id for window in WINDOWS]
    sent.rig.memory.forget(names)
    sent.rig.engine._residency.drop(names[:6])
    sent.rig.memory.send(WINDOWS[:NUM])
    answer = sent.rig.generate(TOKENS)
    assert (answer.tokens, answer.tip) == (COLD.tokens, COLD.tip)
    assert (answer.usage.l0, answer.usage.peers) == ((NUM - 6) * SIZE, 6 * SIZE)


@pytest.mark.parametrize("error", [ArenaExhausted("full"), StoreBroken("broken")])
def test_where_the_memory_refuses_the_rest_is_computed(
    error: GliaError, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = Sent(5, 15)
    lease = sent.rig.memory.lease_end

    def refuse() -> Leased:
        if sent.num_leases:
            lease_now = lease()
            sent.rig.memory.release(lease_now.lease)
            raise error
        return lease()

    sequence = sent.rig.engine.submit(Request(TOKENS, 8))
    assert sent.rig.engine.step() == []
    monkeypatch.setattr(sent.rig.memory, "lease_end", refuse)
    sent.rig.run()
    answer = sent.rig.answer(sequence)
    assert (answer.tokens, answer.tip) == (COLD.tokens, COLD.tip)
    assert answer.usage.peers == 5 * SIZE
    assert answer.warning is not None
    assert sent.rig.memory.num_leases == 0
