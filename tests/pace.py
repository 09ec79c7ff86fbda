"""How long a thing took, without the time for which this machine had no core for it.

The figures of SECURITY are about what gliad does, and not about what else runs here. Of each
thread Linux counts for how long it could have gone on and waited for a core (schedstat).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

PATIENCE_S = 90.0  # for what takes a second on a machine that has time
_POLL_S = 0.005


class Stopwatch:
    """Runs from when it is made.

    Args: pids: processes that this one waits for.
    """

    def __init__(self, *pids: int) -> None:
        self._before = {pid: _waits_s(pid) for pid in pids}
        self._waited_s = dict.fromkeys(pids, 0.0)
        self._own_s = _own_wait_s()
        self._start_s = time.monotonic()

    def took_s(self, *pids: int) -> float:
        """Until now. Args: pids: others that began since."""
        for pid in (*self._before, *pids):
            self._look_at(pid)
        own_s = _own_wait_s() - self._own_s
        return time.monotonic() - self._start_s - own_s - sum(self._waited_s.values())

    def wait(self, is_over: Callable[[], bool], *pids: int) -> float:
        """How long it took until it was so: for what ends processes. Args: pids: as took_s."""
        while not is_over():
            assert time.monotonic() < self._start_s + PATIENCE_S
            self.took_s(*pids)
            time.sleep(_POLL_S)
        return self.took_s()

    def _look_at(self, pid: int) -> None:
        """A process waited as long as the thread of it that waited most."""
        before = self._before.get(pid, {})
        for thread, waits_s in _waits_s(pid).items():
            waited_s = waits_s - before.get(thread, 0.0)
            self._waited_s[pid] = max(self._waited_s.get(pid, 0.0), waited_s)


def _own_wait_s() -> float:
    return _read_s(Path("/proc/thread-self/schedstat"))


def _waits_s(pid: int) -> dict[str, float]:
    """By thread."""
    paths = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return {path.parent.name: _read_s(path) for path in paths}


def _read_s(path: Path) -> float:
    """Nothing where the thread is gone, or this Linux does not count."""
    try:
        return int(path.read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0
