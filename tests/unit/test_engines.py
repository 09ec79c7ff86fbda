"""When engines end, who makes room for whom, and what is told meanwhile. On a mock clock."""

from __future__ import annotations

import pytest
import trio

from daemon.engine import Engine
from daemon.models_registry import KnownModel
from glia.errors import CapacityError, EngineDied, UnknownModel
from tests.engines_parts import PATIENCE_S, Kind, World, in_world, known


def test_an_idle_engine_ends_and_the_next_request_starts_it_again() -> None:
    async def what(world: World) -> None:
        await world.request("a")
        await trio.sleep(59)
        assert world.states() == {"a": "ready"}
        await trio.sleep(2)
        assert world.states() == {}
        assert not world.processes.total()
        await world.request("a")
        assert world.num_started["a"] == 2

    in_world({"a": Kind()}, 10, what, idle_unload_s=60.0)


def test_no_engine_ends_while_a_request_waits_or_runs() -> None:
    async def what(world: World) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.request, "slow")
            nursery.start_soon(world.request, "silent")
        assert world.num_started == {"slow": 1, "silent": 1}
        await trio.sleep(6)
        await world.request("quick")
        await trio.sleep(6)
        await world.request("quick")  # used again before its time is up
        await trio.sleep(9)
        assert world.states() == {"quick": "ready"}
        await world.request("slow")
        await trio.sleep(5)
        assert world.states()["slow"] == "ready"  # its time counts from the end of the answer

    kinds = {"slow": Kind(run_s=100), "silent": Kind(load_s=100), "quick": Kind(load_s=0.1)}
    in_world(kinds, 10, what, idle_unload_s=10.0)


def test_a_request_that_comes_as_its_engine_ends_is_served_by_the_next_one() -> None:
    async def what(world: World) -> None:
        for wait_s in (9.9, 10.0, 10.1, 11.0, 12.9):
            await world.request("a")
            await trio.sleep(wait_s)
            await world.request("a")
        assert len(world.engines.values()) == 1

    in_world({"a": Kind(end_s=3.0)}, 10, what, idle_unload_s=10.0)


def test_never_means_never() -> None:
    async def what(world: World) -> None:
        await world.request("a")
        await trio.sleep(1e6)
        assert world.states() == {"a": "ready"}

    in_world({"a": Kind()}, 10, what, idle_unload_s=0.0)


def test_the_least_recently_used_idle_engine_makes_room() -> None:
    async def what(world: World) -> None:
        for name in ("a", "b", "c", "a"):
            await world.request(name)
        await world.request("d")
        assert set(world.states()) == {"a", "c", "d"}
        await world.request("e")
        assert set(world.states()) == {"d", "e"}  # e takes two

    kinds = {name: Kind() for name in "abcd"} | {"e": Kind(need=2)}
    assert in_world(kinds, 3, what).most <= 3


def test_each_dtype_of_a_model_counts() -> None:
    async def what(world: World) -> None:
        await world.request("a", "float32")
        await world.request("a", "bfloat16")
        assert sorted(value.dtype for value in world.engines.values()) == ["bfloat16", "float32"]
        await world.request("a", "float16")
        assert sorted(value.dtype for value in world.engines.values()) == ["bfloat16", "float16"]

    in_world({"a": Kind()}, 2, what)


def test_running_engines_are_waited_for() -> None:
    async def what(world: World) -> None:
        told: list[str] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.request, "a")
            await trio.sleep(0.1)
            began_s = trio.current_time()
            await world.request("b", tell=told.append)
        assert told[:2] == ["waiting for memory", "starting"]
        assert 12.4 < trio.current_time() - began_s < 12.7  # a's rest and end, and b's own time
        assert set(world.states()) == {"b"}

    in_world({"a": Kind(run_s=2.0), "b": Kind(run_s=0.1)}, 1, what)


def test_one_that_is_always_asked_gives_way_after_a_while() -> None:
    async def what(world: World) -> None:
        async def keep_asking() -> None:
            while True:
                await world.request("a")

        async with trio.open_nursery() as nursery:
            for offset_s in (0.0, 0.5):  # so that there is always one
                nursery.start_soon(keep_asking)
                await trio.sleep(offset_s + 6)
            began_s = trio.current_time()
            await world.request("b")
            assert trio.current_time() - began_s < PATIENCE_S + 8
            nursery.cancel_scope.cancel()

    in_world({"a": Kind(), "b": Kind()}, 1, what)


def test_what_can_never_fit_is_refused_with_what_to_change() -> None:
    async def what(world: World) -> None:
        await world.request("a")
        with pytest.raises(CapacityError, match="huge in float32 needs about") as caught:
            await world.request("huge")
        assert caught.value.hint is not None
        assert "[engine] memory" in caught.value.hint
        assert world.states() == {"a": "ready", "huge": "failed"}

    in_world({"a": Kind(), "huge": Kind(need=5)}, 4, what)


def test_one_that_turns_out_larger_makes_others_leave_and_is_remembered() -> None:
    async def what(world: World) -> None:
        await world.request("a")
        await world.request("b")
        await trio.sleep(5)
        assert set(world.states()) == {"b"}  # 2 + 1 is too much
        assert [value.memory_bytes for value in world.engines.values()] == [2]
        await world.request("c")
        await world.engines.end("c")
        await world.request("a")
        await world.request("b")
        assert set(world.states()) == {"b"}  # it asked for 2 at once

    in_world({"a": Kind(), "b": Kind(turns_out=2), "c": Kind()}, 2, what)


