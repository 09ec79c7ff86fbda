"""Requests under way and ended, and their sums."""

from __future__ import annotations

from collections import Counter

import pytest
import trio.testing

from daemon.runs import Runs
from glia.errors import BadRequest, Cancelled
from glia.local import messages as m
from glia.local import values
from tests.conversation_parts import answer_of, call_of, run, turn_of


def generated(call: m.Generate, cached: values.CachedValue, computed: int) -> m.Generated:
    usage = values.UsageValue(len(call.tokens), 3, cached, computed)
    return m.Generated(1, [1, 2, 3], "stop", None, usage, 0.0, {}, conversation="a")


def test_a_run_is_followed_to_its_end() -> None:
    async def main(clock: trio.testing.MockClock) -> None:
        runs = Runs(counters := Counter())
        call = call_of([1] * 50, turn_of("a"))
        with runs.running(call) as one:
            (value,) = runs.values()
            assert (value.number, value.state, value.conversation) == (1, "waiting", "a")
            assert (value.prompt_tokens, value.ttft_ms, value.dtype) == (50, None, "")
            one.name("a", "float32")
            one.take(m.Progress(1, "loading", 1, 2))
            assert runs.values()[0].state == "loading"
            one.take(m.Progress(1, "waiting for memory", 0, 0))
            assert runs.values()[0].state == "loading"
            one.take(m.Progress(1, "prefill", 16, 50))
            assert runs.values()[0].state == "running"
            clock.jump(2.0)
            one.take(m.Emitted(1, [1]))
            clock.jump(1.0)
            one.take(m.Emitted(1, [2, 3]))
            (value,) = runs.values()
            assert value.ttft_ms == pytest.approx(2000)
            assert (value.completion_tokens, value.tokens_per_s) == (3, pytest.approx(2.0))
            assert counters["prompt_tokens"] == 0
            runs.answered(one, generated(call, values.CachedValue(16, 8, 4, 2), 20))
        clock.jump(100.0)
        (value,) = runs.values()
        assert value.duration_ms == pytest.approx(3000)
        assert (value.state, value.dtype, value.error) == ("stop", "float32", None)
        assert value.cached == values.CachedValue(16, 8, 4, 2)
        assert value.computed == 20
        assert counters == {
            "requests": 1, "requests_answered": 1, "requests_failed": 0, "requests_cancelled": 0,
            "prompt_tokens": 50, "cached_l0_tokens": 16, "cached_l1_tokens": 8,
            "cached_l2_tokens": 4, "cached_peers_tokens": 2, "computed_tokens": 20,
            "completion_tokens": 3,
        }  # fmt: skip

    clock = trio.testing.MockClock()
    trio.run(main, clock, clock=clock)


def test_how_runs_end() -> None:
    async def main() -> None:
        runs = Runs(counters := Counter())
        with pytest.raises(BadRequest), runs.running(call_of([1])):
            raise BadRequest("no such thing")
        with pytest.raises(Cancelled), runs.running(call_of([1])):
            raise Cancelled("cancelled before it ran")
        with trio.CancelScope() as scope, runs.running(call_of([1])):
            scope.cancel()  # its client went away
            await trio.sleep_forever()
        with runs.running(call := call_of([1])) as one:
            runs.answered(one, answer_of(call, [], reason="cancelled"))
        assert [(v.state, v.error) for v in runs.values()] == [
            ("cancelled", None), ("cancelled", None), ("cancelled", None),
            ("failed", "no such thing"),
        ]  # fmt: skip
        assert (counters["requests"], counters["requests_failed"]) == (4, 1)
        assert counters["requests_cancelled"] == 3

    run(main)


def test_the_newest_come_first_and_a_hundred_that_ended_are_kept() -> None:
    async def main() -> None:
        runs = Runs(Counter())
        for _ in range(120):
            with runs.running(call_of([1])):
                pass
        with runs.running(call_of([1])), runs.running(call_of([1])):
            numbers = [value.number for value in runs.values()]
        assert numbers == [122, 121, *range(120, 20, -1)]

    run(main)
