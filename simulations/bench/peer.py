"""R8, fetch, ask: windows fetched from a peer on loopback, verified, and stored behind their use.

Two processes. The other sides of the ratios are trio's TCP alone (R8), TLS over it, and a stream
of libp2p as it is; batches are asked for one after the other, and sent from one buffer. Ours is
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
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import trio

from daemon.arena import SharedMemory
from daemon.binding import Binding
from daemon.memory import Memory
from glia.store.disk import DiskStore
from p2p.asking import Asking
from p2p.bulk.client import BulkDialer
from p2p.bulk.server import BulkServer
from p2p.fetching import Fetch
from p2p.getter import Session
from p2p.host import Address, Limits, PeerId, Stream
from p2p.libp2p.network import Network
from p2p.messages import BLOCKS, FIND
from p2p.provider import InThreads, Provider
from p2p.source import Provides
from p2p.upload import UploadLimit
from p2p.walking import Question
from simulations.bench import bare, raw
from simulations.bench.chain import NUM_WINDOWS, Chain
from simulations.bench.raw import LOOPBACK
from simulations.bench.report import Row
from simulations.bench.store import PROFILE

_GROUP_WINDOWS = 8
_CAP_BYTES = 64 * 1024**3
_L1_BYTES = 1024**3
_HOT_STEPS = 64  # as daemon/config.py
_MB = 1e6
_LISTEN = [Address(f"/ip4/{LOOPBACK}/tcp/0")]


# -- the peer ---------------------------------------------------------------------------------


async def _serve() -> None:
    network = Network(
        os.urandom(32), _LISTEN, limits=Limits(), validate=lambda *_: False, agent="bench"
    )
    provider = Provider(Chain(), lambda *_: None, UploadLimit(), InThreads())
    async with trio.open_nursery() as nursery:
        await nursery.start(network.run)
        provider.serve_on(network.host)
        bulk = BulkServer(network.host)
        bulk.serve(BLOCKS, provider.blocks)
        await bulk.listen(LOOPBACK)
        nursery.start_soon(bulk.run)
        ports = await raw.serve(nursery)
        print(json.dumps([network.host.addresses()[0], ports]), flush=True)
        await trio.to_thread.run_sync(sys.stdin.read)
        nursery.cancel_scope.cancel()


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


async def _measure(
    address: Address, ports: Sequence[int], pid: int, *, quick: bool
) -> tuple[_Measured, float]:
    """Each way in turn; and the milliseconds of a question."""
    chain = Chain()
    network = Network(
        os.urandom(32), _LISTEN, limits=Limits(), validate=lambda *_: False, agent="bench"
    )
    measured, num_rounds = _Measured(chain, pid), 3 if quick else 7
    async with trio.open_nursery() as nursery:
        await nursery.start(network.run)
        peer = await network.host.connect(address)
        dialer = BulkDialer(network.host, nursery)

        async def fast(peer: PeerId) -> Stream:
            return await dialer.open(peer, BLOCKS)

        async def slow(peer: PeerId) -> Stream:
            return await network.host.open(peer, BLOCKS)

        plain, secure = ports
        size = chain.num_bytes
        arena = SharedMemory("glia-bench-l1", _L1_BYTES, 0)
        arena.prefault(2 * size)
        for _ in range(num_rounds):
            await measured.add("raw TCP", lambda: raw.read_s(plain, size, is_secure=False))
            await measured.add_fetch("bulk", lambda: _fetch(chain, arena, peer, fast))
            await measured.add("TLS", lambda: raw.read_s(secure, size, is_secure=True))
            if not quick:
                await measured.add_fetch("libp2p", lambda: _fetch(chain, arena, peer, slow))
        arena.close()
        assert dialer.counters == {"streams": num_rounds}
        ask_ms = await _ask_ms(chain, await network.host.open(peer, FIND))
        nursery.cancel_scope.cancel()
    return measured, ask_ms


async def _ask_ms(chain: Chain, stream: Stream) -> float:
    """Who has this chain? Median of asking the peer."""
    asking, times = Asking(stream), list[float]()
    question = Question(chain.windows[0].model_id, PROFILE)
    for _ in range(50):
        began_s = time.perf_counter()
        found = await asking.find(question, [(NUM_WINDOWS, chain.keys[-1])], want_records=False)
        times.append(time.perf_counter() - began_s)
        assert len(found) == 1
    return statistics.median(times) * 1e3


def _row(name: str, measured: _Measured, way: str) -> Row:
    """Ours against another way, round by round."""
    ours, other = measured.speeds["bulk"], measured.speeds[way]
    ratio = statistics.median(mine / theirs for mine, theirs in zip(ours, other, strict=True))
    return Row(name, ratio, *(f"{statistics.median(each):.0f} MB/s" for each in (ours, other)))


def _figures(measured: _Measured) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for way, speeds in measured.speeds.items():
        found[f"{way}, MB/s"] = statistics.median(speeds)
        found[f"{way}, worst and best round, MB/s"] = f"{min(speeds):.0f} - {max(speeds):.0f}"
    for way, costs in measured.costs.items():
        for side, values in zip(("getter", "provider"), zip(*costs, strict=True), strict=True):
            found[f"CPU s/GB, {way}, {side}"] = statistics.median(values)
    return found


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(quick: bool) -> tuple[list[Row], dict[str, Any]]:
    """Medians over rounds of all ways in turn; libp2p as it is comes after them."""
    command = (sys.executable, "-m", "simulations.bench.peer")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as peer:
        assert peer.stdin is not None
        assert peer.stdout is not None
        address, ports = json.loads(peer.stdout.readline())
        try:
            measure = partial(_measure, Address(address), ports, peer.pid, quick=quick)
            measured, ask_ms = trio.run(measure)
        finally:
            peer.stdin.close()
    with bare.serving() as (address, _):
        asked = [bare.asked(address, 4 if quick else 16) for _ in range(1 if quick else 3)]
    speed, echo_ms = map(statistics.median, zip(*asked, strict=True))
    bulk = statistics.median(measured.speeds["bulk"])
    rows = [
        _row("R8", measured, "raw TCP"),
        _row("fetch-tls", measured, "TLS"),
        Row("fetch", bulk / speed, f"{bulk:.0f} MB/s", f"{speed:.0f} MB/s"),
        Row("ask", ask_ms / echo_ms, f"{ask_ms:.2f} ms", f"{echo_ms:.2f} ms"),
    ]
    return rows, _figures(measured)


if __name__ == "__main__":
    trio.run(_serve)
