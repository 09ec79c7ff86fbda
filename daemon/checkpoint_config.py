"""Settings of checkpoints that a Body makes by itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from glia.graph.toml import Table


@dataclass(frozen=True)
class CheckpointConfig:
    """When, and where to."""

    every_hours: float = 0.0  # 0: none
    path: str = ""  # where; a directory that the next Body can read
    keep: int = 1  # older ones beside it, as PATH.1, PATH.2, ...
    lease_hours: float = 0.0  # this Body stops going on so long after its last one; 0: never
    give_windows: bool = False  # to the Body that has a conversation now, over the network


def read_path(table: Table, key: str, default: str) -> str:
    """An absolute path, "" where none is needed. Raises: ConfigError."""
    text = table.text(key, default)
    if text:
        path = Path(text).expanduser()
        if not path.is_absolute():
            raise table.error(key, "must be an absolute path, or start with ~")
        return str(path)
    if table.number("every_hours", 0.0, 0.0, 1e6):
        raise table.error(key, "where to is not said", hint='path = "/shared/soul.glia"')
    return text
