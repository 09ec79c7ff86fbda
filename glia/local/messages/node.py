"""Messages about the node itself: hello, status, models, soundness and sizes, its end."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from glia.local.group_values import GroupValue
from glia.local.messages.base import Call, Reply
from glia.local.network_values import NetworkValue
from glia.local.values import EngineValue, Label, ModelValue, TierValue


class Hello(Call, frozen=True):
    """First frame of a connection, within 5 s. `kind`: client or engine."""

    protocol: int
    kind: Label
    name: Label


class Welcome(Reply, frozen=True):
    """Carries the arena's file descriptor (SCM_RIGHTS), sealed against writing by clients."""

    protocol: int
    version: str
    pid: int
    arena_bytes: int


class Status(Call, frozen=True):
    """What `gliad status` shows."""


class StatusReply(Reply, frozen=True):
    """`settings`: those it was started with, as they stand in glia.toml."""

    version: str
    pid: int
    socket: str
    data_dir: str
    uptime_s: float
    tiers: dict[str, TierValue]
    engines: list[EngineValue]
    counters: dict[str, int]
    http: str | None = None  # where the HTTP door is, http://HOST:PORT
    settings: dict[str, str] = {}  # noqa: RUF012 -- a Struct copies it
    network: NetworkValue | None = None  # None where it is offline
    groups: list[GroupValue] = []  # noqa: RUF012 -- a Struct copies it


class Models(Call, frozen=True):
    """All models this node knows by name."""


class ModelsReply(Reply, frozen=True):
    models: list[ModelValue]


class AddModel(Call, frozen=True):
    """Register a manifest (TOML text, spec/5-manifest.md) under a name, after loading it once.

    Events: Progress. Reply: ModelsReply with the one model.
    """

    name: Label
    manifest: Annotated[str, Meta(max_length=65536)]
    replace: bool = False


class Check(Call, frozen=True):
    """Re-verify everything stored. Events: Progress."""


class CheckReply(Reply, frozen=True):
    """Blocks and windows of L2; then the blocks of L1, which are copies of those."""

    checked: int
    bad: int
    windows: int
    bad_windows: int
    l1_checked: int = 0
    l1_bad: int = 0


class Evict(Call, frozen=True):
    """Give a tier's memory back (l0 or l1); its bytes are in the tier below first."""

    tier: Label


class EvictReply(Reply, frozen=True):
    freed_bytes: int
    freed_windows: int


class Shutdown(Call, frozen=True):
    """Stop gliad; replies when everything acknowledged is on disk."""
