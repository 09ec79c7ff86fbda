"""What a node holds when nobody asks it anything, and how that changes over time."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from glia.client import Client
from simulations.bench.node import resident_bytes

MIB = 1024 * 1024
_QUIET_S = 60.0


@dataclass(frozen=True)
class Sample:
    """One moment of rest.

    Attributes:
        pinned_bytes: what L1 still held after everything not in use was dropped; None where
            nothing was dropped for this sample.
        store_bytes: blocks of the store's files on disk.
    """

    seconds: float
    gliad_bytes: int
    engine_bytes: int
    gliad_fds: int
    engine_fds: int
    l1_bytes: int
    l2_bytes: int
    l2_cap_bytes: int
    store_bytes: int
    num_conversations: int
    crashed: int
    pinned_bytes: int | None = None


def take(data_dir: Path, began_s: float, *, drop: bool) -> Sample:
    """A sample of an idle node. `drop`: empty L0 and L1 first."""
    with Client.connect(data_dir) as client:
        _until_quiet(client)
        if drop:
            client.evict("l0")
            client.evict("l1")
        status = client.status()
        num_conversations = len(client.conversations())
    l1, l2 = status.tiers["l1"], status.tiers["l2"]
    engines = [engine.pid for engine in status.engines if engine.pid is not None]
    return Sample(
        seconds=time.monotonic() - began_s,
        gliad_bytes=resident_bytes(status.pid),
        engine_bytes=sum(map(resident_bytes, engines)),
        gliad_fds=_num_fds(status.pid),
        engine_fds=sum(map(_num_fds, engines)),
        l1_bytes=l1.used_bytes,
        l2_bytes=l2.used_bytes,
        l2_cap_bytes=l2.cap_bytes,
        store_bytes=_on_disk(data_dir / "store"),
        num_conversations=num_conversations,
        crashed=status.counters.get("crashed", 0),
        pinned_bytes=l1.used_bytes if drop else None,
    )


def slope_mib(seconds: Sequence[float], sizes: Sequence[int]) -> float:
    """Least squares: MiB in 10 minutes."""
    return statistics.linear_regression(seconds, sizes).slope * 600 / MIB


def as_line(sample: Sample) -> str:
    """A row of the table."""
    pinned = "-" if sample.pinned_bytes is None else f"{sample.pinned_bytes / MIB:.1f}"
    sizes = (sample.gliad_bytes, sample.engine_bytes, sample.l1_bytes, sample.l2_bytes)
    return (
        f"{sample.seconds:7.0f}"
        + "".join(f"{size / MIB:10.1f}" for size in (*sizes, sample.store_bytes))
        + f"{pinned:>8}{sample.gliad_fds:6}{sample.engine_fds:6}{sample.num_conversations:6}"
    )


HEAD = (
    f"{'s':>7}{'gliad':>10}{'engine':>10}{'l1':>10}{'l2':>10}{'on disk':>10}"
    f"{'pinned':>8}{'fds':>6}{'fds':>6}{'conv':>6}   (sizes in MiB)"
)


def as_dict(sample: Sample) -> dict[str, float | int | None]:
    """For JSON."""
    assert len(fields(sample)) == len(asdict(sample))
    return asdict(sample)


def _until_quiet(client: Client) -> None:
    """Runs that were given up end, and what is dirty is written, before anything is counted."""
    deadline = time.monotonic() + _QUIET_S
    while time.monotonic() < deadline:
        engines = client.status().engines
        running = any(run.state in ("waiting", "loading", "running") for run in client.runs())
        if not running and not any(engine.num_running for engine in engines):
            return
        time.sleep(0.1)
    raise TimeoutError(f"requests still run after {_QUIET_S:g} s")


def _num_fds(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def _on_disk(directory: Path) -> int:
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_blocks * 512
        except FileNotFoundError:  # compacted away meanwhile
            continue
    return total
