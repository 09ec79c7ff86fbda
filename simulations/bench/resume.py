"""R3 and R10: a prompt that a peer on loopback has, and one that a bad peer says that it has.

R3: all windows are with another gliad; the first token against a cold one.
R10: whoever has them sends wrong bytes, or nothing, or is gone; against the same node alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from threading import Event
from typing import Any

import trio

from daemon.egress import Egress
from glia.graph.ids import BlockId
from glia.local import messages as m
from glia.local.values import MessageValue, TurnValue
from glia.store.disk import DiskStore
from glia.store.published import Published
from p2p.bulk.server import BulkServer
from p2p.host import Address, Limits
from p2p.libp2p.network import Network
from p2p.messages import BLOCKS
from p2p.provider import InThreads, Provider
from p2p.upload import UploadLimit
from simulations.bench.end_to_end import WARM_TOKENS, prompts
from simulations.bench.node import Node
from simulations.bench.report import Row
from simulations.bench.setting import MODEL

_NETWORK = """[l1]
size = "1GiB"
[network]
enabled = true
mdns = false
listen = ["/ip4/127.0.0.1/tcp/0"]
"""
BAD_TOKENS, FEW_BAD_TOKENS = 2049, 1025
_CAP_BYTES = 64 * 1024**3
_WAIT_S = 30.0


def resumed(text: Sequence[int], reps: int) -> tuple[Row, dict[str, Any]]:
    """R3."""
    cold, found = list[m.Generated](), list[m.Generated]()
    with _nodes() as (one, two):
        _connect(two, _address(one))
        for prompt in prompts(text, WARM_TOKENS, reps, seed=3):
            cold.append(_public(one, prompt))
            _until_published(one, prompt)
            found.append(_public(two, prompt))
            if found[-1].usage.cached.peers < 0.9 * WARM_TOKENS:
                raise RuntimeError(f"not from the peer: {found[-1].usage}, {found[-1].fetched}")
            if found[-1].tokens != cold[-1].tokens:
                raise RuntimeError("another answer")
    ours, other = (median(run.ttft_ms for run in runs) for runs in (found, cold))
    names = sorted({name for run in found for name in run.timings_ms})
    parts = {f"peer: {n}, ms": median(run.timings_ms.get(n, 0.0) for run in found) for n in names}
    return Row("R3", other / ours, f"{ours:.0f} ms", f"{other:.0f} ms"), parts


def badly(text: Sequence[int], reps: int, num_tokens: int) -> tuple[Row, dict[str, Any]]:
    """R10, with prompts of so many tokens."""
    parts: dict[str, Any] = {}
    worst: Row | None = None
    with _nodes() as (one, two):
        asked = list(prompts(text, num_tokens, 2 * reps * len(_KINDS), seed=10))
        for prompt in asked[::2]:
            _public(one, prompt)
            _until_published(one, prompt)
        one.stop()
        two.run(MODEL, asked[1][:1025][::-1])  # learns how fast it is
        for kind in _KINDS:
            bad, alone = list[float](), list[float]()
            for _ in range(reps):
                with _bad_peer(one.data_dir, kind) as (address, process):
                    _connect(two, address)
                    if kind == "gone":
                        process.kill()
                    bad.append(_public(two, asked.pop(0)).ttft_ms)
                alone.append(two.run(MODEL, asked.pop(0)).ttft_ms)
            row = Row("R10", median(bad) / median(alone), *map(_ms, (bad, alone)))
            parts[kind] = row.value
            worst = row if worst is None or row.value > worst.value else worst
        one.start()
    if worst is None:
        raise ValueError("no kinds")
    return worst, parts


# -- nodes ------------------------------------------------------------------------------------


@contextmanager
def _nodes() -> Iterator[tuple[Node, Node]]:
    with tempfile.TemporaryDirectory(prefix="gliad-bench-") as directory:
        paths = (Path(directory) / name for name in ("one", "two"))
        one, two = (Node(path, _NETWORK) for path in paths)
        with one, two:
            for node in (one, two):
                node.run(MODEL, list(range(100, 140)))
            yield one, two


def _address(node: Node) -> str:
    with node.client() as client:
        return client.identity().addresses[0]


def _connect(node: Node, address: str) -> None:
    with node.client() as client:
        if not client.add_peer(address).connection:
            raise RuntimeError(f"{address} cannot be reached")


def _public(node: Node, prompt: Sequence[int]) -> m.Generated:
    turn = TurnValue(messages=[MessageValue("", None, 0, len(prompt), "public")])
    with node.client() as client:
        *_, last = client.generate(MODEL, prompt, max_tokens=1, ignore_eos=True, turn=turn)
    if not isinstance(last, m.Generated):
        raise RuntimeError(f"gliad ended with {last!r}")
    return last


def _until_published(node: Node, prompt: Sequence[int]) -> None:
    """All that this node computed is shown to peers."""
    deadline_s = time.monotonic() + _WAIT_S
    with node.client() as client:
        while time.monotonic() < deadline_s:
            counters = client.status().counters
            if counters.get("windows_published", 0) >= _num_published(counters):
                return
            time.sleep(0.02)
    raise RuntimeError(f"{len(prompt)} tokens were not published")


def _num_published(counters: dict[str, int]) -> int:
    return (counters["computed_tokens"] - 2 * 40) // 16


# -- a bad peer, in a process of its own ------------------------------------------------------


class _Bad(Egress):
    """What a node has published; its blocks are spoilt."""

    def __init__(self, data_dir: Path, spoil: Callable[[bytes], bytes]) -> None:
        store = DiskStore(data_dir / "store", _CAP_BYTES)
        super().__init__(Published(data_dir / "published"), store)
        self._spoil = spoil

    def read_blocks(
        self, block_ids: Sequence[BlockId], into: memoryview
    ) -> list[memoryview | None]:
        found = super().read_blocks(block_ids, into)
        return [None if data is None else memoryview(self._spoil(bytes(data))) for data in found]


def _stall(data: bytes) -> bytes:
    Event().wait(3600)
    return data


_KINDS: dict[str, Callable[[bytes], bytes]] = {
    "lying": lambda data: data[::-1],
    "stalled": _stall,
    "gone": lambda data: data,
}


async def _serve(data_dir: Path, kind: str) -> None:
    listen = [Address("/ip4/127.0.0.1/tcp/0")]
    network = Network(
        os.urandom(32), listen, limits=Limits(), validate=lambda *_: False, agent="bad"
    )
    offer = _Bad(data_dir, _KINDS[kind])
    provider = Provider(offer, lambda *_: None, UploadLimit(), InThreads())
    async with trio.open_nursery() as nursery:
        await nursery.start(network.run)
        provider.serve_on(network.host)
        bulk = BulkServer(network.host)
        bulk.serve(BLOCKS, provider.blocks)
        await bulk.listen("127.0.0.1")
        nursery.start_soon(bulk.run)
        print(json.dumps(network.host.addresses()[0]), flush=True)
        await trio.sleep_forever()


@contextmanager
def _bad_peer(data_dir: Path, kind: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    command = (sys.executable, "-m", "simulations.bench.resume", str(data_dir), kind)
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        if process.stdout is None:
            raise RuntimeError("no pipe")
        try:
            yield json.loads(process.stdout.readline()), process
        finally:
            process.kill()


def _ms(found: Sequence[float]) -> str:
    return f"{median(found):.0f} ms"


if __name__ == "__main__":
    trio.run(_serve, Path(sys.argv[1]), sys.argv[2])
