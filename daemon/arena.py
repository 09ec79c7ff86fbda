"""L1's memory: one memfd that clients of the same user may read and nobody else may write.

Mapped for writing here first, then sealed against shrinking, growing and further
writable shared mappings; so a descriptor handed out can only be read.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
from pathlib import Path

from glia.errors import ConfigError

_F_ADD_SEALS = 1033
_F_SEAL_SEAL = 0x01
_F_SEAL_SHRINK = 0x02
_F_SEAL_GROW = 0x04
_F_SEAL_FUTURE_WRITE = 0x10
_MADV_POPULATE_WRITE = 23
_PREFAULT_STEP = 2 * 1024 * 1024  # madvise keeps the GIL: about 2 ms a step
_SPARE_BYTES = 64 * 1024 * 1024
_ZEROS = memoryview(bytes(256 * 1024))


class SharedMemory:
    """A mapped memfd of fixed size.

    Attributes:
        fd: to be passed to clients.
        view: [size_bytes], writable.
    """

    def __init__(self, name: str, size_bytes: int, seals: int) -> None:
        self.size_bytes = size_bytes
        self.fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.fd, size_bytes)
            self._map = mmap.mmap(self.fd, size_bytes)
            fcntl.fcntl(self.fd, _F_ADD_SEALS, seals | _F_SEAL_SHRINK | _F_SEAL_GROW)
            fcntl.fcntl(self.fd, _F_ADD_SEALS, _F_SEAL_SEAL)
        except BaseException:
            os.close(self.fd)
            raise
        self.view = memoryview(self._map)

    def zero(self, start: int, end: int) -> None:
        """Overwrite a range. (The seal against writing keeps us from punching a hole, too.)"""
        for at in range(start, end, len(_ZEROS)):
            length = min(len(_ZEROS), end - at)
            self.view[at : at + length] = _ZEROS[:length]

    def prefault(self, size_bytes: int) -> None:
        """Have the kernel give the first `size_bytes` their pages now. For a worker thread."""
        for offset in range(0, min(size_bytes, self.size_bytes), _PREFAULT_STEP):
            length = min(_PREFAULT_STEP, self.size_bytes - offset)
            try:
                self._map.madvise(_MADV_POPULATE_WRITE, offset, length)
            except (OSError, ValueError):  # an older kernel, or unmapped meanwhile
                return

    def close(self) -> None:
        """Unmap; clients keep their own mappings. Idempotent."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
            self.view.release()
            with contextlib.suppress(BufferError):  # a slice still lives: unmapped with it
                self._map.close()


def make_arena(size_bytes: int) -> SharedMemory:
    """L1, `size_bytes` rounded down to whole pages; pages come with first use.

    Raises: ConfigError where it cannot fit this machine.
    """
    available = available_bytes(Path("/proc/meminfo"), Path("/sys/fs/cgroup/memory.max"))
    if size_bytes < mmap.PAGESIZE or size_bytes > available - _SPARE_BYTES:
        raise ConfigError(
            f"an arena of {size_bytes:,} bytes: {available:,} bytes of memory are available",
            key="l1.size",
            hint="lower l1.size in glia.toml",
        )
    return SharedMemory(
        "glia-l1", size_bytes // mmap.PAGESIZE * mmap.PAGESIZE, _F_SEAL_FUTURE_WRITE
    )


def make_staging(size_bytes: int) -> SharedMemory:
    """One client's staging area: both sides write, neither can truncate it under the other."""
    return SharedMemory("glia-staging", size_bytes, 0)


def available_bytes(meminfo: Path, cgroup_limit: Path) -> int:
    """Memory that could be had now: the kernel's estimate, and no more than a cgroup allows."""
    available = 0
    for line in meminfo.read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            available = int(rest.split()[0]) * 1024
    try:
        limit = int(cgroup_limit.read_text())
    except (OSError, ValueError):  # no cgroup, or "max"
        return available
    return min(available, limit)
