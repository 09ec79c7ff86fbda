"""A running node: builds the parts, opens the nursery, and takes all down in the reverse order."""

from __future__ import annotations

import logging
import os
import resource
import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import trio

from daemon.arena import make_arena
from daemon.attachments import Attachments
from daemon.auditing import Auditing
from daemon.broker import Broker
from daemon.checkpointing import Checkpointing
from daemon.condemning import Condemning
from daemon.config import Config
from daemon.conversation_files import ConversationFiles
from daemon.conversations import Conversations
from daemon.data_dir import DataDirLock, check_version, prepare
from daemon.door_process import Door, open_door
from daemon.engine_life import process_of
from daemon.engine_memory import EngineMemory
from daemon.engine_need import Needs
from daemon.engine_process import ENGINE_PROGRAM, EngineCommand
from daemon.engines import Engines
from daemon.forgetting import Forgetting
from daemon.group_life import GroupLife
from daemon.groups import Groups, open_groups
from daemon.joining import load_libp2p
from daemon.logs import close_log, open_log
from daemon.looking import Looking
from daemon.machine import memory_bytes
from daemon.memory import Memory
from daemon.models_registry import ModelsRegistry
from daemon.notify import READY, STOPPING, Notifier
from daemon.parts import Parts
from daemon.paths import Paths
from daemon.peering import Peering, open_peering
from daemon.publishing import Publishing
from daemon.resolver import Resolver
from daemon.restoring import Restoring, finish_restoring
from daemon.runs import Runs
from daemon.server import Server, listen
from daemon.soul_state import SoulState
from daemon.sparing import Sparing
from daemon.staging import StagingAreas
from daemon.uses import Uses
from glia.allocator import limit_heap
from glia.errors import NetworkError
from glia.local.address import socket_path
from glia.store.base import BlockStore
from glia.store.disk import DiskStore
from glia.store.published import Published
from glia.store.reserve import RESERVE_BYTES

_FLUSH_S = 2.0  # of the 5 s that ending may take
_PATIENCE_S = 10.0  # engines in the way of another model take new requests no longer
_MAX_FILES = 65536
_LARGE_BYTES = 256 * 1024
_log = logging.getLogger("gliad")


def main(config: Config, program: Sequence[str] = ENGINE_PROGRAM) -> int:
    """Run a node until it is told to stop. Returns the exit code.

    Args:
        program: the command that is an engine, up to its flags.
    Raises: UserError, StoreError, ConfigError where it cannot start.
    """
    with _prepared(config) as prepared:
        try:
            trio.run(run_node, config, tuple(program), prepared)
        except BaseException:
            _log.exception("gliad crashed")
            raise
    return 0


def gliad_version() -> str:
    """The version of the installed distribution."""
    try:
        return version("gliad")
    except PackageNotFoundError:
        return "0"


@dataclass(frozen=True)
class Prepared:
    """What a node begins with.

    Attributes:
        published: what peers may see; None where there never was a network.
        door, peering: None where there is none.
    """

    memory: Memory
    conversations: Conversations
    soul: SoulState
    listener: socket.socket
    door: Door | None
    published: Published | None
    peering: Peering | None
    groups: Groups


@contextmanager
def _prepared(config: Config) -> Iterator[Prepared]:
    """Everything that can fail for a reason the user should read, before anything runs."""
    paths = Paths(config.data_dir)
    socket_path(paths.socket)
    _limit()
    limit_heap(_LARGE_BYTES)
    with ExitStack() as stack:
        prepare(paths)
        lock = DataDirLock(paths)
        stack.callback(lock.release)
        handler = open_log(paths.log, config.log)
        stack.callback(close_log, handler)
        check_version(paths)
        arena = make_arena(config.l1.size_bytes)
        stack.callback(arena.close)
        l2 = config.l2
        store = DiskStore(paths.store, l2.size_bytes, l2.segment_bytes, RESERVE_BYTES)
        stack.callback(store.close)
        finish_restoring(paths)
        soul = SoulState.read(paths.soul_state)
        files = ConversationFiles(paths.conversations)
        conversations = Conversations(files, config.conversations)
        conversations.check_here = soul.check_here
        listener = listen(paths.socket)
        stack.callback(paths.socket.unlink, missing_ok=True)
        stack.callback(listener.close)
        door = open_door(config.http, paths)
        if door is not None:
            stack.callback(door.close)
        published = _open_published(config, paths, store, stack)
        peering = None
        if published is not None:
            agent = f"gliad/{gliad_version()}"
            peering = open_peering(config.network, paths, agent, published, stack)
        groups = open_groups(paths, is_on_network=peering is not None)
        lock.name_holder()  # on a full disk there is room only now, and then no more
        store.take_reserve()
        _log.info("gliad %s starts at %s", gliad_version(), paths.data_dir)
        if lock.predecessor:
            _log.warning(
                "the gliad before (pid %s) did not end by itself: its lock and socket are mine now",
                lock.predecessor,
            )
            # Of what it was answering when it ended no file says that it is to be forgotten.
            conversations.strays = not config.conversations.anonymous_hours
        memory = Memory(arena, store, config.l1.hot_steps)
        if published is not None:
            Condemning.load(memory, published)
        conversations.condemned = memory.hidden.condemned
        yield Prepared(memory, conversations, soul, listener, door, published, peering, groups)
        _log.info("gliad ends")


