"""F36 for the adapter: an exception at each await of what serves one peer, and others go on."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack, suppress

import pytest
import trio

from p2p.libp2p.listener import Listener
from tests.injection import PLAN, Injected, Plan, driven, injecting
from tests.libp2p_nodes import Node, guarded_node
from tests.libp2p_scenarios import ECHO, echo, echoes, serve

FULL = bool(os.environ.get("GLIA_FULL"))
STEP, ROUNDS, LEAST = (1, 60, 200) if FULL else (17, 12, 4)


class Armed:
    """The next inbound connections follow this plan, with all that they start."""

    def __init__(self) -> None:
        self.plan: Plan | None = None


@pytest.fixture
def armed(monkeypatch: pytest.MonkeyPatch) -> Armed:
    found = Armed()
    real = Listener._serve

    async def serve_by_plan(listener: Listener, stream: trio.SocketStream) -> None:
        if found.plan is None:
            await real(listener, stream)
            return
        PLAN.set(found.plan)
        with suppress(Injected):  # thrown into what the nursery itself would have seen
            await driven(real(listener, stream), found.plan)
        await trio.aclose_forcefully(stream)

    monkeypatch.setattr(Listener, "_serve", serve_by_plan)
    return found


async def use(one: Node, victim: Node) -> None:
    """What a peer does in its time, each in a round trip of its own."""
    await one.connect(victim)
    assert one.network is not None
    assert victim.network is not None
    host, directory = one.network.host, one.network.directory
    for _ in range(ROUNDS):
        await echoes(one, victim)
        await host.ping(victim.network.host.peer_id)
    for key in (bytes(32), b"x" * 32):
        await directory.provide(key)
        await directory.providers(key, 5)
        await directory.put(key, b"valid")
        await directory.get(key)
    one.network.gossip.join("topic", lambda sender, message: None)
    for _ in range(3):
        await one.network.gossip.publish("topic", b"hello")
        await trio.sleep(0.01)
    one.network.gossip.leave("topic")


async def part(one: Node, victim: Node) -> None:
    """End what there is between them, so that the next to connect is new."""
    with trio.fail_after(60):
        while victim.is_connected(one):  # the directory may have dialled again
            await one.host.disconnect(victim.host.get_id())
            await trio.sleep(0.01)


@pytest.mark.fault("F36")
def test_an_exception_at_any_await_for_one_peer_harms_no_other(armed: Armed) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            victim = await stack.enter_async_context(guarded_node())
            honest = await stack.enter_async_context(guarded_node())
            other = await stack.enter_async_context(guarded_node())
            serve(victim, ECHO, echo)
            assert victim.network is not None
            victim.network.gossip.join("topic", lambda sender, message: None)
            await honest.connect(victim)
            num_points = await _inject_all(armed, victim, honest, other)
            assert num_points >= LEAST

    with injecting():
        trio.run(main)


async def _inject_all(armed: Armed, victim: Node, honest: Node, other: Node) -> int:
    num_points, at = 0, 0
    while True:
        armed.plan = plan = Plan(at)
        with trio.move_on_after(20), suppress(Exception):
            await use(other, victim)
        armed.plan = None
        await part(other, victim)
        assert await echoes(honest, victim), f"after an exception at {plan.where}, {at}"
        if not plan.where:
            return num_points
        num_points, at = num_points + 1, at + STEP
