"""A sequence that computes from the front takes what peers sent from the back, and goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from glia.engine.outcome import Prefilled
from glia.engine.sequence import Request
from glia.errors import ArenaExhausted, GliaError, NotFound
from glia.graph.ids import WindowId
from glia.store.base import SealedWindow
from tests.builders import TINY
from tests.engine_parts import Rig, computed_elsewhere, make_rig
from tests.fake_model import AddingModel
from tests.unit.test_engine import prompt

SIZE = TINY.block_size
LENGTH = 20 * SIZE + 5


def rig() -> Rig:
    return make_rig(AddingModel(TINY, 64), TINY, 64, prefill_tokens=4 * SIZE)


TOKENS = prompt(LENGTH)
COLD, WINDOWS = computed_elsewhere(tuple(TOKENS))


@pytest.mark.parametrize("position", [0, 1, 4, 5, 7, 12, 19])
def test_it_computes_up_to_there_and_no_more(position: int) -> None:
    here = rig()
    here.memory.bring(WINDOWS[position:20])
    sequence = here.engine.submit(Request(tuple(TOKENS), 8))
    here.engine.meet(sequence, position * SIZE)
    here.run()
    answer = here.answer(sequence)
    assert (answer.tokens, answer.tip) == (COLD.tokens, COLD.tip)
    assert answer.usage.peers == (20 - position) * SIZE
    assert answer.usage.computed == position * SIZE + 5
    assert answer.usage.prompt_tokens == LENGTH
    assert sequence.chain == [window.record.window_id for window in WINDOWS]
    assert here.memory.num_leases == 0


def test_more_comes_from_the_back_while_it_computes() -> None:
    """Told at every step, with less left each time."""
    here = rig()
    sequence = here.engine.submit(Request(tuple(TOKENS), 8))
    start = 20

    def more() -> None:
        nonlocal start
        if not sequence.answer and start > 2:
            start -= 3
            here.memory.bring(WINDOWS[start:20])
            here.engine.meet(sequence, start * SIZE)

    here.run(more)
    answer = here.answer(sequence)
    assert (answer.tokens, answer.tip) == (COLD.tokens, COLD.tip)
    # 4 windows at once: after 4, 8 and 12 of them 17, 14 and 11 is where what came begins
    assert answer.usage.peers == (20 - 12) * SIZE
    done = [o.done // SIZE for o in here.outcomes if isinstance(o, Prefilled)]
    assert done == [4, 8, 12, 20]


def test_what_waits_in_the_queue_meets_when_it_begins() -> None:
    here = rig()
    first = here.engine.submit(Request(tuple(prompt(LENGTH, 1)), 4))
    sequence = here.engine.submit(Request(tuple(TOKENS), 8))
    here.memory.bring(WINDOWS[:20])
    here.engine.meet(sequence, 0)
    here.run()
    assert here.answer(first).usage.peers == 0
    assert here.answer(sequence).usage.peers == 20 * SIZE
    assert here.answer(sequence).tokens == COLD.tokens


def test_what_is_in_l0_already_is_shared() -> None:
    here = rig()
    here.memory.bring(WINDOWS[3:20])
    early = here.engine.submit(Request(tuple(TOKENS), 8))
    late = here.engine.submit(Request(tuple(TOKENS), 8))
    here.engine.meet(early, 3 * SIZE)
    here.engine.cancel(late)
    here.run()
    names = [window.record.window_id for window in WINDOWS[:3]]
    here.memory.forget([window.record.window_id for window in WINDOWS])
    here.engine._residency.drop(names)  # the front is to be computed anew, the back is in L0
    here.memory.bring(WINDOWS[3:20])
    again = here.engine.submit(Request(tuple(TOKENS), 8))
    here.engine.meet(again, 3 * SIZE)
    here.run()
    answer = here.answer(again)
    assert (answer.tokens, answer.tip) == (COLD.tokens, COLD.tip)
    assert (answer.usage.l0, answer.usage.computed) == (17 * SIZE, 3 * SIZE + 5)


@pytest.mark.parametrize("kind", ["other tokens", "nothing", "a hole", "never told of"])
def test_what_does_not_follow_is_computed(kind: str) -> None:
    here = rig()
    brought = {
        "other tokens": computed_elsewhere((*TOKENS[: 6 * SIZE], 1, *TOKENS[6 * SIZE + 1 :]))[1][
            6:
        ],
        "nothing": [],
        "a hole": [*WINDOWS[6:8], *WINDOWS[9:20]],
        "never told of": WINDOWS[6:20],
    }[kind]
    here.memory.bring(brought)
    sequence = here.engine.submit(Request(tuple(TOKENS), 8))
    if kind != "never told of":
        here.engine.meet(sequence, 6 * SIZE)
    here.run()
    answer = here.answer(sequence)
    assert (answer.tokens, answer.tip) == (COLD.tokens, COLD.tip)
    assert answer.usage.peers == (2 * SIZE if kind == "a hole" else 0)


@pytest.mark.parametrize("error", [NotFound("gone"), ArenaExhausted("full")])
def test_where_the_memory_refuses_it_is_computed(error: GliaError) -> None:
    here = rig()

    def refuse(prev: WindowId | None, tokens: Sequence[int]) -> list[WindowId]:
        raise error

    here.memory.adopt = refuse  # type: ignore[method-assign]
    sequence = here.engine.submit(Request(tuple(TOKENS), 8))
    here.engine.meet(sequence, 6 * SIZE)
    here.run()
    assert here.answer(sequence).tokens == COLD.tokens
    assert here.answer(sequence).warning is None


def test_windows_that_leave_before_they_are_leased_are_computed() -> None:
    here = rig()
    here.memory.bring(WINDOWS[6:20])
    adopt = here.memory.adopt

    def adopted(prev: WindowId | None, tokens: Sequence[int]) -> list[WindowId]:
        names = adopt(prev, tokens)
        here.memory.forget(names[5:7])
        return names

    here.memory.adopt = adopted  # type: ignore[method-assign]
    sequence = here.engine.submit(Request(tuple(TOKENS), 8))
    here.engine.meet(sequence, 6 * SIZE)
    here.run()
    answer = here.answer(sequence)
    assert (answer.tokens, answer.tip) == (COLD.tokens, COLD.tip)
    assert answer.usage.peers == 5 * SIZE


def test_where_its_own_windows_have_no_names_it_goes_on_alone() -> None:
    here = rig()
    here.memory.bring(WINDOWS[8:20])
    sequence = here.engine.submit(Request(tuple(TOKENS), 8))
    sequence.keepable = False
    here.engine.meet(sequence, 8 * SIZE)
    here.run()
    answer = here.answer(sequence)
    assert answer.tokens == COLD.tokens
    assert (answer.usage.peers, answer.usage.computed) == (0, LENGTH)


def test_a_chain_that_lies_about_its_front_is_not_followed() -> None:
    """Its hashes hold, but what was computed here is not what it continues."""
    other = replace(WINDOWS[8].record, prev=WINDOWS[3].record.window_id)
    here = rig()
    here.memory.bring([SealedWindow(other, WINDOWS[8].prefix_key, WINDOWS[8].particles)])
    sequence = here.engine.submit(Request(tuple(TOKENS), 8))
    here.engine.meet(sequence, 8 * SIZE)
    here.run()
    assert here.answer(sequence).usage.peers == 0
    assert here.answer(sequence).tip == COLD.tip
