"""Clients that ask for all there is: gliad's memory stays bounded, others are served, pins end."""

from __future__ import annotations

import os
import random
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import trio.testing

from daemon.call_queue import CallQueue
from glia.client import Client
from glia.errors import GliaError, QuotaExceeded
from glia.graph.ids import WindowId
from glia.local import messages as m
from glia.local import values
from glia.local.frames import FrameParser, decode_from_daemon, encode_frame
from tests.builders import CLASS, MODEL, TINY, make_chain
from tests.node_parts import FULL, MIB, Author, RunningNode, until

HELLO = bytes(encode_frame(m.Hello(1, m.PROTOCOL_VERSION, "client", "greedy")))
MANY = [2**31 + n for n in range(200_000)]  # about the largest list that a frame takes
PATIENCE_S = 1.0  # for another client's answer: a share of a busy machine included
FUZZ_S = 20.0 if FULL else 3.0


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    with RunningNode(tmp_path / "node") as running:
        for name in ("silent", "echo"):
            running.add_manifest(name)
        yield running


class Raw:
    """A connection that sends what it likes and reads when it is told to."""

    def __init__(self, node: RunningNode) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(os.fspath(node.data_dir / "gliad.sock"))
        self.sock.sendall(HELLO)
        self.sock.setblocking(False)

    def push(self, data: bytes, limit_s: float = 5.0) -> int:
        """Send as much as gliad takes within a while; how many bytes that was."""
        sent, deadline = 0, time.monotonic() + limit_s
        while sent < len(data) and time.monotonic() < deadline:
            try:
                sent += self.sock.send(data[sent : sent + MIB])
            except (BlockingIOError, TimeoutError):
                time.sleep(0.001)
            except OSError:
                break
        return sent

    def replies(self, count: int) -> list[m.DaemonMessage]:
        parser, found = FrameParser(), []
        self.sock.settimeout(20.0)
        while len(found) < count:
            data = self.sock.recv(MIB)
            if not data:
                break
            found += [decode_from_daemon(frame) for frame in parser.feed(data)]
        return found

    def close(self) -> None:
        self.sock.close()


