"""gliad's side of an engine, over a real socket: who is blamed for what."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing

from daemon.link import EngineLink
from daemon.wire import Wire
from glia.errors import QuotaExceeded, RemoteProtocolError
from glia.graph.ids import ModelId
from glia.local import messages as m
from glia.local import values
from glia.local.frames import FrameParser, decode_from_daemon
from tests.builders import CLASS, MODEL, TINY


def attach() -> m.Attach:
    shapes = [values.ShapeValue(s.layer, s.kv_heads, s.head_dim) for s in TINY.layers]
    profile = values.ProfileValue(TINY.block_size, TINY.scheme, TINY.mode, shapes)
    return m.Attach(1, ModelId(MODEL), profile, CLASS, serves="echo", dtype="float32")


def ask_until_refused(link: EngineLink, num_tokens: int) -> tuple[int, QuotaExceeded]:
    """The last run that was handed over, and why the next one was not."""
    call = m.Generate(7, "echo", None, [2**31] * num_tokens, 1, values.SamplingValue(), [], [])
    run_id = 0
    try:
        while True:
            run_id = link.start_run(call, lambda _: None)
    except QuotaExceeded as refused:
        return run_id, refused


def test_an_eviction_that_is_given_up_accuses_no_engine() -> None:
    """Its engine answers all the same, once; what it says twice was never asked."""

    async def main() -> None:
        ours, theirs = trio.socket.socketpair()
        with ours, theirs:
            wire = Wire(ours)
            link = EngineLink(wire, attach(), pid=1)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wire.run_sender)
                with trio.CancelScope() as scope:
                    nursery.start_soon(cancel_when_asked, theirs, scope, asked := [])
                    await link.evict_l0()
                nursery.cancel_scope.cancel()
            (call,) = asked
            link.on_message(m.EvictReply(call.id, 0, 0))
            with pytest.raises(RemoteProtocolError):
                link.on_message(m.EvictReply(call.id, 0, 0))

    async def cancel_when_asked(
        engine: trio.socket.SocketType, scope: trio.CancelScope, asked: list[m.DaemonMessage]
    ) -> None:
        asked += map(decode_from_daemon, FrameParser().feed(await engine.recv(4096)))
        scope.cancel()

    trio.run(main)


def test_where_a_run_meets_is_told_while_it_runs_and_answered_once() -> None:
    async def main() -> None:
        ours, theirs = trio.socket.socketpair()
        with ours, theirs:
            wire = Wire(ours)
            link = EngineLink(wire, attach(), pid=1)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wire.run_sender)
                call = m.Generate(7, "echo", None, [1], 1, values.SamplingValue(), [], [])
                run_id = link.start_run(call, lambda _: None)
                link.meet(run_id, 32)
                link.meet(run_id + 99, 16)
                await trio.testing.wait_all_tasks_blocked()
                said = [*map(decode_from_daemon, FrameParser().feed(await theirs.recv(4096)))]
                nursery.cancel_scope.cancel()
            meet = said[-1]
            assert isinstance(meet, m.Meet)
            assert (len(said), meet.target, meet.position) == (2, run_id, 32)
            assert not link.has_given_up
            link.on_message(m.Done(meet.id))
            with pytest.raises(RemoteProtocolError):
                link.on_message(m.Done(meet.id))

    trio.run(main)


def test_an_engine_that_does_not_read_is_no_fault_of_its_clients() -> None:
    """Asking it ends with an error that names it, cancelling with none."""

    async def main() -> None:
        ours, theirs = trio.socket.socketpair()
        with ours, theirs:
            link = EngineLink(Wire(ours), attach(), pid=1)
            first, refused = ask_until_refused(link, 2**17)
            ask_until_refused(link, 100)
            assert "the engine of echo" in refused.message
            assert refused.hint
            for _ in range(20):
                link.cancel(first)

    trio.run(main)


class Peer:
    """The engine's end: takes calls one by one, answers what the test says."""

    def __init__(self, link: EngineLink, sock: trio.socket.SocketType) -> None:
        self._link = link
        self._sock = sock
        self._parser = FrameParser()
        self._calls: list[m.DaemonMessage] = []

    async def take(self) -> m.DaemonMessage:
        while not self._calls:
            self._calls += map(decode_from_daemon, self._parser.feed(await self._sock.recv(4096)))
        return self._calls.pop(0)

    async def take_forget(self) -> None:
        """A ForgetL0, which is answered."""
        call = await self.take()
        assert isinstance(call, m.ForgetL0)
        self._link.on_message(m.EvictReply(call.id, 0, 0))


async def with_peer(body: Callable[[EngineLink, Peer, trio.Nursery], Awaitable[None]]) -> None:
    ours, theirs = trio.socket.socketpair()
    with ours, theirs, trio.fail_after(60):
        wire = Wire(ours)
        link = EngineLink(wire, attach(), pid=1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wire.run_sender)
            await body(link, Peer(link, theirs), nursery)
            nursery.cancel_scope.cancel()


def test_what_a_run_that_was_given_up_still_uses_is_forgotten_once_it_has_ended() -> None:
    async def body(link: EngineLink, peer: Peer, nursery: trio.Nursery) -> None:
        call = m.Generate(7, "echo", None, [1], 1, values.SamplingValue(), [], [])
        run_id = link.start_run(call, lambda _: None)
        with trio.move_on_after(0):
            await link.finish_run(run_id)
        assert link.has_given_up
        forgotten = trio.Event()

        async def forget() -> None:
            await link.forget_l0()
            forgotten.set()

        nursery.start_soon(forget)
        assert isinstance(await peer.take(), m.Run)
        cancel = await peer.take()
        assert isinstance(cancel, m.CancelRun)
        link.on_message(m.Done(cancel.id))
        await peer.take_forget()  # it may still have run then
        await trio.testing.wait_all_tasks_blocked()
        link.on_message(m.Failed(run_id, "cancelled", "cancelled", None))
        await peer.take_forget()
        await trio.testing.wait_all_tasks_blocked()
        assert not forgotten.is_set()
        await peer.take_forget()
        await forgotten.wait()
        assert not link.has_given_up

    trio.run(with_peer, body)
