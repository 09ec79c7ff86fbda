"""The file of a Soul's secret: mode 0600, made and brought along by its owner alone."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import NoReturn

from daemon.key_file import read_or_make
from glia.errors import BadRequest
from glia.graph.soul import LOCKED_BYTES, SECRET_BYTES, Soul, is_locked, lock_secret, unlock_secret

_ANEW = "gliad soul import FILE brings one along, gliad soul create makes one"
_WRITTEN = "`soul export FILE` writes one, on the Body that has it"
_SALT_BYTES = 16


def read_secret(path: Path) -> bytes:
    """The 32 bytes. Raises: BadRequest (none there, or not private), StoreBroken."""
    secret = read_or_make(path, _none, f"rm {path}, then {_ANEW}")
    if len(secret) != SECRET_BYTES:
        raise BadRequest(f"{path}: {len(secret)} bytes are not a Soul's key", hint=_ANEW)
    return secret


def read_soul(path: Path) -> Soul:
    """Raises: as read_secret."""
    return Soul(read_secret(path))


def keep_secret(path: Path, secret: bytes) -> Soul:
    """Have a secret there from now on. Raises: BadRequest (there is another), StoreBroken."""
    if path.exists() or path.is_symlink():
        here = read_soul(path)
        if here.name == Soul(secret).name:
            return here
        raise BadRequest(
            f"there is a Soul here already: {here.name.hex()[:12]}",
            hint=f"another --data-dir, or mv {path} elsewhere: its checkpoints need it",
        )
    return Soul(read_or_make(path, lambda: secret, _ANEW))


def new_secret() -> bytes:
    """For a Soul that there was not yet."""
    return secrets.token_bytes(SECRET_BYTES)


def write_locked(path: Path, secret: bytes, passphrase: str) -> None:
    """A file that can be carried elsewhere. Raises: BadRequest (there is one), StoreBroken."""
    if path.exists() or path.is_symlink():
        raise BadRequest(f"{path} is there already", hint="name another file")
    locked = lock_secret(secret, passphrase, secrets.token_bytes(_SALT_BYTES))
    read_or_make(path, lambda: locked, "name another file")


def read_carried(path: Path) -> bytes:
    """What such a file holds, or that of a node: locked or not.

    Raises: BadRequest (none there, or neither), StoreBroken.
    """
    data = read_or_make(path, lambda: _no_file(path), _WRITTEN)
    if len(data) == SECRET_BYTES or (is_locked(data) and len(data) == LOCKED_BYTES):
        return data
    raise BadRequest(f"{path}: not a Soul's key", hint=_WRITTEN)


def unlocked(data: bytes, passphrase: str) -> bytes:
    """The secret that was carried. Raises: BadRequest (another passphrase)."""
    return unlock_secret(data, passphrase) if is_locked(data) else data


def _none() -> NoReturn:
    raise BadRequest("this Body has no Soul's key", hint=_ANEW)


def _no_file(path: Path) -> NoReturn:
    raise BadRequest(f"{path}: No such file", hint=_WRITTEN)
