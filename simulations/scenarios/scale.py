"""What a look-up costs among more and more nodes, and where more and more is stored."""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import blake3
import trio

from daemon.egress import Egress
from glia.graph.boundaries import asked, pairs
from glia.graph.ids import BlockId
from glia.graph.link import parse_link
from glia.store.loose import LooseIndex
from glia.store.published import Published
from glia.store.published_reader import PublishedReader
from glia.store.published_rows import PUBLISHED_VERSION
from p2p.asking import Asking
from p2p.messages import FIND
from p2p.provider import Provider
from p2p.testing.internet import Internet
from p2p.upload import UploadLimit
from p2p.walking import Question
from simulations.scenario import Check, Curve, Outcome, Picture, Scenario, Setting, Value
from simulations.virtual.chains import MODEL, SMALL, public_chain
from simulations.virtual.crowd import MANY, in_crowd, meet_somebody
from simulations.virtual.library import Library

_FEWEST_NODES = 25
_NUM_LOOK_UPS = 20
_CHAIN_WINDOWS = 64
_FEWEST_WINDOWS = 64
_PER_DOUBLING = 6.0  # messages
_STORED_PER_NODE = 64  # windows in the largest store, for each node of the largest network


@dataclass(frozen=True)
class Cost:
    """Of one look-up.

    Attributes:
        num_messages: to peers, and their answers count as one with them.
        num_rows: of the index that were read to answer.
    """

    num_messages: float
    took_s: float
    num_rows: int = 0
    num_bytes: int = 0
    trace: str = ""


class CountingIndex(LooseIndex):
    """Counts the rows that it was asked for, or gave."""

    num_rows = 0

    def get(self, key: bytes) -> bytes | None:
        self.num_rows += 1
        return super().get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self.num_rows += len(keys)
        return super().get_many(keys)

    def keys(self, prefix: bytes) -> list[bytes]:
        found = super().keys(prefix)
        self.num_rows += 1 + len(found)
        return found

    def keys_from(self, kind: bytes, start: bytes, num: int) -> list[bytes]:
        found = super().keys_from(kind, start, num)
        self.num_rows += 1 + len(found)
        return found


class AllBlocks:
    """Particles of which none is missing, and none is asked for."""

    def has_block(self, block_id: BlockId) -> bool:
        return True

    def read_blocks(
        self, block_ids: Sequence[BlockId], into: memoryview
    ) -> list[memoryview | None]:
        return [None] * len(block_ids)


def among(num_nodes: int, seed: int) -> Cost:
    """Of one key in the directory of so many nodes."""

    async def main(net: Internet) -> Cost:
        source = random.Random(seed)
        hosts = [net.host(f"node {number}", limits=MANY) for number in range(num_nodes)]
        await meet_somebody(hosts, source)
        await trio.sleep(60)
        num, began_s = 0, trio.current_time()  # of whoever looks up: others see who is there
        for number in range(_NUM_LOOK_UPS):
            asker = source.choice(hosts)
            before = asker.counters["directory_messages"]
            await asker.directory.routing.closest(bytes([number]) * 32)
            num += asker.counters["directory_messages"] - before
        took_s = trio.current_time() - began_s
        return Cost(num / _NUM_LOOK_UPS, took_s / _NUM_LOOK_UPS, trace=net.trace.digest())

    return in_crowd(seed, main)


def stored_in(path: Path, num_windows: int) -> None:
    """An index with so many windows, in chains that have nothing in common."""
    published = Published(path)
    for number in range(num_windows // _CHAIN_WINDOWS):
        chain = public_chain(number, _CHAIN_WINDOWS, 1)
        published.put(chain.records, [parse_link(data) for data in chain.links])
    published.close()


def asked_of(path: Path, num_windows: int, seed: int) -> Cost:
    """Of one question to a node that has so many windows; it has what is asked for."""
    stored_in(path, num_windows)
    chain = public_chain(0, _CHAIN_WINDOWS, 1)
    keys = pairs(chain.keys, asked(_CHAIN_WINDOWS))

    async def main(net: Internet) -> Cost:
        index = CountingIndex(path, PUBLISHED_VERSION)
        asker, keeper = net.host("asker"), net.host("keeper")
        offer = Egress(PublishedReader(index), AllBlocks())
        Provider(offer, lambda *_: None, UploadLimit(), Library().answer).serve_on(keeper)
        await asker.connect(keeper.addresses()[0])
        began_s, before = trio.current_time(), net.trace.counts["sent"]
        stream = await asker.open(keeper.peer_id, FIND)
        found = await Asking(stream).find(Question(MODEL, SMALL), keys, want_records=False)
        assert found[0].num_windows == _CHAIN_WINDOWS
        num_messages = net.trace.counts["sent"] - before
        took_s = trio.current_time() - began_s
        await stream.reset()
        index.close()
        return Cost(num_messages, took_s, index.num_rows, net.trace.sent_bytes, net.trace.digest())

    return in_crowd(seed, main)


def doubled(first: int, last: int, factor: int) -> list[int]:
    """From the first on, each so many times the one before, and the last."""
    found = [first]
    while found[-1] * factor < last:
        found.append(found[-1] * factor)
    return [*found, last]


def run(setting: Setting) -> Outcome:
    nodes = doubled(_FEWEST_NODES, setting.nodes, 2)
    windows = doubled(_FEWEST_WINDOWS, _STORED_PER_NODE * setting.nodes, 8)
    by_nodes = [among(num, setting.seed) for num in nodes]
    with tempfile.TemporaryDirectory(prefix="gliad-scale-") as directory:
        by_windows = [asked_of(Path(directory) / str(num), num, setting.seed) for num in windows]
    doublings = math.log2(nodes[-1] / nodes[0])
    more = (by_nodes[-1].num_messages - by_nodes[0].num_messages) / doublings
    rows: list[dict[str, Value]] = [
        {
            "grows": what,
            "to": num,
            "messages": cost.num_messages,
            "seconds": cost.took_s,
            "rows read": cost.num_rows,
            "bytes": cost.num_bytes,
        }
        for what, sizes, costs in (
            ("nodes", nodes, by_nodes), ("windows stored", windows, by_windows),
        )
        for num, cost in zip(sizes, costs, strict=True)
    ]  # fmt: skip
    traces = "".join(cost.trace for cost in (*by_nodes, *by_windows))
    return Outcome(
        table=rows,
        checks=(
            Check("messages more for twice as many nodes", more, "<=", _PER_DOUBLING),
            Check(
                f"rows read, {windows[-1]:,} windows stored / {windows[0]}",
                by_windows[-1].num_rows / by_windows[0].num_rows, "==", 1.0,
            ),
            Check(
                "bytes sent, the same",
                by_windows[-1].num_bytes / by_windows[0].num_bytes, "==", 1.0,
            ),
        ),
        trace=blake3.blake3(traces.encode()).hexdigest(),
        picture=Picture(
            "nodes", "messages of a look-up",
            [Curve("measured", nodes, [cost.num_messages for cost in by_nodes])],
            is_log_x=True,
        ),
    )  # fmt: skip


SCENARIO = Scenario(
    name="scale",
    claim="A look-up grows with the logarithm of the nodes, and not with what they store.",
    rows=(42,),
    world="virtual",
    usual=Setting(800),
    quick=Setting(100),
    least=50,
    run=run,
)
