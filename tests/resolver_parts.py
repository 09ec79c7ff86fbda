"""A resolver with real tiers and a real Peering on the simulated internet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from daemon.arena import SharedMemory
from daemon.binding import Binding
from daemon.domains import NoGroups
from daemon.egress import Egress
from daemon.memory import Memory
from daemon.prefill import USUAL_SPEED
from daemon.resolver import Prompt, Resolved, Resolver
from glia.graph.ids import BlockId, ModelId, PrefixKey, ProfileId
from glia.graph.link import parse_link, sign_link
from glia.graph.neuron import Signer
from glia.graph.spans import claims
from glia.store.memory import MemoryStore
from glia.store.published import Published
from p2p.offer import Candidate
from p2p.testing.host import SimHost
from p2p.testing.internet import Internet
from simulations.virtual.engine import PIECE_TOKENS, restored
from simulations.virtual.ports import Joined, make_peering
from tests.builders import CLASS, Chain, make_chain, make_profile
from tests.exchange_parts import in_world, serve
from tests.store_parts import sealed

PROFILE = make_profile(num_layers=2, kv_heads=4, head_dim=32)
SIGNER = Signer(b"\7" * 32)
MIB = 1024 * 1024
WINDOW_S = PROFILE.block_size / USUAL_SPEED


def chain_of(num_windows: int, **changes: Any) -> Chain:
    return make_chain(num_windows, profile=PROFILE, **changes)


def head(chain: Chain, num: int) -> Chain:
    """Its first windows."""
    size = chain.profile.block_size
    return Chain(
        chain.profile, chain.model_id, chain.tokens[: num * size], chain.records[:num],
        chain.particles[:num], chain.keys[:num],
    )  # fmt: skip


def links_of(chain: Chain, num_before: int = 0, signer: Signer = SIGNER) -> tuple[bytes, ...]:
    """As they travel, the nearest to the tip first."""
    said = claims(chain.records, num_before)
    links = [sign_link(signer, claim, n, 1).encoding for n, claim in enumerate(said, 1)]
    return tuple(links[::-1])


class Shop(Egress):
    """What a node offers, in all its parts; it lies where the test says so.

    Attributes:
        spoil: changes blocks on their way out.
        links: instead of those that are published.
    """

    def __init__(self, path: Path, chain: Chain, links: Sequence[bytes] | None = None) -> None:
        self.published, self.store = Published(path), MemoryStore(64 * MIB)
        said = links_of(chain) if links is None else links
        self.published.put(chain.records, [parse_link(each) for each in said])
        self.store.put(sealed(chain))
        super().__init__(self.published, self.store)
        self.spoil: Callable[[BlockId, bytes], bytes] = lambda _, data: data
        self.links: tuple[bytes, ...] | None = None
        self.num_reads = 0

    def match(
        self, model_id: ModelId, profile_id: ProfileId, keys: Sequence[tuple[int, PrefixKey]]
    ) -> list[Candidate]:
        found = super().match(model_id, profile_id, keys)
        if self.links is None:
            return found
        return [replace(each, links=self.links) for each in found]

    def read_blocks(
        self, block_ids: Sequence[BlockId], into: memoryview
    ) -> list[memoryview | None]:
        found = super().read_blocks(block_ids, into)
        self.num_reads += len(found)
        return [
            None if data is None else memoryview(self.spoil(name, bytes(data)))
            for name, data in zip(block_ids, found, strict=False)
        ]


class Got:
    """What came of a prompt.

    Attributes:
        waited_s: until the engine could begin to compute.
    """

    def __init__(self, resolved: Resolved, waited_s: float) -> None:
        value = resolved.value()
        self.why, self.num_tokens, self.sources = value.why, value.num_tokens, value.sources
        self.num_windows = value.num_tokens // PROFILE.block_size
        self.timings_ms = resolved.timings_ms
        self.resolved, self.waited_s = resolved, waited_s
        self.until_relayed = resolved.until_relayed


class Node:
    """The one that resolves."""

    def __init__(
        self,
        net: Internet,
        path: Path,
        nursery: trio.Nursery,
        accept: str = "any",
        l1_bytes: int = 4 * MIB,
    ) -> None:
        self.net, self.path = net, path
        self.peering = make_peering(path / "me", Joined(net, "me"), accept=accept)
        self.arena = SharedMemory("test-l1", l1_bytes, 0)
        self.store = MemoryStore(64 * MIB)
        self.memory = Memory(self.arena, self.store, hot_steps=4)
        self.counters = Counter[str]()
        self.resolver = Resolver(
            self.memory,
            self.peering,
            0.0,
            PIECE_TOKENS,
            self.counters,
            nursery,
            NoGroups(),  # type: ignore[arg-type]
            lambda _: None,
        )
        self.told: list[tuple[str, int, int]] = []
        self.resolved: list[Resolved] = []

    async def resolve(
        self,
        chain: Chain,
        num_public: int | None = None,
        more: int = 1,
        *,
        exact: bool = False,
    ) -> Got:
        """What comes while an engine waits, which then gives the prompt up."""
        began_s = trio.current_time()
        resolved = await self.begin(chain, num_public, more, exact=exact)
        await self.restored(chain, exact=exact)
        waited_s = trio.current_time() - began_s
        await resolved.end()
        return Got(resolved, waited_s)

    async def begin(
        self,
        chain: Chain,
        num_public: int | None = None,
        more: int = 1,
        *,
        exact: bool = False,
    ) -> Resolved:
        """For a prompt of the chain's tokens, and so many others behind them; an engine is next."""
        tokens = [*chain.tokens, *range(more)]
        public = len(tokens) if num_public is None else num_public
        binding = Binding(chain.model_id, chain.profile, CLASS)
        self.resolved.append(
            await self.resolver.resolve(
                binding, Prompt(tokens, public, exact), lambda *told: self.told.append(told)
            )
        )
        return self.resolved[-1]

    async def restored(self, chain: Chain, *, exact: bool = True) -> int:
        """Leading windows that are here, once all that peers were sending of them is, too."""
        binding = Binding(chain.model_id, chain.profile, CLASS)
        return await restored(self.memory, binding, chain.tokens, exact=exact)

    async def meets(self, name: str, chain: Chain, links: Sequence[bytes] | None = None) -> Shop:
        """A peer with a chain."""
        host, shop = self.net.host(name), Shop(self.path / name, chain, links)
        serve(host, shop)
        await self.knows(host)
        return shop

    async def knows(self, *hosts: SimHost) -> None:
        for host in hosts:
            await self.peering.host.connect(host.addresses()[0])

    async def matched(self, chain: Chain) -> int:
        binding = Binding(chain.model_id, chain.profile, CLASS)
        return len(await self.memory.match(binding, chain.tokens))


Main = Callable[[Node, Internet], Awaitable[None]]


def run(
    monkeypatch: pytest.MonkeyPatch,
    path: Path,
    main: Main,
    seed: int = 0,
    accept: str = "any",
    l1_bytes: int = 4 * MIB,
) -> None:
    """On virtual time; what would run in a thread runs at once."""

    async def at_once(call: Callable[..., Any], *args: Any, **_: Any) -> Any:
        return call(*args)

    monkeypatch.setattr(trio.to_thread, "run_sync", at_once)

    async def in_net(net: Internet) -> None:
        async with trio.open_nursery() as nursery:
            node = Node(net, path, nursery, accept, l1_bytes)
            nursery.start_soon(node.memory.writer.run)
            await nursery.start(node.peering.run)
            await main(node, net)
            node.memory.table.check()
            assert not node.memory.table.num_reserved
            nursery.cancel_scope.cancel()

    in_world(in_net, seed)