def resident_bytes(node: RunningNode) -> int:
    """Without shared memory."""
    lines = Path(f"/proc/{node.process.pid}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return sum(int(fields[name].split()[0]) * 1024 for name in ("RssAnon", "RssFile"))


def answer_s(client: Client) -> float:
    """How long another client waits, the median of five."""
    spans = []
    for _ in range(5):
        started = time.perf_counter()
        client.status()
        spans.append(time.perf_counter() - started)
    return statistics.median(spans)


def test_prompts_that_wait_are_bounded_together(node: RunningNode) -> None:
    """200 prompts of 200,000 tokens for an engine that never gets ready (1.5 GB, unbounded)."""
    other = node.client()
    before = resident_bytes(node)
    greedy = Raw(node)
    frames = [
        bytes(encode_frame(m.Generate(n, "silent", None, MANY, 4, values.SamplingValue(), [], [])))
        for n in range(10, 210)
    ]
    assert greedy.push(b"".join(frames), 30.0) == sum(map(len, frames))
    failed = [reply for reply in greedy.replies(191) if isinstance(reply, m.Failed)]
    assert len(failed) >= 185
    assert {reply.code for reply in failed} == {"quota_exceeded"}
    assert resident_bytes(node) - before < 150 * MIB
    assert answer_s(other) < PATIENCE_S
    greedy.close()

    def served() -> bool:
        try:
            return bool(list(other.generate("echo", [1], max_tokens=1)))
        except QuotaExceeded:
            return False

    until(served)


def test_memory_calls_that_wait_are_few_and_not_large_together() -> None:
    async def main() -> None:
        queue = CallQueue()
        calls = [m.Match(n, MANY) for n in range(3)] + [m.Release(n, 1) for n in range(3, 600)]
        put = 0

        async def write() -> None:
            nonlocal put
            for call in calls:
                await queue.put(call)
                put += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            await trio.testing.wait_all_tasks_blocked()
            assert put == 1  # two such would be over
            taken = [(await queue.take()).id]
            await trio.testing.wait_all_tasks_blocked()
            assert put == 2
            taken += [(await queue.take()).id for _ in range(2)]
            await trio.testing.wait_all_tasks_blocked()
            assert put == 3 + 256
            taken += [(await queue.take()).id for _ in range(597)]
        assert taken == [call.id for call in calls]

    trio.run(main)


def test_leases_never_given_back_are_bounded(node: RunningNode) -> None:
    greedy, other = node.author(), node.author()
    chain = make_chain(1000)
    greedy.seal(chain)
    before = resident_bytes(node)
    for _ in range(65):
        assert len(greedy.lease(chain.window_ids).tiers) == 1000
    with pytest.raises(QuotaExceeded, match="65,536 windows"):
        greedy.lease(chain.window_ids)
    assert resident_bytes(node) - before < 30 * MIB
    assert len(other.lease(chain.window_ids).tiers) == 1000  # a quota of each
    greedy.client.close()
    other.client.close()
    watcher = node.client()

    def is_empty() -> bool:
        watcher.evict("l1")
        return watcher.status().tiers["l1"].used_bytes == 0

    until(is_empty)


def test_a_thousand_calls_at_once_hold_up_nobody(node: RunningNode) -> None:
    """Others waited 4 s for 1,000 Chain calls of one client, before a client took turns."""
    author, other = node.author(), node.client()
    chain = make_chain(1000)
    author.seal(chain)
    greedy = Raw(node)
    reader = threading.Thread(target=greedy.replies, args=(1001,))  # so that none waits for it
    reader.start()
    greedy.push(b"".join(bytes(encode_frame(m.Chain(n, chain.tip))) for n in range(10, 1010)))
    started = time.perf_counter()
    other.status()
    assert time.perf_counter() - started < PATIENCE_S
    greedy.sock.shutdown(socket.SHUT_RDWR)
    reader.join()
    greedy.close()
    assert "crashed" not in other.status().counters


def test_one_that_never_reads_is_held_to_its_share(node: RunningNode) -> None:
    """It asks for 2 GiB of answers; what is not sent waits within bounds, or it is dropped."""
    author, other = node.author(), node.client()
    chain = make_chain(1000)
    author.seal(chain)
    author.client.flush(chain.window_ids)
    before = resident_bytes(node)
    deaf = [Raw(node) for _ in range(4)]
    for raw in deaf:
        raw.push(b"".join(bytes(encode_frame(m.Chain(n, chain.tip))) for n in range(10, 510)))
    for _ in range(10):
        assert answer_s(other) < PATIENCE_S
    assert resident_bytes(node) - before < (4 * 8 + 40) * MIB
    for raw in deaf:
        raw.close()
    until(lambda: len(os.listdir(f"/proc/{node.process.pid}/fd")) < 30)
    assert "crashed" not in other.status().counters


def test_calls_of_good_form_that_make_no_sense(node: RunningNode) -> None:
    """Attached connections with random calls: each is answered, nothing crashes or leaks."""
    rng = random.Random(11)
    watcher, author = node.client(), node.author()
    chain = make_chain(30)
    author.seal(chain)
    author.client.flush(chain.window_ids)
    deadline = time.monotonic() + FUZZ_S
    num_calls = 0
    while time.monotonic() < deadline:
        raw = Raw(node)
        calls = [attach(rng, 2), *(memory_call(rng, n, chain.window_ids) for n in range(3, 60))]
        assert raw.push(b"".join(bytes(encode_frame(call)) for call in calls), 20.0)
        if rng.random() < 0.7:  # else it leaves with all of them under way
            assert len(raw.replies(1 + len(calls))) == 1 + len(calls)
            num_calls += len(calls)
        raw.close()
        assert answer_s(watcher) < PATIENCE_S
    assert num_calls > 100
    assert "crashed" not in watcher.status().counters, node.log[-4000:]
    assert author.tiers_of(chain.window_ids[:1]) != [0]

    def is_empty() -> bool:
        watcher.evict("l1")
        return watcher.status().tiers["l1"].used_bytes == 0

    until(is_empty)
    assert watcher.check().bad == 0
    Author(node.client()).seal(make_chain(5, seed=99))


def attach(rng: random.Random, number: int) -> m.Attach:
    """To the model that is there, or with a profile from the edge of what there can be."""
    shapes = rng.choice(
        [
            [values.ShapeValue(s.layer, s.kv_heads, s.head_dim) for s in TINY.layers],
            [values.ShapeValue(n, 1, 8) for n in range(1024)],
            [values.ShapeValue(n, 1024, 65536) for n in range(1024)],
            [values.ShapeValue(0, 2**53, 2**53)],
            [],
            [values.ShapeValue(1, 1, 1), values.ShapeValue(0, 1, 1)],
        ]
    )
    size = rng.choice([16, 16, 16, 1024, 0, 17, 2**53])
    value = values.ProfileValue(
        size, rng.choice([TINY.scheme, 0, 99]), rng.choice([TINY.mode, 9]), shapes
    )
    if rng.random() < 0.5:
        layers = [values.ShapeValue(s.layer, s.kv_heads, s.head_dim) for s in TINY.layers]
        value = values.ProfileValue(TINY.block_size, TINY.scheme, TINY.mode, layers)
    return m.Attach(number, MODEL, value, rng.choice([CLASS, CLASS, "", "é", "x" * 256]))


def memory_call(rng: random.Random, number: int, names: list[WindowId]) -> m.Call:
    sizes = [0, 1, 4096, 65536, MIB, MIB + 1, 2**53]
    some = [*rng.sample(names, 5), WindowId(rng.randbytes(32)), names[0]]
    return rng.choice(
        [
            lambda: attach(rng, number),
            lambda: m.Staging(number, rng.choice(sizes)),
            lambda: m.Match(number, list(range(rng.choice([0, 1, 16, 1000, 100_000])))),
            lambda: m.Lease(number, rng.choice([[], some, names, names * 3, some * 500])),
            lambda: m.Release(number, rng.choice([0, 1, 2, 3, 2**53])),
            lambda: m.Seal(
                number,
                rng.choice([None, None, *some]),
                rng.choice([0, 0, 16, 32, 2**53]),
                list(range(rng.choice([0, 1, 16, 16, 32, 100_000]))),
                rng.choice([0, 0, 64, *sizes]),
                rng.choice([0, 1, 2**53]),
            ),
            lambda: m.Flush(number, rng.choice([[], some, names])),
        ]
    )()


def test_errors_keep_their_order_with_answers(node: RunningNode) -> None:
    author = node.author()
    chain = make_chain(3)
    author.seal(chain)
    client = author.client
    tickets = [client.seal_begin(WindowId(bytes(32)), 16, [1] * 16, 0) for _ in range(3)]
    lease = client.lease_begin(chain.window_ids)
    assert len(client.lease_end(lease).tiers) == 3
    for ticket in tickets:
        assert client.seal_ready(ticket)  # asked before the lease, answered before it
        with pytest.raises(GliaError):
            client.seal_end(ticket)
