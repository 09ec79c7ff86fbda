"""R8: windows fetched from a peer on loopback, verified, and stored behind their use.

Two processes. The other side of the ratio is trio's TCP alone: batches of 256 blocks, asked
for one after the other, sent from one buffer, and cut into blocks where they arrive. Ours is
the whole of it: the session's requests, the bulk path (or libp2p's streams, for comparison),
the door, which hashes each block and holds it to its record, and what gliad does with a window:
into L1, and from there to L2 by its writer, which begins when no more comes, or after two
seconds. The time ends when the last window could be used in L1; how long it took until all was
stored is told, too. Ours has no thread but the writer's. L1 is 1 GiB whose first pages are there
already, as gliad has them. What the peer serves lies in its memory: reading it
is R7's.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio

from daemon.arena import SharedMemory
from daemon.binding import Binding
from daemon.memory import Memory
from glia.store.disk import DiskStore
from p2p.bulk.client import BulkDialer
from p2p.bulk.server import BulkServer
from p2p.fetching import Fetch
from p2p.getter import Session
from p2p.host import Address, Limits, PeerId, Stream
from p2p.libp2p.network import Network
from p2p.messages import BLOCKS
from p2p.provider import InThreads, Provider
from p2p.source import Provides
from p2p.upload import UploadLimit
from simulations.bench.chain import NUM_WINDOWS, Chain
from simulations.bench.store import PROFILE

_GROUP_WINDOWS = 8
_BLOCK_BYTES = 64 * 1024
_BATCH_BYTES = 256 * _BLOCK_BYTES
_READ_BYTES = 256 * 1024
_CAP_BYTES = 64 * 1024**3
_L1_BYTES = 1024**3
_HOT_STEPS = 64  # as daemon/config.py
_MB = 1e6
_LOOPBACK = "127.0.0.1"
_LISTEN = [Address(f"/ip4/{_LOOPBACK}/tcp/0")]


# -- the peer ---------------------------------------------------------------------------------


async def _serve() -> None:
    network = Network(
        os.urandom(32), _LISTEN, limits=Limits(), validate=lambda *_: False, agent="bench"
    )
    provider = Provider(Chain(), lambda *_: None, UploadLimit(), InThreads())
    (raw,) = await trio.open_tcp_listeners(0, host=_LOOPBACK)
    async with trio.open_nursery() as nursery:
        await nursery.start(network.run)
        provider.serve_on(network.host)
        bulk = BulkServer(network.host)
        bulk.serve(BLOCKS, provider.blocks)
        await bulk.listen(_LOOPBACK)
        nursery.start_soon(bulk.run)
        nursery.start_soon(trio.serve_listeners, _give, [raw])
        place = [network.host.addresses()[0], raw.socket.getsockname()[1]]
        print(json.dumps(place), flush=True)
        await trio.to_thread.run_sync(sys.stdin.read)
        nursery.cancel_scope.cancel()


async def _give(stream: trio.SocketStream) -> None:
    """A batch of bytes for every byte that comes."""
    batch = bytes(_BATCH_BYTES)
    while asked := await stream.receive_some():
        for _ in asked:
            await stream.send_all(batch)


# -- who fetches ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Took:
    """Seconds until all of the chain could be used, and until it was stored."""

    used_s: float
    stored_s: float


async def _fetch(
    chain: Chain, arena: SharedMemory, peer: PeerId, opens: Callable[[PeerId], Awaitable[Stream]]
) -> _Took:
    binding = Binding(chain.windows[0].model_id, PROFILE, chain.windows[0].numerics_class)
    with tempfile.TemporaryDirectory(prefix="gliad-bench-peer-") as directory:
        store = DiskStore(Path(directory) / "store", _CAP_BYTES)
        memory = Memory(arena, store, _HOT_STEPS)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(memory.writer.run)
            began_s = time.perf_counter()
            sink = memory.adopter.after(
                binding, None, binding.root_key, memory.hidden.num_changes, lambda: None
            )
            providers = [Provides(peer, NUM_WINDOWS)]
            session = Session(chain.windows, None, PROFILE, providers, now_s=trio.current_time())
            await Fetch(session, opens, sink, lambda _: None, nursery).run()
            used_s = time.perf_counter() - began_s
            await memory.flush([record.window_id for record in chain.windows])
            stored_s = time.perf_counter() - began_s
            nursery.cancel_scope.cancel()
        store.close()
    assert len(sink.records) == NUM_WINDOWS
    return _Took(used_s, stored_s)


async def _read_raw(port: int, num_bytes: int) -> float:
    num_batches = math.ceil(num_bytes / _BATCH_BYTES)
    async with await trio.open_tcp_stream(_LOOPBACK, port) as stream:
        began_s = time.perf_counter()
        for _ in range(num_batches):
            await stream.send_all(b"x")
            await _read_batch(stream)
        took_s = time.perf_counter() - began_s
    return took_s * num_bytes / (num_batches * _BATCH_BYTES)


async def _read_batch(stream: trio.SocketStream) -> list[bytes]:
    blocks, buffer = list[bytes](), bytearray()
    while len(blocks) * _BLOCK_BYTES < _BATCH_BYTES:
        buffer += await stream.receive_some(_READ_BYTES)
        whole = len(buffer) // _BLOCK_BYTES * _BLOCK_BYTES
        blocks += [bytes(buffer[at : at + _BLOCK_BYTES]) for at in range(0, whole, _BLOCK_BYTES)]
        del buffer[:whole]
    return blocks


class _Measured:
    """MB/s and CPU seconds a GB, here and at the peer, of each way; ours with storing it."""

    def __init__(self, chain: Chain, pid: int) -> None:
        self._chain, self._pid = chain, pid
        self.speeds: dict[str, list[float]] = {}
        self.costs: dict[str, list[tuple[float, float]]] = {}

    async def add(self, way: str, took: Callable[[], Awaitable[float]]) -> None:
        gigabytes = self._chain.num_bytes / 1e9
        ours, theirs = time.process_time(), _cpu_s(self._pid)
        took_s = await took()
        cost = (time.process_time() - ours) / gigabytes, (_cpu_s(self._pid) - theirs) / gigabytes
        self.speeds.setdefault(way, []).append(self._chain.num_bytes / took_s / _MB)
        self.costs.setdefault(way, []).append(cost)

    async def add_fetch(self, way: str, fetch: Callable[[], Awaitable[_Took]]) -> None:
        stored_s = 0.0

        async def used() -> float:
            nonlocal stored_s
            took = await fetch()
            stored_s = took.stored_s
            return took.used_s

        await self.add(way, used)
        speed = self._chain.num_bytes / stored_s / _MB
        self.speeds.setdefault(f"{way}, until stored", []).append(speed)


async def _measure(address: Address, port: int, pid: int, num_rounds: int) -> dict[str, Any]:
    chain = Chain()
    network = Network(
        os.urandom(32), _LISTEN, limits=Limits(), validate=lambda *_: False, agent="bench"
    )
    measured = _Measured(chain, pid)
    async with trio.open_nursery() as nursery:
        await nursery.start(network.run)
        peer = await network.host.connect(address)
        dialer = BulkDialer(network.host)

        async def fast(peer: PeerId) -> Stream:
            return await dialer.open(peer, BLOCKS)

        async def slow(peer: PeerId) -> Stream:
            return await network.host.open(peer, BLOCKS)

        arena = SharedMemory("glia-bench-l1", _L1_BYTES, 0)
        arena.prefault(2 * chain.num_bytes)
        for _ in range(num_rounds):
            await measured.add("raw TCP", lambda: _read_raw(port, chain.num_bytes))
            await measured.add_fetch("bulk", lambda: _fetch(chain, arena, peer, fast))
            await measured.add_fetch("libp2p", lambda: _fetch(chain, arena, peer, slow))
        arena.close()
        assert dialer.counters == {"streams": num_rounds}
        nursery.cancel_scope.cancel()
    return _figures(measured)


def _figures(measured: _Measured) -> dict[str, Any]:
    speeds = {way: statistics.median(values) for way, values in measured.speeds.items()}
    pairs = zip(measured.speeds["bulk"], measured.speeds["raw TCP"], strict=True)
    ratios = [ours / other for ours, other in pairs]
    found: dict[str, Any] = {
        "ratio": statistics.median(ratios),
        "ours": f"{speeds['bulk']:.0f} MB/s",
        "other": f"{speeds['raw TCP']:.0f} MB/s",
        "ratio, worst round": min(ratios),
        "ratio, best round": max(ratios),
        "until all is stored, MB/s": speeds["bulk, until stored"],
        "over libp2p's streams, MB/s": speeds["libp2p"],
    }
    for way, costs in measured.costs.items():
        for side, values in zip(("getter", "provider"), zip(*costs, strict=True), strict=True):
            found[f"CPU s/GB, {way}, {side}"] = statistics.median(values)
    return found


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(quick: bool = False) -> dict[str, Any]:
    """Medians over rounds of all ways in turn.

    Returns: ratio (ours / other), ours and other as text, and where the time goes.
    """
    command = (sys.executable, "-m", "simulations.bench.peer", "serve")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as peer:
        assert peer.stdin is not None
        assert peer.stdout is not None
        address, port = json.loads(peer.stdout.readline())
        try:
            return trio.run(_measure, Address(address), port, peer.pid, 3 if quick else 7)
        finally:
            peer.stdin.close()


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        trio.run(_serve)
    else:
        for name, value in run("--quick" in sys.argv).items():
            print(f"{name}: {value}")
