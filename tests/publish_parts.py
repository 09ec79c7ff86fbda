"""A publisher over real conversations and a real published index; the windows are in a dict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import trio
import trio.testing

from daemon.publisher import Publisher
from glia.graph.ids import WindowId
from glia.graph.link import Link, parse_link
from glia.graph.neuron import Signer
from glia.store.memory import MemoryStore
from glia.store.published import Published
from simulations.virtual.machine import STARTED_S
from tests.builders import Chain
from tests.conversation_parts import SAID, opened, talk, turn_of
from tests.pace import PATIENCE_S
from tests.store_parts import sealed

SIGNER = Signer(b"\1" * 32)
OTHER = Signer(b"\2" * 32)
HOLD_S = 60.0
NOW_S = STARTED_S


class OnlyStore:
    """Memory whose L1 is empty."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.records = self.table = self
        self.get_now = store.get

    def has(self, window_id: WindowId) -> bool:
        return self.store.get(window_id) is not None

    def names(self) -> list[WindowId]:
        return []


class Rig:
    """What a publisher works on. `now_s`: the clock that it reads."""

    def __init__(self, path: Path, signer: Signer = SIGNER) -> None:
        self.path, self.signer = path, signer
        self.store = MemoryStore(1 << 26)
        self.conversations = opened(path / "conversations")
        self.published = Published(path / "published")
        self.counters = Counter[str]()
        self.now_s = NOW_S
        self.num_told = 0
        self.still = trio.Lock()
        self.publisher = self.new_publisher()

    def new_publisher(self) -> Publisher:
        publisher = Publisher(
            OnlyStore(self.store),  # type: ignore[arg-type]
            self.conversations,
            self.published,
            self.signer,
            self.still,
            HOLD_S,
            self.counters,
            lambda: self.now_s,
        )
        publisher.on_publish = self._told
        self.conversations.on_change = publisher.wake
        return publisher

    def _told(self) -> None:
        self.num_told += 1

    async def say(
        self,
        name: str,
        chain: Chain,
        num_public: int,
        *,
        keep: int = 0,
        tip: WindowId | None = None,
    ) -> None:
        """A turn of all tokens of a chain from `keep` on: `num_public` are public, the rest not."""
        self.store.put(sealed(chain))
        num = len(chain.tokens)
        said = [
            SAID("user", None, start, end, label)
            for start, end, label in (
                (keep, num_public, "public"),
                (max(keep, num_public), num, "private"),
            )
            if start < end
        ]
        turn = turn_of(name, keep, *said)
        await talk(self.conversations, chain.tokens, [1], turn, tip=tip or chain.tip)

    def visible(self, chain: Chain) -> int:
        """How many windows of a chain peers can see."""
        return sum(self.published.record(name) is not None for name in chain.window_ids)

    def links(self, chain: Chain) -> list[Link]:
        """All that attest a chain, as they were signed."""
        found = {data for name in chain.window_ids for data in self.published.links(name)}
        return sorted(map(parse_link, found), key=lambda link: link.sequence)

    def spans(self, chain: Chain, signer: Signer | None = None) -> list[tuple[int, int]]:
        """What a neuron attests of it."""
        neuron = (signer or self.signer).neuron
        links = [link.claim for link in self.links(chain) if link.signer == neuron]
        return sorted((claim.num_before, claim.num_windows) for claim in links)


def run_rig(rig: Rig, body: Callable[[], Awaitable[None]], limit_s: float = 2 * PATIENCE_S) -> None:
    """A body, with the publisher beside it."""

    async def main() -> None:
        with trio.fail_after(limit_s):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(rig.publisher.run)
                await body()
                nursery.cancel_scope.cancel()

    trio.run(main)


async def settled(holds: Callable[[], bool] = lambda: True) -> None:
    """Until nothing more is done, and then it must be so."""
    deadline_s = trio.current_time() + PATIENCE_S
    while trio.current_time() < deadline_s:
        await trio.testing.wait_all_tasks_blocked(0.02)
        if holds():
            return
    raise AssertionError("it does not come to that")


def sequences(links: Sequence[Link]) -> list[int]:
    return [link.sequence for link in links]
