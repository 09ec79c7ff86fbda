"""A log that is run again: the same tokens would be chosen, the same windows come of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from glia.engine.sequence import Request
from glia.errors import PromptError
from glia.graph.answers import ChosenSpan
from glia.graph.sampling import Sampling
from tests.builders import TINY
from tests.engine_parts import Rig, make_rig
from tests.fake_model import AddingModel
from tests.unit.test_engine import fresh, prompt

SIZE = TINY.block_size
HOT = Sampling(temperature=30.0, top_p=0.9, top_k=50, seed=7)


def talk(rig: Rig, *turns: tuple[int, int, Sampling]) -> tuple[list[int], list[ChosenSpan], bytes]:
    """Turns of so many tokens asked, so many answered: the log, its answers, its tip."""
    log: list[int] = []
    spans, tip = [], b""
    for number, (asked, answered, how) in enumerate(turns):
        log += prompt(asked, seed=number)
        answer = rig.generate(log, answered, sampling=how)
        spans.append(ChosenSpan(len(log), len(log) + answered, how))
        log += answer.tokens
        tip = answer.tip or tip
    return log, spans, tip


def again(rig: Rig, log: list[int], spans: list[ChosenSpan]) -> tuple[list[int], bytes | None]:
    sequence = rig.engine.submit(Request(tuple(log), 1, chosen=tuple(spans)))
    rig.run()
    assert rig.answer(sequence).usage.l0 == rig.answer(sequence).usage.l1 == 0
    assert rig.answer(sequence).tokens == tuple(log[spans[0].start :] if spans else ())
    return rig.emitted(sequence), rig.answer(sequence).tip


TALKS = [
    [(1, 1, Sampling())],
    [(16, 16, Sampling())],
    [(20, 30, HOT), (5, 9, Sampling()), (1, 40, replace(HOT, seed=8))],
    [(70, 2, HOT), (1, 1, HOT), (200, 17, HOT)],
]


@pytest.mark.parametrize("turns", TALKS)
@pytest.mark.parametrize("warm", [False, True])
def test_it_would_be_said_again(turns: list[tuple[int, int, Sampling]], warm: bool) -> None:
    rig = fresh()
    log, spans, tip = talk(rig, *turns)
    said = [token for span in spans for token in log[span.start : span.end]]
    if not warm:
        rig = fresh()
    assert again(rig, log, spans) == (said, tip or None)


@pytest.mark.parametrize("num_asked", [1, 2, 15, 16, 40])
def test_what_was_asked_last_is_computed_too(num_asked: int) -> None:
    log, spans, _ = talk(fresh(), (20, 9, HOT))
    said = log[20:]
    log += prompt(num_asked, seed=5)
    whole = fresh().generate(log, 1).tip  # as a prompt
    assert again(fresh(), log, spans)[0] == said
    assert again(fresh(), log, [])[0] == []
    assert again(fresh(), log, spans)[1] == again(fresh(), log, [])[1]
    if (len(log) + 1) % SIZE:
        assert again(fresh(), log, [])[1] == whole


def test_a_token_that_was_not_chosen_is_told_and_what_follows_it_is_as_it_was() -> None:
    log, spans, _ = talk(fresh(), (20, 30, Sampling()))
    log[33] = (log[33] + 1) % 97
    told, _ = again(fresh(), log, spans)
    assert told[13] != log[33]
    assert told[:13] == log[20:33]
    for at in range(34, 50):
        assert told[at - 20] == fresh().generate(log[:at], 1).tokens[0]


def test_another_seed_chooses_otherwise() -> None:
    log, spans, _ = talk(fresh(), (20, 30, HOT))
    told, _ = again(fresh(), log, [replace(spans[0], sampling=replace(HOT, seed=8))])
    assert told != log[20:]


def test_it_runs_beside_others_and_disturbs_none() -> None:
    log, spans, tip = talk(fresh(), *TALKS[2])
    rig = fresh(256)
    alone = fresh().generate(prompt(33, seed=3), 12).tokens
    sequences = [rig.engine.submit(Request(tuple(log), 1, chosen=tuple(spans))) for _ in range(2)]
    other = rig.engine.submit(Request(tuple(prompt(33, seed=3)), 12))
    rig.run()
    for sequence in sequences:
        assert rig.emitted(sequence) == [t for s in spans for t in log[s.start : s.end]]
        assert rig.answer(sequence).tip == tip
    assert rig.answer(other).tokens == alone


def test_it_can_be_cancelled() -> None:
    log, spans, _ = talk(fresh(), (20, 30, HOT))
    rig = fresh()
    sequence = rig.engine.submit(Request(tuple(log), 1, chosen=tuple(spans)))
    rig.outcomes += rig.engine.step()
    rig.engine.cancel(sequence)
    rig.run()
    assert rig.answer(sequence).finish_reason == "cancelled"


def test_where_decoding_is_not_exact_decoded_windows_get_no_name() -> None:
    model = AddingModel(TINY, 64, decode_is_exact=False)
    log, spans, _ = talk(fresh(), (40, 60, Sampling()))
    said, tip = again(make_rig(model, TINY, 64), log, spans)
    assert said == log[40:]
    assert tip == fresh(decode_is_exact=False).generate(log[:40], 1).tip


@pytest.mark.parametrize(
    "spans",
    [
        [(0, 2)], [(3, 3)], [(3, 2)], [(3, 9)], [(3, 5), (4, 6)], [(5, 6), (3, 4)],
    ],
)  # fmt: skip
def test_spans_that_cannot_be(spans: list[tuple[int, int]]) -> None:
    chosen = tuple(ChosenSpan(start, end, HOT) for start, end in spans)
    with pytest.raises(PromptError, match="in order"):
        fresh().engine.submit(Request(tuple(prompt(8)), 1, chosen=chosen))


def test_a_log_may_fill_the_context_and_no_more() -> None:
    room = fresh().engine._model.context_tokens
    spans = [ChosenSpan(room - 3, room, Sampling())]
    rig = fresh(room // SIZE)
    sequence = rig.engine.submit(Request(tuple(prompt(room)), 1, chosen=tuple(spans)))
    rig.run()
    assert len(rig.emitted(sequence)) == 3
    with pytest.raises(PromptError, match="context"):
        rig.engine.submit(Request(tuple(prompt(room + 1)), 1, chosen=tuple(spans)))
