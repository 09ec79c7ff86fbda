"""R9, lease, seal, find: 512 blocks of 64 KiB through gliad's socket and its shared memory.

R9 leases them and reads every byte: it copies them out, block by block, as an engine without a
kernel of its own would; the other side copies as many bytes within one process. lease is the
lease alone, against the bytes through a Unix socket. seal (copy, header, hash, names) is against
copying and hashing. find is a match of the whole chain in L2's index, against what it
needs at least: its tokens to a process and back, and one get for each window in a LevelDB.
"""

from __future__ import annotations

import random
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import plyvel
from numpy.typing import NDArray

from glia.client import Client
from glia.graph.ids import ModelId, WindowId, digest
from glia.graph.profile import KvScheme, LayerShape, PositionMode, Profile
from simulations.bench.node import Node, resident_bytes
from simulations.bench.report import Row

NUM_BLOCKS = 512
_SETTINGS = '[l1]\nsize = "512MiB"\n'


def run(quick: bool) -> tuple[list[Row], dict[str, Any]]:
    """Medians."""
    reps = 7 if quick else 31
    with (
        tempfile.TemporaryDirectory(prefix="gliad-bench-lease-") as directory,
        Node(Path(directory) / "node", _SETTINGS) as node,
        node.client() as client,
    ):
        side = _Side(client, kv_heads=8, head_dim=128, num_layers=16)
        seal_us = side.seal_us(seeds=range(3))
        taken = side.lease_figures(reps)
        node.evict("l1")
        match_ms = _median_s(lambda: client.match(side.tokens), reps) * 1e3
        least_ms = _gets_ms(Path(directory) / "leveldb", side.names, reps)
        least_ms += _echo_ms(np.array(side.tokens, dtype="<u4").tobytes(), reps)
        with node.client() as other:
            small = _Side(other, kv_heads=3, head_dim=64, num_layers=30)
            small_seal_us = small.seal_us(seeds=range(3))
        weight = resident_bytes(client.welcome.pid)
    rows = [
        _row("R9", taken["lease and read"], taken["memcpy"]),
        _row("lease", taken["lease"], taken["socket"]),
        _row("seal", seal_us, taken["memcpy and hash"]),
        Row("find", match_ms / least_ms, f"{match_ms:.2f} ms", f"{least_ms:.2f} ms"),
    ]
    return rows, {
        "seal of 12 KiB, us a block": round(small_seal_us, 2),
        "windows that find found": len(side.names),
        "daemon without shared memory, MB": round(weight / 1e6, 1),
    }


def _row(name: str, ours_us: float, other_us: float) -> Row:
    """How much sooner."""
    return Row(name, other_us / ours_us, *(f"{us:.2f} us a block" for us in (ours_us, other_us)))


def _gets_ms(path: Path, names: Sequence[bytes], reps: int) -> float:
    """As many rows as gliad's index has, one get for each name."""
    with plyvel.DB(str(path), create_if_missing=True) as leveldb:
        for name in names:
            leveldb.put(name, bytes(64))
        return _median_s(lambda: [leveldb.get(name) for name in names], reps) * 1e3


def _echo_ms(data: bytes, reps: int) -> float:
    """To a process that gives back what it gets, through a Unix socket."""
    one, two = socket.socketpair()
    with one, subprocess.Popen(["/bin/cat"], stdin=two, stdout=two) as process:
        two.close()
        found = _median_s(lambda: _echo(one, data), reps) * 1e3
        one.shutdown(socket.SHUT_WR)
        process.wait()
    return found


def _echo(there: socket.socket, data: bytes) -> None:
    there.sendall(data)
    left = len(data)
    while left:
        left -= len(there.recv(left))


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
        """us a block of: lease, lease and read, and of other ways to move the same bytes."""
        size = self._profile.payload_sizes[0]
        arena = np.frombuffer(self._client.arena, dtype=np.uint8)
        source = np.empty((NUM_BLOCKS, size), dtype=np.uint8)
        target = np.empty_like(source)
        self._lease_and_read(arena, source)
        moved = _medians_us(
            reps,
            {
                "lease": self._lease,
                "memcpy": lambda: _copy_rows(source, target),
                "lease and read": lambda: self._lease_and_read(arena, target),
            },
        )
        if not np.array_equal(source, target):
            raise RuntimeError("what was leased is not what was sealed")
        others: dict[str, Callable[[], object]] = {
            "memcpy and hash": lambda: _copy_and_hash(source, target),
            "socket": lambda: _through_a_socket(source, target),
        }
        return moved | _medians_us(reps, others)

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


def _medians_us(reps: int, ways: dict[str, Callable[[], object]]) -> dict[str, float]:
    """us a block of each way, in turn."""
    taken: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(reps):
        for way, call in ways.items():
            taken[way].append(_timed_s(call))
    return {way: statistics.median(times) / NUM_BLOCKS * 1e6 for way, times in taken.items()}


def _copy_rows(source: NDArray[np.uint8], target: NDArray[np.uint8]) -> None:
    for row, from_row in zip(target, source, strict=True):
        row[:] = from_row


def _copy_and_hash(source: NDArray[np.uint8], target: NDArray[np.uint8]) -> None:
    for row, from_row in zip(target, source, strict=True):
        row[:] = from_row
        digest(row.data)


def _through_a_socket(source: NDArray[np.uint8], target: NDArray[np.uint8]) -> None:
    """All of them in one piece, from another thread."""
    one, two = socket.socketpair()
    with one, two:
        sender = Thread(target=one.sendall, args=(source.reshape(-1).data,))
        sender.start()
        left = target.reshape(-1).data
        while left:
            left = left[two.recv_into(left) :]
        sender.join()


def _timed_s(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _median_s(work: Callable[[], object], reps: int) -> float:
    return statistics.median(_timed_s(work) for _ in range(reps))