def test_one_that_turns_out_smaller_leaves_room() -> None:
    async def what(world: World) -> None:
        await world.request("a")
        await world.request("b")
        assert set(world.states()) == {"a", "b"}

    in_world({"a": Kind(need=4, turns_out=1), "b": Kind(need=4)}, 5, what)


def test_nobody_makes_room_for_a_request_that_was_given_up() -> None:
    async def what(world: World) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.request, "a")
            await trio.sleep(6)
            with trio.move_on_after(1):
                await world.request("b")
            await trio.sleep(0.1)
            assert "b" not in world.states()
        await trio.sleep(100)
        assert world.states() == {"a": "ready"}
        assert not world.num_started["b"]

    in_world({"a": Kind(run_s=20), "b": Kind()}, 1, what)


def test_one_that_says_nothing_while_it_is_asked_is_ended() -> None:
    async def what(world: World) -> None:
        began_s = trio.current_time()
        with pytest.raises(EngineDied, match="said nothing for") as caught:
            await world.request("deaf")
        assert caught.value.hint is not None
        assert "stall_timeout_s" in caught.value.hint
        assert 65 <= trio.current_time() - began_s <= 73
        await world.request("slow")  # speaks within the time
        await trio.sleep(1000)  # and nobody asks it
        assert world.states()["slow"] == "ready"
        assert world.num_started["slow"] == 1

    in_world({"deaf": Kind(is_deaf=True), "slow": Kind(run_s=59)}, 9, what, stall_timeout_s=60.0)


def test_preloaded_ones_start_in_order_as_far_as_they_fit() -> None:
    async def what(world: World) -> None:
        models: list[tuple[KnownModel, str]] = [(known(n), "float32") for n in ("a", "b", "c")]
        world.engines.fail("nobody", UnknownModel("no model of that name"))
        world.engines.preload(models)
        assert world.states() == dict.fromkeys("abc", "starting") | {"nobody": "failed"}
        await trio.sleep(6)
        assert world.states() == {"a": "ready", "b": "failed", "c": "ready", "nobody": "failed"}
        (why,) = [value.error for value in world.engines.values() if value.model == "b"]
        assert why is not None
        assert "others have" in why
        await world.request("b")  # asked for, it gets its room
        assert world.states()["b"] == "ready"

    in_world({"a": Kind(), "b": Kind(need=2), "c": Kind()}, 2, what)


def test_what_an_engine_is_loading_is_shown() -> None:
    async def what(world: World) -> None:
        world.engines.preload([(known("a"), "float32")])
        await trio.sleep(1)
        (value,) = world.engines.values()
        assert (value.loading, value.done, value.total) == ("starting", 0, 0)
        engine = world.engines._engines["a", "float32"]
        assert isinstance(engine, Engine)
        engine.tell("hashing weights", 3, 7)
        (value,) = world.engines.values()
        assert (value.loading, value.done, value.total) == ("hashing weights", 3, 7)
        assert value.memory_bytes == 1
        told: list[str] = []
        await world.request("a", tell=told.append)
        assert told == ["hashing weights"]  # who comes late is told, too
        await trio.sleep(3)
        (value,) = world.engines.values()
        assert (value.loading, value.state, value.idle_s) == (None, "ready", 3.0)

    in_world({"a": Kind()}, 1, what)


def test_one_that_dies_on_its_way_out_tells_those_who_wait() -> None:
    async def what(world: World) -> None:
        async def ask_b() -> None:
            await trio.sleep(1)
            await world.request("b")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask_b)
            with pytest.raises(EngineDied):
                await world.request("a")
        assert world.states()["b"] == "ready"

    kinds = {"a": Kind(load_s=PATIENCE_S + 5, dies_ready=True, is_deaf=True), "b": Kind()}
    in_world(kinds, 1, what)


def test_one_that_dies_on_its_way_out_is_not_started_again() -> None:
    """It stalls, takes long to end, is asked meanwhile, and is in the way of another."""

    async def what(world: World) -> None:
        async def ask(name: str, after_s: float) -> None:
            await trio.sleep(after_s)
            if name == "b":
                await world.request("b")
                return
            with pytest.raises(EngineDied, match="said nothing"):
                await world.request("a")

        async with trio.open_nursery() as nursery:
            for name, after_s in (("a", 0), ("a", 70), ("b", 70)):
                nursery.start_soon(ask, name, after_s)
        assert world.num_started == {"a": 1, "b": 1}
        assert world.states() == {"b": "ready"}

    kinds = {"a": Kind(is_deaf=True, end_s=3 * PATIENCE_S), "b": Kind()}
    in_world(kinds, 1, what, stall_timeout_s=60.0)


def test_the_time_of_a_preloaded_one_counts_from_when_it_is_ready() -> None:
    async def what(world: World) -> None:
        world.engines.preload([(known("a"), "float32")])
        await trio.sleep(100 + 9)
        assert world.states() == {"a": "ready"}
        await trio.sleep(2)
        assert world.states() == {}

    in_world({"a": Kind(load_s=100)}, 1, what, idle_unload_s=10.0)
