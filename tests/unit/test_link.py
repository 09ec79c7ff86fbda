"""gliad's side of an engine, over a real socket: answers that nobody waits for any more."""

from __future__ import annotations

import pytest
import trio

from daemon.link import EngineLink
from daemon.wire import Wire
from glia.errors import RemoteProtocolError
from glia.graph.ids import ModelId
from glia.local import messages as m
from glia.local.frames import FrameParser, decode_from_daemon
from tests.builders import CLASS, MODEL, TINY


def attach() -> m.Attach:
    shapes = [m.ShapeValue(s.layer, s.kv_heads, s.head_dim) for s in TINY.layers]
    profile = m.ProfileValue(TINY.block_size, TINY.scheme, TINY.mode, shapes)
    return m.Attach(1, ModelId(MODEL), profile, CLASS, serves="echo", dtype="float32")


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
