"""The key that HTTP requests carry: a file of the data dir, made once, for its owner only."""

from __future__ import annotations

import re
import secrets
from pathlib import Path

from daemon.key_file import read_or_make
from glia.errors import BadRequest

_KEY_BYTES = 32
_KEY = re.compile(rb"[A-Za-z0-9_-]{32,256}")


def http_key(path: Path) -> str:
    """The key in `path`, made where there is no such file.

    Raises: BadRequest (a symlink, of another user, open to others, not a key), StoreBroken.
    """
    anew = f"rm {path}, and gliad start makes a new one"
    data = read_or_make(path, _new_line, anew).strip()
    if not _KEY.fullmatch(data):
        raise BadRequest(f"{path}: not a key", hint=anew)
    return data.decode()


def _new_line() -> bytes:
    return f"{secrets.token_urlsafe(_KEY_BYTES)}\n".encode()
