"""What this machine has, as far as this process may use it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_CGROUPS = Path("/sys/fs/cgroup")
_V1 = "memory"


def memory_bytes(proc: Path = Path("/proc"), cgroups: Path = _CGROUPS) -> int:
    """Memory that processes here may take together: the machine's, or a container's limit."""
    total = meminfo_bytes("MemTotal", proc)
    return min([total, *_limits(proc / "self" / "cgroup", cgroups)])


def meminfo_bytes(name: str, proc: Path = Path("/proc")) -> int:
    """A line of meminfo: MemTotal, MemAvailable."""
    for line in (proc / "meminfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0]) * 1024
    raise LookupError(f"the kernel does not say {name}")


def _limits(membership: Path, cgroups: Path) -> Iterator[int]:
    """Those of the groups this process is in and of all above them; "max" is none."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if not controllers:
            root, name = cgroups, "memory.max"
        elif _V1 in controllers.split(","):
            root, name = cgroups / _V1, "memory.limit_in_bytes"
        else:
            continue
        path = PurePosixPath(group)
        for part in (path, *path.parents):
            # Inside a container the group's own path may not be there, but its root is.
            limit = _number(root / str(part).lstrip("/") / name)
            if limit is not None:
                yield limit


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
