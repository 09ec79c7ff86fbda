"""R9: leasing 512 blocks of 64 KiB from L1 and reading every byte, against memcpy of as many.

Reading is copying out, block by block, as an engine without a kernel of its own would.
The other side copies the same blocks' bytes within one process, block by block too. Beside it,
through the socket all the same: sealing (copy, header, hash, names) per block, the lease
alone per block, a match of the whole chain, and what the daemon weighs.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glia.client import Client
from glia.graph.ids import ModelId, WindowId, digest
from glia.graph.profile import KvScheme, LayerShape, PositionMode, Profile
from simulations.bench.node import Node, resident_bytes

NUM_BLOCKS = 512
_SETTINGS = '[l1]\nsize = "512MiB"\n'


def run(quick: bool = False) -> dict[str, Any]:
    """Medians.

    Returns: ratio (ours / other), ours and other as text, and where the time goes.
    """
    reps = 7 if quick else 31
    with (
        tempfile.TemporaryDirectory(prefix="gliad-bench-lease-") as directory,
        Node(Path(directory) / "node", _SETTINGS) as node,
        node.client() as client,
    ):
        side = _Side(client, kv_heads=8, head_dim=128, num_layers=16)
        seal_us = side.seal_us(seeds=range(3))
        figures = side.lease_figures(reps)
        match_ms = _median_s(lambda: client.match(side.tokens), reps) * 1e3
        with node.client() as other:
            small = _Side(other, kv_heads=3, head_dim=64, num_layers=30)
            small_seal_us = small.seal_us(seeds=range(3))
        weight = resident_bytes(client.welcome.pid)
    read_us, memcpy_us = figures["lease and read"], figures["memcpy"]
    return {
        "ratio": memcpy_us / read_us,
        "ours": f"{read_us:.2f} us a block",
        "other": f"{memcpy_us:.2f} us a block",
        "lease alone, us a block": round(figures["lease"], 3),
        "seal of 64 KiB, us a block": round(seal_us, 2),
        "seal of 12 KiB, us a block": round(small_seal_us, 2),
        f"match of {len(side.names)} windows, ms": round(match_ms, 3),
        "daemon without shared memory, MB": round(weight / 1e6, 1),
    }


class _Side:
    """A client that seals 512 blocks and reads them again."""

    def __init__(self, client: Client, kv_heads: int, head_dim: int, num_layers: int) -> None:
        shapes = tuple(LayerShape(n, kv_heads, head_dim) for n in range(num_layers))
        self._client = client
        self._profile = Profile(16, KvScheme.F16, PositionMode.RELATIVE, shapes)
        self._num_windows = NUM_BLOCKS // num_layers
        client.attach(ModelId(digest(b"bench")), self._profile, "native:bench")
        size = self._num_windows * self._profile.window_payload_bytes
        self._staging = np.frombuffer(client.make_staging(size), dtype=np.uint8)
        self._staging[:] = np.frombuffer(random.Random(7).randbytes(size), dtype=np.uint8)
        self.tokens: list[int] = []
        self.names: list[WindowId] = []

    def seal_us(self, seeds: range) -> float:
        """Median of sealing fresh windows, per block; what was sealed last can be leased."""
        taken: list[float] = []
        for seed in seeds:
            self.tokens = [seed, *range(16 * self._num_windows - 1)]
            started = time.perf_counter()
            sealed = self._client.seal_end(self._client.seal_begin(None, 0, self.tokens, 0))
            taken.append(time.perf_counter() - started)
            self.names = [WindowId(name) for name in sealed.windows]
            self._client.flush(self.names)
        num_blocks = self._num_windows * len(self._profile.layers)
        return statistics.median(taken) / num_blocks * 1e6

    def lease_figures(self, reps: int) -> dict[str, float]:
        """us a block of: lease alone, lease and read, memcpy of the same bytes."""
        size = self._profile.payload_sizes[0]
        arena = np.frombuffer(self._client.arena, dtype=np.uint8)
        source = np.empty((NUM_BLOCKS, size), dtype=np.uint8)
        target = np.empty_like(source)
        self._lease_and_read(arena, source)
        taken: dict[str, list[float]] = {"lease": [], "lease and read": [], "memcpy": []}
        for _ in range(reps):
            taken["lease"].append(_timed_s(self._lease))
            taken["memcpy"].append(_timed_s(lambda: _copy_rows(source, target)))
            taken["lease and read"].append(_timed_s(lambda: self._lease_and_read(arena, target)))
        if not np.array_equal(source, target):
            raise RuntimeError("what was leased is not what was sealed")
        return {what: statistics.median(times) / NUM_BLOCKS * 1e6 for what, times in taken.items()}

    def _lease(self) -> NDArray[np.int64]:
        leased = self._client.lease_end(self._client.lease_begin(self.names))
        self._client.release(leased.lease)
        return np.frombuffer(leased.offsets, dtype="<i8")

    def _lease_and_read(self, arena: NDArray[np.uint8], target: NDArray[np.uint8]) -> None:
        leased = self._client.lease_end(self._client.lease_begin(self.names))
        starts = np.frombuffer(leased.offsets, dtype="<i8") + self._profile.header_bytes
        size = target.shape[1]
        for row, start in zip(target, starts.tolist(), strict=True):
            row[:] = arena[start : start + size]
        self._client.release(leased.lease)


def _copy_rows(source: NDArray[np.uint8], target: NDArray[np.uint8]) -> None:
    for row, from_row in zip(target, source, strict=True):
        row[:] = from_row


def _timed_s(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _median_s(work: Callable[[], object], reps: int) -> float:
    return statistics.median(_timed_s(work) for _ in range(reps))


if __name__ == "__main__":
    for what, figure in run().items():
        print(f"{what}: {figure}")
