"""Permissions: the data dir and everything in it are for its owner only."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

from daemon.doctor.finding import Finding, Subject
from daemon.paths import CONFIG_NAME
from glia.errors import GliaError
from glia.local.address import socket_path

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
    yield from _contents(path)


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


def _contents(path: Path) -> Iterator[Finding]:
    """Modes and owners of all that is in the data dir."""
    wide: list[str] = []
    others: list[str] = []
    unread: list[str] = []
    for name, mode, uid in _files(path, unread):
        # The user writes the settings, with any umask; they hold no secret.
        if mode & 0o077 and name != CONFIG_NAME:
            wide.append(name)
        if uid != os.geteuid():
            others.append(name)
    if wide:
        found = f"open to other users: {_list(wide)}"
        yield Finding("permissions", "bad", found, f"chmod -R go-rwx {shlex.quote(str(path))}")
    elif unread:
        found = f"cannot be looked into: {_list(unread)}"
        yield Finding("permissions", "bad", found, f"chmod -R u+rwX {shlex.quote(str(path))}")
    else:
        yield Finding("permissions", "ok", "everything is for its owner only")
    if others:
        found = f"of another user: {_list(others)}"
        yield Finding("owner", "bad", found, f"chown -R {os.geteuid()} {shlex.quote(str(path))}")
    else:
        yield Finding("owner", "ok", f"uid {os.geteuid()}")


def _files(path: Path, unread: list[str]) -> Iterator[tuple[str, int, int]]:
    """Name, mode and uid of the directory and all that is in it; symlinks are not followed.

    Directories that cannot be listed are added to `unread`.
    """

    def note(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):  # a running gliad removes files
            unread.append(os.path.relpath(error.filename, path))

    status = path.lstat()
    yield str(path), status.st_mode, status.st_uid
    for directory, below, files in os.walk(path, onerror=note):
        for name in (*below, *files):
            file = os.path.join(directory, name)
            try:
                status = os.lstat(file)
            except FileNotFoundError:
                continue
            if not stat.S_ISLNK(status.st_mode):
                yield os.path.relpath(file, path), status.st_mode, status.st_uid


def _list(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
