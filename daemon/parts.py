"""What the calls of the local API work on: the parts of a running node."""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import dataclass, field

import trio

from daemon.attachments import Attachments
from daemon.auditing import Auditing
from daemon.broker import Broker
from daemon.checkpointing import Checkpointing
from daemon.config import Config
from daemon.conversations import Conversations
from daemon.door_process import Door
from daemon.engines import Engines
from daemon.forgetting import Forgetting
from daemon.group_life import GroupLife
from daemon.groups import Groups
from daemon.leaving import Leaving
from daemon.memory import Memory
from daemon.models_registry import ModelsRegistry
from daemon.paths import Paths
from daemon.peering import Peering
from daemon.publishing import Publishing
from daemon.restoring import Restoring
from daemon.runs import Runs
from daemon.soul_state import SoulState
from daemon.staging import StagingAreas


@dataclass(frozen=True)
class Parts:
    """The parts of a node, one of each.

    Attributes:
        door: None where there is none.
        peering, shown, auditing: None where this node is offline.
        counters: what `status` shows beside the tiers.
        stopping: set when the node shall end.
    """

    config: Config
    paths: Paths
    version: str
    memory: Memory
    areas: StagingAreas
    registry: ModelsRegistry
    engines: Engines
    broker: Broker
    conversations: Conversations
    attachments: Attachments
    forgetting: Forgetting
    runs: Runs
    soul: SoulState
    checkpointing: Checkpointing
    restoring: Restoring
    door: Door | None
    peering: Peering | None
    shown: Publishing | None
    groups: Groups
    group_life: GroupLife
    leaving: Leaving
    auditing: Auditing | None
    counters: Counter[str]
    stopping: trio.Event
    checking: trio.Lock = field(default_factory=trio.Lock)
    calibrating: trio.Lock = field(default_factory=trio.Lock)
    started_s: float = field(default_factory=time.monotonic)
    pid: int = field(default_factory=os.getpid)
