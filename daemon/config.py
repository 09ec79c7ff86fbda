"""glia.toml as frozen values. Every key, default and unit is in the glia.toml of the repository."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

MIB = 1024 * 1024
GIB = 1024 * MIB


@dataclass(frozen=True)
class L0Config:
    """Each engine's pool of slots."""

    size_bytes: int = GIB


@dataclass(frozen=True)
class L1Config:
    """Host memory shared with the user's engines."""

    size_bytes: int = GIB
    hot_steps: int = 64
    staging_bytes: int = 256 * MIB  # at most, per client
    prefault_bytes: int = 256 * MIB


@dataclass(frozen=True)
class L2Config:
    """The store on disk."""

    size_bytes: int = 20 * GIB
    segment_bytes: int = 128 * MIB
    group_commit_ms: float = 5.0


@dataclass(frozen=True)
class EngineConfig:
    """Engines that gliad starts."""

    num_threads: int = 0  # 0: one per core
    max_running: int = 4
    prefill_tokens: int = 512  # per step
    start_timeout_s: float = 300.0
    max_restarts: int = 3


@dataclass(frozen=True)
class ApiConfig:
    """The local socket."""

    handshake_timeout_s: float = 5.0
    max_clients: int = 128
    max_waiting: int = 256  # Generate calls per engine


@dataclass(frozen=True)
class LogConfig:
    """One file under the data dir."""

    level: str = "info"
    max_bytes: int = 8 * MIB
    num_files: int = 5


@dataclass(frozen=True)
class Config:
    """Effective settings of one node."""

    data_dir: Path
    models_dir: Path
    l0: L0Config = field(default_factory=L0Config)
    l1: L1Config = field(default_factory=L1Config)
    l2: L2Config = field(default_factory=L2Config)
    engine: EngineConfig = field(default_factory=EngineConfig)
    api: ApiConfig = field(default_factory=ApiConfig)
    log: LogConfig = field(default_factory=LogConfig)
