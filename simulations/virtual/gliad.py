"""A whole node but for its sockets and its engine, on the simulated internet.

Real: labels and log of conversations, tiers, publisher, announcer, resolver, egress, provider.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import trio

from daemon.announcer import Announcer
from daemon.arena import SharedMemory
from daemon.binding import Binding
from daemon.config import ConversationsConfig
from daemon.conversation_files import ConversationFiles
from daemon.conversations import Conversations
from daemon.domains import NoGroups
from daemon.egress import Egress
from daemon.hearing import Hearing
from daemon.memory import Memory
from daemon.publisher import Publisher
from daemon.resolver import Prompt, Resolver
from daemon.turns import open_turn
from glia.graph.ids import digest
from glia.graph.neuron import Signer
from glia.local import messages as m
from glia.local import values
from glia.store.memory import MemoryStore
from p2p.testing.internet import Internet
from p2p.testing.road import Link
from p2p.testing.simulate import simulate
from simulations.virtual.chains import CLASS, MODEL, Chain, make_chain, make_profile
from simulations.virtual.engine import PIECE_TOKENS, ScriptedEngine
from simulations.virtual.machine import of_seed, world_s
from simulations.virtual.ports import Joined, make_peering
from simulations.virtual.roads import published_roads

T = TypeVar("T")
Label = tuple[int, int, str]  # first token, behind the last one, visibility
HOLD_S = 5.0
_WRITTEN_S = 2.0  # to L2, behind use
PROFILE = make_profile(num_layers=2, head_dim=32)
_MIB = 1024 * 1024
_L1_BYTES = 8 * _MIB


@dataclass(frozen=True)
class Answered:
    """What a prompt cost.

    Attributes:
        took_s: to the first token.
        num_fetched, num_computed: windows from peers, and by the engine.
        num_blocks: that peers sent, used or not.
        why: why not all of it was fetched, as `FetchedValue` says it.
    """

    took_s: float
    num_here: int
    num_fetched: int
    num_computed: int
    num_blocks: int
    why: str


def chain_of(
    num_windows: int,
    number: int,
    base: Chain | None = None,
    tokens: Sequence[int] | None = None,
) -> Chain:
    """Of these nodes' profile. Equal numbers give equal chains."""
    return make_chain(num_windows, profile=PROFILE, seed=number, base=base, tokens=tokens)


def labels_of(chain: Chain, num_public: int) -> list[Label]:
    """So many windows are public, the rest is not."""
    size, num = chain.profile.block_size, len(chain.tokens)
    spans = [(0, num_public * size, "public"), (num_public * size, num, "private")]
    return [(start, end, label) for start, end, label in spans if start < end]


