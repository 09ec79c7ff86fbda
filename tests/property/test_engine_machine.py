"""Any order of requests, steps, cancels, forks, evictions and forgetting: each gets its tokens."""

from __future__ import annotations

from functools import cache

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from glia.engine.outcome import Broken, Finished
from glia.engine.sequence import Request, Sequence, State
from glia.errors import PoolExhausted
from glia.graph.ids import WindowId
from tests.builders import TINY
from tests.engine_parts import computed_elsewhere, make_memory, make_rig
from tests.fake_model import AddingModel

SIZE = TINY.block_size
NUM_SLOTS = 24
VOCABULARY = 97


def prompt_of(stem: int, stem_length: int, length: int) -> tuple[int, ...]:
    """Prompts that share stems of any length."""
    body = [(stem * 31 + i * 7) % VOCABULARY for i in range(stem_length)]
    rest = [(i * 11 + stem_length) % VOCABULARY for i in range(length - stem_length)]
    return tuple(body + rest)


@cache
def alone(tokens: tuple[int, ...], max_tokens: int) -> tuple[int, ...]:
    """What a cold engine with room for everything says."""
    rig = make_rig(AddingModel(TINY, 64), TINY, 64)
    return rig.generate(tokens, max_tokens).tokens


# The same tokens get the same names in every run of every machine: wrong bytes would not.
NAMES: dict[tuple[int, ...], WindowId | None] = {}


class EngineMachine(RuleBasedStateMachine):
    """An engine with little room in every tier, against `alone`."""

    live = Bundle("live")

    def __init__(self) -> None:
        super().__init__()
        self.model = AddingModel(TINY, NUM_SLOTS)
        memory = make_memory(TINY, self.model.numerics_class, arena_windows=10, staging_windows=3)
        self.rig = make_rig(
            self.model, TINY, NUM_SLOTS, memory=memory, max_running=3, prefill_tokens=48
        )
        self.named: dict[bytes, list[np.ndarray]] = {}
        self.cancelled: set[Sequence] = set()

    @rule(
        target=live,
        stem=st.integers(0, 2),
        stem_length=st.integers(0, 120),
        more=st.integers(1, 60),
        max_tokens=st.integers(1, 40),
    )
    def submit(self, stem: int, stem_length: int, more: int, max_tokens: int) -> Sequence:
        tokens = prompt_of(stem, stem_length, stem_length + more)
        return self.rig.engine.submit(Request(tokens, max_tokens))

    @rule(count=st.integers(1, 12))
    def step(self, count: int) -> None:
        for _ in range(count):
            for outcome in self.rig.engine.step():
                self.rig.outcomes.append(outcome)
                assert not isinstance(outcome, Broken), outcome
                if isinstance(outcome, Finished):
                    self.check_answer(outcome)

    @rule(sequence=consumes(live))
    def cancel(self, sequence: Sequence) -> None:
        if sequence.state is not State.FINISHED:
            self.cancelled.add(sequence)
        self.rig.engine.cancel(sequence)

    @rule(target=live, sequence=live)
    def fork(self, sequence: Sequence) -> Sequence:
        if sequence.state is State.DECODING and sequence not in self.rig.engine._endings:
            try:
                return self.rig.engine.fork(sequence)
            except PoolExhausted:
                pass
        return sequence

    @rule(sequence=live, start=st.integers(0, 8), missing=st.integers(0, 8))
    def meet(self, sequence: Sequence, start: int, missing: int) -> None:
        """Peers sent its windows from one on; one may be missing."""
        _, windows = computed_elsewhere(sequence.request.tokens)
        self.rig.memory.bring([w for at, w in enumerate(windows) if start <= at != missing])
        self.rig.engine.meet(sequence, start * SIZE)

    @rule()
    def evict_l0(self) -> None:
        self.rig.engine.evict_l0()

    @rule(every=st.integers(1, 4))
    def forget_l0(self, every: int) -> None:
        engine = self.rig.engine
        doomed = engine._residency.unused[::every]
        stay = set(engine._residency._slots) - set(doomed)
        self.rig.memory.forget(doomed)
        engine.forget_l0()
        assert set(engine._residency._slots) == stay
        for slot in engine._residency.free_slots:
            assert not any(pool[slot].any() for pool in self.model.pool)

    @rule()
    def change_pace(self) -> None:
        self.rig.memory.is_quick = not self.rig.memory.is_quick

    @rule()
    def drop_l1(self) -> None:
        self.rig.memory.drop_l1()

    @invariant()
    def whole(self) -> None:
        self.rig.engine.check()
        assert self.rig.memory.num_leases == 0

    @invariant()
    def sealed_slots_never_change(self) -> None:
        for name, slot in self.rig.engine._residency._slots.items():
            now = [pool[slot] for pool in self.model.pool]
            then = self.named.setdefault(name, [layer.copy() for layer in now])
            assert all(np.array_equal(a, b) for a, b in zip(now, then, strict=True))

    def teardown(self) -> None:
        while not self.rig.engine.idle:
            self.step(1)
        self.whole()
        self.rig.engine.evict_l0()
        assert self.rig.engine.l0().used_bytes == 0

    def check_answer(self, finished: Finished) -> None:
        request, answer = finished.sequence.request, finished.answer
        expected = alone(request.tokens, request.max_tokens)
        if finished.sequence in self.cancelled:
            assert answer.tokens == expected[: len(answer.tokens)]
            return
        assert answer.tokens == expected
        assert answer.warning is None
        assert answer.usage.prompt_tokens == len(request.tokens)
        total = len(request.tokens) + len(answer.tokens)
        assert len(finished.sequence.chain) == total // SIZE
        whole = tuple(finished.sequence.tokens[: total // SIZE * SIZE])
        assert NAMES.setdefault(whole, answer.tip) == answer.tip


TestEngineMachine = EngineMachine.TestCase
TestEngineMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
