"""Permissions: the data dir and everything in it are for its owner only."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from daemon.doctor.finding import Finding, Subject
from daemon.paths import CONFIG_NAME
from glia.errors import GliaError
from glia.local.address import socket_path

_MAX_FILES = 20_000
_SHOWN = 3


def look(subject: Subject) -> Iterator[Finding]:
    """Owner and modes; the socket's path."""
    path = subject.paths.data_dir
    yield _socket(subject)
    try:
        status = path.lstat()
    except FileNotFoundError:
        yield _parent(subject)
        return
    if stat.S_ISLNK(status.st_mode) or not stat.S_ISDIR(status.st_mode):
        yield Finding("data dir", "bad", f"{path} is not a directory", "--data-dir DIR")
        return
    if status.st_uid != os.geteuid():
        found = f"{path} belongs to uid {status.st_uid}, this is uid {os.geteuid()}"
        yield Finding("data dir", "bad", found, "run as its owner, or take another: --data-dir DIR")
        return
    yield _modes(path)
    yield _owners(path)


def _socket(subject: Subject) -> Finding:
    try:
        socket_path(subject.paths.socket)
    except GliaError as error:
        return Finding("socket", "bad", error.message, error.hint or "--data-dir DIR")
    return Finding("socket", "ok", str(subject.paths.socket))


def _parent(subject: Subject) -> Finding:
    path, parent = subject.paths.data_dir, subject.directory
    if os.access(parent, os.W_OK | os.X_OK):
        return Finding("data dir", "ok", f"{path} is not there yet: gliad start makes it")
    found = f"{path} is not there, and {parent} is not yours to write"
    return Finding("data dir", "bad", found, "take another: --data-dir DIR")


def _modes(path: Path) -> Finding:
    # The user writes the settings, with any umask; they hold no secret.
    wide = [name for name, mode, _ in _files(path) if mode & 0o077 and name != CONFIG_NAME]
    if not wide:
        return Finding("permissions", "ok", "everything is for its owner only")
    found = f"open to other users: {_list(wide)}"
    return Finding("permissions", "bad", found, f"chmod -R go-rwx {path}")


def _owners(path: Path) -> Finding:
    others = [name for name, _, uid in _files(path) if uid != os.geteuid()]
    if not others:
        return Finding("owner", "ok", f"uid {os.geteuid()}")
    found = f"of another user: {_list(others)}"
    return Finding("owner", "bad", found, f"chown -R {os.geteuid()} {path}")


def _files(path: Path) -> Iterator[tuple[str, int, int]]:
    """Name, mode and uid of the directory and what is in it; symlinks are not followed."""
    status = path.lstat()
    yield str(path), status.st_mode, status.st_uid
    for file in islice(path.rglob("*"), _MAX_FILES):
        try:
            status = file.lstat()
        except FileNotFoundError:  # a running gliad removes files
            continue
        if not stat.S_ISLNK(status.st_mode):
            yield str(file.relative_to(path)), status.st_mode, status.st_uid


def _list(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
