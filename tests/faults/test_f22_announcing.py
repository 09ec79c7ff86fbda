"""F22: a conversation of 256,000 blocks is announced with a few records, soon and slowly."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from glia.graph.boundaries import announced
from glia.graph.ids import WindowId
from glia.graph.window import WindowRecord
from p2p.announcing import topic_of
from p2p.testing.internet import Internet
from p2p.testing.simulate import simulate
from simulations.virtual.announcing import Net, announcer_of, long_chain, net_of, publish
from tests.builders import MODEL, TINY, Chain
from tests.conversation_parts import SAID, talk, turn_of
from tests.node_parts import FULL
from tests.publish_parts import Rig, run_rig

NUM_BLOCKS = 256_000
NUM_TOKENS = 256_000
MANY_LAYERS = 30
NUM_OTHERS = 30
HOLD_S = 60.0
# of p2p/libp2p/kad.py and caps.py: what a receiver takes of one peer
RATE_WINDOW_S = 10.0
MOST_IN_WINDOW = 64
MOST_KEPT = 64


def announce(path: Path, chain: Chain, begin: Callable[[Net], None]) -> None:
    """A node with it among others, for two minutes; then all of the figure holds."""
    num_windows = len(chain.records)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            net = Internet(nursery, seed=22)
            ours = net_of(net, "ours", path)
            heard: list[bytes] = []
            for number in range(NUM_OTHERS):
                other = net.host(f"other {number}")
                other.gossip.join(topic_of(MODEL), lambda _, data: heard.append(data))
                await ours.host.connect(other.addresses()[0])
            times = watch_provide(ours)
            begin(ours)
            nursery.start_soon(announcer_of(ours).run)
            await trio.sleep(HOLD_S)
            assert not times
            await trio.sleep(60)
            assert ours.counters["announce_backlog"] == 0
            num_boundaries = ours.counters["announced"]
            print("f22_boundaries", num_boundaries, 2 + math.log2(len(chain.tokens) / 256))
            assert num_boundaries == len(announced(num_windows))
            assert num_boundaries <= 2 + math.log2(len(chain.tokens) / 256)
            assert len(times) == 2 * num_boundaries <= MOST_KEPT
            assert max(sum(0 <= t - s < RATE_WINDOW_S for t in times) for s in times) < (
                MOST_IN_WINDOW
            )
            assert len(heard) == num_boundaries * NUM_OTHERS
            assert not ours.counters["announce_failed"]
            ours.close()
            nursery.cancel_scope.cancel()

    simulate(main, seed=22)


@pytest.mark.fault("F22")
def test_a_conversation_of_256_000_blocks(tmp_path: Path) -> None:
    chain = long_chain(math.ceil(NUM_BLOCKS / MANY_LAYERS), MANY_LAYERS)
    announce(tmp_path, chain, lambda ours: publish(ours, chain, hold_s=HOLD_S))


@pytest.mark.fault("F22")
def test_a_conversation_of_256_000_tokens_as_the_publisher_has_it(tmp_path: Path) -> None:
    """From its log to the last announcement."""
    chain = long_chain(NUM_TOKENS // TINY.block_size, MANY_LAYERS if FULL else 1)
    rig = Rig(tmp_path)
    records = {record.window_id: record for record in chain.records}
    rig.publisher._memory = Records(records)  # type: ignore[assignment]

    async def body() -> None:
        is_published = trio.Event()
        rig.publisher.on_publish = is_published.set
        said = turn_of("story", 0, SAID("user", None, 0, NUM_TOKENS, "public"))
        await talk(rig.conversations, chain.tokens, [1], said, tip=chain.tip)
        await is_published.wait()

    run_rig(rig, body, limit_s=300)
    assert rig.counters["windows_published"] == len(chain.records)
    assert rig.counters["links_signed"] == math.ceil(len(chain.records) / 16)
    rig.published.close()
    (tmp_path / "published").rename(tmp_path / "ours-published")
    announce(tmp_path, chain, lambda _: None)


class Records:
    """Memory that has these, and nothing to give."""

    def __init__(self, records: dict[WindowId, WindowRecord]) -> None:
        self.records = self.table = self
        self.names = list[WindowId]
        self.get_now = records.get
        self.has = records.__contains__


def watch_provide(node: Net) -> list[float]:
    """When the directory is told of a key, from now on."""
    times: list[float] = []
    provide = node.host.directory.provide

    async def watched(key: bytes) -> None:
        times.append(trio.current_time())
        await provide(key)

    node.host.directory.provide = watched  # type: ignore[method-assign]
    return times
