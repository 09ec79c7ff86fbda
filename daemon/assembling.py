"""The parts of a node, made from what was prepared, and told of each other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import trio

from daemon.attachments import Attachments
from daemon.auditing import Auditing
from daemon.broker import Broker
from daemon.checkpointing import Checkpointing
from daemon.condemning import Condemning
from daemon.config import Config
from daemon.conversations import Conversations
from daemon.engine_life import process_of
from daemon.engine_memory import EngineMemory
from daemon.engine_need import Needs, budget_bytes
from daemon.engine_process import EngineCommand
from daemon.engines import Engines
from daemon.forgetting import Forgetting
from daemon.group_life import GroupLife
from daemon.leaving import Leaving
from daemon.looking import Looking
from daemon.models_registry import ModelsRegistry
from daemon.parts import Parts
from daemon.paths import Paths
from daemon.preparing import Prepared, gliad_version
from daemon.publishing import Publishing
from daemon.resolver import Resolver
from daemon.restoring import Restoring
from daemon.runs import Runs
from daemon.soul_door import SoulDoor
from daemon.soul_peers import SoulPeers
from daemon.sparing import Sparing
from daemon.staging import StagingAreas
from daemon.uses import Uses
from daemon.warming import Warming

_PATIENCE_S = 10.0  # engines in the way of another model take new requests no longer


def _nothing(_: object) -> None:
    """Where there is no network."""


@dataclass(frozen=True)
class Assembled:
    """A node that does nothing yet.

    Attributes:
        parts: what answers calls.
        sparing: what L2 must not evict.
        runs: what is to run for as long as the node serves.
    """

    parts: Parts
    sparing: Sparing
    runs: Sequence[Callable[[], Awaitable[None]]]


def assemble(
    config: Config, program: tuple[str, ...], prepared: Prepared, nursery: trio.Nursery
) -> Assembled:
    """Args: nursery: of what begins with a request."""
    memory, conversations = prepared.memory, prepared.conversations
    peering, paths = prepared.peering, Paths(config.data_dir)
    registry, attachments = ModelsRegistry(paths, config.models_dir), Attachments(paths.attachments)
    registry.heal(attachments.started())
    engines = _engines(config, program, nursery)
    runs, uses = Runs(conversations.counters), Uses(memory)
    sparing = Sparing(memory, conversations, registry, attachments)
    looking = Looking(memory, conversations, attachments, prepared.published)
    shared = prepared.shared
    take_back = shared.forget if shared is not None else _nothing
    forgetting = Forgetting(memory, conversations, engines, looking, prepared.published, take_back)
    shown = auditing = None
    lasting = [uses.run, sparing.run, forgetting.run, forgetting.run_expiry]
    if peering is not None and shared is not None:
        still, network, counters = forgetting.still, config.network, conversations.counters
        condemning = Condemning(memory, peering.published, still, counters, shared.forget)
        auditing = Auditing(memory, peering, engines, condemning, counters, conversations)
        shown = Publishing(
            memory, conversations, attachments, peering, still, network, shared, prepared.groups
        )
        lasting += [auditing.run, shown.run]
    _connect(conversations, attachments, sparing, forgetting, shown)
    group_life = GroupLife(prepared.groups, peering)
    soul = prepared.soul
    checkpointing = Checkpointing(conversations, soul, paths, config.checkpoint)
    restoring = Restoring(conversations, soul, paths)
    if peering is not None:
        souls = SoulPeers(peering, soul, paths)
        gives = config.checkpoint.give_windows
        SoulDoor(peering, souls, soul, conversations, memory, gives=gives)
        warming = Warming(peering, souls, conversations, attachments, memory)
        restoring.on_restored = warming.want
        lasting += [souls.run, warming.run]
    parts = Parts(
        config=config,
        paths=paths,
        version=gliad_version(),
        memory=memory,
        areas=StagingAreas(config.l1.staging_bytes),
        registry=registry,
        engines=engines,
        broker=_broker(
            config, prepared, registry, engines, runs, uses, attachments, shown, nursery
        ),
        conversations=conversations,
        attachments=attachments,
        forgetting=forgetting,
        runs=runs,
        soul=soul,
        checkpointing=checkpointing,
        restoring=restoring,
        door=prepared.door,
        peering=peering,
        shown=shown,
        groups=prepared.groups,
        group_life=group_life,
        leaving=Leaving(
            memory,
            prepared.vault,
            prepared.groups,
            conversations,
            engines,
            forgetting.still,
            None if shared is None else shared.index,
        ),
        auditing=auditing,
        counters=conversations.counters,
        stopping=trio.Event(),
    )
    return Assembled(
        parts, sparing, [*lasting, group_life.run, prepared.claim_files.run, checkpointing.run]
    )


def _broker(
    config: Config,
    prepared: Prepared,
    registry: ModelsRegistry,
    engines: Engines,
    runs: Runs,
    uses: Uses,
    attachments: Attachments,
    shown: Publishing | None,
    nursery: trio.Nursery,
) -> Broker:
    resolver = Resolver(
        prepared.memory,
        prepared.peering,
        config.network.announce_hold_s,
        config.engine.prefill_tokens,
        prepared.conversations.counters,
        nursery,
        prepared.groups,
        shown.in_groups.publisher.learn if shown is not None else _nothing,
    )
    return Broker(
        registry,
        engines,
        prepared.conversations,
        runs,
        uses,
        attachments,
        resolver,
        config.api.max_waiting,
        config.network.exact == "required",
    )


def _engines(config: Config, program: tuple[str, ...], nursery: trio.Nursery) -> Engines:
    return Engines(
        config.engine,
        process_of(EngineCommand(config, Paths(config.data_dir), program)),
        Needs(config),
        EngineMemory(budget_bytes(config), _PATIENCE_S),
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