def _open_published(
    config: Config, paths: Paths, store: BlockStore, stack: ExitStack
) -> Published | None:
    """Also without a network: what was published stays when conversations are forgotten.

    Who has a peer id was on the network: where the index is gone, nothing says which of the
    windows that are here came from peers.
    """
    if not config.network.enabled and not paths.published.exists():
        return None
    is_lost = paths.peer_key.exists() and any(True for _ in store.windows())
    published = Published(paths.published, is_lost=is_lost)
    stack.callback(published.close)
    return published


async def run_node(config: Config, program: tuple[str, ...], prepared: Prepared) -> None:
    """Serve until told to stop, then write what is dirty."""
    memory, conversations = prepared.memory, prepared.conversations
    door, published, peering = prepared.door, prepared.published, prepared.peering
    paths = Paths(config.data_dir)
    counters = conversations.counters
    notifier = Notifier()
    async with trio.open_nursery() as background:
        background.start_soon(_prefault, memory, config.l1.prefault_bytes)
        async with trio.open_nursery() as serving:
            engines = _engines(config, program, serving)
            registry = ModelsRegistry(paths, config.models_dir)
            runs, uses = Runs(counters), Uses(memory)
            most = config.api.max_waiting
            serving.start_soon(uses.run)
            attachments = Attachments(paths.attachments)
            registry.heal(attachments.started())
            hold_s = config.network.announce_hold_s
            piece = config.engine.prefill_tokens
            resolver = Resolver(memory, peering, hold_s, piece, counters, serving)
            sparing = Sparing(memory, conversations, registry, attachments)
            looking = Looking(memory, conversations, attachments, published)
            forgetting = Forgetting(memory, conversations, engines, looking, published)
            shown = auditing = None
            if peering is not None:
                still, network = forgetting.still, config.network
                condemning = Condemning(memory, peering.published, still, counters)
                auditing = Auditing(memory, peering, engines, condemning, counters, conversations)
                serving.start_soon(auditing.run)
                shown = Publishing(memory, conversations, attachments, peering, still, network)
                serving.start_soon(shown.run)
            _connect(conversations, attachments, sparing, forgetting, shown)
            group_life = GroupLife(prepared.groups, peering)
            serving.start_soon(group_life.run)
            background.start_soon(_write, memory, sparing)
            soul = prepared.soul
            checkpointing = Checkpointing(conversations, soul, paths, config.checkpoint)
            for run in (
                sparing.run, forgetting.run, forgetting.run_expiry, soul.run, checkpointing.run,
            ):  # fmt: skip
                serving.start_soon(run)
            parts = Parts(
                config=config,
                paths=paths,
                version=gliad_version(),
                memory=memory,
                areas=StagingAreas(config.l1.staging_bytes),
                registry=registry,
                engines=engines,
                broker=Broker(
                    registry,
                    engines,
                    conversations,
                    runs,
                    uses,
                    attachments,
                    resolver,
                    most,
                    config.network.exact == "required",
                ),
                conversations=conversations,
                attachments=attachments,
                forgetting=forgetting,
                runs=runs,
                soul=soul,
                checkpointing=checkpointing,
                restoring=Restoring(conversations, soul, paths),
                door=door,
                peering=peering,
                shown=shown,
                groups=prepared.groups,
                group_life=group_life,
                auditing=auditing,
                counters=counters,
                stopping=trio.Event(),
            )
            parts.broker.preload(config.engine.preload)
            serving.start_soon(Server(parts).run, prepared.listener)
            if door is not None:
                serving.start_soon(door.run)
            await serving.start(_stop_on_signal, parts.stopping)
            notifier.tell(READY)
            if peering is not None:
                serving.start_soon(_be_on_network, peering)
            await parts.stopping.wait()
            notifier.tell(STOPPING)
            _log.info("stopping")
            serving.cancel_scope.cancel()
        with trio.move_on_after(_FLUSH_S) as flushing:
            await memory.writer.flush_all()
        if flushing.cancelled_caught or memory.table.dirty_bytes:
            _log.warning("%d bytes were not written to disk", memory.table.dirty_bytes)
        background.cancel_scope.cancel()


def _engines(config: Config, program: tuple[str, ...], nursery: trio.Nursery) -> Engines:
    budget_bytes = config.engine.memory_bytes or memory_bytes() * 3 // 4
    return Engines(
        config.engine,
        process_of(EngineCommand(config, Paths(config.data_dir), program)),
        Needs(config),
        EngineMemory(budget_bytes, _PATIENCE_S),
        nursery,
    )


def _connect(
    conversations: Conversations,
    attachments: Attachments,
    sparing: Sparing,
    forgetting: Forgetting,
    shown: Publishing | None,
) -> None:
    def conversations_changed() -> None:
        sparing.wake()
        forgetting.wake()
        if shown is not None:
            shown.conversations_changed()

    def models_changed() -> None:
        sparing.models_changed()
        if shown is not None:
            shown.models_changed()

    conversations.on_change = conversations_changed
    attachments.on_change = models_changed


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


def _limit() -> None:
    """No core dumps (they would hold prompts), no file for others, descriptors enough."""
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_FILES if most == resource.RLIM_INFINITY else min(most, _MAX_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
