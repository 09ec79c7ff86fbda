"""A file that is there as a whole, or not at all; only its owner may read it."""

from __future__ import annotations

import os
from pathlib import Path

from glia.store.files import sync_directory


def write_private(path: Path, data: bytes) -> None:
    """Replace a file, durably. Raises: OSError."""
    partial = path.with_name(f"{path.name}.partial")
    partial.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with open(os.open(partial, flags, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
    sync_directory(path.parent)
