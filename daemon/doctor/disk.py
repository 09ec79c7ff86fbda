"""The disk under the data dir: room, holes, speed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from daemon.config_readers import MIB
from daemon.doctor.finding import Finding, Subject
from daemon.show import size
from glia.store.holes import can_punch
from glia.store.lock import LOCK

_PIECE_BYTES = 4 * MIB
_PIECES = 12  # at most so many: 48 MiB
_LONGEST_S = 2.0
_SLOW_BYTES_PER_S = 20e6
_SLOW_SYNC_S = 0.2
_FULL_BYTES = 64 * MIB
_IN_MEMORY = ("tmpfs", "ramfs")
_REMOTE = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs")


def look(subject: Subject) -> Iterator[Finding]:
    """Room for L2, the kind of file system, holes, and how fast it writes and reads; and whether
    a running gliad has its store."""
    yield _kind(subject.directory)
    if subject.status is not None:
        yield _store(subject.paths.store)
    yield _room(subject)
    yield _holes(subject.directory)
    if shutil.disk_usage(subject.directory).free > 2 * _FULL_BYTES:
        yield from _speed(subject.directory)


def _kind(directory: Path) -> Finding:
    mount, kind = _mount(directory)
    if kind in _IN_MEMORY:
        change = "keep the data dir on a disk: --data-dir DIR"
        return Finding("file system", "warn", f"{kind} at {mount}: gone at a reboot", change)
    if kind in _REMOTE:
        change = "keep the data dir on a local disk: --data-dir DIR"
        found = f"{kind} at {mount}: locks and syncs may not hold there"
        return Finding("file system", "warn", found, change)
    return Finding("file system", "ok", f"{kind} at {mount}")


def _store(path: Path) -> Finding:
    """Where nobody holds its lock, the running gliad has another one open, or none."""
    there = path / "index"
    if there.is_dir() and _is_held(path / LOCK):
        return Finding("store", "ok", "the running gliad has it open")
    found = f"{path} is not what the running gliad has open: it was moved or removed"
    change = "put it back; or to begin anew: gliad stop, then gliad start"
    return Finding("store", "bad", found, change)


def _is_held(lock: Path) -> bool:
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def _mount(directory: Path) -> tuple[str, str]:
    """Mount point and type: of the mounts above a directory the deepest, the last of those."""
    real, best = directory.resolve(), ("/", "unknown")
    for line in (
        Path("/proc/self/mounts").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    ):
        _, point, kind = line.split()[:3]
        point = point.replace("\\040", " ")
        if real.is_relative_to(point) and len(point) >= len(best[0]):
            best = (point, kind)
    return best


def _room(subject: Subject) -> Finding:
    cap, free = subject.config.l2.size_bytes, shutil.disk_usage(subject.directory).free
    used = _on_disk(subject.paths.store)
    found = f"{size(free)} free, L2 has {size(used)} of {size(cap)}"
    if free < _FULL_BYTES:
        change = "make room, or lower [l2] size: answers come, but are not kept"
        return Finding("disk", "bad", found, change)
    if free < cap - used:
        return Finding("disk", "warn", found, "lower [l2] size, or make room")
    return Finding("disk", "ok", found)


def _holes(directory: Path) -> Finding:
    if can_punch(directory):
        return Finding("holes", "ok", "space inside files is given back")
    found = "this file system does not give back space inside files"
    change = "keep the data dir on ext4, xfs or btrfs"
    return Finding("holes", "warn", found, change)


def _speed(directory: Path) -> Iterator[Finding]:
    """What is written and synced in pieces, then read from the disk; 48 MiB at most."""
    piece = os.urandom(_PIECE_BYTES)
    with tempfile.TemporaryFile(dir=directory) as file:
        fd, began_s, pieces = file.fileno(), time.perf_counter(), 0
        while pieces < _PIECES and time.perf_counter() < began_s + _LONGEST_S:
            os.write(fd, piece)
            os.fdatasync(fd)
            pieces += 1
        yield _rate("writing and syncing", pieces, time.perf_counter() - began_s)
        began_s = time.perf_counter()
        os.pwrite(fd, piece[:4096], 0)
        os.fdatasync(fd)
        yield _sync(time.perf_counter() - began_s)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        began_s, done = time.perf_counter(), 0
        while done < pieces and time.perf_counter() < began_s + _LONGEST_S:
            os.pread(fd, _PIECE_BYTES, done * _PIECE_BYTES)
            done += 1
        yield _rate("reading", done, time.perf_counter() - began_s)


def _rate(what: str, pieces: int, took_s: float) -> Finding:
    rate = pieces * _PIECE_BYTES / took_s
    if rate < _SLOW_BYTES_PER_S:
        change = "a faster disk: --data-dir DIR; prefill may be quicker than this one"
        return Finding(what, "warn", f"{rate / 1e6:,.0f} MB/s", change)
    return Finding(what, "ok", f"{rate / 1e6:,.0f} MB/s")


def _sync(took_s: float) -> Finding:
    found = f"{took_s * 1000:.1f} ms for 4 KiB"
    if took_s > _SLOW_SYNC_S:
        return Finding(
            "fdatasync", "warn", found, "answers wait so long at their end: another disk"
        )
    return Finding("fdatasync", "ok", found)


def _on_disk(directory: Path) -> int:
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.lstat().st_blocks * 512
        except FileNotFoundError:  # a running gliad removes files
            continue
    return total