class Gliad:
    """Args: hold_s: how long what was published is not announced."""

    def __init__(
        self, net: Internet, name: str, path: Path, nursery: trio.Nursery, hold_s: float = HOLD_S
    ) -> None:
        self.name, self._nursery = name, nursery
        signer = Signer(digest(name.encode()))
        self.peering = make_peering(path / name, Joined(net, name), accept="any", signer=signer)
        self.store = MemoryStore(256 * _MIB)
        self.memory = Memory(SharedMemory(name, _L1_BYTES, 0), self.store, hot_steps=4)
        self.counters = Counter[str]()
        files = ConversationFiles(path / name / "conversations")
        self.conversations = Conversations(files, ConversationsConfig())
        published = self.peering.published
        self.resolver = Resolver(
            self.memory, self.peering, hold_s, PIECE_TOKENS, self.counters, nursery,
            NoGroups(),  # type: ignore[arg-type]
            lambda _: None,
        )  # fmt: skip
        self.publisher = Publisher(
            self.memory, self.conversations, published, signer, trio.Lock(), hold_s,
            self.peering.counters, world_s,
        )  # fmt: skip
        self.egress = Egress(published, self.store)
        self._hearing = Hearing(self.peering, world_s)
        self._announcer = Announcer(
            self.peering, self._hearing, self.egress.has_window, lambda: [MODEL],
            random.Random(name), keep=lambda tip: self.store.touch([tip]), replicas=3,
            now_s=world_s,
        )  # fmt: skip
        self.conversations.on_change = self.publisher.wake
        self.publisher.on_publish = self._announcer.wake

    async def start(self) -> None:
        """Be on the network, until the nursery ends."""
        self.peering.serve(self.egress)
        await self._nursery.start(self.peering.run)
        for part in (
            self.memory.writer.run, self.publisher.run, self._announcer.run, self._hearing.run,
        ):  # fmt: skip
            self._nursery.start_soon(part)

    async def knows(self, *others: Gliad) -> None:
        for other in others:
            await self.peering.host.connect(other.peering.host.addresses()[0])

    async def matched(self, chain: Chain) -> int:
        """How many of its windows are here."""
        binding = Binding(chain.model_id, chain.profile, CLASS)
        return len(await self.memory.match(binding, chain.tokens))

    async def holds(self, chain: Chain) -> bool:
        """Whether every block of it is on disk soon, and is what a node that computes gets."""
        await trio.sleep(_WRITTEN_S)
        return all(
            self.store.has_block(name) and self.store.read_block(name) == data
            for name, data in chain.blocks()
        )

    async def answer(self, name: str, chain: Chain, labels: Sequence[Label]) -> Answered:
        """A prompt of its tokens: what peers have of it is fetched, the rest computed, and kept."""
        began_s, num_here = trio.current_time(), await self.matched(chain)
        call = _call(name, chain, labels)
        async with open_turn(self.conversations, call) as turn:
            turn.accept(_attach(chain))
            binding = Binding(chain.model_id, chain.profile, CLASS)
            prompt = Prompt([*chain.tokens, 0], turn.num_public, False)
            resolved = await self.resolver.resolve(binding, prompt, lambda *_: None)
            engine = ScriptedEngine(self, chain, resolved)
            await engine.answer()
            took_s = trio.current_time() - began_s
            await resolved.end()
            await turn.commit(_generated(call, chain))
        num = len(chain.records) - num_here - engine.num_computed
        value = resolved.value()
        num_blocks = sum(source.blocks for source in value.sources)
        return Answered(took_s, num_here, num, engine.num_computed, num_blocks, value.why)

    def close(self) -> None:
        self.peering.published.close()
        self.peering.heard.close()


def _call(name: str, chain: Chain, labels: Sequence[Label]) -> m.Generate:
    said = [values.MessageValue("user", None, *label) for label in labels]
    return m.Generate(
        id=1, model="echo", dtype=None, tokens=list(chain.tokens), max_tokens=16,
        sampling=values.SamplingValue(), stop_tokens=[], stop=[],
        turn=values.TurnValue(name, 0, said, None),
    )  # fmt: skip


def _attach(chain: Chain) -> m.Attach:
    size = chain.profile.block_size
    profile = values.ProfileValue(size, 1, 1, [])
    return m.Attach(1, chain.model_id, profile, CLASS, serves="echo", dtype="float32")


def _generated(call: m.Generate, chain: Chain) -> m.Generated:
    num = len(call.tokens)
    usage = values.UsageValue(num, 1, values.CachedValue(), num)
    return m.Generated(call.id, [0], "length", chain.tip, usage, 1.0, {})


class Neighbourhood:
    """Gliads that are made one after the other, each connected to all that came before."""

    def __init__(self, net: Internet, path: Path, nursery: trio.Nursery) -> None:
        self.net, self._path, self._nursery = net, path, nursery
        self.gliads: list[Gliad] = []

    async def add(self, name: str, hold_s: float = HOLD_S) -> Gliad:
        """A new one, on the network."""
        made = Gliad(self.net, name, self._path, self._nursery, hold_s)
        await made.start()
        await made.knows(*self.gliads)
        self.gliads.append(made)
        return made


def in_neighbourhood(
    seed: int,
    main: Callable[[Neighbourhood], Awaitable[T]],
    link: Link | None = None,
) -> T:
    """On a world of its own, until `main` has ended: the same for the same seed."""

    async def run(path: Path) -> T:
        async with trio.open_nursery() as nursery:
            net = Internet(nursery, seed, link or published_roads(seed))
            world = Neighbourhood(net, path, nursery)
            ended = await main(world)
            nursery.cancel_scope.cancel()
        for gliad in world.gliads:
            gliad.close()
        return ended

    with TemporaryDirectory(prefix="gliad-world-") as directory, of_seed(seed):
        return simulate(run, Path(directory), seed=seed)
