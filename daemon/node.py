"""A running node: builds the parts, opens the nursery, and takes all down in the reverse order."""

from __future__ import annotations

import logging
import signal
from collections.abc import Sequence
from contextlib import suppress

import trio

from daemon.assembling import assemble
from daemon.config import Config
from daemon.engine_process import ENGINE_PROGRAM
from daemon.joining import load_libp2p
from daemon.memory import Memory
from daemon.notify import READY, STOPPING, Notifier
from daemon.peering import Peering
from daemon.preparing import Prepared, prepared
from daemon.server import Server
from daemon.sparing import Sparing
from glia.errors import NetworkError

_FLUSH_S = 2.0  # of the 5 s that ending may take
_log = logging.getLogger("gliad")


def main(config: Config, program: Sequence[str] = ENGINE_PROGRAM) -> int:
    """Run a node until it is told to stop. Returns the exit code.

    Args:
        program: the command that is an engine, up to its flags.
    Raises: UserError, StoreError, ConfigError where it cannot start.
    """
    with prepared(config) as begun:
        try:
            trio.run(run_node, config, tuple(program), begun)
        except BaseException:
            _log.exception("gliad crashed")
            raise
    return 0


async def run_node(config: Config, program: tuple[str, ...], begun: Prepared) -> None:
    """Serve until told to stop, then write what is dirty."""
    memory = begun.memory
    async with trio.open_nursery() as background:
        background.start_soon(_prefault, memory, config.l1.prefault_bytes)
        await _serve(config, program, begun, background)
        with trio.move_on_after(_FLUSH_S) as flushing:
            await memory.writer.flush_all()
        if flushing.cancelled_caught or memory.table.dirty_bytes:
            _log.warning("%d bytes were not written to disk", memory.table.dirty_bytes)
        background.cancel_scope.cancel()


async def _serve(
    config: Config, program: tuple[str, ...], begun: Prepared, background: trio.Nursery
) -> None:
    """Until told to stop. Args: background: of what goes on until all is written."""
    notifier = Notifier()
    async with trio.open_nursery() as serving:
        made = assemble(config, program, begun, serving)
        for run in made.runs:
            serving.start_soon(run)
        background.start_soon(_write, begun.memory, made.sparing)
        made.parts.broker.preload(config.engine.preload)
        serving.start_soon(Server(made.parts).run, begun.listener)
        if begun.door is not None:
            serving.start_soon(begun.door.run)
        await serving.start(_stop_on_signal, made.parts.stopping)
        notifier.tell(READY)
        if begun.peering is not None:
            serving.start_soon(_be_on_network, begun.peering)
        await made.parts.stopping.wait()
        notifier.tell(STOPPING)
        _log.info("stopping")
        serving.cancel_scope.cancel()


async def _be_on_network(peering: Peering) -> None:
    """Behind READY: importing libp2p takes a second, in which others are to be served."""
    with suppress(NetworkError):  # it is tried, and told, again
        await trio.to_thread.run_sync(load_libp2p)
    await peering.run()


async def _write(memory: Memory, sparing: Sparing) -> None:
    """Fill L2 as soon as it was told what it must not evict for that."""
    await sparing.told.wait()
    await memory.writer.run()


async def _stop_on_signal(stopping: trio.Event, task_status: trio.TaskStatus[None]) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for _ in signals:
            stopping.set()


async def _prefault(memory: Memory, size_bytes: int) -> None:
    prefault = memory.arena.prefault
    await trio.to_thread.run_sync(prefault, size_bytes, abandon_on_cancel=True)
