"""Where a node's local socket is: one name under its data dir, short enough for the kernel."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from glia.errors import BadRequest

SOCKET_NAME = "gliad.sock"
LOCK_NAME = "gliad.lock"
SOCKET_PATH_BYTES = 107  # sun_path, less its terminating zero


def socket_path(target: str | os.PathLike[str]) -> Path:
    """The socket of a data dir; a path that is a socket, or is named like one, is itself.

    Raises: BadRequest where the path does not fit a socket address.
    """
    path = Path(target)
    if path.name != SOCKET_NAME and not _is_socket(path):
        path = path / SOCKET_NAME
    length = len(os.fsencode(path))
    if length > SOCKET_PATH_BYTES:
        raise BadRequest(
            f"the socket path is {length} bytes long, {SOCKET_PATH_BYTES} is the most: {path}",
            hint="choose a shorter data dir: --data-dir DIR",
        )
    return path


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except OSError:
        return False
