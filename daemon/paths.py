"""Every path of a node, in one place: everything lives under its data dir."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from glia.local.address import LOCK_NAME, SOCKET_NAME


@dataclass(frozen=True)
class Paths:
    """Where a node keeps things."""

    data_dir: Path

    @property
    def socket(self) -> Path:
        """The local API, mode 0600 in the data dir (0700)."""
        return self.data_dir / SOCKET_NAME

    @property
    def lock(self) -> Path:
        """Held by the running gliad (flock); carries its pid."""
        return self.data_dir / LOCK_NAME

    @property
    def version(self) -> Path:
        """The data dir's format version."""
        return self.data_dir / "format"

    @property
    def store(self) -> Path:
        """L2."""
        return self.data_dir / "store"

    @property
    def models(self) -> Path:
        """Manifests added by name, the model_id cache, conversions of GGUF files."""
        return self.data_dir / "models"

    @property
    def log(self) -> Path:
        """gliad's log; engines write to it through gliad."""
        return self.data_dir / "gliad.log"
