"""glia.toml as frozen values. Every key, default and unit is in the glia.toml of the repository.

Where a value comes from, first found: the environment (GLIA_MODELS_DIR), the file given
by --config, else glia.toml in the data dir, else the default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from daemon.checkpoint_config import CheckpointConfig, read_path
from daemon.config_readers import (
    GIB,
    KIB,
    MIB,
    Reader,
    read_count,
    read_flag,
    read_label,
    read_loopback,
    read_names,
    read_size,
    read_span,
    read_word,
)
from daemon.network_config import (
    NetworkConfig,
    read_accept,
    read_listen,
    read_peers,
    read_psk,
)
from daemon.paths import CONFIG_NAME, default_models_dir
from glia.errors import ConfigError
from glia.graph.toml import MAX_FILE_BYTES, Table, read_toml


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


@dataclass(frozen=True)
class EngineConfig:
    """Engines that gliad starts."""

    num_threads: int = 0  # 0: one per core
    max_running: int = 4
    prefill_tokens: int = 1024  # per step
    start_timeout_s: float = 300.0
    stall_timeout_s: float = 600.0
    max_restarts: int = 3
    idle_unload_s: float = 1800.0  # 0: never
    memory_bytes: int = 0  # of all engines together; 0: three quarters of the machine's
    preload: tuple[str, ...] = ()  # models started with gliad


@dataclass(frozen=True)
class ConversationsConfig:
    """Conversations, and what becomes of those without a name."""

    anonymous_hours: float = 168.0  # after their last use; 0: forgotten once answered
    max_anonymous: int = 10_000  # beyond that the least recently used are forgotten
    visibility: str = "private"  # of what run, chat and the HTTP door are not told it of


@dataclass(frozen=True)
class HttpConfig:
    """The OpenAI-compatible door: loopback only, and only when configured."""

    listen: str = ""  # HOST:PORT, "" is off
    require_key: bool = True  # the key is in http.key of the data dir
    max_requests: int = 64


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
    conversations: ConversationsConfig = field(default_factory=ConversationsConfig)
    http: HttpConfig = field(default_factory=HttpConfig)
    api: ApiConfig = field(default_factory=ApiConfig)
    log: LogConfig = field(default_factory=LogConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)


def load_config(data_dir: Path, file: Path | None, environ: Mapping[str, str]) -> Config:
    """The settings of the node at `data_dir`.

    Args:
        data_dir: absolute.
        file: what --config named; None looks for glia.toml in the data dir.
    Raises: ConfigError naming file, line and key.
    """
    root = read_root(data_dir, file)
    sections = {name: _section(root, name) for name in SECTIONS}
    return Config(data_dir=data_dir, models_dir=_models_dir(root, file, environ), **sections)


# a section: its values' class, and per key the field it sets and what it may be
SECTIONS: dict[str, tuple[type, dict[str, tuple[str, Reader]]]] = {
    "l0": (L0Config, {"size": ("size_bytes", read_size(MIB))}),
    "l1": (
        L1Config,
        {
            "size": ("size_bytes", read_size(MIB)),
            "hot_steps": ("hot_steps", read_count(0, 2**20)),
            "staging_size": ("staging_bytes", read_size(MIB)),
            "prefault_size": ("prefault_bytes", read_size(0)),
        },
    ),
    "l2": (
        L2Config,
        {
            "size": ("size_bytes", read_size(MIB)),
            "segment_size": ("segment_bytes", read_size(MIB, 4 * GIB)),
        },
    ),
    "engine": (
        EngineConfig,
        {
            "num_threads": ("num_threads", read_count(0, 1024)),
            "max_running": ("max_running", read_count(1, 256)),
            "prefill_tokens": ("prefill_tokens", read_count(16, 2**20)),
            "start_timeout_s": ("start_timeout_s", read_span(1.0, 86400.0)),
            "stall_timeout_s": ("stall_timeout_s", read_span(1.0, 86400.0)),
            "max_restarts": ("max_restarts", read_count(0, 1000)),
            "idle_unload_s": ("idle_unload_s", read_span(0.0, 1e9)),
            "memory": ("memory_bytes", read_size(0)),
            "preload": ("preload", read_names(64)),
        },
    ),
    "conversations": (
        ConversationsConfig,
        {
            "anonymous_hours": ("anonymous_hours", read_span(0.0, 1e6)),
            "max_anonymous": ("max_anonymous", read_count(0, 2**20)),
            "visibility": ("visibility", read_label()),
        },
    ),
    "checkpoint": (
        CheckpointConfig,
        {
            "every_hours": ("every_hours", read_span(0.0, 1e6)),
            "path": ("path", read_path),
            "keep": ("keep", read_count(0, 1000)),
            "lease_hours": ("lease_hours", read_span(0.0, 1e6)),
            "give_windows": ("give_windows", read_flag()),
        },
    ),
    "http": (
        HttpConfig,
        {
            "listen": ("listen", read_loopback()),
            "require_key": ("require_key", read_flag()),
            "max_requests": ("max_requests", read_count(1, 4096)),
        },
    ),
    "api": (
        ApiConfig,
        {
            "handshake_timeout_s": ("handshake_timeout_s", read_span(0.1, 60.0)),
            "max_clients": ("max_clients", read_count(1, 4096)),
            "max_waiting": ("max_waiting", read_count(1, 2**16)),
        },
    ),
    "log": (
        LogConfig,
        {
            "level": ("level", read_word("debug", "info", "warning", "error")),
            "max_size": ("max_bytes", read_size(64 * KIB, 4 * GIB)),
            "num_files": ("num_files", read_count(1, 100)),
        },
    ),
    "network": (
        NetworkConfig,
        {
            "enabled": ("enabled", read_flag()),
            "listen": ("listen", read_listen),
            "bootstrap": ("bootstrap", read_peers),
            "mdns": ("mdns", read_flag()),
            "psk": ("psk", read_psk),
            "announce": ("announce", read_word("boundaries", "off")),
            "announce_hold_s": ("announce_hold_s", read_span(0.0, 1e6)),
            "replicas": ("replicas", read_count(0, 16)),
            "accept": ("accept", read_accept),
            "exact": ("exact", read_word("any", "required")),
            "upload": ("upload_bytes", read_size(0)),
        },
    ),
}


def read_root(data_dir: Path, file: Path | None) -> Table:
    """The file that settings are read from; empty where there is none. Raises: ConfigError."""
    path = file or data_dir / CONFIG_NAME
    try:
        with open(path, "rb") as opened:
            text = opened.read(MAX_FILE_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        if file is not None:
            raise ConfigError("no such file", file=str(file), hint=f"ls -l {file}") from None
        text = b""
    except OSError as error:
        raise ConfigError(error.strerror or str(error), file=str(path)) from error
    return read_toml(text, str(path), ConfigError, ("models_dir", *SECTIONS))


def _section(root: Table, name: str) -> Any:
    cls, keys = SECTIONS[name]
    table = root.table(name, keys)
    defaults = {f.name: f.default for f in fields(cls)}
    return cls(**{attr: read(table, key, defaults[attr]) for key, (attr, read) in keys.items()})


def _models_dir(root: Table, file: Path | None, environ: Mapping[str, str]) -> Path:
    declared = root.text("models_dir", "")
    if declared and not environ.get("GLIA_MODELS_DIR"):
        path = Path(declared).expanduser()
        if not path.is_absolute():
            raise root.error("models_dir", "must be an absolute path, or start with ~")
        return path
    return default_models_dir(environ)
